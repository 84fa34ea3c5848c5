//! The processes that a program starts of `yoi-runtime`: hooks, and the MCP server. The socket is real, and so are the tools.

use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Semaphore;
use yoi_engine::conversation::CallEnd;
use yoi_engine::peers::NoPeers;
use yoi_engine::policy::Policy;
use yoi_engine::processes::ProcessSupervisor;
use yoi_engine::program::calls::ProgramCalls;
use yoi_engine::tools::shell::Shell;
use yoi_engine::tools::tree::Tree;
use yoi_engine::tools::{LiveOutput, ToolGate, ToolRunner};
use yoi_runtime::program_socket::{BoundSocket, ProgramSocket, SocketGrant};
use yoi_test_support::{eventually, in_time};
use yoi_wire::entry::{CallFrom, OfferedTool, ToolCall, ToolOutcome};
use yoi_wire::manifest::RunLimits;
use yoi_wire::policy::ToolPolicy;

const TOKEN: &str = "token-of-the-run";
const OFFERED: [&str; 3] = ["ListPods", "SendToPeerPod", "RestorePod"];

/// A run of a program: its log, and the tools of built-in agents. An entry is durable when `disk` has a permit for it.
struct Run {
    log: Mutex<Vec<Value>>,
    disk: Semaphore,
    tools: ToolGate,
}

impl ProgramCalls for Run {
    fn call_starts(&self, call: ToolCall, _wait_seconds: u64) -> BoxFuture<'_, Result<(), String>> {
        async move {
            self.log.lock().unwrap().push(json!({"begins": call}));
            self.disk.acquire().await.map_err(|_| "the disk of the session is full".to_owned())?.forget();
            self.log.lock().unwrap().push(json!("durable"));
            Ok(())
        }
        .boxed()
    }

    fn call_ended(&self, call_id: String, outcome: ToolOutcome, output: String) -> BoxFuture<'_, ()> {
        self.log.lock().unwrap().push(json!({"ended": call_id, "outcome": outcome, "output": output}));
        async {}.boxed()
    }

    fn run_tool(&self, call: ToolCall) -> BoxFuture<'_, CallEnd> {
        async move {
            let end = self.tools.run(&call, CallFrom::Mcp, &LiveOutput::discard()).await;
            CallEnd { outcome: end.outcome, output: end.output, images: end.images, refused: end.refused, read: None, millis: 0 }
        }
        .boxed()
    }

    fn offered(&self) -> Vec<OfferedTool> {
        self.tools.offered(CallFrom::Mcp)
    }
}

struct Setup {
    run: Arc<Run>,
    socket: ProgramSocket,
    _grant: SocketGrant,
    folder: tempfile::TempDir,
}

fn setup() -> Setup {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_owned();
    let shell = Shell::new(Arc::new(ProcessSupervisor::new(root.clone(), "a", &[])));
    let policy = Arc::new(Policy::new(&ToolPolicy::default()).unwrap());
    let runner = ToolRunner::new(Arc::new(Tree::open(&root).unwrap()), Arc::new(shell), Arc::new(NoPeers), RunLimits::default(), policy);
    let tools = ToolGate::new(runner);
    let run = Arc::new(Run { log: Mutex::default(), disk: Semaphore::new(Semaphore::MAX_PERMITS >> 1), tools });
    let socket = ProgramSocket::serve(BoundSocket::bind(&folder.path().join("socket")).unwrap()).unwrap();
    let grant = socket.allow(TOKEN, run.clone());
    Setup { run, socket, _grant: grant, folder }
}

