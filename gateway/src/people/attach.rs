//! `GET yoipods/attach`: what an agent does, as it does it.
//!
//! # Guarantees
//! * A stream holds a few frames of the line at most. A client that takes nothing for [`GatewaySettings::attach_write_timeout`] loses its stream, so
//!   that the runtime holds nothing for it either.
//! * A stream that the gateway ends fails, and does not end. The client goes on after its last token at another replica.
//! * Nothing is written to the API server.
//!
//! [`GatewaySettings::attach_write_timeout`]: crate::GatewaySettings

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Path, Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::unfold;
use http_body_util::BodyDataStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use yoi_wire::hub::runtime_api;

use super::ApiFailure;
use super::log::LogPart;
use super::read::{WhenStopped, bad_query, read_from_runtime};
use super::target::AgentTarget;
use crate::GatewayState;
use crate::front_proxy::User;
use crate::metrics::GatewayMetrics;

/// Frames of a line that wait for the client.
const WAITING_FRAMES: usize = 2;

pub async fn attach(
    State(gateway): State<Arc<GatewayState>>,
    Path(target): Path<AgentTarget>,
    Extension(user): Extension<User>,
    part: Result<Query<LogPart>, QueryRejection>,
) -> Result<Response, ApiFailure> {
    let record = target.resolve(&gateway, &user, "get", "attach").await?;
    let Query(part) = part.map_err(bad_query)?;
    let path = format!("{}?follow=true{}", target.runtime_path(runtime_api::ATTACH)?, part.query()?);
    let woken = WhenStopped::Woken(format!("{}, who attached", user.name));
    let body = read_from_runtime(&gateway, &record, path, woken).await?;
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], for_client(&gateway, body)).into_response())
}

/// A runtime's endless body for a client, with the guarantees above.
pub(super) fn for_client(gateway: &GatewayState, body: Body) -> Body {
    let attachment = Attachment::new(gateway.metrics.clone());
    let (sender, receiver) = mpsc::channel(WAITING_FRAMES);
    let (stop, write_timeout) = (gateway.stopping.clone(), gateway.settings.attach_write_timeout);
    tokio::spawn(async move {
        pass_frames(body, &sender, &stop, write_timeout).await;
        drop(attachment);
    });
    client_body(receiver)
}

/// A part of the stream.
enum Frame {
    Data(Bytes),
    /// The gateway or the line ended the stream. It does not follow a clean end of the runtime's response.
    Failed(io::Error),
    /// The runtime ended its response.
    End,
}

/// Passes the runtime's frames on until the end, or until the client has left or takes nothing.
async fn pass_frames(body: Body, client: &mpsc::Sender<Frame>, stop: &CancellationToken, write_timeout: Duration) {
    let mut body = BodyDataStream::new(body);
    loop {
        let frame = tokio::select! {
            biased;
            () = client.closed() => return,
            () = stop.cancelled() => Frame::Failed(io::Error::other("the gateway is stopping")),
            data = body.next() => match data {
                Some(Ok(data)) => Frame::Data(data),
                Some(Err(error)) => Frame::Failed(io::Error::other(error)),
                None => Frame::End,
            },
        };
        let is_last = !matches!(frame, Frame::Data(_));
        // A timeout drops the sender, and the client finds the stream broken when it reads on.
        if !matches!(timeout(write_timeout, client.send(frame)).await, Ok(Ok(()))) || is_last {
            return;
        }
    }
}

fn client_body(receiver: mpsc::Receiver<Frame>) -> Body {
    Body::from_stream(unfold(Some(receiver), |receiver| async move {
        let mut receiver = receiver?;
        match receiver.recv().await {
            Some(Frame::Data(data)) => Some((Ok(data), Some(receiver))),
            Some(Frame::Failed(error)) => Some((Err(error), None)),
            Some(Frame::End) => None,
            None => Some((Err(io::Error::new(io::ErrorKind::TimedOut, "the client read too slowly")), None)),
        }
    }))
}

/// Counts one attached client for as long as it lives.
struct Attachment(Arc<GatewayMetrics>);

impl Attachment {
    fn new(metrics: Arc<GatewayMetrics>) -> Self {
        metrics.attachments.inc();
        Attachment(metrics)
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.0.attachments.dec();
    }
}
