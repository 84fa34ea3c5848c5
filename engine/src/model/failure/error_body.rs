//! What an endpoint says of its error. The formats put the same few words into different fields.

use serde_json::Value;

/// The words of an error. Fields are empty when the endpoint does not say them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ErrorBody<'a> {
    /// OpenAI's `code`.
    pub code: &'a str,
    /// OpenAI's and Anthropic's `type`, Gemini's `status`.
    pub kind: &'a str,
    /// OpenAI's `param`.
    pub param: &'a str,
    /// The message for people.
    pub message: &'a str,
    /// The body, for what stands deeper in it.
    pub body: Option<&'a Value>,
}

impl<'a> ErrorBody<'a> {
    /// The words of a body that may be no JSON.
    pub fn of_text(body: &'a Value, text: &'a str) -> Self {
        let words = Self::of_value(body);
        if words.message.is_empty() { Self { message: text, ..words } } else { words }
    }

    /// The words of a JSON body.
    pub fn of_value(body: &'a Value) -> Self {
        // Gemini puts it into a list when no stream was asked for.
        let body = body.get(0).unwrap_or(body);
        let error = body.get("error").filter(|error| !error.is_null()).unwrap_or(body);
        let field = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
        let first = |names: [&str; 2]| names.into_iter().map(field).find(|words| !words.is_empty()).unwrap_or_default();
        Self {
            code: field("code"),
            kind: if field("type") == "error" { "" } else { first(["type", "status"]) },
            param: field("param"),
            message: error.as_str().unwrap_or_else(|| first(["message", "detail"])),
            body: Some(body),
        }
    }

    /// The status that a whole answer with this error would have had.
    pub fn status(&self) -> u16 {
        let error = self.body.map(|body| body.get("error").unwrap_or(body));
        let number = error.and_then(|error| error.get("code").and_then(Value::as_u64)).and_then(|code| u16::try_from(code).ok());
        if let Some(number) = number.filter(|number| (400..600).contains(number)) {
            return number;
        }
        let says = |word: &str| self.code.contains(word) || self.kind.contains(word);
        let statuses: [(u16, &[&str]); 8] = [
            (429, &["rate_limit", "insufficient_quota", "RESOURCE_EXHAUSTED"]),
            (529, &["overloaded"]),
            (401, &["authentication", "invalid_api_key"]),
            (402, &["billing"]),
            (403, &["permission"]),
            (404, &["not_found"]),
            (413, &["request_too_large"]),
            (400, &["invalid_request", "invalid_prompt", "context_length", "INVALID_ARGUMENT", "image"]),
        ];
        statuses.iter().find(|(_, words)| words.iter().any(|word| says(word))).map_or(500, |(status, _)| *status)
    }
}
