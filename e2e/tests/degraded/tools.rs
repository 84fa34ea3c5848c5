//! Commands that ignore signals, leave processes behind or kill everything they can, in an agent's Pod.

use anyhow::{Result, ensure};
use serde_json::json;
use yoi_e2e::test_namespace::TestNamespace;
use yoi_wire::entry::{Body, RunOutcome, ToolEnded, ToolOutcome};
use yoi_wire::people::LogLine;

use crate::{check_responsive, check_stops};

const SCRIPT: &str = r#"
rules:
- when: { lastUserContains: misbehave }
  steps:
  - { toolCalls: [{ tool: Shell, args: { command: "trap '' TERM; sh -c ': unruly; while :; do sleep 1; done'" } }] }
  - { toolCalls: [{ tool: Shell, args: { command: "env -i /bin/sh -c 'setsid /bin/sh -c \": unruly; while :; do sleep 1; done\" & exit'; echo left" } }] }
  - { toolCalls: [{ tool: Shell, args: { command: "yes unruly" } }] }
  - { toolCalls: [{ tool: Shell, args: { command: "exec >&- 2>&-; sh -c ': unruly; sleep 1000'" } }] }
  - { toolCalls: [{ tool: Shell, args: { command: "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c unrul[y]" } }] }
  - { toolCalls: [{ tool: Shell, args: { command: "kill -9 -1; kill -9 $$" } }] }
  - { toolCalls: [{ tool: Shell, args: { command: "kill -9 1; head -c 268435456 /dev/zero | wc -c" } }] }
  - { toolCalls: [{ tool: Shell, args: { command: "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c unrul[y]" } }] }
  - { text: done }
- when: { lastUserContains: end yourself }
  steps:
  - { toolCalls: [{ tool: Shell, args: { command: "echo begun >> begun; kill -TERM 1 2>&1; echo went on" } }] }
  - { toolCalls: [{ tool: Shell, args: { command: "wc -l < begun" } }] }
  - { text: done }
- when: { lastUserContains: never end }
  steps:
  - { toolCalls: [{ tool: Shell, args: { command: "trap '' TERM; yes & while :; do sleep 1; done" } }] }
  - { text: done }
"#;

fn tool_ends(log: &[LogLine]) -> Vec<ToolEnded> {
    log.iter().filter_map(|l| if let Body::ToolEnded(end) = &l.entry.body { Some(end.clone()) } else { None }).collect()
}

fn run_outcomes(log: &[LogLine]) -> Vec<RunOutcome> {
    log.iter().filter_map(|l| if let Body::RunEnded(end) = &l.entry.body { Some(end.outcome) } else { None }).collect()
}

#[tokio::test]
async fn commands_that_misbehave_end_and_the_agent_stays_responsive_and_stops() -> Result<()> {
    let ns = TestNamespace::create("degraded-tools").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("unruly", "p", json!({ "task": "misbehave", "limits": { "toolSeconds": 20 } })).await?;
    ns.create_agent("self-killer", "p", json!({ "task": "end yourself" })).await?;
    ns.create_agent("stuck", "p", json!({ "task": "never end", "limits": { "toolSeconds": 3000 } })).await?;
    let begun = async |agent: &str| {
        ns.wait_log(agent, "a call", |log| log.iter().any(|l| l.entry.body.kind() == "ToolStarted").then_some(())).await
    };
    let unruly = async {
        begun("unruly").await?;
        check_responsive(&ns, "unruly").await?;
        ns.wait_task_complete("unruly").await?;
        let ends = tool_ends(&ns.log("unruly").await?);
        ensure!(ends.len() >= 8, "{ends:?}");
        // Counted before a command kills them all, and after.
        for count in [&ends[4], &ends[7]] {
            ensure!(count.output.starts_with("0\n"), "something of them is left: {}", count.output);
        }
        use ToolOutcome::{Failed, Succeeded, TimedOut};
        let outcomes: Vec<ToolOutcome> = ends.iter().take(8).map(|end| end.outcome).collect();
        ensure!(outcomes == [TimedOut, Succeeded, TimedOut, TimedOut, Failed, Failed, Succeeded, Failed], "{ends:?}");
        ensure!(ends[2].output.contains("bytes left out") && ends[2].output.len() <= 256 << 10, "{} bytes", ends[2].output.len());
        ensure!(ends[5].output.ends_with("[ended by signal 9]") && ends[6].output.contains("268435456"), "{ends:?}");
        Ok(())
    };
    let self_killer = async {
        ns.wait_task_complete("self-killer").await?;
        let log = ns.log("self-killer").await?;
        let ends = tool_ends(&log);
        // The frame lets no process of the agent signal the runtime.
        let first = &ends[0].output;
        ensure!(first.contains("Operation not permitted") && first.contains("went on") && ends[1].output.starts_with("1\n"), "{ends:?}");
        ensure!(run_outcomes(&log) == [RunOutcome::Finished], "{:?}", run_outcomes(&log));
        Ok(())
    };
    let stuck = async {
        begun("stuck").await?;
        check_responsive(&ns, "stuck").await?;
        check_stops(&ns, "stuck").await?;
        ns.yoi(&["start", "stuck", "--wait"]).await?.exit_ok()?;
        let log = ns.log("stuck").await?;
        ensure!(
            tool_ends(&log)[0].outcome == ToolOutcome::Unknown && run_outcomes(&log).first() == Some(&RunOutcome::Interrupted),
            "{log:?}"
        );
        // The runtime that was stopped closed the run, not the next one.
        ensure!(log.iter().find(|l| l.entry.body.kind() == "RunEnded").is_some_and(|l| l.entry.run == 1), "{log:?}");
        Ok(())
    };
    futures::try_join!(unruly, self_killer, stuck)?;
    ns.remove().await
}
