//! What a program wrote for a terminal, as plain text.

/// Bytes of a line that are held back because a carriage return may still replace them.
const MAX_LINE_BYTES: usize = 8 << 10;

/// Turns a program's output into plain text: no colours and no other escape sequences, only the last state of a line that was written over
/// again and again, and U+FFFD for what is not UTF-8. It takes the output in pieces of any size.
#[derive(Debug, Default)]
pub struct TerminalText {
    /// Bytes of a character that is not complete.
    partial: Vec<u8>,
    escape: Escape,
    /// The line that is being written.
    line: String,
    /// A carriage return came: what follows is written over the line.
    returned: bool,
    not_utf8: bool,
}

/// Where in an escape sequence the output stands (ECMA-48).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Escape {
    #[default]
    None,
    /// After ESC, and after its intermediate bytes.
    Started,
    /// In a control sequence, `ESC [ ... letter`.
    Control,
    /// In a string, such as a window's title. It ends with BEL or `ESC \`.
    String,
    /// After ESC in a string.
    StringEnd,
}

impl TerminalText {
    /// Takes the next bytes and adds the text that is certain by now to `text`.
    pub fn push(&mut self, bytes: &[u8], text: &mut String) {
        let joined;
        let bytes = if self.partial.is_empty() {
            bytes
        } else {
            joined = [&std::mem::take(&mut self.partial), bytes].concat();
            &joined
        };
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            self.take_all(chunk.valid(), text);
            let invalid = chunk.invalid();
            if invalid.is_empty() {
                continue;
            }
            // At the end of a piece, an incomplete character may go on in the next piece.
            if chunks.peek().is_none() && std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none()) {
                self.partial = invalid.to_vec();
            } else {
                self.not_utf8 = true;
                self.take(char::REPLACEMENT_CHARACTER, text);
            }
        }
    }

    /// Adds what was held back. What a carriage return would have replaced stays.
    pub fn flush(&mut self, text: &mut String) {
        text.push_str(&self.line);
        self.line.clear();
    }

    /// Adds what was held back at the end of the output.
    pub fn finish(&mut self, text: &mut String) {
        if !std::mem::take(&mut self.partial).is_empty() {
            self.not_utf8 = true;
            self.take(char::REPLACEMENT_CHARACTER, text);
        }
        self.flush(text);
    }

    /// Whether some of the output so far was not UTF-8.
    #[must_use]
    pub fn saw_other_than_utf8(&self) -> bool {
        self.not_utf8
    }

    /// Most output is plain, and is taken by whole runs: one by one, characters take several times as long.
    fn take_all(&mut self, mut rest: &str, text: &mut String) {
        while let Some(character) = rest.chars().next() {
            let plain = if self.escape == Escape::None { plain_prefix(rest) } else { 0 };
            if plain > 0 {
                self.add(&rest[..plain], text);
                rest = &rest[plain..];
            } else {
                self.take(character, text);
                rest = &rest[character.len_utf8()..];
            }
        }
    }

    fn take(&mut self, character: char, text: &mut String) {
        match self.escape {
            Escape::None => self.take_plain(character, text),
            Escape::Started => {
                self.escape = match character {
                    '[' => Escape::Control,
                    ']' | 'P' | 'X' | '^' | '_' => Escape::String,
                    '\x1b' | ' '..='/' => Escape::Started,
                    _ => Escape::None,
                }
            }
            Escape::Control => match character {
                // "Erase in line", as progress bars do after a carriage return.
                'K' => {
                    if self.returned {
                        self.line.clear();
                    }
                    self.escape = Escape::None;
                }
                '@'..='~' => self.escape = Escape::None,
                '\x1b' => self.escape = Escape::Started,
                // A sequence that is none must not swallow lines.
                '\n' => {
                    self.escape = Escape::None;
                    self.take_plain(character, text);
                }
                _ => {}
            },
            Escape::String => match character {
                '\x07' | '\u{9c}' => self.escape = Escape::None,
                '\x1b' => self.escape = Escape::StringEnd,
                '\n' => {
                    self.escape = Escape::None;
                    self.take_plain(character, text);
                }
                _ => {}
            },
            Escape::StringEnd => {
                self.escape = match character {
                    '\\' => Escape::None,
                    '\x1b' => Escape::StringEnd,
                    _ => Escape::String,
                }
            }
        }
    }

    fn take_plain(&mut self, character: char, text: &mut String) {
        match character {
            '\n' => {
                self.returned = false;
                self.line.push('\n');
                self.flush(text);
            }
            '\r' => self.returned = true,
            '\x1b' => self.escape = Escape::Started,
            '\u{9b}' => self.escape = Escape::Control,
            // Overstrike, as in manual pages.
            '\x08' => {
                self.line.pop();
            }
            '\0' => self.add("\u{2400}", text),
            '\t' => self.add("\t", text),
            character if character.is_control() => {}
            character => self.add(character.encode_utf8(&mut [0; 4]), text),
        }
    }

    fn add(&mut self, mut characters: &str, text: &mut String) {
        if std::mem::take(&mut self.returned) {
            self.line.clear();
        }
        while !characters.is_empty() {
            // As if they came one by one.
            let fits = characters.ceil_char_boundary(MAX_LINE_BYTES - self.line.len());
            self.line.push_str(&characters[..fits]);
            characters = &characters[fits..];
            if self.line.len() >= MAX_LINE_BYTES {
                self.flush(text);
            }
        }
    }
}

