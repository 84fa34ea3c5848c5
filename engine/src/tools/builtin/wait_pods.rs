//! The tool WaitPods.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;
use yoi_wire::children::{MAX_WAIT_SECONDS, MAX_WAITED, WaitRequest, WaitResponse, WaitedChild};
use yoi_wire::manifest::RunLimits;

use super::peers_error_sentence;
use crate::children::Children;
use crate::decision::Refusal;
use crate::peers::PeersError;
use crate::tools::arguments::{check_wait, invalid, wait_time};
use crate::tools::result::{CallResult, LiveOutput};
use crate::tools::tool::{ToolContext, TypedTool, default_time_limit};

/// Waits until children have nothing to do.
pub struct WaitPods;

// No doc comment: it would be in the schema.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Args {
    /// Names of agents that you started.
    names: Vec<String>,
    /// Wait for all of them; else for the first one.
    #[serde(default)]
    all: bool,
    /// How long to wait at most, 300 by default.
    #[serde(default)]
    #[schemars(range(max = 3600))]
    wait_seconds: Option<u32>,
}

impl TypedTool for WaitPods {
    type Args = Args;
    const NAME: &'static str = "WaitPods";
    const READS_ONLY: bool = true;

    fn description(&self, _limits: &RunLimits) -> String {
        "Wait until one of the agents that you started, or all of them, have nothing to do: idle, stopped, gone, or waiting for a person. That is a hint and \
         says nothing of how well they did: ReadPodOutput and DiffPod do."
            .to_owned()
    }

    fn check(&self, context: &ToolContext, args: &Args) -> Result<(), Refusal> {
        if args.names.is_empty() || args.names.len() > MAX_WAITED {
            return Err(invalid(format_args!("/names: name 1 to {MAX_WAITED} agents")));
        }
        check_wait(args.wait_seconds)?;
        context.children().map(drop)
    }

    fn time_limit(&self, limits: &RunLimits, args: &Args) -> Duration {
        default_time_limit(limits) + wait_time(args.wait_seconds)
    }

    async fn run(&self, context: &ToolContext, args: Args, _live: &LiveOutput) -> CallResult {
        let children = match context.children() {
            Ok(children) => children,
            Err(refusal) => return CallResult::refused(refusal),
        };
        match wait(children, &args).await {
            Ok(response) => CallResult::succeeded(sentence(&response, &args)),
            Err(error) => CallResult::failed(peers_error_sentence(&error)),
        }
    }
}

/// Asks again as long as there is time: the gateway lets a request wait for some seconds.
async fn wait(children: &dyn Children, args: &Args) -> Result<WaitResponse, PeersError> {
    let deadline = Instant::now() + wait_time(args.wait_seconds);
    loop {
        let left = deadline.saturating_duration_since(Instant::now()).as_secs();
        let request = WaitRequest { names: args.names.clone(), all: args.all, seconds: left.min(MAX_WAIT_SECONDS) };
        let response = children.wait(&request).await?;
        if response.met || left <= MAX_WAIT_SECONDS {
            return Ok(response);
        }
    }
}

fn sentence(response: &WaitResponse, args: &Args) -> String {
    let lines = response.children.iter().map(|WaitedChild { name, state, why }| {
        let why = why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        format!("{name} is {state}{why}")
    });
    let lines = lines.collect::<Vec<_>>().join("\n");
    if response.met { lines } else { format!("[Nothing came of it within {} s.]\n{lines}", wait_time(args.wait_seconds).as_secs()) }
}
