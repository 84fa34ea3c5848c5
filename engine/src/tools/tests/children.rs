//! The tools of an agent that may start others.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use yoi_wire::children::{
    ChildWords, DiffRequest, LentPaths, LoansRequest, LoansResponse, ReadRequest, SharedAccess, SharedPath, SpawnRequest, SpawnResponse,
    StopRequest, StopResponse, WaitRequest, WaitResponse, WaitedChild,
};
use yoi_wire::entry::{AgentRef, ReadPosition};
use yoi_wire::hub::{PodList, SendRequest, SendResponse};
use yoi_wire::people::DiffResponse;

use super::*;
use crate::children::Children;
use crate::peers::{Peers, PeersError};

/// A gateway with one child, which says a word whenever it is read.
#[derive(Debug, Default)]
struct OneChild {
    spawned: Mutex<Vec<String>>,
    read: Mutex<Vec<Option<String>>>,
    /// The next request gets no answer.
    silent: Mutex<bool>,
    /// It may lend paths.
    lends: AtomicBool,
    shared: Mutex<Vec<Option<Vec<SharedPath>>>>,
}

fn child() -> AgentRef {
    AgentRef { namespace: "ns".into(), name: "child".into(), uid: "u".into() }
}

impl Peers for OneChild {
    fn list(&self) -> BoxFuture<'_, Result<PodList, PeersError>> {
        async { Ok(PodList::default()) }.boxed()
    }

    fn send<'a>(&'a self, _message: &'a SendRequest) -> BoxFuture<'a, Result<SendResponse, PeersError>> {
        async { Err(PeersError::NotSent { message: "there is no peer".into(), retry: false }) }.boxed()
    }

    fn children(&self) -> Option<&dyn Children> {
        Some(self)
    }
}

impl Children for OneChild {
    fn lends(&self) -> bool {
        self.lends.load(Ordering::Relaxed)
    }

    fn loans<'a>(&'a self, _request: &'a LoansRequest) -> BoxFuture<'a, Result<LoansResponse, PeersError>> {
        async { Ok(LoansResponse { loans: Vec::<LentPaths>::new() }) }.boxed()
    }

    fn spawn<'a>(&'a self, request: &'a SpawnRequest) -> BoxFuture<'a, Result<SpawnResponse, PeersError>> {
        self.spawned.lock().unwrap().push(request.request_id.clone());
        self.shared.lock().unwrap().push(request.share.clone());
        let loan = request.share.as_ref().map(|_| "l".to_owned());
        let silent = std::mem::take(&mut *self.silent.lock().unwrap());
        let unanswered = || PeersError::Unanswered { message: "it broke off".into(), retry: false };
        async move { if silent { Err(unanswered()) } else { Ok(SpawnResponse { agent: child(), duplicate: false, loan }) } }.boxed()
    }

    fn send_to_child<'a>(&'a self, message: &'a SendRequest) -> BoxFuture<'a, Result<SendResponse, PeersError>> {
        async { Ok(SendResponse { message_id: message.message_id.clone(), duplicate: false }) }.boxed()
    }

    fn read<'a>(&'a self, request: &'a ReadRequest) -> BoxFuture<'a, Result<ChildWords, PeersError>> {
        let mut read = self.read.lock().unwrap();
        read.push(request.after.as_ref().map(|after| after.token.clone()));
        let position = ReadPosition { agent: "child".into(), uid: "u".into(), token: format!("t:{}", read.len()) };
        let words = ChildWords { text: "A word.".into(), position: Some(position), more: false, state: "Idle".into(), why: None };
        async { Ok(words) }.boxed()
    }

    fn diff<'a>(&'a self, _request: &'a DiffRequest) -> BoxFuture<'a, Result<DiffResponse, PeersError>> {
        async { Ok(DiffResponse { text: Some("+a line\n".into()), cut: true, ..DiffResponse::default() }) }.boxed()
    }

    fn wait<'a>(&'a self, request: &'a WaitRequest) -> BoxFuture<'a, Result<WaitResponse, PeersError>> {
        let child = WaitedChild { name: request.names[0].clone(), state: "Idle".into(), why: None };
        async { Ok(WaitResponse { met: true, children: vec![child] }) }.boxed()
    }

    fn stop<'a>(&'a self, _request: &'a StopRequest) -> BoxFuture<'a, Result<StopResponse, PeersError>> {
        async { Ok(StopResponse { agent: child(), duplicate: false }) }.boxed()
    }
}

/// The same agent, which may start others.
fn lead(fixture: &Fixture) -> (ToolGate, Arc<OneChild>) {
    let peers = Arc::new(OneChild::default());
    let shell = Shell::new(Arc::new(ProcessSupervisor::new(fixture.path(""), "a", &[])));
    let tree = Arc::new(Tree::open(&fixture.path("")).unwrap());
    let policy = Arc::new(Policy::new(&ToolPolicy::default()).unwrap());
    let runner = ToolRunner::new(tree, Arc::new(shell), peers.clone(), RunLimits::default(), policy);
    (ToolGate::new(runner), peers)
}

