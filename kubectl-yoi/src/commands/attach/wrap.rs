//! Breaks text into lines of a width.

use unicode_width::UnicodeWidthChar;

use crate::show;

/// Columns of a tab.
const TAB: &str = "    ";

/// Returns the lines of a text that others may have written, each of at most `width` columns. Words stay whole where they can.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let text = show::visible(text).replace('\t', TAB);
    text.split('\n').flat_map(|line| wrap_line(line, width.max(2))).collect()
}

fn wrap_line(line: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut current, mut columns) = (String::new(), 0);
    for word in line.split_inclusive(' ') {
        let shown = columns_of(word.trim_end_matches(' '));
        if columns > 0 && columns + shown > width && shown <= width {
            lines.push(std::mem::take(&mut current).trim_end().to_owned());
            columns = 0;
        }
        for c in word.chars() {
            let wide = c.width().unwrap_or(0);
            if columns + wide > width {
                // A space that no longer fits ends the line.
                if c == ' ' {
                    continue;
                }
                lines.push(std::mem::take(&mut current).trim_end().to_owned());
                columns = 0;
            }
            current.push(c);
            columns += wide;
        }
    }
    lines.push(current.trim_end().to_owned());
    lines
}

/// Columns that a text takes.
pub fn columns_of(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// Returns at most `width` columns of a text; a longer one ends in `…`.
pub fn clipped(text: &str, width: usize) -> String {
    let text = show::one_line(text);
    if columns_of(&text) <= width {
        return text;
    }
    let (mut out, mut columns) = (String::new(), 1);
    for c in text.chars() {
        columns += c.width().unwrap_or(0);
        if columns > width {
            break;
        }
        out.push(c);
    }
    out + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_whole_and_wide_letters_count_twice() {
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap("a\n\n  b", 8), ["a", "", "  b"]);
        assert_eq!(wrap("abcdefghij kl", 4), ["abcd", "efgh", "ij", "kl"]);
        assert_eq!(wrap("例え例え", 5), ["例え", "例え"]);
        assert_eq!(wrap("x\x1b[2J\ty", 20), ["x^[[2J    y"]);
        assert_eq!(clipped("one two three", 8), "one two…");
        assert_eq!(clipped("one", 3), "one");
    }
}
