//! A model endpoint that answers from a script, in the formats of OpenAI's chat completions and Responses API, Anthropic's messages and
//! Gemini, streamed or in one piece, and that refuses what the real endpoints refuse. Agents can be tested without a model. `script.rs`
//! describes the script's format; `example.yaml` is a script that tests use.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use clap::Parser;

// By its path, as other crates' tests include it, so that its modules are found at the same places.
#[path = "endpoint.rs"]
mod endpoint;
#[cfg(test)]
mod tests;

use endpoint::{script, server};

#[derive(Debug, Parser)]
#[command(about = "A model endpoint that follows a script")]
struct Args {
    #[arg(long, env = "SCRIPTED_MODEL_LISTEN", default_value = "0.0.0.0:8080")]
    listen: SocketAddr,
    /// The script, YAML; read anew when it changes.
    #[arg(long, env = "SCRIPTED_MODEL_SCRIPT")]
    script: PathBuf,
    /// Refuse requests without this key (`Authorization: Bearer`, `x-api-key`, `x-goog-api-key` or `?key=`).
    #[arg(long, env = "SCRIPTED_MODEL_KEY")]
    require_key: Option<String>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().json().with_writer(std::io::stderr).init();
    let args = Args::parse();
    let script_file = Arc::new(script::ScriptFile::new(args.script.clone()));
    // Fails at the start, not at the first request, when the script cannot be read.
    script_file.script().with_context(|| format!("failed to read the script {}", args.script.display()))?;
    let listener = tokio::net::TcpListener::bind(args.listen).await.with_context(|| format!("failed to listen on {}", args.listen))?;
    tracing::info!(address = %listener.local_addr()?, "listening");
    axum::serve(listener, server::router(script_file, args.require_key))
        .with_graceful_shutdown(async {
            let mut term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).expect("SIGTERM can be watched");
            term.recv().await;
        })
        .await?;
    Ok(())
}
