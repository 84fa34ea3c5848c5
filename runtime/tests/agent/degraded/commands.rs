//! Commands that do not end, leave processes behind, or use up memory or processes.

use std::path::PathBuf;
use std::time::Duration;

use futures::future::join_all;
use serde_json::json;
use yoi_test_support::{slowness, wait_until};
use yoi_wire::entry::{RunOutcome, ToolOutcome};

use super::invariants::{assert_invariants, assert_responsive, living_processes};
use crate::harness::{Harness, kinds, outcomes, tool_ends};

/// A command, and how its call ends within the time limit.
pub struct MisbehavingCommand {
    pub name: &'static str,
    pub command: &'static str,
    outcome: ToolOutcome,
    ends_with: &'static str,
}

const fn never_ends(name: &'static str, command: &'static str) -> MisbehavingCommand {
    MisbehavingCommand {
        name,
        command,
        outcome: ToolOutcome::TimedOut,
        ends_with: "the time limit of 2 s was reached; all its processes were ended]",
    }
}

/// `MARK` is in the command line of every process that could be left behind. `PAUSE` is replaced by the seconds that a command waits before
/// its last step.
pub const MISBEHAVING_COMMANDS: [MisbehavingCommand; 9] = [
    never_ends("never ends", "touch begun; sh -c ': MARK; while :; do sleep 1; done'"),
    never_ends("ignores signals", "touch begun; trap '' TERM INT HUP; sh -c 'trap \"\" TERM INT HUP; : MARK; while :; do sleep 1; done'"),
    never_ends(
        "leaves session, parents and environment",
        "env -i /bin/sh -c 'setsid /bin/sh -c \"trap \\\"\\\" TERM; : MARK; while :; do sleep 1; done\" & exit' ; touch begun; sh -c ': MARK; while :; do sleep 1; done'",
    ),
    never_ends("prints without end", "touch begun; yes MARK"),
    never_ends("prints without end and without a line", "touch begun; exec sh -c ': MARK; tr \"\\\\0\" x < /dev/zero'"),
    never_ends("closes its output and goes on", "touch begun; exec >&- 2>&-; sh -c ': MARK; while :; do sleep 1; done'"),
    MisbehavingCommand {
        name: "leaves somebody who holds the pipe",
        command: "(env -i setsid /bin/sh -c ': MARK; trap \"\" TERM; while :; do sleep 1; done' &) ; sleep 0.3; touch begun; sleep PAUSE; echo left",
        outcome: ToolOutcome::Succeeded,
        ends_with: "that the command left running ended with it; set background for what shall go on]\n[exit code 0]",
    },
    MisbehavingCommand {
        name: "kills all children of the runtime",
        command: "touch begun; sleep PAUSE; for child in $(cat /proc/$PPID/task/*/children); do kill -9 $child; done; sh -c ': MARK; sleep 100'",
        outcome: ToolOutcome::Failed,
        ends_with: "[ended by signal 9]",
    },
    MisbehavingCommand {
        name: "writes more than it may hold in memory and reads it",
        command: "touch begun; : MARK; head -c 268435456 /dev/zero > big; head -c 90000000 big | tr '\\0' x; rm big; sleep PAUSE",
        outcome: ToolOutcome::Succeeded,
        ends_with: "[exit code 0]",
    },
];

/// It ends in a dot, so that none is the beginning of another one.
pub fn mark(name: &str) -> String {
    format!("unruly-{}-{}.", std::process::id(), name.replace(' ', "-"))
}

fn script(command: &str, seconds: u32) -> String {
    let args = json!({"command": command, "timeoutSeconds": seconds});
    format!(
        "rules:\n- when: {{lastUserContains: say hello}}\n  steps: [{{text: Hello.}}]\n- steps:\n  - toolCalls: [{{tool: Shell, args: {args}}}]\n  - text: done\n"
    )
}

/// Peak resident memory of a process, in KiB.
fn peak(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok()).unwrap()
}

