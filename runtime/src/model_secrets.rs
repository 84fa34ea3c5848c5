//! The model's secrets, which come in variables and must reach no tool.

use std::collections::BTreeMap;
use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStrExt;

use yoi_engine::model::{ApiKey, ModelSecrets};
use yoi_wire::identity::env;
use yoi_wire::manifest::ModelEndpoint;

/// Values of variables. `Debug` does not print them.
#[derive(Clone, Default)]
pub struct TakenVariables(BTreeMap<String, String>);

impl std::fmt::Debug for TakenVariables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl TakenVariables {
    /// Takes the variables of keys, headers and certificates out of the environment, and overwrites them in the memory that `/proc/<pid>/environ` shows.
    /// An empty value counts as none.
    ///
    /// # Safety
    /// No other thread runs yet.
    #[must_use]
    pub unsafe fn take() -> Self {
        let mut taken = BTreeMap::new();
        for name in std::env::vars_os().map(|(name, _)| name).filter(is_of_the_model) {
            let value = std::env::var(&name).ok();
            // SAFETY: the caller guarantees that no other thread runs.
            unsafe { overwrite(&name) };
            let name = name.into_string().ok();
            taken.extend(name.zip(value.filter(|value| !value.is_empty())));
        }
        Self(taken)
    }

    /// The key of the first endpoint.
    #[must_use]
    pub fn key(&self) -> Option<ApiKey> {
        self.0.get(env::MODEL_API_KEY).cloned().map(ApiKey::new)
    }

    /// The secrets of an endpoint and of its fallbacks, in their order. A fallback's key is the one that its variable has, never another one's.
    #[must_use]
    pub fn of(&self, model: &ModelEndpoint) -> Vec<ModelSecrets> {
        let first = ModelSecrets { key: self.key(), headers: self.headers(model) };
        let fallback = |endpoint: &ModelEndpoint| {
            let key = endpoint.key_env.as_ref().and_then(|name| self.0.get(name)).cloned().map(ApiKey::new);
            ModelSecrets { key, headers: self.headers(endpoint) }
        };
        std::iter::once(first).chain(model.fallbacks.iter().map(fallback)).collect()
    }

    fn headers(&self, endpoint: &ModelEndpoint) -> BTreeMap<String, ApiKey> {
        let variables = endpoint.headers.iter().filter_map(|header| header.value_env.as_ref());
        // A header whose Secret is empty is sent with an empty value: the endpoint says what it thinks of that.
        variables.map(|name| (name.clone(), ApiKey::new(self.0.get(name).cloned().unwrap_or_default()))).collect()
    }

    /// Fills in the certificates that the manifest names by a variable.
    pub fn set_certificates(&self, model: &mut ModelEndpoint) {
        if let Some(certificates) = model.ca_env.as_ref().and_then(|name| self.0.get(name)) {
            model.ca = Some(certificates.clone());
        }
        model.fallbacks.iter_mut().for_each(|fallback| self.set_certificates(fallback));
    }
}

fn is_of_the_model(name: &OsString) -> bool {
    let name = name.as_encoded_bytes();
    [env::MODEL_API_KEY, env::MODEL_HEADER, env::MODEL_CA, env::CREDENTIAL].iter().any(|prefix| name.starts_with(prefix.as_bytes()))
}

/// # Safety
/// No other thread runs yet.
unsafe fn overwrite(name: &OsString) {
    let Ok(c_name) = CString::new(name.as_bytes()) else { return };
    // SAFETY: no other thread runs. The value is a NUL-terminated string of this process and is not moved.
    unsafe {
        let pointer = libc::getenv(c_name.as_ptr());
        if !pointer.is_null() {
            let length = libc::strlen(pointer);
            for offset in 0..length {
                pointer.add(offset).write_volatile(0);
            }
        }
        std::env::remove_var(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(text: &str) -> ModelEndpoint {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn each_endpoint_gets_its_own_secrets_and_none_is_shown() {
        let values =
            [(env::MODEL_API_KEY, "first"), ("YOI_MODEL_API_KEY_2", "third"), ("YOI_MODEL_HEADER_1_0", "team"), ("YOI_MODEL_CA_1", "pem")];
        let taken = TakenVariables(values.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
        let mut model = endpoint(
            r#"{"provider":"OpenAI","name":"a","keySecret":{"secret":"s","key":"k"},"fallbacks":[
                {"provider":"Gemini","name":"b","caEnv":"YOI_MODEL_CA_1","headers":[{"name":"X-Team","valueEnv":"YOI_MODEL_HEADER_1_0"}]},
                {"provider":"Anthropic","name":"c","keySecret":{"secret":"s","key":"k"},"keyEnv":"YOI_MODEL_API_KEY_2"}]}"#,
        );
        let secrets = taken.of(&model);
        let keys: Vec<_> = secrets.iter().map(|secrets| secrets.key.as_ref().map(ApiKey::expose)).collect();
        assert_eq!(keys, [Some("first"), None, Some("third")]);
        assert_eq!(secrets[1].headers["YOI_MODEL_HEADER_1_0"].expose(), "team");
        taken.set_certificates(&mut model);
        assert_eq!((model.ca.as_deref(), model.fallbacks[0].ca.as_deref(), model.fallbacks[1].ca.as_deref()), (None, Some("pem"), None));
        assert_eq!(format!("{taken:?}").matches("YOI_").count(), 4);
        assert!(!format!("{taken:?}{secrets:?}").contains("third"));
    }
}
