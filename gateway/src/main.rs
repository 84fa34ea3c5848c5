use std::process::ExitCode;

use clap::Parser;
use kube::{Client, Config};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tower::limit::ConcurrencyLimitLayer;
use tracing_subscriber::EnvFilter;
use yoi_gateway::args::{GatewayArgs, LogFormat};
use yoi_gateway::{GatewaySettings, Ports, run};
use yoi_watch_cache::client_builder;

const REQUESTS_AT_ONCE: usize = 64;

#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("failed to bind the {0} port")]
    Bind(&'static str, #[source] std::io::Error),
    #[error("failed to find the cluster")]
    Infer(#[from] kube::config::InferConfigError),
    #[error("failed to make a client of the cluster")]
    Client(#[source] kube::Error),
    #[error("failed to listen for signals")]
    Signal(#[source] std::io::Error),
    #[error(transparent)]
    TaskEnded(#[from] yoi_gateway::TaskEnded),
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = GatewayArgs::parse();
    let filter = EnvFilter::try_new(&args.log_filter).unwrap_or_else(|_| EnvFilter::new("info"));
    match args.log_format {
        LogFormat::Json => tracing_subscriber::fmt().with_env_filter(filter).json().flatten_event(true).init(),
        LogFormat::Text => tracing_subscriber::fmt().with_env_filter(filter).init(),
    }
    match start(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = yoi_wire::error_chain(&error), "ended");
            ExitCode::FAILURE
        }
    }
}

async fn start(args: GatewayArgs) -> Result<(), StartError> {
    let bind = async |address, what| TcpListener::bind(address).await.map_err(|error| StartError::Bind(what, error));
    let ports = Ports {
        runtimes: bind(args.runtimes_listen, "runtimes").await?,
        api: bind(args.api_listen, "API").await?,
        health: bind(args.health_listen, "health").await?,
        metrics: bind(args.metrics_listen, "metrics").await?,
    };
    let client = client().await?;
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate()).map_err(StartError::Signal)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(StartError::Signal)?;
    let stopped = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping");
        stopped.cancel();
    });
    Ok(run(client, args.tls_dir, ports, GatewaySettings { ssh: args.ssh, ..GatewaySettings::default() }, stop).await?)
}

async fn client() -> Result<Client, StartError> {
    let config = Config::infer().await?;
    let builder = client_builder(config).map_err(StartError::Client)?;
    Ok(builder.with_layer(&ConcurrencyLimitLayer::new(REQUESTS_AT_ONCE)).build())
}
