//! The API port: an aggregated API, which people reach through the API server.

mod approval;
mod assets;
mod attach;
mod bundle;
mod control;
mod conversations;
mod discovery;
mod engine;
mod engine_calls;
mod failure;
mod log;
mod merge;
mod message;
mod push;
mod read;
mod register_peer;
mod runtime_client;
mod ssh;
mod sync;
mod target;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};
use tokio::sync::watch;
use yoi_line::{Connection, PeerCertificate};

use crate::GatewayState;
use crate::front_proxy::FrontProxy;
pub(crate) use failure::ApiFailure;
pub(crate) use read::{ReaderWait, WhenStopped, bad_answer, read_from_runtime};

const AGENT: &str = "/apis/runtime.yoi.dev/v1alpha1/namespaces/{namespace}/yoipods/{name}";

const PROJECT_SYNC: &str = "/apis/runtime.yoi.dev/v1alpha1/namespaces/{namespace}/yoiprojects/{name}/sync";

type Proxy = watch::Receiver<Option<FrontProxy>>;

pub fn router(gateway: Arc<GatewayState>, proxy: Proxy) -> Router {
    Router::new()
        .route(&format!("{AGENT}/log"), get(log::log))
        .route(&format!("{AGENT}/approval"), get(approval::waiting).post(approval::answer))
        .route(&format!("{AGENT}/assets"), get(assets::assets).post(assets::reload))
        .route(&format!("{AGENT}/attach"), get(attach::attach))
        .route(&format!("{AGENT}/bundle"), get(bundle::bundle).post(bundle::commit))
        .route(&format!("{AGENT}/control"), post(control::control))
        .route(&format!("{AGENT}/conversations"), get(conversations::list))
        .route(&format!("{AGENT}/conversations/{{conversation}}"), post(conversations::start).delete(conversations::stop))
        .route(&format!("{AGENT}/approval/{{conversation}}"), get(approval::waiting).post(approval::answer))
        .route(&format!("{AGENT}/attach/{{conversation}}"), get(attach::attach))
        .route(&format!("{AGENT}/control/{{conversation}}"), post(control::control))
        .route(&format!("{AGENT}/export/{{conversation}}"), get(log::export))
        .route(&format!("{AGENT}/log/{{conversation}}"), get(log::log))
        .route(&format!("{AGENT}/message/{{conversation}}"), post(message::send))
        .route(&format!("{AGENT}/diff"), get(log::diff))
        .route(&format!("{AGENT}/export"), get(log::export))
        .route(&format!("{AGENT}/usage"), get(log::usage))
        .route(&format!("{AGENT}/patch"), get(log::patch))
        .route(&format!("{AGENT}/proxy/engine/events"), get(engine::events).post(engine_calls::send_event))
        .route(&format!("{AGENT}/proxy/engine/projection/{{key}}"), get(engine::projection))
        .route(&format!("{AGENT}/proxy/engine/tools"), get(engine::tools))
        .route(&format!("{AGENT}/proxy/engine/tools/{{tool}}"), post(engine_calls::run_tool))
        .route(&format!("{AGENT}/proxy/ssh"), get(ssh::ssh))
        .route(&format!("{AGENT}/merge"), post(merge::merge))
        .route(&format!("{AGENT}/push"), post(push::push))
        .route(&format!("{AGENT}/message"), post(message::send))
        .route(PROJECT_SYNC, post(sync::sync))
        .route("/apis", get(discovery::group_list))
        .route("/apis/runtime.yoi.dev", get(discovery::group))
        .route("/apis/runtime.yoi.dev/v1alpha1", get(discovery::resources))
        .route("/readyz", get(async || "ok"))
        .route("/openapi/v2", get(discovery::schema))
        // The aggregator takes 404 at /openapi/v3 as "publishes no schema".
        .fallback(async |uri: Uri| ApiFailure::not_served(uri.path()))
        .method_not_allowed_fallback(async || ApiFailure::method_not_allowed())
        .layer(middleware::from_fn_with_state(proxy, authenticate))
        // Added after the layer, so that a probe needs no certificate here, and only here.
        .route("/healthz", get(async || "ok"))
        .with_state(gateway)
}

/// Refuses every client but the front proxy, and takes the user from its headers.
async fn authenticate(State(proxy): State<Proxy>, mut request: Request, next: Next) -> Result<Response, ApiFailure> {
    let certificate = request.extensions().get::<PeerCertificate>();
    let user = proxy.borrow().as_ref().and_then(|proxy| proxy.user(certificate, request.headers()));
    if let Some(connection) = request.extensions().get::<Connection>() {
        if user.is_some() { connection.set_trusted() } else { connection.reject() }
    }
    let user = user.ok_or_else(|| {
        ApiFailure::new(
            StatusCode::UNAUTHORIZED,
            "only the API server's front proxy may ask here: use kubectl, which goes through the API server",
        )
    })?;
    request.extensions_mut().insert(user);
    Ok(next.run(request).await)
}
