//! Loans: a lead that lends paths of its tree to a child that it starts.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use yoi_gateway::GatewaySettings;
use yoi_line::{CallError, RequestClient};
use yoi_plan::reservation::LoanRequest;
use yoi_wire::children::{LoansRequest, LoansResponse, SharedAccess, SharedPath, SpawnRequest, SpawnResponse};
use yoi_wire::fence::{FenceRequest, FenceResponse, HoldingProcess};
use yoi_wire::hub::{RefusalReason, gateway_api};

use crate::harness::{Replica, Runtime, TestCluster, quick_settings, refusal, refusal_reason, wait_for};

/// A lead that may lend everything but `docs/api`, and its tree.
fn cluster() -> TestCluster {
    let cluster = TestCluster::new();
    cluster.agent("lead", "u-l", "p-l");
    let mut lead = cluster.api.get("yoipods", "ns", "lead");
    lead["spec"]["delegation"] =
        json!({ "allow": [{ "path": ".", "access": "Write" }], "deny": [{ "path": "docs/api", "access": "Write" }] });
    lead["status"]["workspace"] = json!({ "name": "tree" });
    cluster.api.put("yoipods", lead);
    cluster.api.put(
        "agentworkspaces",
        json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "AgentWorkspace", "metadata": { "namespace": "ns", "name": "tree", "uid": "u-tree" },
            "spec": { "source": { "empty": {} } }, "status": { "podUID": "p-l", "nodeName": "n" } }),
    );
    cluster
}

fn tree(cluster: &TestCluster) -> Value {
    cluster.api.get("agentworkspaces", "ns", "tree")
}

fn states(cluster: &TestCluster) -> Vec<String> {
    let claims = tree(cluster)["status"]["claims"].as_array().cloned().unwrap_or_default();
    claims.iter().map(|claim| claim["state"].as_str().unwrap().to_owned()).collect()
}

fn change_tree(cluster: &TestCluster, change: impl FnOnce(&mut Value)) {
    let mut tree = tree(cluster);
    change(&mut tree);
    cluster.api.put("agentworkspaces", tree);
}

/// A node that says this of each loan, once it is reserved.
async fn node(cluster: &TestCluster, covered: bool, message: Option<&str>) {
    let claims = |tree: &Value| tree["status"]["claims"].as_array().cloned().unwrap_or_default();
    let seen =
        cluster.api.wait_until("agentworkspaces", "ns", "tree", |tree| claims(tree).iter().any(|claim| claim["state"] == "Reserved")).await;
    let view = |claim: &Value| json!({ "loan": claim["loan"], "covered": covered, "message": message });
    let views: Vec<Value> = claims(&seen).iter().map(view).collect();
    change_tree(cluster, |tree| tree["status"]["loans"] = json!(views));
}

async fn spawn(caller: &RequestClient, name: &str, id: &str, paths: &[&str]) -> Result<SpawnResponse, CallError> {
    let shared = |path: &&str| SharedPath { path: (*path).to_owned(), access: SharedAccess::Write, recursive: true };
    let share = Some(paths.iter().map(shared).collect());
    let request =
        SpawnRequest { name: name.to_owned(), task: "do it".to_owned(), request_id: id.to_owned(), share, cwd: None, template: None };
    caller.post_json(gateway_api::SPAWN, &request).await
}

async fn loans(caller: &RequestClient, returned: &[String]) -> LoansResponse {
    caller.post_json(gateway_api::LOANS, &LoansRequest { returned: returned.to_vec() }).await.unwrap()
}

/// A gateway, the lead's runtime, and the lead's client.
async fn start(cluster: &TestCluster, settings: GatewaySettings) -> (Replica, Runtime, RequestClient) {
    let replica = cluster.ready_replica(settings).await;
    let runtime = cluster.runtime(&[&replica], "token-p-l").await;
    let lead = cluster.caller(&replica, "token-p-l");
    (replica, runtime, lead)
}

