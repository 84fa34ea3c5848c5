//! One record on one line, and how to tell that it is whole.
//!
//! A line is a JSON object, without raw newlines or NULs, whose first member is its checksum:
//! ```text
//! {"crc":"9ae0daaf","batch":17,"id":"...","seq":17, ...}
//! ```
//! `crc` is the CRC-32C (Castagnoli) of the bytes of the line from the 19th on, that is everything after the comma that follows the
//! checksum, the closing brace included and the newline not, in eight lower-case hexadecimal digits. Any JSON tool reads the line as it
//! stands, and nothing has to be parsed to check it.

use serde::{Serialize, de::DeserializeOwned};

use crate::error::Damage;

const OPEN: &[u8] = b"{\"crc\":\"";
const CLOSE: &[u8] = b"\",";
/// Length of `{"crc":"xxxxxxxx",`.
const HEAD: usize = 18;

/// Appends `record` to `out` as a framed line, newline included. `record` has to serialize as an object with at least one member.
///
/// # Errors
/// The record does not serialize; `out` is as before.
pub fn encode<T: Serialize>(record: &T, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
    let start = out.len();
    out.extend_from_slice(OPEN);
    out.extend_from_slice(b"00000000\"");
    // The record's own opening brace lands where the comma belongs.
    let body = out.len();
    if let Err(error) = serde_json::to_writer(&mut *out, record) {
        out.truncate(start);
        return Err(error);
    }
    debug_assert!(out[body] == b'{' && out.len() > body + 2, "a record is an object with members");
    out[body] = b',';
    let sum = digits(&out[start + HEAD..]);
    out[start + OPEN.len()..start + OPEN.len() + 8].copy_from_slice(&sum);
    out.push(b'\n');
    Ok(())
}

/// Checks a line, given without its newline.
///
/// # Errors
/// It does not begin with a checksum, or not with its own.
pub fn verify(line: &[u8]) -> Result<(), Damage> {
    if line.len() <= HEAD || !line.starts_with(OPEN) || &line[HEAD - CLOSE.len()..HEAD] != CLOSE {
        return Err(Damage::Frame);
    }
    // Compared as text, so that no second spelling of the same number passes.
    if line[OPEN.len()..OPEN.len() + 8] == digits(&line[HEAD..]) { Ok(()) } else { Err(Damage::Checksum) }
}

/// Checks a line, given without its newline, and reads the record.
///
/// # Errors
/// As [`verify`], or the record is not a `T`.
pub fn decode<T: DeserializeOwned>(line: &[u8]) -> Result<T, Damage> {
    verify(line)?;
    parse(line)
}

/// Reads the record of a line that has been checked.
pub(crate) fn parse<T: DeserializeOwned>(line: &[u8]) -> Result<T, Damage> {
    serde_json::from_slice(line).map_err(|error| Damage::Content(error.to_string()))
}

fn digits(bytes: &[u8]) -> [u8; 8] {
    let mut text = [0; 8];
    let sum = crc32c::crc32c(bytes);
    for (place, digit) in text.iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(sum >> (28 - 4 * place) & 15) as usize];
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_checksum_is_castagnoli_over_what_follows_it() {
        let mut line = Vec::new();
        encode(&json!({ "a": 1 }), &mut line).unwrap();
        assert_eq!(digits(b"123456789"), *b"e3069283");
        assert_eq!(line, format!("{{\"crc\":\"{:08x}\",\"a\":1}}\n", crc32c::crc32c(b"\"a\":1}")).into_bytes());
        line.pop();
        assert_eq!(decode::<Value>(&line).unwrap()["a"], 1);
    }

    #[test]
    fn a_second_spelling_of_a_checksum_is_refused() {
        let line = (0..)
            .map(|n| {
                let mut line = Vec::new();
                encode(&json!({ "n": n }), &mut line).unwrap();
                line.pop();
                line
            })
            .find(|line| line[8..16].iter().any(u8::is_ascii_lowercase))
            .unwrap();
        let mut shouted = line.clone();
        shouted[8..16].make_ascii_uppercase();
        assert_eq!(verify(&line), Ok(()));
        assert_eq!(verify(&shouted), Err(Damage::Checksum));
    }
}