/// Most of these wait, so some run at a time.
const AT_A_TIME: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn a_misbehaving_command_ends_in_time_leaves_no_process_and_fills_no_memory() {
    let check = async |&MisbehavingCommand { name, command, outcome, ends_with }: &MisbehavingCommand| {
        let mark = mark(name);
        // The others end by themselves, however slow the disk is.
        let seconds = if outcome == ToolOutcome::TimedOut { 2 } else { 300 };
        let harness = Harness::new(&script(&command.replace("MARK", &mark).replace("PAUSE", "1"), seconds)).await;
        let runtime = harness.start(1, Some("go"));
        harness.wait_until("its start", |_| harness.tree().join("begun").exists()).await;
        assert_responsive(&harness, "busy").await;
        let entries = harness.wait_until(name, |entries| !tool_ends(entries).is_empty()).await;
        let end = tool_ends(&entries).remove(0);
        assert!(end.outcome == outcome && end.output.ends_with(ends_with), "{name}: {end:?}");
        assert!(end.output.len() <= 4096, "{name}: {}", end.output.len());
        let endless_output = name.starts_with("prints") || name.starts_with("writes");
        assert_eq!(end.output.contains("bytes left out"), endless_output, "{name}: {end:?}");
        // A true bound, of the runtime's own clock: killing all of it takes no longer than the limit itself, and some seconds.
        let most = Duration::from_secs(7).mul_f64(slowness()).as_millis();
        assert!(outcome != ToolOutcome::TimedOut || end.millis.is_some_and(|millis| u128::from(millis) < most), "{name}: {end:?}");
        assert!(living_processes(&mark).is_empty(), "{name}: {:?}", living_processes(&mark));
        harness.wait_until("the run's end", |entries| outcomes(entries).first() == Some(&RunOutcome::Finished)).await;
        assert!(peak(runtime.child.id()) < 80 << 10, "{name}: {} KiB", peak(runtime.child.id()));
        assert_invariants(&harness);
    };
    for commands in MISBEHAVING_COMMANDS.chunks(AT_A_TIME) {
        join_all(commands.iter().map(&check)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn p68_an_agent_stops_in_seconds_and_closes_its_log_whatever_its_command_does() {
    let check = async |&MisbehavingCommand { name, command, .. }: &MisbehavingCommand| {
        let mark = mark(&format!("stop-{name}"));
        let harness = Harness::new(&script(&command.replace("MARK", &mark).replace("PAUSE", "20"), 25)).await;
        let mut runtime = harness.start(1, Some("go"));
        harness.wait_until("its start", |_| harness.tree().join("begun").exists()).await;
        harness.stop(&mut runtime).await;
        // They are killed, and the kernel takes them away after that.
        wait_until("the end of its processes", || living_processes(&mark).is_empty().then_some(()));
        let entries = harness.entries();
        assert!(kinds(&entries).ends_with("ToolStarted ToolEnded RunEnded Extension"), "{name}: {}", kinds(&entries));
        assert_eq!((tool_ends(&entries)[0].outcome, outcomes(&entries)), (ToolOutcome::Unknown, vec![RunOutcome::Interrupted]), "{name}");
        let folder = std::fs::read_dir(harness.session().join("sessions")).unwrap().next().unwrap().unwrap().path();
        let log = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).find(|path| path.extension().is_some()).unwrap();
        assert!(std::fs::read(log).unwrap().ends_with(b"\n"), "{name}: the zeros were trimmed");
        assert_invariants(&harness);
    };
    for commands in MISBEHAVING_COMMANDS.chunks(AT_A_TIME) {
        join_all(commands.iter().map(&check)).await;
    }
}

/// A cgroup with a limit of processes.
struct PidLimit(PathBuf);

impl PidLimit {
    fn at_most(count: u32, pid: u32) -> Option<Self> {
        let roots = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"].map(PathBuf::from);
        let root = roots
            .into_iter()
            .find(|root| root.join("pids.max").exists() || root.join("tasks").exists() || root.join("cgroup.procs").exists())?;
        let group = root.join(format!("yoi-test-{}", std::process::id()));
        let made = std::fs::create_dir(&group).and_then(|()| std::fs::write(group.join("pids.max"), count.to_string()));
        let limit = Self(group);
        made.and_then(|()| std::fs::write(limit.0.join("cgroup.procs"), pid.to_string())).ok().map(|()| limit)
    }
}

impl Drop for PidLimit {
    fn drop(&mut self) {
        // A panic in a drop would hide why the test fails.
        if !std::thread::panicking() {
            wait_until("an empty cgroup", || std::fs::remove_dir(&self.0).ok());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_uses_up_all_processes_is_ended_and_the_agent_goes_on() {
    let mark = mark("bomb");
    let command = format!(": {mark}; touch begun; bomb() {{ bomb | bomb & }}; bomb; while :; do bomb; done");
    let harness = Harness::new(&script(&command, 3)).await;
    let mut runtime = harness.start(1, None);
    harness.gateway.wait_for_report(|report| report.ready).await;
    let Some(limit) = PidLimit::at_most(150, runtime.child.id()) else {
        crate::skip::skip("no right to limit processes");
        return;
    };
    harness.gateway.deliver("go", crate::gateway::person(), "go").await;
    harness.wait_until("its start", |_| harness.tree().join("begun").exists()).await;
    assert_responsive(&harness, "bombed").await;
    let entries = harness.wait_until("its end", |entries| !tool_ends(entries).is_empty()).await;
    assert_eq!(tool_ends(&entries)[0].outcome, ToolOutcome::TimedOut, "{:?}", tool_ends(&entries));
    assert!(living_processes(&mark).is_empty(), "{:?}", living_processes(&mark));
    harness.wait_until("the messages", |entries| outcomes(entries).contains(&RunOutcome::Finished)).await;
    assert!(runtime.terminate().await.success());
    drop(limit);
    assert_invariants(&harness);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_without_a_working_directory_fails_with_a_reason_and_the_agent_goes_on() {
    let script = r#"
rules:
- steps:
  - toolCalls: [{tool: Shell, args: {command: 'rm -rf "$PWD"; echo gone'}}]
  - toolCalls: [{tool: Shell, args: {command: echo here}}]
  - toolCalls: [{tool: Write, args: {path: x, content: x}}]
  - toolCalls: [{tool: Read, args: {path: x}}]
  - text: done
"#;
    // In the frame no command can remove the root of the tree. A kernel without Landlock has no frame.
    let mut harness = Harness::new(script).await;
    harness.env.push(("YOI_FRAME", "false".to_owned()));
    let mut runtime = harness.start(1, Some("go"));
    let entries = harness.wait_for_runs(1).await;
    let ends = tool_ends(&entries);
    assert_eq!(ends[0].outcome, ToolOutcome::Succeeded);
    assert!(ends[1].output.contains("the working directory") && ends[1].output.contains("is gone"), "{:?}", ends[1]);
    assert!(ends[1..].iter().all(|end| end.outcome == ToolOutcome::Failed), "{ends:?}");
    assert_eq!(outcomes(&entries), [RunOutcome::Finished]);
    assert!(runtime.terminate().await.success());
    assert_invariants(&harness);
}
