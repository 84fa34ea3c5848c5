//! Every path as a program's hook sends it: in the format of each program, through the runtime's socket, to the gate of all tools.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tempfile::TempDir;
use yoi_engine::conversation::CallEnd;
use yoi_engine::decision::Decision;
use yoi_engine::program::calls::ProgramCalls;
use yoi_engine::tools::ToolGate;
use yoi_runtime::args::{HookArgs, HookMoment, ProgramEnd};
use yoi_runtime::hook::{HookError, run};
use yoi_runtime::program_socket::{BoundSocket, ProgramSocket, SocketGrant};
use yoi_wire::entry::{CallFrom, OfferedTool, ToolCall, ToolOutcome};
use yoi_wire::policy::ToolPolicy;

use crate::fixture::{SECRET, TreeFixture};
use crate::inputs::{Expected, Input, all};
use crate::subjects::RuntimeTools;

const TOKEN: &str = "token";

/// Decides about the calls of a run, and runs none.
struct GateOnly(ToolGate);

impl ProgramCalls for GateOnly {
    fn call_starts(&self, call: ToolCall, _wait_seconds: u64) -> BoxFuture<'_, Result<(), String>> {
        let decided = match self.0.begin(&call, CallFrom::Hook) {
            Decision::Allow => Ok(()),
            Decision::Ask(_) => Err("a person is asked".to_owned()),
            Decision::Refuse(refusal) => Err(refusal.message),
        };
        async move { decided }.boxed()
    }

    fn call_ended(&self, _call_id: String, _outcome: ToolOutcome, _output: String) -> BoxFuture<'_, ()> {
        async {}.boxed()
    }

    fn run_tool(&self, _call: ToolCall) -> BoxFuture<'_, CallEnd> {
        unreachable!("a hook runs nothing")
    }

    fn offered(&self) -> Vec<OfferedTool> {
        Vec::new()
    }
}

/// A run of a program in a tree, under a policy that allows the files of the tree alone.
struct HookedRun {
    fixture: TreeFixture,
    end: ProgramEnd,
    _socket: ProgramSocket,
    _grant: SocketGrant,
    _folder: TempDir,
}

impl HookedRun {
    /// Must be called within a tokio runtime.
    fn new() -> Self {
        let fixture = TreeFixture::new();
        let rules = ["Read(**)", "Edit(**)", "Write(**)"].map(str::to_owned).to_vec();
        let gate = RuntimeTools::gate(&fixture.tree(), &ToolPolicy { allow: vec![rules], ..ToolPolicy::default() });
        let folder = tempfile::tempdir().unwrap();
        let socket = ProgramSocket::serve(BoundSocket::bind(&folder.path().join("run")).unwrap()).unwrap();
        let grant = socket.allow(TOKEN, Arc::new(GateOnly(gate)));
        let end = ProgramEnd { socket: socket.path().to_owned(), token: TOKEN.to_owned() };
        Self { fixture, end, _socket: socket, _grant: grant, _folder: folder }
    }

    /// What the program's model reads of a refusal.
    async fn refusal(&self, call: &Value) -> Option<String> {
        let args = HookArgs { moment: HookMoment::Before, wait: 0, end: self.end.clone() };
        match run(&args, call.to_string().as_bytes()).await {
            Ok(()) => None,
            Err(HookError::Refused(message)) => Some(message),
            Err(error) => panic!("the hook did not end well: {error}: {:.300}", call.to_string()),
        }
    }
}

/// No path that the system opens is as long. Longer texts are not looked through for JSON.
const LONGEST_IN_JSON: usize = 32 << 10;

/// The calls with this path, as the programs write them to their hooks.
fn calls_with(path: &str) -> Vec<Value> {
    let mut calls = vec![
        json!({"tool_name": "Read", "tool_use_id": "1", "tool_input": {"file_path": path}}),
        json!({"tool_name": "Edit", "tool_use_id": "2", "tool_input": {"file_path": path, "old_string": "e", "new_string": "E"}}),
        json!({"tool_name": "Write", "tool_use_id": "3", "tool_input": {"file_path": path, "content": "x"}}),
        json!({"tool_name": "write_file", "tool_input": {"file_path": path, "content": "x"}}),
        json!({"tool_name": "read_file", "tool_input": {"absolute_path": path}}),
        json!({"toolName": "view", "toolArgs": json!({"path": path}).to_string()}),
        // Wherever the path stands.
        json!({"tool_name": "Read", "tool_input": {"file_path": "file", "more": [{"target": path}]}}),
    ];
    if path.len() <= LONGEST_IN_JSON {
        calls.push(json!({"tool_name": "Read", "tool_input": {"path": "file", "options": json!({"cwd": path}).to_string()}}));
    }
    calls
}

/// Tries one input in a run of its own. Returns the number of calls, or the promise that was broken.
async fn check_promises(input: &Input) -> Result<usize, String> {
    let run = HookedRun::new();
    let path = input.path(&run.fixture);
    let calls = calls_with(&path);
    for call in &calls {
        let refusal = run.refusal(call).await;
        let broken = |what: &str| Err(format!("{:?} {:.200}: {what} ({refusal:?})", input.kind, call.to_string()));
        if let Err(what) = run.fixture.check_untouched() {
            return broken(&what);
        }
        if refusal.as_ref().is_some_and(|message| message.contains(SECRET)) {
            return broken("the secret was disclosed");
        }
        match input.expected {
            Expected::Refused if refusal.is_none() => return broken("was not refused"),
            Expected::Works if refusal.is_some() => return broken("was refused"),
            Expected::Refused | Expected::Fails | Expected::Works | Expected::Free => {}
        }
    }
    Ok(calls.len())
}

#[tokio::test]
async fn p13_p16_no_path_that_leads_out_of_the_tree_passes_the_hook_of_a_program() {
    let inputs = all();
    let (mut broken, mut calls, mut count) = (Vec::new(), 0, BTreeMap::new());
    for input in &inputs {
        match check_promises(input).await {
            Ok(tried) => calls += tried,
            Err(what) => broken.push(what),
        }
        *count.entry(format!("{:?}", input.kind)).or_insert(0) += 1;
    }
    println!("paths by hook: {} inputs, {calls} calls: {count:?}", inputs.len());
    assert!(broken.is_empty(), "{} of {} inputs:\n{}", broken.len(), inputs.len(), broken.join("\n"));
    assert!(inputs.len() >= 1_000, "{} inputs", inputs.len());
}
