//! Output of a bounded size. It keeps head and tail, because the end of a build log often says what failed.

use std::collections::VecDeque;

/// The beginning and the end of a text of any length.
#[derive(Debug)]
pub struct BoundedOutput {
    head: String,
    tail: VecDeque<u8>,
    half: usize,
    total: u64,
    /// The head has all that fits.
    head_full: bool,
}

impl BoundedOutput {
    /// At most `limit` bytes are kept.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { head: String::new(), tail: VecDeque::new(), half: limit / 2, total: 0, head_full: false }
    }

    /// Adds the next piece.
    pub fn push(&mut self, text: &str) {
        self.total += text.len() as u64;
        let room = if self.head_full { 0 } else { text.floor_char_boundary((self.half - self.head.len()).min(text.len())) };
        self.head.push_str(&text[..room]);
        let rest = &text.as_bytes()[room..];
        // What comes after a part that did not fit belongs to the tail.
        self.head_full |= !rest.is_empty();
        let rest = &rest[rest.len().saturating_sub(self.half)..];
        let over = (self.tail.len() + rest.len()).saturating_sub(self.half);
        self.tail.drain(..over);
        self.tail.extend(rest);
    }

    /// Head and tail, and between them how much of how much was left out.
    #[must_use]
    pub fn into_text(mut self) -> String {
        let tail = self.tail.make_contiguous();
        // The oldest bytes are gone, perhaps in the middle of a character.
        let begin = tail.iter().position(|byte| !is_continuation(*byte)).unwrap_or(tail.len());
        let tail = String::from_utf8_lossy(&tail[begin..]);
        let left_out = self.total - (self.head.len() + tail.len()) as u64;
        let notice = if left_out == 0 { String::new() } else { omission_notice(left_out, self.total) };
        self.head + &notice + &tail
    }
}

fn is_continuation(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

fn omission_notice(left_out: u64, total: u64) -> String {
    format!("\n[... {left_out} of {total} bytes left out ...]\n")
}

/// Returns `text` in at most `limit` bytes, with head and tail, and says how much of how much was left out.
#[must_use]
pub fn truncate(text: String, limit: usize) -> String {
    if text.len() <= limit {
        return text;
    }
    let total = text.len() as u64;
    let room = limit.saturating_sub(omission_notice(total, total).len());
    let head = text.floor_char_boundary(room / 2);
    let tail = text.ceil_char_boundary(text.len() - room / 2);
    let cut = format!("{}{}{}", &text[..head], omission_notice((tail - head) as u64, total), &text[tail..]);
    let end = cut.floor_char_boundary(limit);
    cut[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_within_the_limit_is_kept_whole() {
        let mut output = BoundedOutput::new(10);
        for character in "0123456789".chars() {
            output.push(&character.to_string());
        }
        assert_eq!(output.into_text(), "0123456789");
        let mut output = BoundedOutput::new(14);
        for character in "äöü€üö".chars() {
            output.push(&character.to_string());
        }
        assert_eq!(output.into_text(), "äöü€üö");
        assert_eq!(truncate("äöü".to_owned(), 6), "äöü");
    }

    #[test]
    fn p26_output_over_the_limit_keeps_head_and_tail_and_tells_its_true_length() {
        for pieces in [vec![1000], vec![3; 400], vec![5, 1, 900, 2, 7]] {
            let mut output = BoundedOutput::new(10);
            let total = pieces.iter().sum::<usize>();
            let text: String = (0..total).map(|n| char::from(b'a' + u8::try_from(n % 26).unwrap())).collect();
            let mut at = 0;
            for piece in pieces {
                output.push(&text[at..at + piece]);
                at += piece;
            }
            assert_eq!(output.into_text(), format!("abcde\n[... {} of {total} bytes left out ...]\n{}", total - 10, &text[total - 5..]));
        }
    }

    #[test]
    fn a_cut_is_never_within_a_character() {
        for limit in 0..40 {
            for piece in [1, 2, 7, 100] {
                let mut output = BoundedOutput::new(limit);
                let text = "aä€🙂".repeat(50);
                let characters: Vec<char> = text.chars().collect();
                for piece in characters.chunks(piece) {
                    output.push(&piece.iter().collect::<String>());
                }
                let kept = output.into_text();
                assert!(!kept.contains('\u{fffd}') && kept.len() <= limit + omission_notice(500, 500).len(), "{limit}: {kept}");
                let (head, tail) = (kept.split("\n[").next().unwrap(), kept.split("]\n").last().unwrap());
                assert!(text.starts_with(head) && text.ends_with(tail), "{kept}");
            }
        }
    }

    #[test]
    fn no_text_is_longer_than_its_limit() {
        let long = "äöü€🙂x".repeat(500);
        for limit in [0, 1, 10, 40, 41, 100, 1000, 4096] {
            let cut = truncate(long.clone(), limit);
            assert!(cut.len() <= limit, "{} for {limit}", cut.len());
        }
        assert!(truncate(long.clone(), 1000).starts_with("äöü"));
        assert!(truncate(long, 1000).contains(" of 7000 bytes left out"));
    }
}
