//! `yoi-operator`.

use clap::Parser;
use tracing::error;
use tracing_subscriber::EnvFilter;
use yoi_operator::args::{LogFormat, OperatorArgs};
use yoi_operator::run;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = OperatorArgs::parse();
    let filter = EnvFilter::try_new(&args.log_filter)?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match args.log_format {
        LogFormat::Json => lines.json().flatten_event(true).init(),
        LogFormat::Text => lines.init(),
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(run::run(args));
    // Whatever still runs after the deadline is cut off with the process.
    runtime.shutdown_background();
    if let Err(why) = &outcome {
        error!(error = why as &dyn std::error::Error, "ended");
    }
    Ok(outcome?)
}
