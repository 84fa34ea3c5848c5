//! Reads the body of a request within its limits, and sees to it that its answer tells tokens.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::refusal::{MAX_BODY_BYTES, Refusal};
use crate::model::format::WireFormat;

/// Bytes of a body that is too large which are read and dropped, so that the program reads the answer instead of a closed connection.
const MAX_DROPPED_BYTES: usize = 256 << 20;
/// Fields of a request. Formats have some thirty.
const MAX_FIELDS: usize = 256;
/// Bytes of the options of a stream.
const MAX_OPTIONS_BYTES: usize = 4 << 10;
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// Reads a body. The permits stand for its memory.
pub(super) async fn read(body: Incoming, memory: &Arc<Semaphore>) -> Result<(Bytes, OwnedSemaphorePermit), Refusal> {
    timeout(BODY_TIMEOUT, read_within(body, memory)).await.unwrap_or(Err(Refusal::Incomplete))
}

async fn read_within(mut body: Incoming, memory: &Arc<Semaphore>) -> Result<(Bytes, OwnedSemaphorePermit), Refusal> {
    let told = body.size_hint().exact().map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    if told.is_some_and(|bytes| bytes > MAX_BODY_BYTES) {
        drop_rest(body).await;
        return Err(Refusal::TooLarge);
    }
    let kib = u32::try_from(told.unwrap_or(MAX_BODY_BYTES) >> 10).unwrap_or(u32::MAX).saturating_add(1);
    let permit = memory.clone().acquire_many_owned(kib).await.map_err(|_| Refusal::Busy)?;
    let mut bytes = Vec::with_capacity(told.unwrap_or_default());
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| Refusal::Incomplete)?.into_data() else { continue };
        if bytes.len() + data.len() > MAX_BODY_BYTES {
            drop(bytes);
            drop_rest(body).await;
            return Err(Refusal::TooLarge);
        }
        bytes.extend_from_slice(&data);
    }
    Ok((bytes.into(), permit))
}

async fn drop_rest(mut body: Incoming) {
    let mut dropped = 0;
    while let Some(Ok(frame)) = body.frame().await {
        dropped += frame.data_ref().map_or(0, Bytes::len);
        if dropped > MAX_DROPPED_BYTES {
            break;
        }
    }
}

/// The request with each of its fields once, and asked for its tokens: a stream of a chat tells them only to those who ask. Of a field that
/// stands twice the last one counts, as for most servers, so that the endpoint cannot read another request than the one that was looked at.
///
/// # Errors
/// The request is no JSON object.
pub(super) fn with_usage(format: WireFormat, body: &[u8]) -> Result<Bytes, Refusal> {
    let mut fields = fields(body).ok_or(Refusal::NoObject)?;
    match format {
        WireFormat::ChatCompletions => {
            let value = |name: &str| fields.get(name).map_or(&b""[..], |value| &**value);
            // Lenient servers take more than `true` for a wish.
            if ![&b""[..], b"false", b"null"].contains(&value("stream")) {
                let options = with_include_usage(value("stream_options"));
                fields.insert("stream_options".to_owned(), Cow::Owned(options.into_bytes()));
            }
        }
        // The answer of a request that runs in the background would be fetched by another one.
        WireFormat::Responses => {
            fields.remove("background");
        }
        WireFormat::Anthropic | WireFormat::Gemini => {}
    }
    let mut text = Vec::with_capacity(body.len());
    for (name, value) in &fields {
        text.push(if text.is_empty() { b'{' } else { b',' });
        text.extend_from_slice(Value::String(name.clone()).to_string().as_bytes());
        text.push(b':');
        text.extend_from_slice(value);
    }
    text.extend_from_slice(if text.is_empty() { b"{}" } else { b"}" });
    Ok(text.into())
}

/// Other options stay, unless they are no options.
fn with_include_usage(options: &[u8]) -> String {
    let mut options: Map<String, Value> =
        if options.len() > MAX_OPTIONS_BYTES { Map::new() } else { serde_json::from_slice(options).unwrap_or_default() };
    options.insert("include_usage".to_owned(), Value::Bool(true));
    Value::Object(options).to_string()
}

