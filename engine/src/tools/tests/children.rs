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
use yoi_wire::evidence::{ChildFacts, ChildLog, ChildLogRequest, ChildStateRequest};
use yoi_wire::hub::{self, PodList, RefusalReason, RestoreRequest, RestoreResponse, SendRequest, SendResponse};
use yoi_wire::merge::{MergeConflict, MergeOutcome, MergeRequest, MergeStrategy, MergedPath};
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
    cwds: Mutex<Vec<Option<String>>>,
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

    fn restore<'a>(&'a self, request: &'a RestoreRequest) -> BoxFuture<'a, Result<RestoreResponse, PeersError>> {
        let refusal = |reason| PeersError::Refused(hub::Refusal { reason, message: format!("{} is live", request.name) });
        let answer = match request.name.as_str() {
            "child" => Ok(RestoreResponse { agent: child(), state: "Idle".into() }),
            "late" => Err(refusal(RefusalReason::Unacknowledged)),
            _ => Err(refusal(RefusalReason::AlreadyLive)),
        };
        async { answer }.boxed()
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
        self.cwds.lock().unwrap().push(request.cwd.clone());
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

    fn log<'a>(&'a self, request: &'a ChildLogRequest) -> BoxFuture<'a, Result<ChildLog, PeersError>> {
        let after = Some(format!("{}+{}", request.after.as_deref().unwrap_or("end"), request.entries));
        async move { Ok(ChildLog { entries: Vec::new(), after, more: false, state: "Idle".into(), why: None }) }.boxed()
    }

    fn state<'a>(&'a self, _request: &'a ChildStateRequest) -> BoxFuture<'a, Result<ChildFacts, PeersError>> {
        let facts = ChildFacts {
            state: "Idle".into(),
            why: None,
            task: None,
            starts: 1,
            session: None,
            log: None,
            log_unread: None,
            tree: None,
            tree_unread: None,
        };
        async { Ok(facts) }.boxed()
    }

    fn merge<'a>(&'a self, request: &'a MergeRequest) -> BoxFuture<'a, Result<MergeOutcome, PeersError>> {
        let outcome = match request.strategy {
            MergeStrategy::Stop => {
                let conflict = MergeConflict { path: "a\nb".into(), why: "both have changed it".into() };
                MergeOutcome { conflicts: vec![conflict], conflict_count: 1, ..MergeOutcome::default() }
            }
            MergeStrategy::Ours | MergeStrategy::Theirs => {
                let path = MergedPath { path: "a".into(), change: "Changed".into() };
                let (paths, dry_run) = (vec![path], request.dry_run);
                MergeOutcome { commit: Some("c1".into()), paths, path_count: 1, dry_run, ..MergeOutcome::default() }
            }
        };
        async { Ok(outcome) }.boxed()
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
    let tools = ["SpawnPod", "SendToPod", "ReadPodOutput", "PodLog", "PodState", "DiffPod", "MergePod", "WaitPods", "StopPod"];
    assert!(names(&gate, CallFrom::Model).ends_with(&tools.map(str::to_owned)));
    assert!(names(&fixture.gate, CallFrom::Model).ends_with(&["RestorePod".to_owned()]));
    let of_programs: Vec<&str> = ["ListPods", "SendToPeerPod", "RestorePod"].into_iter().chain(tools).collect();
    assert_eq!(names(&gate, CallFrom::Mcp), of_programs);
    assert_eq!(names(&fixture.gate, CallFrom::Mcp), of_programs[..3]);
    for tool in tools {
        let args = if tool == "SpawnPod" { json!({"name": "child", "task": "t"}) } else { json!({"name": "child"}) };
        let args = if tool == "SendToPod" { json!({"to": "child", "message": "t"}) } else { args };
        let args = if tool == "WaitPods" { json!({"names": ["child"]}) } else { args };
        let refused = fixture.refuse(tool, args.clone());
        assert!(refused.class == RefusalClass::ToolNotExposed && refused.message.contains("delegation"), "{tool}: {}", refused.message);
        // The one merge has a conflict.
        let wanted = if tool == "MergePod" { ToolOutcome::Failed } else { ToolOutcome::Succeeded };
        assert_eq!(run(&gate, tool, args).await.outcome, wanted, "{tool}");
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
async fn c11_the_folder_of_a_childs_commands_is_a_folder_of_the_tree_named_by_its_whole_path() {
    let fixture = Fixture::new();
    std::fs::create_dir_all(fixture.path("docs/api")).unwrap();
    std::fs::write(fixture.path("docs/file"), "").unwrap();
    let (gate, peers) = lead(&fixture);
    let spawn = |cwd: String| json!({"name": "child", "task": "t", "cwd": cwd});
    let whole = |path: &str| fixture.path(path).display().to_string();
    for (cwd, why) in
        [("docs".to_owned(), "is relative"), (whole("gone"), "no folder"), (whole("docs/file"), "no folder"), ("/".to_owned(), "no folder")]
    {
        let refused = run(&gate, "SpawnPod", spawn(cwd.clone())).await;
        assert!(refused.outcome == ToolOutcome::Refused && refused.output.contains(why), "{cwd}: {refused:?}");
    }
    assert!(peers.spawned.lock().unwrap().is_empty());
    let started = run(&gate, "SpawnPod", spawn(whole("docs/api"))).await;
    assert_eq!(started.outcome, ToolOutcome::Succeeded, "{started:?}");
    assert_eq!(*peers.cwds.lock().unwrap(), [Some("docs/api".to_owned())]);
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

#[tokio::test]
async fn a_log_is_read_from_its_end_or_on_from_where_the_last_call_said() {
    let (gate, _) = lead(&Fixture::new());
    let end = run(&gate, "PodLog", json!({"name": "child"})).await.output;
    assert!(end.contains("after \"end+40\""), "{end}");
    let on = run(&gate, "PodLog", json!({"name": "child", "after": "s.7", "entries": 3})).await.output;
    assert!(on.contains("after \"s.7+3\""), "{on}");
    for entries in [0, 201] {
        let refused = run(&gate, "PodLog", json!({"name": "child", "entries": entries})).await;
        assert_eq!(refused.refused, Some(RefusalClass::InvalidArgs));
    }
}

#[tokio::test]
async fn d12_a_merge_says_what_it_changed_or_every_path_in_conflict() {
    let (gate, _) = lead(&Fixture::new());
    let merge = async |args: Value| run(&gate, "MergePod", args).await.output;
    assert!(merge(json!({"name": "child"})).await.contains("\na\\nb: both have changed it"));
    let merged = merge(json!({"name": "child", "strategy": "theirs"})).await;
    assert!(merged.contains("Nothing is committed") && merged.ends_with("\nChanged a"), "{merged}");
    let dry = merge(json!({"name": "child", "strategy": "ours", "dryRun": true})).await;
    assert!(dry.contains("would be merged"), "{dry}");
    let refused = run(&gate, "MergePod", json!({"name": "child", "strategy": "rebase"})).await;
    assert_eq!(refused.refused, Some(RefusalClass::InvalidArgs));
}

#[tokio::test]
async fn a_restored_agent_is_told_with_its_state_and_a_refusal_in_its_own_words() {
    let (gate, _) = lead(&Fixture::new());
    let restore = async |name: &str| {
        let end = run(&gate, "RestorePod", json!({"name": name})).await;
        (end.outcome, end.output)
    };
    assert_eq!(restore("child").await, (ToolOutcome::Succeeded, "child is restored, and is Idle.".to_owned()));
    assert_eq!(restore("other").await, (ToolOutcome::Failed, "other is live".to_owned()));
    assert_eq!(restore("late").await.0, ToolOutcome::Unknown);
}

#[tokio::test]
async fn a_program_reads_and_merges_its_children_through_the_same_gate_as_a_model() {
    let (gate, peers) = lead(&Fixture::new());
    let call = async |tool: &str, args: Value| gate.run(&call(tool, args), CallFrom::Mcp, &LiveOutput::discard()).await;
    assert_eq!(call("ReadPodOutput", json!({"name": "child"})).await.read.map(|read| read.token).as_deref(), Some("t:1"));
    call("ReadPodOutput", json!({"name": "child"})).await;
    assert_eq!(*peers.read.lock().unwrap(), [None, Some("t:1".to_owned())]);
    assert_eq!(call("MergePod", json!({"name": "child", "strategy": "ours"})).await.outcome, ToolOutcome::Succeeded);
    assert_eq!(call("Read", json!({"path": "a"})).await.refused, Some(RefusalClass::ToolNotExposed));
}
