//! Flags and environment, parsed once.

use std::net::SocketAddr;
use std::path::PathBuf;

/// The gateway of Yoi: agents' runtimes dial it, people reach it through the API server.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "yoi-gateway", version)]
pub struct GatewayArgs {
    /// Where runtimes dial in: TLS, HTTP/1.1 with upgrades and HTTP/2.
    #[arg(long, env = "YOI_RUNTIMES_LISTEN", default_value = "0.0.0.0:8443")]
    pub runtimes_listen: SocketAddr,
    /// Where the API server's aggregation layer asks: TLS with the front proxy's client certificate.
    #[arg(long, env = "YOI_API_LISTEN", default_value = "0.0.0.0:6443")]
    pub api_listen: SocketAddr,
    /// The kubelet's probes, in clear text.
    #[arg(long, env = "YOI_HEALTH_LISTEN", default_value = "0.0.0.0:8081")]
    pub health_listen: SocketAddr,
    /// Metrics, in clear text.
    #[arg(long, env = "YOI_METRICS_LISTEN", default_value = "0.0.0.0:8080")]
    pub metrics_listen: SocketAddr,
    /// Folder with `tls.crt` and `tls.key`. Waited for at the start, read again when they change.
    #[arg(long, env = "YOI_TLS_DIR", default_value = "/etc/yoi-gateway/tls")]
    pub tls_dir: PathBuf,
    /// Let people with the right `create` of `yoipods/ssh` connect to agents by SSH.
    #[arg(long, env = "YOI_SSH", default_value_t = false, action = clap::ArgAction::Set)]
    pub ssh: bool,
    /// Log filter in the syntax of tracing. The default omits an error that kube logs for each failed connection, because the gateway logs it too.
    #[arg(long, env = "RUST_LOG", default_value = "info,kube_client::client::builder=off")]
    pub log_filter: String,
    #[arg(long, env = "YOI_LOG_FORMAT", value_enum, default_value_t = LogFormat::Json)]
    pub log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    Json,
    Text,
}
