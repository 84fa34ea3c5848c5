//! The client of a process that watches.

use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::Config;
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ClientBuilder, ConfigExt, DynBody};
use tower::retry::RetryLayer;
use tower::timeout::TimeoutLayer;
use tower::util::{BoxService, ServiceExt};
use tower::{BoxError, ServiceBuilder};

/// The requests of a client, as [`client_builder`] serves them.
pub type ApiService = BoxService<Request<Body>, Response<Box<DynBody>>, BoxError>;

/// Time until the head of a response arrives. It does not limit the body, so that watches may last.
const HEAD: Duration = Duration::from_secs(30);
/// A connection that is quiet for this long is probed by the kernel.
const QUIET: Duration = Duration::from_secs(20);
/// Time between two probes that nobody answers.
const BETWEEN_PROBES: Duration = Duration::from_secs(10);
/// A connection is dead after so many of them.
const PROBES: u32 = 3;
/// A connection is dead when the other side does not acknowledge what was sent to it for this long.
const UNACKNOWLEDGED: Duration = Duration::from_secs(50);

/// Returns what [`ClientBuilder::try_from`] returns, with time limits that kube does not set: a dead connection is noticed within 50 seconds, and a
/// request whose response does not begin within 30 seconds fails.
///
/// A watch only reads. When its connection dies without a word (a link is cut, the API server's machine is switched off, a firewall forgets
/// the connection), it would otherwise wait for kube's idle timeout, 320 seconds, and the process would see nothing of the cluster for as long.
///
/// # Errors
/// As [`ClientBuilder::try_from`]. A proxy is an error: connections to the API server are direct.
pub fn client_builder(config: Config) -> kube::Result<ClientBuilder<ApiService>> {
    if let Some(proxy) = &config.proxy_url {
        return Err(kube::Error::ProxyProtocolUnsupported { proxy_url: Box::new(proxy.clone()) });
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_connect_timeout(config.connect_timeout);
    tcp.set_keepalive(Some(QUIET));
    tcp.set_keepalive_interval(Some(BETWEEN_PROBES));
    tcp.set_keepalive_retries(Some(PROBES));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    let http = HttpClient::builder(TokioExecutor::new()).build::<_, Body>(config.rustls_https_connector_with_connector(tcp)?);
    let service = ServiceBuilder::new()
        .layer(TimeoutLayer::new(HEAD))
        .layer(config.base_uri_layer())
        .option_layer(config.default_retry.then(|| RetryLayer::new(RetryPolicy::server_retry())))
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http)
        .map_response(|response| response.map(|body| Box::new(BodyExt::map_err(body, BoxError::from)) as Box<DynBody>))
        .boxed();
    Ok(ClientBuilder::new(service, config.default_namespace))
}
