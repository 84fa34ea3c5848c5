//! Replaces secrets in answers that pass through.

use std::sync::Arc;

use bytes::Bytes;
use memchr::memmem::Finder;

use crate::model::ModelSecrets;

/// A shorter value is no secret that anybody relies on, and might be a word of an answer.
const MIN_SECRET_BYTES: usize = 8;

/// What no answer may hold.
#[derive(Clone, Default)]
pub(super) struct Secrets(Arc<[Finder<'static>]>);

impl Secrets {
    pub fn new(secrets: &ModelSecrets) -> Self {
        let values = secrets.key.iter().chain(secrets.headers.values()).map(crate::model::ApiKey::expose);
        // Of `Bearer KEY`, the key alone is a secret too.
        let words = values.flat_map(|value| [Some(value), value.split_ascii_whitespace().next_back()]).flatten();
        let mut secrets: Vec<&[u8]> = words.filter(|word| word.len() >= MIN_SECRET_BYTES).map(str::as_bytes).collect();
        // A secret that holds another one goes first.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.dedup();
        Self(secrets.into_iter().map(|secret| Finder::new(secret).into_owned()).collect())
    }

    pub fn is_in(&self, bytes: &[u8]) -> bool {
        self.0.iter().any(|secret| secret.find(bytes).is_some())
    }

    /// Replaces each secret by as many asterisks, so that lengths stay.
    fn replace(&self, bytes: &mut [u8]) {
        for secret in self.0.iter() {
            let mut from = 0;
            while let Some(at) = secret.find(&bytes[from..]) {
                let end = from + at + secret.needle().len();
                bytes[from + at..end].fill(b'*');
                from = end;
            }
        }
    }

    /// How many of the last bytes may be the begin of a secret.
    fn begun(&self, bytes: &[u8]) -> usize {
        let begun = |secret: &[u8]| (1..secret.len().min(bytes.len() + 1)).rev().find(|length| bytes.ends_with(&secret[..*length]));
        self.0.iter().filter_map(|secret| begun(secret.needle())).max().unwrap_or_default()
    }
}

/// Replaces secrets in a stream. It holds back only what may be the begin of one.
#[derive(Default)]
pub(super) struct Concealer {
    secrets: Secrets,
    held: Vec<u8>,
}

impl Concealer {
    pub fn new(secrets: Secrets) -> Self {
        Self { secrets, held: Vec::new() }
    }

    /// The bytes that can be passed on.
    pub fn push(&mut self, chunk: Bytes) -> Bytes {
        if self.held.is_empty() && !self.secrets.is_in(&chunk) && self.secrets.begun(&chunk) == 0 {
            return chunk;
        }
        let mut bytes = std::mem::take(&mut self.held);
        bytes.extend_from_slice(&chunk);
        self.secrets.replace(&mut bytes);
        self.held = bytes.split_off(bytes.len() - self.secrets.begun(&bytes));
        bytes.into()
    }

    /// The stream has ended.
    pub fn finish(&mut self) -> Bytes {
        std::mem::take(&mut self.held).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ApiKey;

    fn secrets() -> Secrets {
        let mut secrets = ModelSecrets::from(Some(ApiKey::new("sk-canary-1".to_owned())));
        secrets.headers.insert("A".to_owned(), ApiKey::new("Bearer other-token".to_owned()));
        secrets.headers.insert("B".to_owned(), ApiKey::new("true".to_owned()));
        Secrets::new(&secrets)
    }

    #[test]
    fn a_secret_is_replaced_wherever_the_stream_is_split() {
        let text = b"true sk-canary-sk-canary-1 sk-canary-1sk-canary-1 other-token. Bearer other-token sk-canary-";
        let expected = "true sk-canary-*********** ********************** ***********. ****************** sk-canary-";
        for size in 1..text.len() {
            let mut concealer = Concealer::new(secrets());
            let mut passed: Vec<u8> = text.chunks(size).flat_map(|chunk| concealer.push(Bytes::copy_from_slice(chunk))).collect();
            passed.extend(concealer.finish());
            assert_eq!(String::from_utf8(passed).unwrap(), expected, "{size}");
        }
    }

    #[test]
    fn what_cannot_be_a_secret_is_not_held_back() {
        let mut concealer = Concealer::new(secrets());
        assert_eq!(concealer.push(Bytes::from_static(b"data: hell")), "data: hell");
        assert_eq!(concealer.push(Bytes::from_static(b"data: sk")), "data: ");
        assert_eq!(concealer.push(Bytes::from_static(b"y")), "sky");
    }
}
