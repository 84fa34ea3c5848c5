//! Lines of a program's output, in bounded memory.

use std::collections::VecDeque;

/// Bytes of a line. The rest of a longer one is dropped.
pub const MAX_LINE_BYTES: usize = 1 << 20;
const CUT_MARK: &[u8] = b" [the line was cut at 1 MiB]";

/// Cuts a stream of bytes into lines.
#[derive(Debug, Default)]
pub struct Lines {
    line: Vec<u8>,
    cut: bool,
}

impl Lines {
    /// Adds the next bytes, and passes each line that they end to `take`, without its newline.
    pub fn push(&mut self, mut bytes: &[u8], mut take: impl FnMut(&[u8])) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.add(&bytes[..end]);
            self.end(&mut take);
            bytes = &bytes[end + 1..];
        }
        self.add(bytes);
    }

    /// The last line, which no newline ends.
    pub fn finish(&mut self, mut take: impl FnMut(&[u8])) {
        if !self.line.is_empty() {
            self.end(&mut take);
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        let room = MAX_LINE_BYTES - self.line.len().min(MAX_LINE_BYTES);
        self.cut |= bytes.len() > room;
        self.line.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn end(&mut self, take: &mut impl FnMut(&[u8])) {
        if std::mem::take(&mut self.cut) {
            self.line.extend_from_slice(CUT_MARK);
        }
        take(&self.line);
        self.line.clear();
    }
}

/// The last bytes of a stream.
#[derive(Debug)]
pub struct Tail {
    bytes: VecDeque<u8>,
    limit: usize,
}

impl Tail {
    /// Keeps at most `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { bytes: VecDeque::new(), limit }
    }

    /// Adds the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(self.limit)..];
        let over = (self.bytes.len() + bytes.len()).saturating_sub(self.limit);
        self.bytes.drain(..over);
        self.bytes.extend(bytes);
    }

    /// As text for people: lines that say something, without control characters.
    #[must_use]
    pub fn words(&mut self) -> String {
        let text = String::from_utf8_lossy(self.bytes.make_contiguous()).into_owned();
        let words = |line: &str| {
            let words: Vec<&str> =
                line.split(|letter: char| letter.is_whitespace() || letter.is_control()).filter(|word| !word.is_empty()).collect();
            words.join(" ")
        };
        let lines: Vec<String> = text.split(['\n', '\r']).map(words).filter(|line| !line.is_empty()).collect();
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_the_same_however_the_stream_is_cut() {
        let stream = b"one\n\ntwo\nthree";
        for size in 1..stream.len() {
            let (mut lines, mut all) = (Lines::default(), Vec::new());
            for part in stream.chunks(size) {
                lines.push(part, |line| all.push(line.to_vec()));
            }
            lines.finish(|line| all.push(line.to_vec()));
            assert_eq!(all, [&b"one"[..], b"", b"two", b"three"], "{size}");
        }
    }

    #[test]
    fn a_stream_without_a_newline_takes_bounded_memory_and_its_line_says_that_it_was_cut() {
        let (mut lines, mut all) = (Lines::default(), Vec::new());
        for _ in 0..100 {
            lines.push(&[b'x'; 64 << 10], |line| all.push(line.to_vec()));
        }
        lines.push(b"\nnext\n", |line| all.push(line.to_vec()));
        assert!(all[0].len() == MAX_LINE_BYTES + CUT_MARK.len() && all[0].ends_with(CUT_MARK));
        assert_eq!(all[1], b"next");
    }
}
