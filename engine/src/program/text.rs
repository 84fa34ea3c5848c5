//! All of the standard output is one answer.

use yoi_wire::entry::Assistant;

use super::event::{OutputParser, ProgramEvent};
use crate::tools::output_limit::BoundedOutput;

/// Bytes of an answer. Of a longer one head and tail are kept.
const MAX_ANSWER_BYTES: usize = 256 << 10;

/// Takes the output as the answer.
#[derive(Debug)]
pub struct TextParser {
    text: BoundedOutput,
    other_than_utf8: bool,
}

impl Default for TextParser {
    fn default() -> Self {
        Self { text: BoundedOutput::new(MAX_ANSWER_BYTES), other_than_utf8: false }
    }
}

impl OutputParser for TextParser {
    fn push_line(&mut self, line: &[u8]) -> Vec<ProgramEvent> {
        let mut text = String::from_utf8_lossy(line).into_owned();
        self.other_than_utf8 |= text.len() != line.len();
        text.push('\n');
        self.text.push(&text);
        // The lines themselves are logged as they come, with those of standard error.
        Vec::new()
    }

    fn finish(&mut self) -> Vec<ProgramEvent> {
        let text = std::mem::replace(&mut self.text, BoundedOutput::new(MAX_ANSWER_BYTES)).into_text();
        let mut text = text.trim_end_matches('\n').to_owned();
        if self.other_than_utf8 {
            text.push_str("\n[some of it is not UTF-8 and stands here as \u{fffd}]");
        }
        vec![ProgramEvent::Answer(Assistant { text, ..Assistant::default() })]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(lines: &[&[u8]]) -> String {
        let mut parser = TextParser::default();
        for line in lines {
            parser.push_line(line);
        }
        match parser.finish().remove(0) {
            ProgramEvent::Answer(answer) => answer.text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn all_lines_are_one_answer() {
        assert_eq!(answer(&[b"one", b"", b"two"]), "one\n\ntwo");
        assert_eq!(answer(&[]), "");
        assert!(answer(&[b"\xff"]).contains("not UTF-8"));
    }

    #[test]
    fn a_long_answer_keeps_head_and_tail() {
        let line = vec![b'x'; 1 << 20];
        let text = answer(&[b"first", &line, b"last"]);
        assert!(text.len() < MAX_ANSWER_BYTES + 100 && text.starts_with("first\n") && text.ends_with("last"));
        assert!(text.contains("bytes left out"));
    }
}
