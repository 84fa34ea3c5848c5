//! `yoipods/proxy/ssh`: a person's SSH connection to an agent's Pod. A `GET` answers what a client of SSH has to know; one that asks for a WebSocket becomes the stream of
//! OpenSSH's server, which the agent's runtime starts.
//!
//! The API server asks for `get` of `yoipods/proxy`, and passes such a request on without a limit of its time. The gateway asks for `create` of `yoipods/ssh`.
//!
//! # Guarantees
//! * Nobody connects unless the chart allows it.
//! * A stream holds a few pieces each way at most. It ends with the client, with the server, with the line, and when the gateway stops.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Path, Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use bytes::{BufMut, Bytes, BytesMut};
use futures::stream::{SplitSink, SplitStream, unfold};
use futures::{SinkExt, StreamExt};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::sync::mpsc;
use tokio::time::{interval, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_util::sync::CancellationToken;
use yoi_line::{RequestError, header_has};
use yoi_wire::bundle::query_value;
use yoi_wire::engine_api::SUBRESOURCE;
use yoi_wire::hub::{Refusal, runtime_api};
use yoi_wire::ssh::{CLOSED, FROM_SERVER, MAX_MESSAGE, PROTOCOL, RIGHT, SshQuery, TO_SERVER, is_public_key};

use super::ApiFailure;
use super::approval::{PASSED_ON, json};
use super::read::bad_query;
use super::runtime_client::{RuntimeClient, person_head};
use super::target::{AgentTarget, no_line, unreachable};
use crate::GatewayState;
use crate::agent_index::AgentRecord;
use crate::front_proxy::User;
use crate::metrics::ControlLabels;

const WHEN_LOST: &str = "may have started a server of SSH all the same, which ends by itself: connect again";
/// What the runtime says of its image, and of how many are connected, beside [`PASSED_ON`].
const ALSO_PASSED_ON: [StatusCode; 2] = [StatusCode::UNPROCESSABLE_ENTITY, StatusCode::TOO_MANY_REQUESTS];
/// Pieces that wait for the runtime.
const WAITING: usize = 4;
/// Load balancers end what is silent for a minute.
const PING_EVERY: Duration = Duration::from_secs(15);
/// A client that answers no ping for so long is gone, or a laptop that sleeps.
const SILENCE: Duration = Duration::from_secs(300);
/// How long the end of a stream may take to reach the client.
const GOODBYE: Duration = Duration::from_secs(5);

pub async fn ssh(
    State(gateway): State<Arc<GatewayState>>,
    Path(target): Path<AgentTarget>,
    Extension(user): Extension<User>,
    query: Result<Query<SshQuery>, QueryRejection>,
    request: Request,
) -> Result<Response, ApiFailure> {
    target.resolve(&gateway, &user, "get", SUBRESOURCE).await?;
    let record = target.resolve(&gateway, &user, "create", RIGHT).await?;
    let about = |code, message: String| ApiFailure::new(code, message).about(&record.name.name);
    if !gateway.settings.ssh {
        let message = "SSH into agents is switched off on this cluster; whoever runs Yoi allows it: helm upgrade yoi-operator charts/yoi-operator \
                       --reuse-values --set gateway.ssh=true";
        // No right helps here.
        return Err(about(StatusCode::UNPROCESSABLE_ENTITY, message.to_owned()));
    }
    if !header_has(request.headers(), &header::CONNECTION, "upgrade") {
        return host(&gateway, &user, &record).await;
    }
    let accept = accept_key(request.headers()).ok_or_else(|| {
        about(StatusCode::BAD_REQUEST, format!("this becomes a WebSocket of version 13 with the protocol {PROTOCOL}, or answers as JSON"))
    })?;
    let Query(SshQuery { key }) = query.map_err(bad_query)?;
    let key = key.filter(|key| is_public_key(key)).ok_or_else(|| {
        about(StatusCode::BAD_REQUEST, "key must be one public key as OpenSSH writes it, without options and comment".to_owned())
    })?;
    let stream = open(&gateway, &user, &record, &key).await;
    let outcome = if stream.is_ok() { "Done" } else { "NoAnswer" };
    gateway.metrics.control_requests.get_or_create(&ControlLabels { action: "ssh", answer: outcome }).inc();
    audit(&user, &record, "ssh", outcome);
    let stream = stream?;
    let switched = hyper::upgrade::on(request);
    let stop = gateway.stopping.clone();
    tokio::spawn(async move {
        let begun = Instant::now();
        serve(switched, stream, &stop).await;
        tracing::info!(seconds = begun.elapsed().as_secs(), "SSH connection ended");
        audit(&user, &record, "ssh ended", "Done");
    });
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    Ok(response)
}

fn audit(user: &User, record: &AgentRecord, action: &str, outcome: &str) {
    let AgentRecord { name, run_generation: run, .. } = record;
    tracing::info!(target: "audit", person = user.name, object = %name, uid = name.uid, run, action, outcome, "ssh");
}

/// What an agent that rests is woken for.
fn wakes_for(user: &User) -> String {
    format!("{}, who connects by SSH", user.name)
}

async fn host(gateway: &GatewayState, user: &User, record: &AgentRecord) -> Result<Response, ApiFailure> {
    let client = RuntimeClient::new(gateway, user, record, WHEN_LOST).waking(Some(wakes_for(user)));
    let response = client.send(&Method::GET, runtime_api::SSH, &Bytes::new()).await?;
    if response.status().is_success() {
        return Ok(json(Body::new(response.into_body())));
    }
    Err(refused(&client, record, response.status(), response.into_body()).await)
}

/// What the runtime says of its image is the answer to whoever asks.
async fn refused(client: &RuntimeClient<'_>, record: &AgentRecord, status: StatusCode, body: Incoming) -> ApiFailure {
    let answer = client.read(body).await.unwrap_or_default();
    match serde_json::from_slice::<Refusal>(&answer) {
        Ok(refusal) if PASSED_ON.contains(&status) || ALSO_PASSED_ON.contains(&status) => {
            let message = format!("YoiPod {}/{}: {}", record.name.namespace, record.name.name, refusal.message);
            ApiFailure::new(status, message).about(&record.name.name)
        }
        _ => client.refused(status, &answer),
    }
}

/// The two directions of a server that has started.
struct ServerStream {
    to: mpsc::Sender<Bytes>,
    from: Incoming,
}

async fn open(gateway: &GatewayState, user: &User, record: &AgentRecord, key: &str) -> Result<ServerStream, ApiFailure> {
    let client = RuntimeClient::new(gateway, user, record, WHEN_LOST);
    let line = gateway.delivery.line_to(record, Some(&wakes_for(user))).await.map_err(|refusal| no_line(record, &refusal))?;
    let (to, pieces) = mpsc::channel::<Bytes>(WAITING);
    let pieces = unfold(pieces, |mut pieces| async { Some((Ok::<_, std::io::Error>(pieces.recv().await?), pieces)) });
    let path = format!("{}?key={}", runtime_api::SSH, query_value(key));
    let request = person_head(user, Method::POST, &path)?.map(|()| Body::from_stream(pieces));
    let response = match client.in_time(line.request(request)).await {
        Some(Ok(response)) => response,
        Some(Err(RequestError::Unsent(_))) => return Err(unreachable(record)),
        Some(Err(_)) => return Err(client.lost("broke off")),
        None => return Err(client.lost("did not answer in time")),
    };
    if response.status().is_success() {
        return Ok(ServerStream { to, from: response.into_body() });
    }
    Err(refused(&client, record, response.status(), response.into_body()).await)
}

type Client = WebSocketStream<TokioIo<Upgraded>>;

async fn serve(switched: OnUpgrade, stream: ServerStream, stop: &CancellationToken) {
    let upgraded = match switched.await {
        Ok(upgraded) => upgraded,
        Err(error) => {
            tracing::debug!(error = yoi_wire::error_chain(&error), "the client of SSH left before its stream began");
            return;
        }
    };
    let limits = WebSocketConfig::default().max_message_size(Some(MAX_MESSAGE)).max_frame_size(Some(MAX_MESSAGE));
    let (mut sink, source) = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(limits)).await.split();
    let ServerStream { to, from } = stream;
    tokio::select! {
        () = from_client(source, to) => return,
        () = to_client(&mut sink, from) => {}
        () = stop.cancelled() => {}
    }
    // The client may be gone.
    let _ = timeout(GOODBYE, sink.close()).await;
}