/// Bytes of the text up to the first control character. The second byte of U+0080 to U+009F comes after 0xC2, as that of some plain ones does.
fn plain_prefix(text: &str) -> usize {
    text.bytes().position(|byte| byte < b' ' || byte == 0x7f || byte == 0xc2).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(bytes: &[u8]) -> String {
        let whole = {
            let (mut terminal, mut text) = (TerminalText::default(), String::new());
            terminal.push(bytes, &mut text);
            terminal.finish(&mut text);
            text
        };
        let (mut terminal, mut text) = (TerminalText::default(), String::new());
        for byte in bytes {
            terminal.push(&[*byte], &mut text);
        }
        terminal.finish(&mut text);
        assert_eq!(text, whole, "the size of the pieces makes a difference");
        whole
    }

    #[test]
    fn colours_titles_and_other_escape_sequences_are_gone() {
        assert_eq!(plain(b"\x1b[1;31merror\x1b[0m: no\n"), "error: no\n");
        assert_eq!(plain(b"\x1b]0;a title\x07one\x1b]8;;http://x\x1b\\two\x1b]8;;\x1b\\\x1b(B.\x1b7\n"), "onetwo.\n");
        assert_eq!(plain("\u{9b}31mred\u{9b}m \x07\x7fbell".as_bytes()), "red bell");
        assert_eq!(plain(b"N\x08NA\x08AME\x08E"), "NAME");
        assert_eq!(plain(b"\x1b[31\nnot swallowed\n\x1b]title without end\nnor this"), "\nnot swallowed\n\nnor this");
        assert_eq!(plain(b"a\0b\tc"), "a\u{2400}b\tc");
        assert_eq!(plain("£1 \u{85}£2".as_bytes()), "£1 £2");
    }

    #[test]
    fn of_a_line_that_is_written_over_the_last_state_is_left() {
        assert_eq!(plain(b" 10%\r 50%\r100%\ndone\n"), "100%\ndone\n");
        assert_eq!(plain(b"a line of DOS\r\nand one more\r\r\n"), "a line of DOS\nand one more\n");
        assert_eq!(plain(b"working...\r\x1b[Kdone\nworking...\r\x1b[K\nend"), "done\n\nend");
        assert_eq!(plain(b"the last state\r"), "the last state");
        // Longer than what is held back, with characters of two bytes across the bound.
        let long = ["x".to_owned(), "ü".repeat(5000), "\rend".to_owned()].concat();
        assert_eq!(plain(long.as_bytes()), format!("x{}end", "ü".repeat(4096)));
    }

    #[test]
    fn what_is_not_utf_8_is_shown_as_such_and_noted() {
        let told = |bytes: &[u8]| {
            let (mut terminal, mut text) = (TerminalText::default(), String::new());
            terminal.push(bytes, &mut text);
            terminal.finish(&mut text);
            (text, terminal.saw_other_than_utf8())
        };
        assert_eq!(told("grün €🙂\u{fffd}".as_bytes()), ("grün €🙂\u{fffd}".to_owned(), false));
        assert_eq!(told(b"gr\xfcn"), ("gr\u{fffd}n".to_owned(), true));
        assert_eq!(told(b"cut \xe2\x82"), ("cut \u{fffd}".to_owned(), true));
        assert_eq!(plain("grün €🙂".as_bytes()), "grün €🙂");
        assert_eq!(plain(b"\xff\xfe\xe2\x82x"), "\u{fffd}\u{fffd}\u{fffd}x");
    }

    #[test]
    fn a_line_without_end_is_not_held_back_for_ever() {
        let (mut terminal, mut text) = (TerminalText::default(), String::new());
        for _ in 0..1000 {
            terminal.push(&[b'x'; 100], &mut text);
            assert!(terminal.line.len() <= MAX_LINE_BYTES);
        }
        terminal.finish(&mut text);
        assert_eq!(text.len(), 100_000);
    }
}
