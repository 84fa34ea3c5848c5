//! `tools`: what an agent is offered, and a run of one of them.

use std::time::{Duration, Instant};

use yoi_crds::YoiPod;
use yoi_wire::engine_api::{RunTool, ToolList, ToolRun, ToolRunEnd};
use yoi_wire::entry::{OfferedTool, ToolOutcome};

use crate::args::{OutputFormat, ToolRunOptions, ToolsCommand, ToolsOptions};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::progress::Progress;
use crate::show;

/// Letters of a description in the table.
const DESCRIPTION_CHARS: usize = 100;
/// How often it is looked whether a person has answered.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

pub async fn tools(cluster: &Cluster, output: Option<OutputFormat>, args: &ToolsOptions) -> Result<(), Error> {
    if let Some(ToolsCommand::Run(run)) = &args.command {
        return run_tool(cluster, output, &args.name, run).await;
    }
    let ToolList { tools } = cluster.engine(&args.name, "tools", "tools").await?;
    show::objects(output, &tools, |tool| show::one_line(&tool.name), || table(&args.name, &tools))
}

fn table(agent: &str, tools: &[OfferedTool]) -> String {
    if tools.is_empty() {
        return format!("{agent} is offered no tools\n");
    }
    let mut table = show::table(&["name", "description"]);
    for OfferedTool { name, description, schema: _ } in tools {
        table.add_row([name, &show::shortened(&show::one_line(description), DESCRIPTION_CHARS)].map(show::cell));
    }
    show::lines(&table)
}

async fn run_tool(cluster: &Cluster, output: Option<OutputFormat>, agent: &str, args: &ToolRunOptions) -> Result<(), Error> {
    let id = args.id.clone().unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
    let (run, end) = wait(cluster, agent, &id, args).await?;
    let ToolRunEnd { seq, outcome, refused: _, output: returned } = &end;
    let returned = returned.clone().unwrap_or_else(|| format!("what it returned is in the log, entry {seq}"));
    let failed = match outcome {
        ToolOutcome::Succeeded => None,
        ToolOutcome::Failed => Some("failed".to_owned()),
        ToolOutcome::TimedOut => Some("took longer than it may, and was ended".to_owned()),
        ToolOutcome::Unknown => Some("has an outcome that is not known: the agent's runtime stopped while it ran".to_owned()),
        ToolOutcome::Refused => Some(format!("was refused: {}", show::one_line(&returned))),
    };
    // What was refused has returned nothing.
    if *outcome != ToolOutcome::Refused || matches!(output, Some(OutputFormat::Json | OutputFormat::Yaml)) {
        show::object(output, &run, &show::one_line(&run.call_id), show::visible(&returned).trim_end())?;
    }
    let Some(why) = failed else { return Ok(()) };
    let next = match outcome {
        ToolOutcome::Refused => cluster.plugin_command(&format!("tools {agent}")),
        _ => cluster.plugin_command(&format!("log {agent} --tail 20")),
    };
    Err(Error::ToolFailed { what: cluster.display_name::<YoiPod>(agent), tool: args.tool.clone(), why, next })
}

/// Asks under one id until the call has ended.
async fn wait(cluster: &Cluster, agent: &str, id: &str, args: &ToolRunOptions) -> Result<(ToolRun, ToolRunEnd), Error> {
    let begun = Instant::now();
    let mut progress: Option<Progress> = None;
    let of = cluster.conversation.as_ref().map_or(String::new(), |name| format!(" --conversation {name}"));
    loop {
        let left = args.timeout.saturating_sub(begun.elapsed());
        let body = RunTool { id: id.to_owned(), args: args.args.clone(), wait_seconds: Some(left.as_secs().max(1)) };
        let run: ToolRun = cluster.act(agent, "run a tool of", &format!("tools/{}", args.tool), &body).await?;
        if let Some(end) = run.end.clone() {
            return Ok((run, end));
        }
        let why = match run.asked {
            Some(call) => {
                format!("the policy has a person asked: {}", cluster.plugin_command(&format!("approve {agent} {call}{of}")))
            }
            None => "the call has not ended".to_owned(),
        };
        if begun.elapsed() >= args.timeout {
            let next = cluster.plugin_command(&format!("tools {agent} run {} --id {id} --args '{}'{of}", args.tool, args.args));
            let what = format!("{}: call of {} ended", cluster.display_name::<YoiPod>(agent), args.tool);
            return Err(Error::TimedOut { what, seconds: args.timeout.as_secs(), why, next });
        }
        progress.get_or_insert_with(Progress::start).set(&format!("{agent}: {why}"));
        if run.asked.is_some() {
            tokio::time::sleep(LOOK_AGAIN.min(args.timeout.saturating_sub(begun.elapsed()))).await;
        }
    }
}