impl Setup {
    fn command(&self, args: &[&str], token: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_yoi-runtime"));
        command.args(args).env_clear().env("YOI_PROGRAM_SOCKET", self.socket.path()).env("YOI_PROGRAM_TOKEN", token);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    fn log(&self) -> Vec<Value> {
        self.run.log.lock().unwrap().clone()
    }
}

async fn finish(mut command: Command, input: &str) -> Output {
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A hook that fails early does not read it all.
    let _ = stdin.write_all(input.as_bytes()).await;
    drop(stdin);
    in_time("the end of the hook", child.wait_with_output()).await.unwrap()
}

fn before() -> String {
    json!({"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "make"}, "tool_use_id": "toolu_1"}).to_string()
}

#[tokio::test]
async fn a_hook_ends_well_only_when_the_begin_of_the_call_is_durable() {
    let setup = setup();
    setup.run.disk.forget_permits(usize::MAX);
    let mut child = setup.command(&["hook", "before"], TOKEN).spawn().unwrap();
    child.stdin.take().unwrap().write_all(before().as_bytes()).await.unwrap();
    eventually("the begin of the call", async || (!setup.log().is_empty()).then_some(())).await;
    // Other processes are started, are answered over the same socket, and end meanwhile. A hook that does not wait would have ended before them.
    for _ in 0..3 {
        let mut client = Client::start(&setup, TOKEN);
        client.initialize("2025-11-25").await;
        assert!(client.ask(2, "tools/list", json!({})).await["result"]["tools"].is_array());
        assert!(client.close().await.status.success());
    }
    assert!(child.try_wait().unwrap().is_none(), "the hook has ended before the begin is durable");
    setup.run.disk.add_permits(1);
    let output = in_time("the end of the hook", child.wait_with_output()).await.unwrap();
    assert!(output.status.success(), "{output:?}");
    // What a hook writes there, a program may take for an instruction.
    assert_eq!((output.stdout.len(), output.stderr.len()), (0, 0));
    let call = json!({"callId": "toolu_1", "tool": "Bash", "args": {"command": "make"}});
    assert_eq!(setup.log(), [json!({"begins": call}), json!("durable")]);
}

#[tokio::test]
async fn the_end_of_a_call_is_told_with_its_output() {
    let setup = setup();
    let mut input: Value = serde_json::from_str(&before()).unwrap();
    input["tool_response"] = json!({"stdout": "built", "stderr": "", "interrupted": false});
    let output = finish(setup.command(&["hook", "after"], TOKEN), &input.to_string()).await;
    assert!(output.status.success(), "{output:?}");
    assert_eq!(setup.log(), [json!({"ended": "toolu_1", "outcome": "succeeded", "output": "built"})]);
}

#[tokio::test]
async fn a_call_that_is_not_in_the_log_is_blocked_with_a_sentence() {
    let setup = setup();
    let blocked = async |command: Command, input: &str| {
        let output = finish(command, input).await;
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(output.stdout.is_empty());
        String::from_utf8(output.stderr).unwrap()
    };
    let hook = ["hook", "before"];
    let not_run = "The call was not run, because it must be in the agent's log first: ";
    let sentence = blocked(setup.command(&hook, "another token"), &before()).await;
    assert_eq!(sentence, "The call was not run: the token is not that of the current run, so nothing was done.\n");
    let sentence = blocked(setup.command(&hook, TOKEN), "no JSON").await;
    assert!(
        sentence.starts_with(&format!("{not_run}failed to understand what the program tells of the call: it is no JSON")),
        "{sentence}"
    );
    let mut elsewhere = setup.command(&hook, TOKEN);
    elsewhere.env("YOI_PROGRAM_SOCKET", "/nowhere/program.sock");
    let sentence = blocked(elsewhere, &before()).await;
    assert!(sentence.starts_with(&format!("{not_run}failed to reach the agent's runtime at /nowhere/program.sock")), "{sentence}");
    let mut nothing = setup.command(&hook, TOKEN);
    nothing.env_remove("YOI_PROGRAM_TOKEN");
    assert!(!blocked(nothing, &before()).await.contains(TOKEN));
    assert!(setup.log().is_empty());
    setup.run.disk.close();
    let sentence = blocked(setup.command(&hook, TOKEN), &before()).await;
    assert_eq!(sentence, "The call was not run: the disk of the session is full.\n");
}

/// A client of the MCP server.
struct Client {
    child: Child,
    stdin: ChildStdin,
    stdout: tokio::io::Lines<BufReader<ChildStdout>>,
}

impl Client {
    fn start(setup: &Setup, token: &str) -> Self {
        let mut child = setup.command(&["mcp"], token).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()).lines());
        Self { child, stdin, stdout }
    }

    async fn send(&mut self, message: Value) {
        self.stdin.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    /// Sends a request and returns the response.
    async fn ask(&mut self, id: u64, method: &str, params: Value) -> Value {
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        let line = in_time("a response", self.stdout.next_line()).await.unwrap().expect("a response");
        let response: Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&response["jsonrpc"], &response["id"]), (&json!("2.0"), &json!(id)), "{response}");
        response
    }

    async fn initialize(&mut self, version: &str) -> Value {
        let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
        let response = self.ask(1, "initialize", params).await;
        self.send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        response["result"].clone()
    }

    async fn call(&mut self, tool: &str, args: Value) -> (String, bool) {
        let response = self.ask(9, "tools/call", json!({"name": tool, "arguments": args})).await;
        let result = &response["result"];
        assert_eq!(result["content"][0]["type"], "text", "{response}");
        (result["content"][0]["text"].as_str().unwrap().to_owned(), result["isError"] == json!(true))
    }

