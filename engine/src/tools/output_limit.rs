//! Output of a bounded size. It keeps head and tail, because the end of a build log often says what failed.

use std::collections::VecDeque;

/// The first and the last bytes of a stream of any length.
#[derive(Debug)]
pub struct BoundedOutput {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    half: usize,
    total: u64,
}

impl BoundedOutput {
    /// At most `limit` bytes are kept.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { head: Vec::new(), tail: VecDeque::new(), half: limit / 2, total: 0 }
    }

    /// Adds the next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = (self.half - self.head.len()).min(bytes.len());
        self.head.extend_from_slice(&bytes[..room]);
        let rest = &bytes[room..];
        let rest = &rest[rest.len().saturating_sub(self.half)..];
        let over = (self.tail.len() + rest.len()).saturating_sub(self.half);
        self.tail.drain(..over);
        self.tail.extend(rest);
    }

    /// The output as text. Bytes that are not UTF-8 become U+FFFD.
    #[must_use]
    pub fn into_text(mut self) -> String {
        let left_out = self.total - (self.head.len() + self.tail.len()) as u64;
        let tail = self.tail.make_contiguous();
        if left_out == 0 {
            self.head.extend_from_slice(tail);
            return String::from_utf8_lossy(&self.head).into_owned();
        }
        format!("{}{}{}", String::from_utf8_lossy(&self.head), omission_notice(left_out), String::from_utf8_lossy(tail))
    }
}

fn omission_notice(left_out: u64) -> String {
    format!("\n[... {left_out} bytes left out ...]\n")
}

/// Returns `text` in at most `limit` bytes, with head and tail.
#[must_use]
pub fn truncate(text: String, limit: usize) -> String {
    if text.len() <= limit {
        return text;
    }
    let room = limit.saturating_sub(omission_notice(text.len() as u64).len());
    let head = text.floor_char_boundary(room / 2);
    let tail = text.ceil_char_boundary(text.len() - room / 2);
    let cut = format!("{}{}{}", &text[..head], omission_notice((tail - head) as u64), &text[tail..]);
    let end = cut.floor_char_boundary(limit);
    cut[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_within_the_limit_is_kept_whole() {
        let mut output = BoundedOutput::new(10);
        for byte in b"0123456789" {
            output.push(&[*byte]);
        }
        assert_eq!(output.into_text(), "0123456789");
        assert_eq!(truncate("äöü".to_owned(), 6), "äöü");
    }

    #[test]
    fn output_over_the_limit_keeps_head_and_tail() {
        for pieces in [vec![1000], vec![3; 400], vec![5, 1, 900, 2, 7]] {
            let mut output = BoundedOutput::new(10);
            let bytes: Vec<u8> = (0..pieces.iter().sum::<usize>()).map(|n| b'a' + (n % 26) as u8).collect();
            let mut at = 0;
            for piece in pieces {
                output.push(&bytes[at..at + piece]);
                at += piece;
            }
            let tail = String::from_utf8_lossy(&bytes[bytes.len() - 5..]).into_owned();
            assert_eq!(output.into_text(), format!("abcde\n[... {} bytes left out ...]\n{tail}", bytes.len() - 10));
        }
    }

    #[test]
    fn no_text_is_longer_than_its_limit() {
        let long = "äöü€🙂x".repeat(500);
        for limit in [0, 1, 10, 40, 41, 100, 1000, 4096] {
            let cut = truncate(long.clone(), limit);
            assert!(cut.len() <= limit, "{} for {limit}", cut.len());
        }
        assert!(truncate(long, 1000).starts_with("äöü"));
    }
}
