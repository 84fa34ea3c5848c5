use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use yoi_engine::conversation::CallEnd;
use yoi_test_support::eventually;
use yoi_wire::entry::ToolCall;

use super::*;

/// Remembers what it was told. A call of the tool `Sleep` ends only when it is dropped.
#[derive(Default)]
struct Told {
    lines: Mutex<Vec<String>>,
    sleeping: AtomicUsize,
}

impl Told {
    fn tell(&self, line: String) {
        self.lines.lock().unwrap().push(line);
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }
}

impl ProgramCalls for Told {
    fn call_starts(&self, call: ToolCall, _wait_seconds: u64) -> BoxFuture<'_, Result<(), String>> {
        self.tell(format!("start {} {} {}", call.call_id, call.tool, call.args));
        let durable = if call.tool == "Forbidden" { Err("the run has ended".to_owned()) } else { Ok(()) };
        async move { durable }.boxed()
    }

    fn call_ended(&self, call_id: String, outcome: ToolOutcome, output: String) -> BoxFuture<'_, ()> {
        self.tell(format!("end {call_id} {outcome:?} {output}"));
        async {}.boxed()
    }

    fn run_tool(&self, call: ToolCall) -> BoxFuture<'_, CallEnd> {
        async move {
            if call.tool == "Sleep" {
                let _awake = Sleeping::begin(&self.sleeping);
                std::future::pending::<()>().await;
            }
            let output = call.args["output"].as_str().unwrap_or_default().repeat(1 << 20);
            CallEnd {
                outcome: ToolOutcome::Succeeded,
                output: format!("{} {output}", call.tool),
                images: Vec::new(),
                refused: None,
                read: None,
                millis: 0,
            }
        }
        .boxed()
    }

    fn offered(&self) -> Vec<OfferedTool> {
        vec![OfferedTool { name: "ListPods".to_owned(), description: "d".to_owned(), schema: json!({"type": "object"}) }]
    }
}

struct Sleeping<'a>(&'a AtomicUsize);

impl<'a> Sleeping<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Sleeping<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Setup {
    socket: ProgramSocket,
    _grant: SocketGrant,
    told: Arc<Told>,
    _folder: tempfile::TempDir,
}

fn setup() -> Setup {
    let folder = tempfile::tempdir().unwrap();
    let socket = ProgramSocket::serve(BoundSocket::bind(&folder.path().join("run")).unwrap()).unwrap();
    let told = Arc::new(Told::default());
    let grant = socket.allow("token", told.clone());
    Setup { socket, _grant: grant, told, _folder: folder }
}

impl Setup {
    async fn ask(&self, token: &str, method: Method) -> Answer {
        ask(self.socket.path(), &Request { token: token.to_owned(), method }).await.unwrap()
    }

    /// Sends bytes and returns the answer.
    async fn send(&self, bytes: &[u8]) -> Value {
        let mut stream = UnixStream::connect(self.socket.path()).await.unwrap();
        let _ = stream.write_all(bytes).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        serde_json::from_slice(&answer).unwrap_or(Value::Null)
    }
}

async fn until(condition: impl Fn() -> bool) {
    eventually("the condition", async || condition().then_some(())).await;
}

fn call(call_id: Option<&str>, tool: &str, args: Value) -> HookCall {
    HookCall { call_id: call_id.map(str::to_owned), tool: tool.to_owned(), args }
}

fn before(call: HookCall) -> Method {
    Method::HookBefore { call, wait_seconds: 0 }
}

fn end_of(call: HookCall, output: &str) -> Method {
    Method::HookAfter { call, outcome: ToolOutcome::Succeeded, output: output.to_owned() }
}

#[tokio::test]
async fn folder_and_socket_are_for_this_user_only_and_go_with_it() {
    let setup = setup();
    let path = setup.socket.path().to_owned();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(path.parent().unwrap()), mode(&path)), (0o700, 0o600));
    // What an earlier process left does not stand in the way.
    let again = ProgramSocket::serve(BoundSocket::bind(path.parent().unwrap()).unwrap()).unwrap();
    drop(again);
    assert!(!path.exists());
}

#[tokio::test]
async fn a_link_in_the_place_of_folder_or_socket_leads_nowhere_else() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, outside) = (dir.path().join("run"), dir.path().join("outside"));
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("file"), "x").unwrap();
    let open = Permissions::from_mode(0o755);
    std::fs::set_permissions(&outside, open.clone()).unwrap();
    std::os::unix::fs::symlink(&outside, &folder).unwrap();
    let socket = ProgramSocket::serve(BoundSocket::bind(&folder).unwrap()).unwrap();
    assert!(folder.symlink_metadata().unwrap().is_dir());
    assert_eq!(outside.metadata().unwrap().permissions().mode() & 0o777, 0o755, "the mode of a folder outside was changed");
    drop(socket);
    std::os::unix::fs::symlink(outside.join("file"), folder.join(SOCKET)).unwrap();
    let socket = ProgramSocket::serve(BoundSocket::bind(&folder).unwrap()).unwrap();
    // The agent moves the folder away, and puts another in its place.
    std::fs::rename(&folder, dir.path().join("moved")).unwrap();
    std::os::unix::fs::symlink(&outside, &folder).unwrap();
    std::fs::write(outside.join(SOCKET), "x").unwrap();
    drop(socket);
    let names = |folder: &Path| std::fs::read_dir(folder).unwrap().count();
    assert_eq!((names(&outside), names(&dir.path().join("moved"))), (2, 0));
}