async fn run(gate: &ToolGate, tool: &str, args: Value) -> CallResult {
    gate.run(&call(tool, args), CallFrom::Model, &LiveOutput::discard()).await
}

#[tokio::test]
async fn only_who_may_start_agents_is_offered_the_tools_for_it_and_may_call_them() {
    let fixture = Fixture::new();
    let (gate, _) = lead(&fixture);
    let names = |gate: &ToolGate, to| gate.offered(to).into_iter().map(|tool| tool.name).collect::<Vec<_>>();
    let tools = ["SpawnPod", "SendToPod", "ReadPodOutput", "DiffPod", "WaitPods", "StopPod"];
    assert!(names(&gate, CallFrom::Model).ends_with(&tools.map(str::to_owned)));
    assert!(names(&fixture.gate, CallFrom::Model).ends_with(&["SendToPeerPod".to_owned()]));
    assert_eq!(names(&gate, CallFrom::Mcp), ["ListPods", "SendToPeerPod"]);
    for tool in tools {
        let args = if tool == "SpawnPod" { json!({"name": "child", "task": "t"}) } else { json!({"name": "child"}) };
        let args = if tool == "SendToPod" { json!({"to": "child", "message": "t"}) } else { args };
        let args = if tool == "WaitPods" { json!({"names": ["child"]}) } else { args };
        let refused = fixture.refuse(tool, args.clone());
        assert!(refused.class == RefusalClass::ToolNotExposed && refused.message.contains("delegation"), "{tool}: {}", refused.message);
        assert_eq!(run(&gate, tool, args).await.outcome, ToolOutcome::Succeeded, "{tool}");
    }
}

#[tokio::test]
async fn c2_only_who_may_lend_is_offered_to_share_and_may_do_it() {
    let (gate, peers) = lead(&Fixture::new());
    let offered = |gate: &ToolGate| gate.offered(CallFrom::Model).into_iter().find(|tool| tool.name == "SpawnPod").unwrap();
    let args = json!({"name": "child", "task": "t", "share": [{"path": "docs", "access": "Write"}]});
    let plain = offered(&gate);
    assert!(plain.schema["properties"].get("share").is_none() && !plain.description.contains("share"), "{plain:?}");
    let refused = run(&gate, "SpawnPod", args.clone()).await;
    assert!(refused.output.contains("lends nothing"), "{refused:?}");
    assert!(peers.spawned.lock().unwrap().is_empty());

    peers.lends.store(true, Ordering::Relaxed);
    let lending = offered(&gate);
    assert_eq!(lending.schema["properties"]["share"]["items"]["properties"]["access"]["enum"], json!(["Read", "Write"]));
    assert!(lending.description.contains("`share`"), "{}", lending.description);
    let lent = run(&gate, "SpawnPod", args).await;
    assert!(lent.outcome == ToolOutcome::Succeeded && lent.output.contains("in your tree"), "{lent:?}");
    let docs = SharedPath { path: "docs".into(), access: SharedAccess::Write, recursive: true };
    assert_eq!(*peers.shared.lock().unwrap(), [Some(vec![docs])]);
}

#[tokio::test]
async fn a_child_that_may_be_there_is_asked_for_under_the_same_id_and_the_next_one_under_another() {
    let (gate, peers) = lead(&Fixture::new());
    *peers.silent.lock().unwrap() = true;
    let args = json!({"name": "child", "task": "t"});
    let outcomes = [run(&gate, "SpawnPod", args.clone()).await.outcome, run(&gate, "SpawnPod", args.clone()).await.outcome];
    assert_eq!(outcomes, [ToolOutcome::Unknown, ToolOutcome::Succeeded]);
    run(&gate, "SpawnPod", args).await;
    let ids = peers.spawned.lock().unwrap().clone();
    assert!(ids[0] == ids[1] && ids[1] != ids[2], "{ids:?}");
}

#[tokio::test]
async fn a_child_is_read_on_from_where_the_log_says_and_the_result_says_how_far() {
    let (gate, peers) = lead(&Fixture::new());
    let args = json!({"name": "child"});
    let first = run(&gate, "ReadPodOutput", args.clone()).await;
    assert_eq!(first.output, "[child is Idle.]\nA word.");
    assert_eq!(first.read.map(|read| read.token).as_deref(), Some("t:1"));
    run(&gate, "ReadPodOutput", args.clone()).await;
    // Another process goes on from its log.
    let position = ReadPosition { agent: "child".into(), uid: "u".into(), token: "t:9".into() };
    gate.runner().set_read(&std::collections::BTreeMap::from([("child".to_owned(), position)]));
    run(&gate, "ReadPodOutput", args).await;
    assert_eq!(*peers.read.lock().unwrap(), [None, Some("t:1".to_owned()), Some("t:9".to_owned())]);
    assert_eq!(run(&gate, "DiffPod", json!({"name": "child"})).await.output, "+a line\n\n[The diff is cut here.]");
}
