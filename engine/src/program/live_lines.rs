//! What a program writes to its two streams, line by line while it runs, for programs whose output is no lines of JSON.

use std::time::Duration;

use tokio::time::Instant;

use super::event::{OutputStream, ProgramEvent};
use super::lines::Lines;

/// Bytes of lines of one run. The answer has head and tail of what the program wrote.
const MAX_BYTES: usize = 8 << 20;
/// Bytes of lines that are logged at once.
const MAX_PENDING_BYTES: usize = 32 << 10;
/// How long a line may wait for others, so that many lines are one entry.
const MAX_WAIT: Duration = Duration::from_millis(500);
const CUT: &str = "[the log has no more lines of this run than these; its answer has the beginning and the end of the standard output]\n";

/// Gathers lines until they are logged.
#[derive(Debug, Default)]
pub(super) struct LiveLines {
    out: Lines,
    err: Lines,
    pending: Vec<(OutputStream, String)>,
    pending_bytes: usize,
    /// Since when the oldest line waits.
    since: Option<Instant>,
    total: usize,
}

impl LiveLines {
    /// Takes the next bytes of a stream.
    pub fn push(&mut self, stream: OutputStream, bytes: &[u8]) {
        let mut lines = Vec::new();
        self.lines(stream).push(bytes, |line| lines.push(text_of(line)));
        lines.into_iter().for_each(|line| self.add(stream, line));
    }

    /// When the lines that wait have to be logged; `None` when there are none.
    pub fn due(&self) -> Option<Instant> {
        let since = self.since?;
        Some(if self.pending_bytes >= MAX_PENDING_BYTES { since } else { since + MAX_WAIT })
    }

    /// The lines that wait, in the order in which they came.
    pub fn take(&mut self) -> Vec<ProgramEvent> {
        (self.pending_bytes, self.since) = (0, None);
        std::mem::take(&mut self.pending).into_iter().map(|(stream, text)| ProgramEvent::Output { stream, text }).collect()
    }

    /// The lines that wait, and the last ones, which no newline ends.
    pub fn finish(&mut self) -> Vec<ProgramEvent> {
        for stream in [OutputStream::Stdout, OutputStream::Stderr] {
            let mut last = None;
            self.lines(stream).finish(|line| last = Some(text_of(line)));
            last.into_iter().for_each(|line| self.add(stream, line));
        }
        self.take()
    }

    fn lines(&mut self, stream: OutputStream) -> &mut Lines {
        match stream {
            OutputStream::Stdout => &mut self.out,
            OutputStream::Stderr => &mut self.err,
        }
    }

    fn add(&mut self, stream: OutputStream, line: String) {
        if self.total >= MAX_BYTES {
            return;
        }
        self.total += line.len();
        let line = if self.total >= MAX_BYTES { line + CUT } else { line };
        self.pending_bytes += line.len();
        self.since.get_or_insert_with(Instant::now);
        match self.pending.last_mut() {
            Some((last, text)) if *last == stream => text.push_str(&line),
            _ => self.pending.push((stream, line)),
        }
    }
}

fn text_of(line: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(line).into_owned();
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(events: Vec<ProgramEvent>) -> Vec<(OutputStream, String)> {
        let texts = events.into_iter().map(|event| match event {
            ProgramEvent::Output { stream, text } => (stream, text),
            other => panic!("{other:?}"),
        });
        texts.collect()
    }

    #[test]
    fn lines_come_in_their_order_and_half_a_line_waits_for_its_end() {
        let mut live = LiveLines::default();
        live.push(OutputStream::Stdout, b"one\ntw");
        live.push(OutputStream::Stderr, b"warning\n");
        live.push(OutputStream::Stdout, b"o\nthree\nlast");
        let line = |stream, text: &str| (stream, text.to_owned());
        assert!(live.due().is_some());
        let expected =
            [line(OutputStream::Stdout, "one\n"), line(OutputStream::Stderr, "warning\n"), line(OutputStream::Stdout, "two\nthree\n")];
        assert_eq!(texts(live.take()), expected);
        assert_eq!(live.due(), None);
        assert_eq!(texts(live.finish()), [line(OutputStream::Stdout, "last\n")]);
    }

    #[test]
    fn the_lines_of_a_run_are_bounded_and_the_last_one_says_so() {
        let mut live = LiveLines::default();
        let mut all = String::new();
        for _ in 0..20 {
            live.push(OutputStream::Stderr, &[&vec![b'x'; 1 << 19][..], b"\n"].concat());
            all.extend(texts(live.take()).into_iter().map(|(_, text)| text));
        }
        assert!(all.len() < MAX_BYTES + (1 << 20) && all.ends_with(CUT), "{}", all.len());
    }
}
