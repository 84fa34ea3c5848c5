//! JSON that another program wrote.
//!
//! Programs cut texts in the middle of a character, and write the half that is left as a lone surrogate. No text of Rust can hold it. It is
//! read as U+FFFD, as bytes are that are no UTF-8, so that the rest of the line is not lost.

use serde_json::Value;

/// Reads a value. A lone surrogate and bytes that are no UTF-8 become U+FFFD.
///
/// # Errors
/// It is no JSON for another reason.
pub fn from_slice(bytes: &[u8]) -> serde_json::Result<Value> {
    serde_json::from_slice(bytes).or_else(|error| serde_json::from_str(&repaired(&String::from_utf8_lossy(bytes))).map_err(|_| error))
}

/// As [`from_slice`].
///
/// # Errors
/// As [`from_slice`].
pub fn from_str(text: &str) -> serde_json::Result<Value> {
    from_slice(text.as_bytes())
}

/// The text with `\ufffd` for each lone surrogate.
fn repaired(text: &str) -> String {
    let (mut repaired, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find('\\') {
        repaired.push_str(&rest[..at]);
        rest = &rest[at..];
        let escape = match (unit(rest), unit(rest.get(6..).unwrap_or_default())) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => {
                repaired.push_str("\\ufffd");
                rest = &rest[6..];
                continue;
            }
            (Some(_), _) => 6,
            // The character after the backslash is not looked at again.
            (None, _) => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
        };
        repaired.push_str(&rest[..escape]);
        rest = &rest[escape..];
    }
    repaired + rest
}

/// The number of an escape like `\ud83d` at the start of the text.
fn unit(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    digits.bytes().all(|digit| digit.is_ascii_hexdigit()).then(|| u16::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lone_surrogates_are_read_as_the_replacement_character_and_pairs_stay() {
        for (text, read) in [
            (r#""half \ud83d""#, "half \u{fffd}"),
            (r#""\ud83d\ude00 \uDE00 \ud83dx""#, "\u{1f600} \u{fffd} \u{fffd}x"),
            (r#""\ud83d\ud83d\ude00""#, "\u{fffd}\u{1f600}"),
            (r#""\\ud83d \n \u00e4\ud83d""#, "\\ud83d \n \u{e4}\u{fffd}"),
            (r#""plain \" \ud83d\\""#, "plain \" \u{fffd}\\"),
        ] {
            assert_eq!(from_str(text).unwrap(), Value::String(read.to_owned()), "{text}");
        }
        assert_eq!(from_slice(b"\"a\xffb\"").unwrap(), Value::String("a\u{fffd}b".to_owned()));
        for text in ["", "{", r#""\ud83d"#, r#""\ud8""#, r#""\"#] {
            assert!(from_str(text).is_err(), "{text}");
        }
    }
}
