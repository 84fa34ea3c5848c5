//! A rule: what a real endpoint refuses, and where that is known from.

use axum::http::HeaderMap;
use serde_json::Value;

use super::script::ModelSettings;

/// What a real endpoint refuses. Each format has a table of them.
pub struct Rule {
    /// Says what the endpoint demands. `GET /requests` names it for a request that breaks it.
    pub name: &'static str,
    /// Where the refusal is documented, or the thread in which it was reported.
    pub source: &'static str,
    pub check: fn(&Request) -> Result<(), Refusal>,
}

/// A request, as a rule sees it.
pub struct Request<'a> {
    pub body: &'a Value,
    pub headers: &'a HeaderMap,
    pub model: &'a ModelSettings,
    /// Tokens of the prompt, counted by [`super::tokens`].
    pub tokens: u64,
}

/// What the endpoint answers to a request that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub status: u16,
    pub message: String,
    /// `error.type` where the status alone does not say it.
    pub kind: Option<&'static str>,
    /// `error.param` in OpenAI's formats.
    pub param: Option<String>,
    /// `error.code` in OpenAI's formats.
    pub code: Option<&'static str>,
    /// Seconds after which the client may try again.
    pub retry_after: Option<u64>,
}

impl Refusal {
    /// An invalid request: status 400.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::with_status(400, message)
    }

    pub fn with_status(status: u16, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), kind: None, param: None, code: None, retry_after: None }
    }

    pub fn param(self, param: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..self }
    }

    pub fn code(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }

    pub fn kind(self, kind: &'static str) -> Self {
        Self { kind: Some(kind), ..self }
    }
}

/// Returns the first rule that the request breaks.
pub fn first_broken<'r>(rules: impl IntoIterator<Item = &'r Rule>, request: &Request) -> Result<(), (&'static str, Refusal)> {
    rules.into_iter().try_for_each(|rule| (rule.check)(request).map_err(|refusal| (rule.name, refusal)))
}

/// Returns an error with this refusal unless `holds`.
pub fn demand(holds: bool, refusal: impl FnOnce() -> Refusal) -> Result<(), Refusal> {
    if holds { Ok(()) } else { Err(refusal()) }
}
