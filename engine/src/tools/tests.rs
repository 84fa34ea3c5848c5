use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use futures::FutureExt;
use serde_json::{Value, json};
use tempfile::TempDir;
use yoi_wire::entry::{CallFrom, RefusalClass, ToolOutcome};
use yoi_wire::policy::ToolPolicy;

use super::slots::{CONVERSATION_SLOTS, PROJECT_SLOTS};
use super::*;
use crate::decision::Decision;
use crate::peers::NoPeers;
use crate::processes::ProcessSupervisor;

mod arguments;
mod assets;
mod children;
mod files;
mod policy;
mod searches;
mod secrets;

/// A tree at `outer/root`, beside the file `outer/secret`.
struct Fixture {
    outer: TempDir,
    gate: ToolGate,
}

impl Fixture {
    fn new() -> Self {
        Self::with_limits(RunLimits::default())
    }

    fn with_limits(limits: RunLimits) -> Self {
        Self::with(limits, |_, _| {})
    }

    /// `prepare` gets the folder around the tree, and what starts its processes.
    fn with(limits: RunLimits, prepare: impl FnOnce(&Path, &mut ProcessSupervisor)) -> Self {
        Self::build(limits, &ToolPolicy::default(), prepare)
    }

    fn with_policy(policy: &ToolPolicy) -> Self {
        Self::build(RunLimits::default(), policy, |_, _| {})
    }

    fn build(limits: RunLimits, policy: &ToolPolicy, prepare: impl FnOnce(&Path, &mut ProcessSupervisor)) -> Self {
        let policy = Policy::new(policy).unwrap();
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().join("root");
        fs::create_dir(&root).unwrap();
        fs::write(outer.path().join("secret"), "a secret\n").unwrap();
        let mut processes = ProcessSupervisor::new(root.clone(), "a", &[]);
        prepare(outer.path(), &mut processes);
        let shell = Shell::new(Arc::new(processes));
        let runner = ToolRunner::new(Arc::new(Tree::open(&root).unwrap()), Arc::new(shell), Arc::new(NoPeers), limits, Arc::new(policy));
        Self { outer, gate: ToolGate::new(runner) }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.outer.path().join("root").join(path)
    }

    fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
        fs::write(path, content).unwrap();
    }

    async fn run(&self, tool: &str, args: Value) -> CallResult {
        self.gate.run(&call(tool, args), CallFrom::Model, &LiveOutput::discard()).await
    }

    /// Why a call of the model may not begin.
    fn refuse(&self, tool: &str, args: Value) -> Refusal {
        match self.gate.begin(&call(tool, args), CallFrom::Model) {
            Decision::Refuse(refusal) => refusal,
            Decision::Allow | Decision::Ask(_) => panic!("the call of {tool} is not refused"),
        }
    }

    async fn succeed(&self, tool: &str, args: Value) -> String {
        let end = self.run(tool, args).await;
        assert_eq!(end.outcome, ToolOutcome::Succeeded, "{}", end.output);
        end.output
    }

    async fn fail(&self, tool: &str, args: Value) -> String {
        let end = self.run(tool, args).await;
        assert_eq!(end.outcome, ToolOutcome::Failed, "{}", end.output);
        end.output
    }
}

fn call(tool: &str, args: Value) -> ToolCall {
    ToolCall { call_id: "c".into(), tool: tool.into(), args }
}