/// The fields of an object; `None`: it is none, or has too many. Values stay text, so they take no more memory than the request.
fn fields(body: &[u8]) -> Option<BTreeMap<String, Cow<'_, [u8]>>> {
    let mut fields = BTreeMap::new();
    let mut rest = body.trim_ascii().strip_prefix(b"{")?.strip_suffix(b"}")?.trim_ascii();
    while !rest.is_empty() {
        let (name, after): (String, _) = next_value(rest)?;
        let value = after.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
        let (IgnoredAny, after) = next_value(value)?;
        fields.insert(name, Cow::Borrowed(&value[..value.len() - after.len()]));
        if fields.len() > MAX_FIELDS {
            return None;
        }
        rest = after.trim_ascii_start();
        if !rest.is_empty() {
            rest = rest.strip_prefix(b",")?.trim_ascii_start();
            // A comma is followed by another field.
            rest.first()?;
        }
    }
    Some(fields)
}

/// The JSON value that a text begins with, and what follows it.
fn next_value<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Option<(T, &'a [u8])> {
    let mut values = serde_json::Deserializer::from_slice(text).into_iter();
    let value = values.next()?.ok()?;
    Some((value, &text[values.byte_offset()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(format: WireFormat, body: &str) -> Result<String, Refusal> {
        with_usage(format, body.as_bytes()).map(|body| String::from_utf8(body.to_vec()).unwrap())
    }

    #[test]
    fn a_chat_that_streams_is_asked_for_its_tokens_however_it_is_written() {
        for stream in ["true", "1", "\"yes\""] {
            let with = format!("{{\"stream\":{stream},\"stream_options\":{{\"include_usage\":true}}}}");
            for options in [
                "",
                ",\"stream_options\":null",
                ",\"stream_options\":{}",
                ",\"stream_options\":7",
                ",\"stream_options\":{\"include_usage\":false}",
                ",\"stream_options\":{\"include_usage\":true},\"stream_options\":{}",
                ",\"stream_options\":null,\"stream_options\":{\"include_usage\":false,\"include_usage\":false}",
            ] {
                for stream in [format!("\"stream\":{stream}"), format!("\"stream\":false,\"stream\":{stream}")] {
                    assert_eq!(asked(WireFormat::ChatCompletions, &format!("{{{stream}{options}}}")).as_ref(), Ok(&with), "{options}");
                }
            }
        }
        let other = asked(WireFormat::ChatCompletions, r#" {"stream": true, "stream_options": {"other": 1}, "n": 1.50} "#);
        assert_eq!(other.unwrap(), r#"{"n":1.50,"stream":true,"stream_options":{"other":1,"include_usage":true}}"#);
        for same in ["{}", r#"{"stream":false}"#, r#"{"stream":null}"#, r#"{"model":"m"}"#] {
            assert_eq!(asked(WireFormat::ChatCompletions, same).unwrap(), same);
        }
    }

    #[test]
    fn a_request_that_is_no_object_is_passed_on_in_no_format() {
        let too_many = format!("{{{}}}", (0..1000).map(|n| format!("\"{n}\":0")).collect::<Vec<_>>().join(","));
        for format in [WireFormat::Responses, WireFormat::ChatCompletions, WireFormat::Anthropic, WireFormat::Gemini] {
            for body in ["", "[]", "[{}]", "null", "nonsense", "{\"stream\":true", "{} {}", "{\"a\":\"\u{1}\"}", &too_many] {
                assert_eq!(asked(format, body), Err(Refusal::NoObject), "{body}");
            }
            assert_eq!(asked(format, r#"{"a":1,"a":[2, 3]}"#).unwrap(), r#"{"a":[2, 3]}"#);
        }
        assert_eq!(asked(WireFormat::Responses, r#"{"background":true,"stream":true}"#).unwrap(), r#"{"stream":true}"#);
    }
}
