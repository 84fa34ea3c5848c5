//! How long an endpoint asks to wait.

use std::time::Duration;

use reqwest::header::{HeaderMap, RETRY_AFTER};
use serde_json::Value;

/// What the headers ask: `Retry-After` in seconds, or OpenAI's `retry-after-ms`.
pub(super) fn in_headers(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    let millis = number("retry-after-ms").map(|millis| millis / 1000.0);
    millis.or_else(|| number(RETRY_AFTER.as_str())).and_then(seconds)
}

/// What the body asks: Gemini's `RetryInfo`, or the words of OpenAI's and Gemini's messages.
pub(super) fn in_body(body: &Value, message: &str) -> Option<Duration> {
    let body = body.get(0).unwrap_or(body);
    let details = body.pointer("/error/details").and_then(Value::as_array);
    let delay = details.into_iter().flatten().find_map(|detail| detail.get("retryDelay")?.as_str());
    delay.and_then(duration).or_else(|| {
        let words = ["try again in ", "retry in "].into_iter().find_map(|start| Some(message.split_once(start)?.1))?;
        duration(words)
    })
}

/// Reads the duration at the start of a text, such as `34.07s`, `20ms` or `6m0s`.
fn duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = None;
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let Ok(number) = rest[..digits].parse::<f64>() else { return total };
        let (unit, after) = [("ms", 0.001), ("h", 3600.0), ("m", 60.0), ("s", 1.0)]
            .into_iter()
            .find_map(|(unit, seconds)| Some((seconds, rest[digits..].strip_prefix(unit)?)))?;
        total = Some(total.unwrap_or_default() + seconds(number * unit)?);
        rest = after;
    }
}

fn seconds(number: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(number).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn headers_and_bodies_tell_how_long_to_wait() {
        let header = |name: &'static str, value: &str| HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())]);
        assert_eq!(in_headers(&header("retry-after", "7")), Some(Duration::from_secs(7)));
        assert_eq!(in_headers(&header("retry-after-ms", "250")), Some(Duration::from_millis(250)));
        for never in ["-1", "soon", "NaN", "inf", "1e300"] {
            assert_eq!(in_headers(&header("retry-after", never)), None, "{never}");
        }
        let openai = "Rate limit reached for gpt-5 on tokens per min (TPM). Please try again in 1.898s. Visit";
        assert_eq!(in_body(&Value::Null, openai), Some(Duration::from_millis(1898)));
        assert_eq!(in_body(&Value::Null, "Please try again in 6m0s."), Some(Duration::from_secs(360)));
        assert_eq!(in_body(&Value::Null, "Please try again in 20ms."), Some(Duration::from_millis(20)));
        assert_eq!(in_body(&Value::Null, "Please try again in a while."), None);
        let gemini =
            json!([{"error": {"details": [{"@type": "x"}, {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s"}]}}]);
        assert_eq!(in_body(&gemini, ""), Some(Duration::from_secs(34)));
    }
}