#[tokio::test(flavor = "multi_thread")]
async fn p25_a_call_that_finds_no_slot_waits_for_one() {
    let fixture = Fixture::new();
    fixture.write("file", "text");
    assert_eq!(fixture.succeed("Shell", json!({"command": "mkfifo gate"})).await, "[exit code 0]");
    let waiting = call("Shell", json!({"command": "read line < gate; echo $line"}));
    let live = LiveOutput::discard();
    let mut held: Vec<_> = (0..CONVERSATION_SLOTS).map(|_| fixture.gate.run(&waiting, CallFrom::Model, &live).boxed()).collect();
    for running in &mut held {
        assert!(futures::poll!(running).is_pending());
    }
    let read = call("Read", json!({"path": "file"}));
    let mut read = fixture.gate.run(&read, CallFrom::Model, &live).boxed();
    assert!(futures::poll!(&mut read).is_pending());
    assert_eq!(fixture.gate.runner().slots.conversation.available_permits(), 0);
    // Dropping one call frees its slot. The others go on.
    held.pop();
    assert_eq!(read.await.output, "     1\ttext");
    // Opened for reading too, and until the end: a pipe that nobody holds forgets what is in it.
    let mut gate = fs::File::options().read(true).write(true).open(fixture.path("gate")).unwrap();
    gate.write_all(b"one\ntwo\nthree\n").unwrap();
    let ends = futures::future::join_all(held).await;
    drop(gate);
    assert_eq!(ends.iter().filter(|end| end.outcome == ToolOutcome::Succeeded).count(), CONVERSATION_SLOTS - 1, "{ends:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn p25_a_call_that_gets_no_slot_within_its_time_is_refused_and_has_done_nothing() {
    let fixture = Fixture::with_limits(RunLimits { tool_seconds: 1, ..RunLimits::default() });
    let _all = fixture.gate.runner().slots.conversation.clone().acquire_many_owned(4).await.unwrap();
    let end = fixture.run("Write", json!({"path": "new", "content": "x"})).await;
    assert_eq!((end.outcome, end.refused), (ToolOutcome::Refused, Some(RefusalClass::SlotsFull)));
    assert_eq!(end.output, "slots_full: within 1 s none of the 4 calls in flight in this conversation ended; nothing was done");
    assert!(!fixture.path("new").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn p25_conversations_of_a_project_share_its_slots_and_a_call_learns_which_limit_it_waited_for() {
    let project = ProjectSlots::default();
    let conversations = [(); 3].map(|()| Slots::new(project.clone()));
    let soon = std::time::Duration::from_millis(1);
    let mut taken = Vec::new();
    for conversation in &conversations[..2] {
        for _ in 0..CONVERSATION_SLOTS {
            taken.push(conversation.take(std::time::Duration::from_secs(60)).await.unwrap());
        }
    }
    assert_eq!(taken.len(), PROJECT_SLOTS);
    let refused = conversations[0].take(soon).await.unwrap_err();
    assert!(refused.message.contains("in this conversation"), "{}", refused.message);
    let refused = conversations[2].take(soon).await.unwrap_err();
    assert!(refused.message.contains("in this project"), "{}", refused.message);
    // Two wait, and whoever came first is first.
    let limit = std::time::Duration::from_secs(60);
    let mut waiting: Vec<_> = (0..2).map(|_| conversations[2].take(limit).boxed()).collect();
    for slot in &mut waiting {
        assert!(futures::poll!(slot).is_pending());
    }
    drop(taken.pop());
    assert!(futures::poll!(&mut waiting[1]).is_pending());
    assert!(futures::poll!(&mut waiting[0]).is_ready());
}

#[tokio::test]
async fn p25_of_fifty_calls_in_three_conversations_eight_and_four_are_in_flight_each_has_its_turn_in_order_and_all_slots_come_back() {
    let conversations = {
        let first = Slots::new(ProjectSlots::default());
        [first.clone(), first.of_another_conversation(), first.of_another_conversation()]
    };
    let limit = std::time::Duration::from_secs(60);
    let mut waiting: Vec<_> = (0..50).map(|call| (call % 3, call, conversations[call % 3].take(limit).boxed())).collect();
    // By conversation.
    let (mut held, mut begun) = (Vec::new(), [const { Vec::new() }; 3]);
    while !waiting.is_empty() {
        let mut still = Vec::new();
        for (of, call, mut slot) in waiting {
            match futures::poll!(&mut slot) {
                std::task::Poll::Ready(slot) => {
                    begun[of].push(call);
                    held.push((of, slot.unwrap()));
                }
                std::task::Poll::Pending => still.push((of, call, slot)),
            }
        }
        waiting = still;
        let of = |conversation| held.iter().filter(|(of, _)| *of == conversation).count();
        assert!(held.len() <= PROJECT_SLOTS && (0..3).all(|conversation| of(conversation) <= CONVERSATION_SLOTS), "{begun:?}");
        // As a call that ends by itself, by a fault or by a cancel: its slot is dropped.
        held.remove(0);
    }
    drop(held);
    assert!(begun.iter().all(|calls| calls.is_sorted()) && begun.iter().map(Vec::len).sum::<usize>() == 50, "{begun:?}");
    let all: Vec<_> = futures::future::join_all((0..PROJECT_SLOTS).map(|call| conversations[call % 2].take(limit))).await;
    assert!(all.iter().all(Result::is_ok), "a slot is lost");
}

#[test]
fn calls_that_only_read_say_so() {
    let fixture = Fixture::new();
    let reading = fixture.gate.runner().tools().read_only();
    assert_eq!(
        reading.into_iter().collect::<Vec<_>>(),
        [
            "Command",
            "DiffPod",
            "Glob",
            "Graph",
            "Grep",
            "List",
            "ListPods",
            "PodLog",
            "PodState",
            "Read",
            "ShellOutput",
            "Skill",
            "WaitPods",
            "WaitSubagents"
        ]
    );
}

#[test]
fn a_program_has_only_the_tools_that_it_is_offered_and_its_hook_asks_for_tools_of_its_own() {
    let fixture = Fixture::new();
    let offered = |to| fixture.gate.offered(to).into_iter().map(|tool| tool.name).collect::<Vec<_>>();
    assert_eq!(offered(CallFrom::Mcp), ["ListPods", "SendToPeerPod", "RestorePod"]);
    assert_eq!(offered(CallFrom::Hook), [""; 0]);
    let class = |tool: &str, from| match fixture.gate.begin(&call(tool, json!({})), from) {
        Decision::Allow | Decision::Ask(_) => None,
        Decision::Refuse(refusal) => Some(refusal.class),
    };
    assert_eq!(class("ListPods", CallFrom::Mcp), None);
    assert_eq!(class("SendToPeerPod", CallFrom::Mcp), Some(RefusalClass::InvalidArgs));
    assert_eq!(class("Read", CallFrom::Mcp), Some(RefusalClass::ToolNotExposed));
    assert_eq!(class("Rm", CallFrom::Mcp), Some(RefusalClass::UnknownTool));
    assert_eq!(class("Bash", CallFrom::Hook), None);
}
