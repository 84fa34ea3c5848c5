//! The tool Shell.

use std::num::NonZeroU64;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use yoi_wire::entry::RefusalClass;
use yoi_wire::manifest::RunLimits;
use yoi_wire::policy::check_variable;

use crate::decision::Refusal;
use crate::tools::arguments::{invalid, not_empty, not_null};
use crate::tools::result::{CallResult, LiveOutput};
use crate::tools::shell::{BackgroundError, MAX_BACKGROUND};
use crate::tools::tool::{ToolContext, TypedTool, default_time_limit};

/// The longest time that a call may ask for.
const MAX_SECONDS: u64 = 3600;

/// Runs a command, in the foreground or in the background.
pub struct Shell;

// No doc comment: it would be in the schema.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Args {
    #[serde(deserialize_with = "not_empty")]
    #[schemars(length(min = 1))]
    command: String,
    /// How long the command may take.
    #[serde(default, deserialize_with = "not_null")]
    #[schemars(range(min = 1, max = 3600))]
    timeout_seconds: Option<NonZeroU64>,
    /// Variables for this command, each as NAME=value. Only those that the agent's policy names may be set.
    #[serde(default)]
    env: Vec<String>,
    /// Start the command and return its id at once. It runs until it ends, ShellStop ends it, or the agent stops.
    #[serde(default)]
    background: bool,
}

impl Args {
    /// Names and values of the variables.
    fn variables(&self) -> Result<Vec<(&str, &str)>, Refusal> {
        let variable = |(place, text): (usize, &'_ String)| {
            let Some((name, value)) = text.split_once('=') else { return Err(invalid(format_args!("/env/{place}: is not NAME=value"))) };
            check_variable(name).map_err(|why| invalid(format_args!("/env/{place}: {name:?} {why}")))?;
            if value.contains('\0') {
                return Err(invalid(format_args!("/env/{place}: a value has no NUL")));
            }
            Ok(place)
        };
        for one in self.env.iter().enumerate() {
            variable(one)?;
        }
        Ok(self.env.iter().filter_map(|text| text.split_once('=')).collect())
    }
}

impl TypedTool for Shell {
    type Args = Args;
    const NAME: &'static str = "Shell";

    fn description(&self, limits: &RunLimits) -> String {
        format!(
            "Run a shell command. It starts in the directory in which the last one ended, at first the root of the tree; variables are not \
             kept. Standard output and error come back interleaved, with the exit code. It may take {} seconds, or timeoutSeconds up to \
             {MAX_SECONDS}; every process that it started ends with it. For a server or a long build set background, and read it with \
             ShellOutput; at most {MAX_BACKGROUND} run at once.",
            limits.tool_seconds
        )
    }

    fn check(&self, _context: &ToolContext, args: &Args) -> Result<(), Refusal> {
        args.variables()?;
        match args.timeout_seconds {
            Some(seconds) if seconds.get() > MAX_SECONDS => Err(invalid(format_args!("/timeoutSeconds: must be at most {MAX_SECONDS}"))),
            Some(_) if args.background => {
                Err(invalid("/timeoutSeconds: a command in the background has no time limit; end it with ShellStop"))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn time_limit(&self, limits: &RunLimits, args: &Args) -> Duration {
        args.timeout_seconds.map_or_else(|| default_time_limit(limits), |seconds| Duration::from_secs(seconds.get()))
    }

    async fn run(&self, context: &ToolContext, args: Args, live: &LiveOutput) -> CallResult {
        let variables = match args.variables() {
            Ok(variables) => variables,
            Err(refusal) => return CallResult::refused(refusal),
        };
        if !args.background {
            let limit = TypedTool::time_limit(self, &context.limits, &args);
            return context.shell.run_with(&args.command, &variables, limit, context.output_bytes(), live).await;
        }
        match context.shell.start_background_with(&args.command, &variables) {
            Ok(id) => CallResult::succeeded(format!("started in the background as {id}; read it with ShellOutput, end it with ShellStop")),
            Err(error @ BackgroundError::Full { .. }) => {
                CallResult::refused(Refusal::with_message(RefusalClass::SlotsFull, error.to_string()))
            }
            Err(error @ (BackgroundError::Unknown { .. } | BackgroundError::Start { .. })) => CallResult::failed(error.to_string()),
        }
    }
}
