//! Text that others wrote, made safe for a terminal, and figures for people.

/// Replaces what a terminal would obey by what can be seen, as `cat -v` does: `^[` for an escape, `<U+202E>` for a letter that turns the line
/// around. Newlines and tabs stay.
pub fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => out.push(c),
            c if is_hidden(c) => out.push_str(&mark(c)),
            c => out.push(c),
        }
    }
    out
}

/// As [`visible`], in one line: a table's cell, or a message behind its reason.
pub fn one_line(text: &str) -> String {
    visible(&text.split(['\n', '\t', '\r']).map(str::trim_end).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" "))
}

/// A letter that is not seen and that changes how others are seen.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

fn mark(c: char) -> String {
    match c {
        '\0'..='\x1f' => format!("^{}", char::from(c as u8 + b'@')),
        '\x7f' => "^?".to_owned(),
        c => format!("<U+{:04X}>", c as u32),
    }
}

/// Returns a path as git prints it with `core.quotePath=false`: between quotes and with escapes when it holds a quote, a backslash or a letter that
/// is not seen.
pub fn quoted_path(path: &str) -> String {
    if !path.chars().any(|c| c == '"' || c == '\\' || is_hidden(c)) {
        return path.to_owned();
    }
    let mut out = String::from("\"");
    for c in path.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\x0b' => out.push_str("\\v"),
            '\x0c' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            c if is_hidden(c) => out.extend(c.encode_utf8(&mut [0; 4]).bytes().map(|byte| format!("\\{byte:03o}"))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// As [`quoted_path`], for what need not be text: bytes that are not UTF-8 are shown in octal.
pub fn quoted_path_bytes(path: &[u8]) -> String {
    if let Ok(text) = std::str::from_utf8(path) {
        return quoted_path(text);
    }
    let inner = |text: &str| {
        let quoted = quoted_path(text);
        quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).map_or(quoted.clone(), str::to_owned)
    };
    let parts = path.utf8_chunks().map(|chunk| {
        let octal: String = chunk.invalid().iter().map(|byte| format!("\\{byte:03o}")).collect();
        inner(chunk.valid()) + &octal
    });
    format!("\"{}\"", parts.collect::<String>())
}

/// Returns at most `most` letters of a text; a longer one ends in `…`.
pub fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_and_letters_that_turn_a_line_are_shown_as_marks() {
        assert_eq!(visible("a\x1b[2J\tb\nc\r\u{9b}1m\x7f"), "a^[[2J\tb\nc^M<U+009B>1m^?");
        assert_eq!(visible("x\u{202e}gpj.exe\u{200b}"), "x<U+202E>gpj.exe<U+200B>");
        assert_eq!(one_line("a\n  next: rm -rf /\r\nb\t"), "a   next: rm -rf / b");
    }

    #[test]
    fn a_path_is_quoted_as_git_quotes_it() {
        for (path, quoted) in [
            ("src/main.rs", "src/main.rs"),
            ("with space", "with space"),
            ("odd\nD\tsrc", r#""odd\nD\tsrc""#),
            ("a\"b\\c", r#""a\"b\\c""#),
            ("\x1b]0;x\x07", r#""\033]0;x\a""#),
            ("grün", "grün"),
            ("a\u{202e}b", r#""a\342\200\256b""#),
        ] {
            assert_eq!(quoted_path(path), quoted);
        }
    }
}
