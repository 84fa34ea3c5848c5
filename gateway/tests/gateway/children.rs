//! Children of agents: who may start them, and what a parent may ask of them.

use axum::body::Body;
use serde_json::{Value, json};
use yoi_line::{CallError, RequestClient};
use yoi_test_support::eventually;
use yoi_wire::children::{
    ChildWords, DiffRequest, ReadRequest, SpawnRequest, SpawnResponse, StopRequest, StopResponse, WaitRequest, WaitResponse,
};
use yoi_wire::entry::{ReadPosition, RunOutcome};
use yoi_wire::evidence::{ChildFacts, ChildLog, ChildLogRequest, ChildStateRequest};
use yoi_wire::hub::{
    Activity, PodList, RefusalReason, ReportAccepted, RuntimeReport, SendRequest, SendResponse, VisibilityReason, gateway_api,
};
use yoi_wire::merge::{MergeRequest, MergeStrategy, WORK};
use yoi_wire::people::{DiffResponse, DiffSince};

use crate::harness::{TestCluster, refusal, refusal_reason, report, wait_for};

/// A lead that may start two agents, and an agent that may start none.
fn cluster() -> TestCluster {
    let cluster = TestCluster::new();
    cluster.agent("lead", "u-l", "p-l");
    change(&cluster, "lead", |lead| {
        lead["spec"]["delegation"] = json!({});
        lead["spec"]["limits"] = json!({ "children": 2 });
        lead["spec"]["pod"] = json!({ "image": "own" });
        lead["status"]["workspace"] = json!({ "name": "tree" });
    });
    cluster.agent("other", "u-o", "p-o");
    cluster
}

fn change(cluster: &TestCluster, name: &str, change: impl FnOnce(&mut Value)) {
    let mut object = cluster.api.get("yoipods", "ns", name);
    change(&mut object);
    cluster.api.put("yoipods", object);
}

/// A child of the lead, whose Pod's token is `token-p-c`.
fn put_child(cluster: &TestCluster) {
    cluster.agent("child", "u-c", "p-c");
    change(cluster, "child", |child| {
        child["spec"]["spawnedBy"] = json!({ "name": "lead", "uid": "u-l", "requestId": "r" });
        child["status"]["task"] = json!({ "id": "t", "state": "Succeeded" });
    });
}

async fn spawn(caller: &RequestClient, name: &str, id: &str) -> Result<SpawnResponse, CallError> {
    let request =
        SpawnRequest { name: name.to_owned(), task: "do it".to_owned(), request_id: id.to_owned(), share: None, cwd: None, template: None };
    caller.post_json(gateway_api::SPAWN, &request).await
}

async fn read(caller: &RequestClient, name: &str, after: Option<ReadPosition>) -> Result<ChildWords, CallError> {
    caller.post_json(gateway_api::READ_CHILD, &ReadRequest { name: name.to_owned(), after }).await
}

fn merge(name: &str) -> MergeRequest {
    MergeRequest { name: name.to_owned(), dry_run: true, strategy: MergeStrategy::Ours }
}

async fn read_log(caller: &RequestClient, name: &str, after: Option<&str>, entries: u32) -> Result<ChildLog, CallError> {
    let request = ChildLogRequest { name: name.to_owned(), after: after.map(str::to_owned), entries };
    caller.post_json(gateway_api::CHILD_LOG, &request).await
}

