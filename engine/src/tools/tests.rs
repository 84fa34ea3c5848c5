use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use futures::FutureExt;
use serde_json::{Value, json};
use tempfile::TempDir;
use yoi_wire::entry::ToolOutcome;

use super::*;
use crate::peers::NoPeers;
use crate::processes::ProcessSupervisor;

mod arguments;
mod files;
mod searches;

/// A tree at `outer/root`, beside the file `outer/secret`.
struct Fixture {
    outer: TempDir,
    runner: ToolRunner,
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
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().join("root");
        fs::create_dir(&root).unwrap();
        fs::write(outer.path().join("secret"), "a secret\n").unwrap();
        let mut processes = ProcessSupervisor::new(root.clone(), "a", &[]);
        prepare(outer.path(), &mut processes);
        let shell = Shell::new(Arc::new(processes));
        let runner = ToolRunner::new(Arc::new(Tree::open(&root).unwrap()), Arc::new(shell), Arc::new(NoPeers), limits);
        Self { outer, runner }
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
        self.runner.run(&call(tool, args), &LiveOutput::discard()).await
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
    let mut held: Vec<_> = (0..CONVERSATION_SLOTS).map(|_| fixture.runner.run(&waiting, &live).boxed()).collect();
    for running in &mut held {
        assert!(futures::poll!(running).is_pending());
    }
    let read = call("Read", json!({"path": "file"}));
    let mut read = fixture.runner.run(&read, &live).boxed();
    assert!(futures::poll!(&mut read).is_pending());
    assert_eq!(fixture.runner.conversation.available_permits(), 0);
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
    let _all = fixture.runner.conversation.clone().acquire_many_owned(4).await.unwrap();
    let end = fixture.run("Write", json!({"path": "new", "content": "x"})).await;
    assert_eq!(end.outcome, ToolOutcome::Refused);
    assert!(end.output.starts_with("slots_full: within 1 s"), "{}", end.output);
    assert!(!fixture.path("new").exists());
}

#[test]
fn calls_that_only_read_say_so() {
    let fixture = Fixture::new();
    let reading: Vec<String> = fixture
        .runner
        .offered()
        .into_iter()
        .map(|tool| tool.name)
        .filter(|name| fixture.runner.reads_only(&call(name, json!({}))))
        .collect();
    assert_eq!(reading, ["ShellOutput", "Read", "Grep", "Glob", "List", "ListPods"]);
    assert!(!fixture.runner.reads_only(&call("Rm", json!({}))));
}
