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
        let first = |names: &[&str]| names.iter().map(|name| field(name)).find(|words| !words.is_empty()).unwrap_or_default();
        Self {
            code: first(&["code", "error_code"]),
            kind: if field("type") == "error" { "" } else { first(&["type", "status", "error_type"]) },
            param: field("param"),
            message: error.as_str().unwrap_or_else(|| first(&["message", "detail", "error_message", "error_msg"])),
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
        let (code, kind) = (self.code.to_lowercase(), self.kind.to_lowercase());
        let says = |word: &str| code.contains(word) || kind.contains(word);
        let statuses: [(u16, &[&str]); 8] = [
            (429, &["rate_limit", "ratelimit", "insufficient_quota", "resource_exhausted"]),
            (529, &["overloaded"]),
            (401, &["authentication", "invalid_api_key"]),
            (402, &["billing"]),
            (403, &["permission"]),
            (404, &["not_found", "notfound"]),
            (413, &["request_too_large"]),
            (400, &["invalid_request", "badrequest", "bad_request", "invalid_prompt", "context_length", "invalid_argument", "image"]),
        ];
        statuses.iter().find(|(_, words)| words.iter().any(|word| says(word))).map_or(500, |(status, _)| *status)
    }
}
