//! The text that a person is writing.

/// A text and the place in it where the next letter goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InputLine {
    text: String,
    /// In bytes, between two letters.
    cursor: usize,
}

impl InputLine {
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text before the cursor.
    pub fn before(&self) -> &str {
        self.text.get(..self.cursor).unwrap_or_default()
    }

    pub fn insert(&mut self, text: &str) {
        self.text.insert_str(self.cursor, text);
        self.cursor += text.len();
    }

    /// Puts a text back before what has been written since.
    pub fn put_back(&mut self, text: &str) {
        let gap = if self.text.is_empty() { "" } else { "\n" };
        self.text = format!("{text}{gap}{}", self.text);
        self.cursor = self.text.len();
    }

    pub fn take(&mut self) -> String {
        self.cursor = 0;
        std::mem::take(&mut self.text)
    }

    pub fn left(&mut self) {
        self.cursor -= self.previous_len();
    }

    pub fn right(&mut self) {
        self.cursor += self.next_len();
    }

    pub fn home(&mut self) {
        self.cursor = self.before().rfind('\n').map_or(0, |at| at + 1);
    }

    pub fn end(&mut self) {
        let rest = self.text.get(self.cursor..).unwrap_or_default();
        self.cursor += rest.find('\n').unwrap_or(rest.len());
    }

    pub fn backspace(&mut self) {
        let length = self.previous_len();
        self.cursor -= length;
        self.text.replace_range(self.cursor..self.cursor + length, "");
    }

    pub fn delete(&mut self) {
        let length = self.next_len();
        self.text.replace_range(self.cursor..self.cursor + length, "");
    }

    fn previous_len(&self) -> usize {
        self.before().chars().next_back().map_or(0, char::len_utf8)
    }

    fn next_len(&self) -> usize {
        self.text.get(self.cursor..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_written_and_mended_letter_by_letter() {
        let mut input = InputLine::default();
        input.insert("grün");
        input.left();
        input.backspace();
        input.insert("ee");
        assert_eq!((input.text(), input.before()), ("green", "gree"));
        input.home();
        input.delete();
        input.right();
        input.left();
        input.left();
        input.backspace();
        assert_eq!((input.text(), input.before()), ("reen", ""));
        input.end();
        input.right();
        input.delete();
        input.insert("\nx");
        input.home();
        assert_eq!(input.before(), "reen\n");
        input.put_back("again");
        assert_eq!(input.take(), "again\nreen\nx");
        assert!(input.text().is_empty() && input.before().is_empty());
    }
}
