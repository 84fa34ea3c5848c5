//! The bodies of requests.

use axum::body::{Body, Bytes};
use http_body_util::BodyExt;
use yoi_wire::hub::MAX_MESSAGE_BODY;

/// The bytes beyond the limit that are read and dropped. A client that still writes its body when the answer comes takes the end of the
/// connection for a failure, and does not read the answer that names the limit.
const MAX_DROPPED: usize = 8 << 20;

/// Why a body is not taken.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("failed to take a body of more than {MAX_MESSAGE_BODY} bytes")]
    TooLong,
    #[error("failed to read the body")]
    Broken(#[source] axum::Error),
}

/// The whole body, of at most [`MAX_MESSAGE_BODY`] bytes.
pub async fn read(body: Body) -> Result<Bytes, BodyError> {
    read_at_most(body, MAX_MESSAGE_BODY).await
}

/// The whole body, of at most `most` bytes. [`BodyError::TooLong`] names another limit.
pub async fn read_at_most(mut body: Body, most: usize) -> Result<Bytes, BodyError> {
    let (mut read, mut dropped) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(BodyError::Broken)?.into_data() else { continue };
        if dropped > 0 || read.len() + data.len() > most {
            dropped += data.len() + std::mem::take(&mut read).len();
            if dropped > most + MAX_DROPPED {
                break;
            }
        } else {
            read.extend_from_slice(&data);
        }
    }
    if dropped > 0 { Err(BodyError::TooLong) } else { Ok(read.into()) }
}

/// Reads and drops the body of a request that is refused whatever it holds.
pub async fn discard(body: Body) {
    // Of a body that breaks off, nobody is there any more to read the refusal.
    let _ = read_at_most(body, 0).await;
}
