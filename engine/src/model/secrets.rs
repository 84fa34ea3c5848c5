//! What must be shown nowhere.

use std::collections::BTreeMap;

use super::ApiKey;

/// Shorter values of headers are no secrets, and replacing them would make messages unreadable.
const MIN_SECRET_BYTES: usize = 4;

/// Secrets of one endpoint. `Debug` does not print them.
#[derive(Clone, Debug, Default)]
pub struct ModelSecrets {
    /// The endpoint's key.
    pub key: Option<ApiKey>,
    /// Values of headers, by the variable that [`yoi_wire::manifest::ModelHeader::value_env`] names.
    pub headers: BTreeMap<String, ApiKey>,
}

impl From<Option<ApiKey>> for ModelSecrets {
    fn from(key: Option<ApiKey>) -> Self {
        Self { key, headers: BTreeMap::new() }
    }
}

/// Replaces secrets in messages: an endpoint may repeat what it was sent.
#[derive(Clone, Default)]
pub(crate) struct Redaction {
    values: Vec<(String, &'static str)>,
}

impl Redaction {
    pub fn new(key: Option<&str>, headers: impl IntoIterator<Item = String>, proxy_password: Option<&str>) -> Self {
        let key = key.filter(|key| !key.is_empty()).map(|key| (key.to_owned(), "[key]"));
        let long = |value: &String| value.len() >= MIN_SECRET_BYTES;
        let headers = headers.into_iter().filter(long).map(|value| (value, "[header]"));
        let password = proxy_password.map(str::to_owned).filter(long).map(|value| (value, "[password]"));
        let mut values: Vec<_> = key.into_iter().chain(headers).chain(password).collect();
        // A secret that holds another one goes first.
        values.sort_by_key(|(value, _)| std::cmp::Reverse(value.len()));
        Self { values }
    }

    pub fn apply(&self, text: &str) -> String {
        self.values.iter().fold(text.to_owned(), |text, (value, name)| text.replace(value, name))
    }
}

impl std::fmt::Debug for Redaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Redaction(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_headers_and_passwords_are_in_no_message() {
        let redaction = Redaction::new(Some("k1"), ["k1-and-more".to_owned(), "1".to_owned()], Some("hunter2"));
        assert_eq!(redaction.apply("k1 k1-and-more hunter2 1"), "[key] [header] [password] 1");
        assert_eq!(Redaction::new(Some(""), [], None).apply("text"), "text");
        assert!(!format!("{redaction:?}").contains("k1"));
    }
}
