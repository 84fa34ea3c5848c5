//! Reads the body of a request within its limits.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::refusal::Refusal;

pub(super) const MAX_BODY_BYTES: usize = 32 << 20;
/// Bytes of a body that is too large which are read and dropped, so that the program reads the answer instead of a closed connection.
const MAX_DROPPED_BYTES: usize = 256 << 20;
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// Reads a body. The permits stand for its memory.
pub(super) async fn read<'a>(body: Incoming, memory: &'a Semaphore) -> Result<(Bytes, SemaphorePermit<'a>), Refusal> {
    timeout(BODY_TIMEOUT, read_within(body, memory)).await.unwrap_or(Err(Refusal::Incomplete))
}

async fn read_within(mut body: Incoming, memory: &Semaphore) -> Result<(Bytes, SemaphorePermit<'_>), Refusal> {
    let told = body.size_hint().exact().map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    if told.is_some_and(|bytes| bytes > MAX_BODY_BYTES) {
        drop_rest(body).await;
        return Err(Refusal::TooLarge);
    }
    let kib = u32::try_from(told.unwrap_or(MAX_BODY_BYTES) >> 10).unwrap_or(u32::MAX).saturating_add(1);
    let permit = memory.acquire_many(kib).await.map_err(|_| Refusal::Busy)?;
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

#[derive(Deserialize)]
struct Asked {
    #[serde(default)]
    stream: bool,
    stream_options: Option<StreamOptions>,
}

#[derive(Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

/// A stream of a chat tells its tokens only to those who ask. Nothing else of the request is changed.
pub(super) fn ask_for_usage(body: Bytes) -> Bytes {
    let Ok(Asked { stream: true, stream_options }) = serde_json::from_slice(&body) else { return body };
    match stream_options {
        Some(StreamOptions { include_usage: true }) => body,
        Some(StreamOptions { include_usage: false }) => match serde_json::from_slice::<Value>(&body) {
            Ok(mut asked) => {
                asked["stream_options"]["include_usage"] = json!(true);
                asked.to_string().into()
            }
            Err(_) => body,
        },
        None => {
            // The text is an object, because it was read as one; an empty one asks for no stream.
            let Some(begin) = body.iter().position(|byte| *byte == b'{') else { return body };
            let (head, rest) = body.split_at(begin + 1);
            // Without a null in its place, which would be the later of two.
            match serde_json::from_slice::<Value>(&body) {
                Ok(mut asked) if asked.get("stream_options").is_some() => {
                    asked["stream_options"] = json!({"include_usage": true});
                    asked.to_string().into()
                }
                Ok(_) | Err(_) => [head, br#""stream_options":{"include_usage":true},"#, rest].concat().into(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chat_that_streams_is_asked_for_its_tokens_and_nothing_else_changes() {
        let asked = |body: &'static str| String::from_utf8(ask_for_usage(Bytes::from_static(body.as_bytes())).to_vec()).unwrap();
        assert_eq!(
            asked(r#" {"model": "m", "stream": true, "n": 1.50}"#),
            r#" {"stream_options":{"include_usage":true},"model": "m", "stream": true, "n": 1.50}"#
        );
        let added = r#"{"stream":true,"stream_options":{"include_usage":true}}"#;
        assert_eq!(asked(r#"{"stream":true,"stream_options":{"include_usage":false}}"#), added);
        assert_eq!(asked(r#"{"stream":true,"stream_options":{}}"#), added);
        assert_eq!(asked(r#"{"stream":true,"stream_options":null}"#), added);
        for same in [added, "{}", "[]", "nonsense", "", r#"{"stream":false}"#, r#"{"model":"m"}"#, r#"{"stream":"yes"}"#] {
            assert_eq!(asked(same), same);
        }
    }
}
