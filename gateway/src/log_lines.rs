//! The lines of a log that a runtime sends.

use std::ops::ControlFlow;

use axum::body::Body;
use futures::StreamExt;
use http_body_util::BodyDataStream;

/// Gives each line to `take`, from the first on, until that has enough. Returns why the log ended early, if it did.
pub async fn for_each_line(body: Body, mut take: impl FnMut(&[u8]) -> Result<ControlFlow<()>, serde_json::Error>) -> Option<String> {
    let (mut stream, mut buffer) = (BodyDataStream::new(body), Vec::new());
    while let Some(chunk) = stream.next().await {
        match chunk {
            Ok(chunk) => buffer.extend_from_slice(&chunk),
            Err(error) => return Some(format!("its log broke off: {}", yoi_wire::error_chain(&error))),
        }
        let mut begin = 0;
        while let Some(length) = buffer[begin..].iter().position(|byte| *byte == b'\n') {
            let line = &buffer[begin..=begin + length];
            begin += line.len();
            match take(line) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => return None,
                Err(error) => return Some(format!("a line of its log cannot be read: {error}")),
            }
        }
        buffer.drain(..begin);
    }
    None
}