#[tokio::test(flavor = "multi_thread")]
async fn c1_c2_a_lead_starts_a_child_once_and_as_many_as_its_limit() {
    let cluster = cluster();
    let replica = cluster.replica().await;
    let lead = cluster.caller(&replica, "token-p-l");
    let made = spawn(&lead, "child", "r-1").await.unwrap();
    assert_eq!((made.agent.name.as_str(), made.duplicate), ("child", false));
    let child = cluster.api.get("yoipods", "ns", "child");
    assert_eq!(child["spec"]["spawnedBy"], json!({ "name": "lead", "uid": "u-l", "requestId": "r-1" }));
    assert_eq!((&child["spec"]["task"], &child["spec"]["pod"]["image"]), (&json!("do it"), &json!("own")));
    assert_eq!(child["spec"]["workspace"]["template"]["source"], json!({ "workspace": { "name": "tree" } }));
    assert_eq!((&child["spec"]["delegation"], &child["metadata"]["ownerReferences"]), (&Value::Null, &Value::Null));

    // The same request again is the same child; another one of the name is refused, as is the name of an agent that somebody else made.
    let writes = cluster.api.writes();
    assert_eq!(spawn(&lead, "child", "r-1").await.unwrap(), SpawnResponse { duplicate: true, ..made });
    for name in ["child", "other"] {
        assert_eq!(refusal_reason(spawn(&lead, name, "r-2").await), (409, RefusalReason::NameTaken), "{name}");
    }
    for name in ["lead", "x/y"] {
        assert_eq!(refusal_reason(spawn(&lead, name, "r-2").await), (400, RefusalReason::Invalid), "{name}");
    }
    let (code, refused) = refusal(spawn(&cluster.caller(&replica, "token-p-o"), "more", "r-3").await);
    assert_eq!((code, refused.reason), (403, RefusalReason::NoDelegation));
    assert!(refused.message.contains("delegation"), "{}", refused.message);
    assert_eq!(cluster.api.writes(), writes, "a refusal wrote something");

    spawn(&lead, "second", "r-4").await.unwrap();
    assert_eq!(refusal_reason(spawn(&lead, "third", "r-5").await), (403, RefusalReason::Limit));
    assert!(!cluster.api.exists("yoipods", "ns", "third"));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_hundred_requests_for_one_name_one_wins() {
    let cluster = cluster();
    let replica = cluster.replica().await;
    let lead = cluster.caller(&replica, "token-p-l");
    let asked: Vec<String> = (0..100).map(|n| format!("r-{n}")).collect();
    let answers = futures::future::join_all(asked.iter().map(|id| spawn(&lead, "child", id))).await;
    let (made, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    assert_eq!((made.len(), refused.len()), (1, 99));
    for answer in refused {
        assert_eq!(refusal_reason(answer), (409, RefusalReason::NameTaken));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a14_d1_d13_who_is_not_the_parent_gets_one_answer_for_every_name() {
    let cluster = cluster();
    put_child(&cluster);
    cluster.peer(("child", "u-c"), ("other", "u-o"));
    let replica = cluster.replica().await;
    let mut child = cluster.runtime(&[&replica], "token-p-c").await;
    let caller = cluster.caller(&replica, "token-p-o");
    let mut answers = Vec::new();
    for name in ["child", "nobody"] {
        let name = name.to_owned();
        let message = SendRequest { to: name.clone(), message_id: "m".to_owned(), text: "t".to_owned(), conversation: None };
        let diff = DiffRequest { name: name.clone(), since: DiffSince::Base };
        let refused = [
            refusal(read(&caller, &name, None).await),
            refusal(caller.post_json::<_, DiffResponse>(gateway_api::DIFF_CHILD, &diff).await),
            refusal(read_log(&caller, &name, None, 9).await),
            refusal(caller.post_json::<_, Value>(gateway_api::CHILD_WORK, &merge(&name)).await),
            refusal(caller.post_json::<_, ChildFacts>(gateway_api::CHILD_STATE, &ChildStateRequest { name: name.clone() }).await),
            refusal(caller.post_json::<_, SendResponse>(gateway_api::SEND_CHILD, &message).await),
            refusal(caller.post_json::<_, StopResponse>(gateway_api::STOP_CHILD, &StopRequest { name: name.clone() }).await),
        ];
        answers.push(refused.map(|(code, refused)| (code, refused.reason, refused.message.replace(&name, "NAME"))));
    }
    assert_eq!(answers[0], answers[1]);
    assert!(answers[0].iter().all(|(code, reason, _)| (*code, *reason) == (404, RefusalReason::NotAChild)), "{answers:?}");
    assert!(child.messages.try_recv().is_err(), "the message was delivered");
    assert_eq!(cluster.api.get("yoipods", "ns", "child")["spec"]["desiredState"], "Running");
}

#[tokio::test(flavor = "multi_thread")]
async fn a16_b2_a_lead_sees_its_child_by_each_reason_without_a_line_too_and_the_child_its_parent() {
    let cluster = cluster();
    put_child(&cluster);
    cluster.peer(("child", "u-c"), ("lead", "u-l"));
    let replica = cluster.replica().await;
    let seen = async |token: &str| -> Vec<(String, Vec<VisibilityReason>)> {
        let list: PodList = cluster.caller(&replica, token).post_json(gateway_api::LIST_PODS, &json!({})).await.unwrap();
        list.pods.into_iter().map(|pod| (pod.name, pod.reasons)).collect()
    };
    let (me, family) = (vec![VisibilityReason::Itself], |reason| vec![VisibilityReason::Peer, reason]);
    assert_eq!(seen("token-p-l").await, [("lead".to_owned(), me.clone()), ("child".to_owned(), family(VisibilityReason::Child))]);
    assert_eq!(seen("token-p-c").await, [("child".to_owned(), me.clone()), ("lead".to_owned(), family(VisibilityReason::Parent))]);
    assert_eq!(seen("token-p-o").await, [("other".to_owned(), me)]);
    // A peer is sent to, whether it is a child or not.
    let mut child = cluster.runtime(&[&replica], "token-p-c").await;
    let message = SendRequest { to: "child".to_owned(), message_id: "m".to_owned(), text: "t".to_owned(), conversation: None };
    let _: SendResponse = cluster.caller(&replica, "token-p-l").post_json(gateway_api::SEND, &message).await.unwrap();
    assert!(!wait_for("the message", child.messages.recv()).await.unwrap().only_when_idle);
}

fn line(token: &str, text: &str) -> String {
    let body = json!({ "text": text, "toolCalls": [] });
    let entry = json!({ "id": "i", "seq": 1, "run": 1, "at": "2026-01-01T00:00:00.000Z", "kind": "Assistant", "body": body });
    format!("{}\n", json!({ "token": token, "entry": entry }))
}

#[tokio::test(flavor = "multi_thread")]
async fn d5_d8_d9_d10_a_child_is_read_on_where_it_was_left_and_a_namesake_from_its_beginning() {
    let cluster = cluster();
    put_child(&cluster);
    let replica = cluster.replica().await;
    let child = cluster.runtime(&[&replica], "token-p-c").await;
    let lead = cluster.caller(&replica, "token-p-l");
    // Its line may be open before the gateway has it among its lines.
    wait_for("the child's line", async {
        loop {
            let list: PodList = lead.post_json(gateway_api::LIST_PODS, &json!({})).await.unwrap();
            if list.pods.iter().any(|pod| pod.name == "child" && pod.live) {
                break;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    let say = |log: String| *child.state.log.lock().unwrap() = Some(Body::from(log));
    say(line("t:1", "First.") + &line("t:2", "Second."));
    let first = wait_for("the words", read(&lead, "child", None)).await.unwrap();
    assert_eq!((first.text.as_str(), first.state.as_str(), first.more), ("First.\n\nSecond.", "Idle", false));
    say(String::new());
    let nothing = read(&lead, "child", first.position.clone()).await.unwrap();
    assert_eq!((nothing.text.as_str(), &nothing.position), ("", &first.position));
    say(line("t:1", "Anew."));
    let former = ReadPosition { uid: "u-former".to_owned(), ..first.position.unwrap() };
    assert_eq!(read(&lead, "child", Some(former)).await.unwrap().text, "Anew.");
    assert_eq!(*child.state.log_queries.lock().unwrap(), ["follow=false", "follow=false&after=t:2", "follow=false"]);
    let elsewhere = ReadPosition { agent: "child".to_owned(), uid: "u-c".to_owned(), token: "t&follow=true".to_owned() };
    assert_eq!(refusal_reason(read(&lead, "child", Some(elsewhere)).await), (400, RefusalReason::Invalid));
}

#[tokio::test(flavor = "multi_thread")]
async fn d6_c19_an_unreachable_child_is_read_without_an_error_and_stopped() {
    let cluster = cluster();
    put_child(&cluster);
    let replica = cluster.replica().await;
    let lead = cluster.caller(&replica, "token-p-l");
    let position = Some(ReadPosition { agent: "child".to_owned(), uid: "u-c".to_owned(), token: "t:1".to_owned() });
    let words = read(&lead, "child", position.clone()).await.unwrap();
    assert_eq!((words.text.as_str(), words.position, words.state.as_str()), ("", position, "Unreachable"));
    assert!(words.why.is_some());
    let stop =
        async || lead.post_json::<_, StopResponse>(gateway_api::STOP_CHILD, &StopRequest { name: "child".to_owned() }).await.unwrap();
    assert!(!stop().await.duplicate);
    assert_eq!(cluster.api.get("yoipods", "ns", "child")["spec"]["desiredState"], "Stopped");
    let writes = cluster.api.writes();
    assert!(stop().await.duplicate);
    assert_eq!(cluster.api.writes(), writes);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_children_is_answered_as_soon_as_they_have_nothing_to_do_or_are_gone() {
    let cluster = cluster();
    put_child(&cluster);
    let replica = cluster.replica().await;
    let lead = cluster.caller(&replica, "token-p-l");
    let wait = async |seconds| {
        let request = WaitRequest { names: vec!["child".to_owned()], all: true, seconds };
        lead.post_json::<_, WaitResponse>(gateway_api::WAIT_CHILDREN, &request).await
    };
    let state = |response: &WaitResponse| (response.met, response.children[0].state.clone());
    assert_eq!(state(&wait(0).await.unwrap()), (false, "Unreachable".to_owned()));
    change(&cluster, "child", |child| child["status"]["task"] = json!({ "id": "t", "state": "Submitted" }));
    let _child = cluster.runtime(&[&replica], "token-p-c").await;
    let starting = eventually("the child to start", async || {
        let response = wait(0).await.unwrap();
        (response.children[0].state == "Starting").then_some(response)
    });
    assert!(!starting.await.met, "it has not taken up its task");
    let message = SendRequest { to: "child".to_owned(), message_id: "m".to_owned(), text: "t".to_owned(), conversation: None };
    let refused = lead.post_json::<_, SendResponse>(gateway_api::SEND_CHILD, &message).await;
    assert_eq!(refusal_reason(refused), (409, RefusalReason::AlreadyRunning));
    let waiting = async { wait(20).await.unwrap() };
    let done = async { change(&cluster, "child", |child| child["status"]["task"] = json!({ "id": "t", "state": "Succeeded" })) };
    let (idle, ()) = wait_for("the child to be idle", async { tokio::join!(waiting, done) }).await;
    assert_eq!(state(&idle), (true, "Idle".to_owned()));
    let waits_for_others = WaitRequest { names: vec!["child".to_owned(), "other".to_owned()], all: false, seconds: 20 };
    let refused = lead.post_json::<_, WaitResponse>(gateway_api::WAIT_CHILDREN, &waits_for_others).await;
    assert_eq!(refusal_reason(refused), (404, RefusalReason::NotAChild));
}

#[tokio::test(flavor = "multi_thread")]
async fn d2_d11_work_goes_to_an_idle_child_alone_and_its_diff_is_its_trees() {
    let cluster = cluster();
    put_child(&cluster);
    let replica = cluster.replica().await;
    let mut child = cluster.runtime(&[&replica], "token-p-c").await;
    let lead = cluster.caller(&replica, "token-p-l");
    let message = SendRequest { to: "child".to_owned(), message_id: "m".to_owned(), text: "more".to_owned(), conversation: None };
    let sent: SendResponse = lead.post_json(gateway_api::SEND_CHILD, &message).await.unwrap();
    assert_eq!(sent.message_id, "m");
    let got = wait_for("the message", child.messages.recv()).await.unwrap();
    assert!(got.only_when_idle && got.from.agent.is_some_and(|from| from.uid == "u-l"));
    let diff = DiffRequest { name: "child".to_owned(), since: DiffSince::Commit };
    let diff: DiffResponse = lead.post_json(gateway_api::DIFF_CHILD, &diff).await.unwrap();
    assert_eq!(diff.text.as_deref(), Some("since=commit"));
}

fn entry(seq: u64, kind: &str, body: Value) -> String {
    let entry = json!({ "id": "i", "seq": seq, "run": 1, "at": "2026-01-01T00:00:00.000Z", "kind": kind, "body": body });
    format!("{}\n", json!({ "token": format!("s.{seq}"), "entry": entry }))
}

#[tokio::test(flavor = "multi_thread")]
async fn d11_the_evidence_of_a_child_comes_from_its_log_and_its_tree_and_says_where_to_read_on() {
    let cluster = cluster();
    put_child(&cluster);
    let replica = cluster.replica().await;
    let child = cluster.runtime(&[&replica], "token-p-c").await;
    let lead = cluster.caller(&replica, "token-p-l");
    let say = |log: String| *child.state.log.lock().unwrap() = Some(Body::from(log));
    let ended = json!({ "callId": "c", "outcome": "failed", "output": "no rule" });
    say(entry(3, "RunStarted", json!({ "runId": "r", "cause": [] })) + &entry(4, "ToolEnded", ended));
    let log = wait_for("the log", read_log(&lead, "child", None, 9)).await.unwrap();
    assert_eq!(log.entries.iter().map(|entry| entry.text.as_str()).collect::<Vec<_>>(), ["started r", "failed\nno rule"]);
    say(String::new());
    let nothing = read_log(&lead, "child", log.after.as_deref(), 9).await.unwrap();
    assert_eq!((nothing.entries.len(), nothing.after.as_deref(), nothing.more), (0, Some("s.4"), false));
    assert_eq!(*child.state.log_queries.lock().unwrap(), ["follow=false&tail=9", "follow=false&after=s.4"]);
    for (after, entries) in [(Some("s&follow=true"), 9), (None, 0), (None, 201)] {
        assert_eq!(refusal_reason(read_log(&lead, "child", after, entries).await), (400, RefusalReason::Invalid));
    }

    say(entry(3, "RunStarted", json!({ "runId": "r", "cause": [] }))
        + &entry(5, "RunEnded", json!({ "runId": "r", "outcome": "finished" })));
    let head = json!({ "name": "HEAD", "commit": "1".repeat(40), "base": "2".repeat(40), "commits": 3, "uncommitted": { "count": 1, "paths": ["a"] } });
    *child.state.commits.lock().unwrap() = Some(format!("{head}\na bundle").into_bytes());
    let facts: ChildFacts = lead.post_json(gateway_api::CHILD_STATE, &ChildStateRequest { name: "child".to_owned() }).await.unwrap();
    let log = facts.log.unwrap();
    assert_eq!((log.seq, log.run.unwrap().outcome), (5, Some(RunOutcome::Finished)));
    let tree = facts.tree.unwrap();
    assert_eq!((tree.commits, tree.uncommitted.count), (3, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn d11_of_an_unreachable_child_its_object_still_says_how_far_it_is() {
    let cluster = cluster();
    put_child(&cluster);
    let replica = cluster.replica().await;
    let lead = cluster.caller(&replica, "token-p-l");
    let facts: ChildFacts = lead.post_json(gateway_api::CHILD_STATE, &ChildStateRequest { name: "child".to_owned() }).await.unwrap();
    assert_eq!((facts.state.as_str(), facts.task.unwrap().state.as_str()), ("Unreachable", "Succeeded"));
    assert!(facts.log_unread.is_some() && facts.tree_unread.is_some());
    let log = read_log(&lead, "child", Some("s.4"), 9).await.unwrap();
    assert!(log.entries.is_empty() && log.after.as_deref() == Some("s.4") && log.why.is_some(), "{log:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn d12_a_parent_gets_its_childs_work_with_the_order_that_the_gateway_wrote_before_it() {
    let cluster = cluster();
    put_child(&cluster);
    let replica = cluster.replica().await;
    let child = cluster.runtime(&[&replica], "token-p-c").await;
    let lead = cluster.caller(&replica, "token-p-l");
    let head = |name: &str| json!({ "name": name, "commit": "1".repeat(40), "commits": 1, "uncommitted": { "count": 0 } });
    *child.state.commits.lock().unwrap() = Some(format!("{}\nthe pack", head(WORK)).into_bytes());
    let request = http::Request::post(gateway_api::CHILD_WORK).body(Body::from(serde_json::to_vec(&merge("child")).unwrap())).unwrap();
    let answer = lead.call(request).await.unwrap();
    assert_eq!(answer.status(), 200);
    let answer = axum::body::to_bytes(Body::new(answer.into_body()), 1 << 20).await.unwrap();
    let mut lines = std::str::from_utf8(&answer).unwrap().splitn(3, '\n');
    let order: Value = serde_json::from_str(lines.next().unwrap()).unwrap();
    let from = json!({ "namespace": "ns", "name": "child", "uid": "u-c" });
    assert_eq!(order, json!({ "from": from, "dryRun": true, "strategy": "ours" }));
    assert_eq!(serde_json::from_str::<Value>(lines.next().unwrap()).unwrap()["name"], WORK);
    assert_eq!(lines.next(), Some("the pack"));
    // A runtime that knows nothing of work answers with its commits, which are not all of it.
    *child.state.commits.lock().unwrap() = Some(format!("{}\nthe pack", head("HEAD")).into_bytes());
    let refused = refusal(lead.post_json::<_, Value>(gateway_api::CHILD_WORK, &merge("child")).await);
    assert!(refused.1.message.contains("older"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a15_b19_e7_a_parent_is_told_of_the_end_of_its_childs_run_by_its_log_and_a_peer_of_none() {
    let cluster = cluster();
    put_child(&cluster);
    cluster.peer(("child", "u-c"), ("other", "u-o"));
    let replica = cluster.replica().await;
    let child = cluster.runtime(&[&replica], "token-p-c").await;
    let (mut lead, mut other) = (cluster.runtime(&[&replica], "token-p-l").await, cluster.runtime(&[&replica], "token-p-o").await);
    let caller = cluster.caller(&replica, "token-p-c");
    let reports = async |log: String, reads: usize| {
        *child.state.log.lock().unwrap() = Some(Body::from(log));
        let _: ReportAccepted = caller.post_json(gateway_api::REPORT, &report(Activity::Idle)).await.unwrap();
        let read = async || (child.state.log_queries.lock().unwrap().len() == reads).then_some(());
        eventually("the child's log to be read", read).await;
    };
    let run = |seq, id: &str, cause: &str| {
        let ended = json!({ "runId": id, "outcome": "finished" });
        entry(seq, "RunStarted", json!({ "runId": id, "cause": [cause] })) + &entry(seq + 1, "RunEnded", ended)
    };
    // A message of a peer has started this run, so nobody is told of it.
    let from = json!({ "namespace": "ns", "name": "other", "uid": "u-o" });
    let of_peer = entry(1, "PeerMessage", json!({ "messageId": "p", "from": from, "text": "t" }));
    reports(of_peer + &run(2, "run-2", "p"), 1).await;
    let task = entry(4, "Input", json!({ "from": "task", "messageId": "t", "text": "t" }));
    reports(task + &run(5, "run-5", "t"), 2).await;
    let told = wait_for("the notice", lead.messages.recv()).await.unwrap();
    assert_eq!((told.message_id.as_str(), told.weak, told.only_when_idle), ("notice-u-c-run-5", true, false));
    assert!(told.from.agent.is_some_and(|from| from.uid == "u-c") && told.text.contains("finished"), "{}", told.text);
    assert!(lead.messages.try_recv().is_err() && other.messages.try_recv().is_err(), "somebody else was told, or twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn b19_g8_a_parent_is_told_that_its_child_is_back_and_that_nothing_runs_it_any_more() {
    let cluster = cluster();
    put_child(&cluster);
    // It has run before.
    change(&cluster, "child", |child| child["status"]["runGeneration"] = json!(2));
    let replica = cluster.replica().await;
    let mut lead = cluster.runtime(&[&replica], "token-p-l").await;
    let child = cluster.runtime(&[&replica], "token-p-c").await;
    let caller = cluster.caller(&replica, "token-p-c");
    let second = RuntimeReport { run_generation: 2, ..report(Activity::Running) };
    for _ in 0..2 {
        let _: ReportAccepted = caller.post_json(gateway_api::REPORT, &second).await.unwrap();
    }
    let back = wait_for("the notice", lead.messages.recv()).await.unwrap();
    assert_eq!((back.message_id.as_str(), back.weak), ("notice-u-c-back-p-c", true));
    change(&cluster, "child", |child| {
        child["status"]["conditions"] = json!([{ "type": "Ready", "status": "False", "reason": "PodNotRunning", "message": "exit code 137",
            "lastTransitionTime": "2026-01-01T00:00:00Z" }]);
    });
    drop(child);
    let down = loop {
        let told = wait_for("the notice", lead.messages.recv()).await.unwrap();
        // The second report may have come before the first was seen in the status. Under its id it is read once.
        if told.message_id != back.message_id {
            break told;
        }
    };
    assert!(down.message_id == "notice-u-c-down-p-c" && down.text.contains("exit code 137"), "{down:?}");
}