#[tokio::test]
async fn without_the_runs_token_nothing_is_done() {
    let setup = setup();
    for token in ["", "wrong", "toke", "token "] {
        for method in [before(call(None, "T", json!({}))), Method::ListTools] {
            assert!(matches!(setup.ask(token, method).await, Answer::Refused { message } if message.contains("token")), "{token:?}");
        }
    }
    assert!(setup.told.lines().is_empty());
    let Setup { socket, _grant: grant, told, _folder: folder } = setup;
    drop(grant);
    let request = Request { token: "token".to_owned(), method: Method::ListTools };
    assert!(matches!(ask(socket.path(), &request).await.unwrap(), Answer::Refused { .. }));
    drop((told, folder));
}

#[tokio::test]
async fn a_call_that_cannot_be_logged_is_refused_with_the_reason() {
    let setup = setup();
    let refused = setup.ask("token", before(call(Some("c"), "Forbidden", json!({})))).await;
    assert_eq!(refused, Answer::Refused { message: "the run has ended".to_owned() });
}

#[tokio::test]
async fn calls_without_an_id_get_one_and_equal_calls_end_in_the_order_of_their_begin() {
    let setup = setup();
    let named = call(Some("toolu_1"), "Read", json!({"path": "a"}));
    assert_eq!(setup.ask("token", before(named.clone())).await, Answer::Done);
    assert_eq!(setup.ask("token", end_of(named, "named")).await, Answer::Done);
    let equal = call(None, "Read", json!({"path": "a"}));
    for _ in 0..2 {
        assert_eq!(setup.ask("token", before(equal.clone())).await, Answer::Done);
    }
    for output in ["one", "two"] {
        assert_eq!(setup.ask("token", end_of(equal.clone(), output)).await, Answer::Done);
    }
    assert!(matches!(setup.ask("token", end_of(equal, "three")).await, Answer::Refused { .. }));
    let lines = setup.told.lines();
    let id = |line: usize| lines[line].split(' ').nth(1).unwrap().to_owned();
    assert_eq!(lines[..2], ["start toolu_1 Read {\"path\":\"a\"}", "end toolu_1 Succeeded named"]);
    assert!(id(2).starts_with("hook-") && id(2) != id(3));
    assert_eq!(lines[4..], [format!("end {} Succeeded one", id(2)), format!("end {} Succeeded two", id(3))]);
}

#[tokio::test]
async fn tools_are_listed_and_run() {
    let setup = setup();
    assert_eq!(setup.ask("token", Method::ListTools).await, Answer::Tools { tools: setup.told.offered() });
    let ended = setup.ask("token", Method::CallTool { tool: "ListPods".to_owned(), args: json!({}) }).await;
    assert_eq!(ended, Answer::Ended { outcome: ToolOutcome::Succeeded, output: "ListPods ".to_owned() });
    let long = setup.ask("token", Method::CallTool { tool: "ListPods".to_owned(), args: json!({"output": "x"}) }).await;
    assert!(matches!(long, Answer::Refused { message } if message.contains("too long")));
}

#[tokio::test]
async fn a_client_that_goes_away_ends_its_call() {
    let setup = setup();
    let request = Request { token: "token".to_owned(), method: Method::CallTool { tool: "Sleep".to_owned(), args: json!({}) } };
    let path = setup.socket.path().to_owned();
    let asking = tokio::spawn(async move { ask(&path, &request).await });
    until(|| setup.told.sleeping.load(Ordering::SeqCst) == 1).await;
    asking.abort();
    until(|| setup.told.sleeping.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test]
async fn what_is_no_request_is_refused_and_a_line_without_end_fills_no_memory() {
    let setup = setup();
    for bytes in
        ["\n", "nonsense\n", "{}\n", "{\"token\":\"token\",\"method\":\"runShell\"}\n", "{\"token\":\"token\",\"method\":\"callTool\"}\n"]
    {
        let answer = setup.send(bytes.as_bytes()).await;
        assert_eq!(answer["answer"], "refused", "{bytes}");
        assert!(answer["message"].as_str().unwrap().starts_with("the runtime cannot read the request"), "{answer}");
    }
    let full = vec![b'x'; MAX_LINE_BYTES];
    assert!(setup.send(&full).await["message"].as_str().unwrap().contains("at most 1048576 bytes"));
    let request = Request { token: "token".to_owned(), method: end_of(call(None, "T", json!({})), &"x".repeat(MAX_LINE_BYTES)) };
    assert!(matches!(ask(setup.socket.path(), &request).await, Err(AskError::TooLong)));
    assert!(setup.told.lines().is_empty());
    // The words of the protocol, as another client would write them.
    let answer = setup.send(b"{\"token\":\"token\",\"method\":\"hookBefore\",\"callId\":\"c\",\"tool\":\"T\",\"args\":{}}\n").await;
    assert_eq!(answer, json!({"answer": "done"}));
}