    /// Closes standard input, as clients do in the end.
    async fn close(self) -> Output {
        drop(self.stdin);
        in_time("the end of the server", self.child.wait_with_output()).await.unwrap()
    }
}

#[tokio::test]
async fn each_version_of_the_protocol_that_programs_speak_is_agreed_on() {
    let setup = setup();
    for (asked, agreed) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        // A newer client decides whether this is old enough for it.
        ("2099-01-01", "2025-11-25"),
    ] {
        let mut client = Client::start(&setup, TOKEN);
        let result = client.initialize(asked).await;
        assert_eq!(result["protocolVersion"], agreed);
        assert_eq!((&result["serverInfo"]["name"], &result["capabilities"]), (&json!("yoi"), &json!({"tools": {}})));
        assert!(client.close().await.status.success());
    }
}

#[tokio::test]
async fn a_program_is_offered_the_tools_of_built_in_agents_and_runs_them() {
    let setup = setup();
    let mut client = Client::start(&setup, TOKEN);
    client.initialize("2025-11-25").await;
    let listed = client.ask(2, "tools/list", json!({})).await;
    let tools = listed["result"]["tools"].as_array().unwrap();
    assert_eq!(tools.len(), OFFERED.len());
    for (tool, offered) in tools.iter().zip(setup.run.offered()) {
        assert_eq!(
            (&tool["name"], &tool["description"], &tool["inputSchema"]),
            (&json!(offered.name), &json!(offered.description), &offered.schema)
        );
    }
    assert_eq!(client.call("ListPods", json!({})).await, ("You see no agents.".to_owned(), false));
    let (text, failed) = client.call("SendToPeerPod", json!({"to": "b", "message": "hello"})).await;
    assert!(failed && text.contains("there is nobody"), "{text}");
    let (text, failed) = client.call("SendToPeerPod", json!({"to": ""})).await;
    assert!(failed && text.starts_with("invalid_args: "), "{text}");
    let (text, failed) = client.call("Nothing", json!({})).await;
    assert!(failed && text.starts_with("unknown_tool"), "{text}");
    assert_eq!(client.ask(3, "ping", json!({})).await["result"], json!({}));
    assert_eq!(client.ask(4, "resources/read", json!({"uri": "file:///etc/passwd"})).await["error"]["code"], json!(-32601));
    assert!(client.close().await.status.success());
}

#[tokio::test]
async fn a_program_asks_the_graph_and_gets_the_commands_that_it_does_not_read_itself() {
    let setup = setup();
    let root = setup.folder.path();
    let write = |path: &str, content: &str| {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    };
    write(".jido/skill_graph/build.md", "# Building\nRun make.\n");
    write(".jido/commands/release.md", "---\nname: release\ndescription: Release.\n---\nRelease $ARGUMENTS.\n");
    write(".claude/commands/ship.md", "---\ndescription: Ship.\n---\nShip.\n");
    let mut client = Client::start(&setup, TOKEN);
    client.initialize("2025-11-25").await;
    let listed = client.ask(2, "tools/list", json!({})).await["result"]["tools"].clone();
    let names: Vec<&str> = listed.as_array().unwrap().iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert_eq!(names, ["Graph", "Command", "ListPods", "SendToPeerPod", "RestorePod"]);
    assert!(listed[1]["description"].as_str().unwrap().contains("/release") && !listed.to_string().contains("/ship"), "{listed}");
    let (text, failed) = client.call("Graph", json!({"query": "search", "text": "make"})).await;
    assert!(!failed && text.contains("build: Building"), "{text}");
    let (text, failed) = client.call("Command", json!({"name": "release", "arguments": "1.2"})).await;
    assert!(!failed && text.contains("Release 1.2."), "{text}");
    assert!(client.close().await.status.success());
}

#[tokio::test]
async fn without_the_runs_token_there_are_no_tools_and_no_calls() {
    let setup = setup();
    let mut client = Client::start(&setup, "another token");
    client.initialize("2025-11-25").await;
    let listed = client.ask(2, "tools/list", json!({})).await;
    assert!(listed["error"]["message"].as_str().unwrap().contains("the token is not that of the current run"), "{listed}");
    let (text, failed) = client.call("ListPods", json!({})).await;
    assert!(failed && text.contains("the token is not that of the current run"), "{text}");
    assert!(client.close().await.status.success());
}

#[tokio::test]
async fn a_client_that_says_nothing_leaves_no_process() {
    let setup = setup();
    assert!(Client::start(&setup, TOKEN).close().await.status.success());
}
