//! The endpoint's API key.

/// The API key of the model's endpoint. `Debug` does not print it.
#[derive(Clone)]
pub struct ApiKey(String);

impl ApiKey {
    /// Takes the key. It is in no output of `Debug`.
    #[must_use]
    pub fn new(key: String) -> Self {
        Self(key)
    }

    /// Returns the key.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ApiKey(..)")
    }
}