#[tokio::test(flavor = "multi_thread")]
async fn c7_c10_a_child_is_made_once_its_paths_are_closed_and_nobody_holds_them() {
    let cluster = cluster();
    let (_replica, runtime, lead) = start(&cluster, quick_settings()).await;
    // Others write meanwhile.
    cluster.api.refuse_next_claims();
    let (made, ()) =
        wait_for("the child", async { tokio::join!(spawn(&lead, "child", "r-1", &["docs/guide"]), node(&cluster, true, None)) }).await;
    let made = made.unwrap();
    let loan = made.loan.clone().unwrap();
    assert_eq!(*runtime.state.fences.lock().unwrap(), [FenceRequest { loan: loan.clone(), paths: vec!["docs/guide".to_owned()] }]);
    let claim = tree(&cluster)["status"]["claims"][0].clone();
    assert_eq!((&claim["state"], &claim["loan"], &claim["holder"]["name"]), (&json!("Fenced"), &json!(loan), &json!("child")));
    assert_eq!(claim["lender"], json!({ "name": "lead", "uid": "u-l", "podUID": "p-l" }));

    let spec = cluster.api.get("yoipods", "ns", "child")["spec"].clone();
    let rules = json!({ "allow": [{ "path": "docs/guide", "access": "Write", "recursive": true }] });
    assert_eq!(spec["spawnedBy"], json!({ "name": "lead", "uid": "u-l", "requestId": "r-1", "loan": loan, "rules": rules }));
    assert_eq!((&spec["scope"], &spec["delegation"], &spec["workspace"]), (&rules, &Value::Null, &json!({ "ref": { "name": "tree" } })));

    // The same request again is the same child and the same loan.
    let before = tree(&cluster);
    assert_eq!(spawn(&lead, "child", "r-1", &["docs/guide"]).await.unwrap(), SpawnResponse { duplicate: true, ..made });
    assert_eq!(tree(&cluster), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn c1_c2_c3_c5_what_is_refused_reserves_nothing_and_says_why() {
    let cluster = cluster();
    cluster.agent("other", "u-o", "p-o");
    change_tree(&cluster, |tree| {
        tree["status"]["claims"] = json!([{ "loan": "l-0", "lender": { "name": "lead", "uid": "u-l" }, "holder": { "name": "first", "uid": "u-f" },
            "rules": { "allow": [{ "path": "src", "access": "Write", "recursive": true }] }, "state": "Active", "reservedAt": "2026-01-01T00:00:00Z" }]);
    });
    let (replica, _runtime, lead) = start(&cluster, quick_settings()).await;
    let before = tree(&cluster);
    for (paths, expected, says) in [
        (vec!["/docs"], (400, RefusalReason::Invalid), "absolute"),
        (vec!["docs/../src"], (400, RefusalReason::Invalid), "`..`"),
        (vec![".git/hooks"], (400, RefusalReason::Invalid), "git's own"),
        (vec![], (400, RefusalReason::Invalid), "name a path"),
        (vec!["docs"], (403, RefusalReason::NotLent), "delegation does not allow it"),
        (vec!["src/parser"], (409, RefusalReason::PathHeld), "first holds it"),
    ] {
        let (code, refused) = refusal(spawn(&lead, "child", "r-1", &paths).await);
        assert_eq!((code, refused.reason), expected, "{paths:?}: {}", refused.message);
        assert!(refused.message.contains(says), "{paths:?}: {}", refused.message);
    }
    let other = cluster.caller(&replica, "token-p-o");
    assert_eq!(refusal_reason(spawn(&other, "child", "r-1", &["lib"]).await), (403, RefusalReason::NoDelegation));
    assert_eq!(tree(&cluster), before, "a refusal wrote something");
    assert!(!cluster.api.exists("yoipods", "ns", "child"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_node_cannot_close_or_a_process_still_holds_is_given_back_with_the_reason() {
    let cluster = cluster();
    let (_replica, runtime, lead) = start(&cluster, quick_settings()).await;
    let node_says = node(&cluster, false, Some("docs/guide/a has another name outside of it"));
    let (refused, ()) = wait_for("a refusal", async { tokio::join!(spawn(&lead, "child", "r-1", &["docs/guide"]), node_says) }).await;
    let (code, refused) = refusal(refused);
    assert_eq!((code, refused.reason), (403, RefusalReason::NotLent));
    assert!(refused.message.contains("has another name outside"), "{}", refused.message);
    assert_eq!(states(&cluster), ["Reclaiming"]);
    assert!(tree(&cluster)["status"]["claims"][0]["message"].as_str().unwrap().contains("has another name outside"));
    assert!(runtime.state.fences.lock().unwrap().is_empty());

    change_tree(&cluster, |tree| tree["status"]["claims"] = json!([]));
    let held = HoldingProcess { pid: 7, program: "tail".into(), by: "descriptor".into(), path: "docs/guide/a".into() };
    *runtime.state.fence.lock().unwrap() = Some(FenceResponse { left: vec![held], ..FenceResponse::default() });
    let (refused, ()) =
        wait_for("a refusal", async { tokio::join!(spawn(&lead, "child", "r-2", &["docs/guide"]), node(&cluster, true, None)) }).await;
    let (_, refused) = refusal(refused);
    assert!(refused.message.contains("process 7 (tail)"), "{}", refused.message);
    assert_eq!(states(&cluster), ["Reclaiming"]);
    assert!(!cluster.api.exists("yoipods", "ns", "child"));
    // The same request is over for good.
    assert_eq!(refusal_reason(spawn(&lead, "child", "r-2", &["docs/guide"]).await), (403, RefusalReason::NotLent));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_gateway_died_goes_on_at_another_one_from_where_its_claim_stands() {
    for (state, times_fenced) in [("Reserved", 1), ("Fenced", 0)] {
        let cluster = cluster();
        let lender = serde_json::from_value(cluster.api.get("yoipods", "ns", "lead")).unwrap();
        let share = [SharedPath { path: "lib".to_owned(), access: SharedAccess::Write, recursive: true }];
        let request = LoanRequest { lender: &lender, pod_uid: "p-l", holder: "child", request_id: "r-1", share: &share };
        let claims = request.reserve(&serde_json::from_value(tree(&cluster)).unwrap(), Timestamp::now()).unwrap();
        change_tree(&cluster, |tree| {
            tree["status"]["claims"] = json!(claims);
            tree["status"]["claims"][0]["state"] = json!(state);
        });
        let (_replica, runtime, lead) = start(&cluster, quick_settings()).await;
        let closes = async {
            if state == "Reserved" {
                node(&cluster, true, None).await;
            }
        };
        let (made, ()) = wait_for("the child", async { tokio::join!(spawn(&lead, "child", "r-1", &["lib"]), closes) }).await;
        assert_eq!(made.unwrap().loan, Some(claims[0].loan.clone()), "{state}");
        assert_eq!(states(&cluster), ["Fenced"], "{state}");
        assert_eq!(runtime.state.fences.lock().unwrap().len(), times_fenced, "{state}");
        // Another call does not get what this one holds.
        assert_eq!(refusal_reason(spawn(&lead, "other", "r-2", &["lib"]).await), (409, RefusalReason::PathHeld));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_says_nothing_is_not_waited_for_for_ever() {
    let cluster = cluster();
    let settings = GatewaySettings { cover_wait: Duration::from_millis(50), ..quick_settings() };
    let (_replica, _runtime, lead) = start(&cluster, settings).await;
    let (_, refused) = refusal(spawn(&lead, "child", "r-1", &["lib"]).await);
    assert!(refused.reason == RefusalReason::NotLent && refused.message.contains("yoi-agent-shim"), "{}", refused.message);
    assert_eq!(states(&cluster), ["Reclaiming"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn c8_a_child_that_cannot_be_made_leaves_its_claim_given_up() {
    let cluster = cluster();
    let (_replica, _runtime, lead) = start(&cluster, quick_settings()).await;
    cluster.api.refuse_creation();
    let (refused, ()) =
        wait_for("a refusal", async { tokio::join!(spawn(&lead, "child", "r-2", &["lib"]), node(&cluster, true, None)) }).await;
    assert_eq!(refusal_reason(refused), (502, RefusalReason::NotMade));
    assert_eq!(states(&cluster), ["Reclaiming"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn c17_a_lead_is_told_what_it_lent_and_what_its_log_has_as_back_is_forgotten() {
    let cluster = cluster();
    cluster.agent("other", "u-o", "p-o");
    let claim = |loan: &str, state: &str, message: Option<&str>| {
        json!({ "loan": loan, "lender": { "name": "lead", "uid": "u-l" }, "holder": { "name": "child", "uid": "u-c" }, "message": message,
            "rules": { "allow": [{ "path": "docs", "access": "Write", "recursive": true }, { "path": "src", "access": "Read", "recursive": true }] },
            "state": state, "reservedAt": "2026-01-01T00:00:00Z" })
    };
    change_tree(&cluster, |tree| tree["status"]["claims"] = json!([claim("l-1", "Active", None), claim("l-2", "Released", Some("why"))]));
    let (replica, _runtime, lead) = start(&cluster, quick_settings()).await;
    let told = loans(&lead, &[]).await.loans;
    let short: Vec<_> = told.iter().map(|loan| (loan.loan.as_str(), loan.back, loan.message.as_deref())).collect();
    assert_eq!(short, [("l-1", false, None), ("l-2", true, Some("why"))]);
    assert_eq!((told[0].holder.as_str(), &told[0].paths), ("child", &vec!["docs".to_owned()]));
    // It is back once its node has opened the paths.
    change_tree(&cluster, |tree| tree["status"]["loans"] = json!([{ "loan": "l-2", "covered": true }]));
    assert!(!loans(&lead, &[]).await.loans[1].back);
    change_tree(&cluster, |tree| tree["status"]["loans"] = json!([]));
    // What is out is not forgotten, whatever a log says.
    let left = loans(&lead, &["l-1".to_owned(), "l-2".to_owned()]).await.loans;
    assert_eq!(left.iter().map(|loan| loan.loan.as_str()).collect::<Vec<_>>(), ["l-1"]);
    assert_eq!(states(&cluster), ["Active"]);
    assert!(loans(&cluster.caller(&replica, "token-p-o"), &[]).await.loans.is_empty());
}