/// Passes on what the client sends, until the client is gone. A client that has closed the server's input still reads.
async fn from_client(mut source: SplitStream<Client>, to: mpsc::Sender<Bytes>) {
    let mut to = Some(to);
    while let Ok(Some(Ok(message))) = timeout(SILENCE, source.next()).await {
        let Message::Binary(mut data) = message else {
            if message.is_close() {
                return;
            }
            continue;
        };
        match (data.first().copied(), &to) {
            (Some(TO_SERVER), Some(server)) => {
                let piece = data.split_off(1);
                if !piece.is_empty() && server.send(piece).await.is_err() {
                    // The server reads no more, and may have something to say.
                    to = None;
                }
            }
            (Some(CLOSED), _) => to = None,
            _ => {}
        }
    }
}

/// Passes on what the server writes, until its end.
async fn to_client(sink: &mut SplitSink<Client, Message>, mut from: Incoming) {
    let mut ping = interval(PING_EVERY);
    loop {
        let message = tokio::select! {
            frame = from.frame() => match frame {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => server_message(&data),
                    Err(_) => continue,
                },
                Some(Err(_)) | None => return,
            },
            _ = ping.tick() => Message::Ping(Bytes::new()),
        };
        if sink.send(message).await.is_err() {
            return;
        }
    }
}

/// A message of the WebSocket with bytes of the server.
fn server_message(data: &Bytes) -> Message {
    let mut message = BytesMut::with_capacity(data.len() + 1);
    message.put_u8(FROM_SERVER);
    message.put_slice(data);
    Message::Binary(message.freeze())
}

/// The value of Sec-WebSocket-Accept; `None` for a request that is for no WebSocket of ours.
fn accept_key(headers: &HeaderMap) -> Option<HeaderValue> {
    let is_ours = header_has(headers, &header::UPGRADE, "websocket")
        && header_has(headers, &header::SEC_WEBSOCKET_VERSION, "13")
        && header_has(headers, &header::SEC_WEBSOCKET_PROTOCOL, PROTOCOL);
    let key = headers.get(header::SEC_WEBSOCKET_KEY).filter(|_| is_ours)?;
    HeaderValue::from_str(&derive_accept_key(key.as_bytes())).ok()
}
