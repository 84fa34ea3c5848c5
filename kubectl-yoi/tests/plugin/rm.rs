//! `rm` and `workspace rm`: what lives stays, and without `--force` all stays.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use yoi_test_support::eventually;

use crate::api_server::{ApiServer, status};
use crate::plugin::{Plugin, agent, status as with_conditions};

const NO_CHANGE: &str = r#"{ "paths": [], "cut": false, "text": "" }"#;
const CHANGES: &str =
    r#"{ "paths": [{ "path": "src/main.rs", "kind": "modified" }, { "path": "new", "kind": "added" }], "cut": false, "text": "diff" }"#;

/// A tree that its node has made; `in_use` is the condition's status.
fn tree(name: &str, in_use: &str) -> Value {
    let reason = if in_use == "True" { "Published" } else { "Released" };
    let mut status = with_conditions(&[("Provisioned", "True", "CloneCreated", "made"), ("InUse", in_use, reason, "")]);
    status["origin"] = json!({ "kind": "Empty" });
    json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "AgentWorkspace", "metadata": { "name": name, "uid": format!("uid-{name}") },
        "spec": { "source": { "empty": {} } }, "status": status })
}

fn stopped(name: &str) -> Value {
    let mut stopped = agent(name, &[("Ready", "False", "Stopped", "desiredState is Stopped")]);
    stopped["spec"]["desiredState"] = json!("Stopped");
    stopped
}

fn live(name: &str) -> Value {
    let mut live = agent(name, &[("Ready", "True", "AllMet", "it listens")]);
    live["status"]["pod"] = json!({ "name": format!("{name}-1"), "uid": "u" });
    live
}

struct Case {
    /// The words behind `kubectl yoi`, without `--force`.
    words: &'static [&'static str],
    objects: Vec<Value>,
    /// What `yoipods/a/diff` answers.
    diff: (u16, String),
    /// What it says without `--force`, and its exit code.
    told: (&'static str, i32),
    /// What it says with it, and its exit code.
    forced: (&'static str, i32),
}

fn cases() -> Vec<Case> {
    let (rm, workspace_rm): (&[&str], &[&str]) = (&["rm", "a"], &["workspace", "rm", "a"]);
    let diff = |text: &str| (200, text.to_owned());
    let stop = "kubectl yoi stop --wait a -n ns";
    let case = |words, objects, diff, told, forced| Case { words, objects, diff, told, forced };
    let mut claimed = tree("a", "False");
    claimed["status"]["claimName"] = json!("a");
    let job = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "job" }, "status": { "phase": "Running" },
        "spec": { "containers": [], "volumes": [{ "name": "t", "persistentVolumeClaim": { "claimName": "a" } }] } });
    let ended = || {
        let mut ended = job.clone();
        ended["status"]["phase"] = json!("Succeeded");
        ended
    };
    let mut read = stopped("a");
    read["status"]["reader"] = json!({ "pod": { "name": "a-reader", "uid": "r" } });
    let mut tree_of_reader = tree("a", "True");
    tree_of_reader["status"]["readerPodUID"] = json!("r");
    let mut unseen = stopped("a");
    unseen["metadata"]["generation"] = json!(2);
    vec![
        // What lives is refused, with --force too.
        case(rm, vec![live("a"), tree("a", "True")], diff(NO_CHANGE), (stop, 1), (stop, 1)),
        case(workspace_rm, vec![live("a"), tree("a", "True")], diff(NO_CHANGE), (stop, 1), (stop, 1)),
        case(workspace_rm, vec![tree("a", "True")], diff(NO_CHANGE), ("a Pod has it mounted", 1), ("--force does not change that", 1)),
        case(
            workspace_rm,
            vec![claimed.clone(), job.clone()],
            diff(NO_CHANGE),
            ("Pod job uses its claim", 1),
            ("kubectl delete pod job -n ns", 1),
        ),
        // A reader has it mounted because somebody looked at it, perhaps this command.
        case(workspace_rm, vec![read, tree_of_reader], diff(NO_CHANGE), ("would delete agentworkspace.yoi.dev/a", 0), ("deleted", 0)),
        // Of uncertain liveness: only with --force.
        case(rm, vec![unseen.clone()], diff(NO_CHANGE), ("the operator has not seen it as it is now", 1), ("deleted", 0)),
        case(rm, vec![agent("a", &[("Ready", "False", "Starting", "")])], diff(NO_CHANGE), ("it is to run", 1), ("deleted", 0)),
        case(workspace_rm, vec![unseen, tree("a", "False")], diff(NO_CHANGE), ("YoiPod a uses it: the operator", 1), ("deleted", 0)),
        case(workspace_rm, vec![tree("a", "Unknown")], diff(NO_CHANGE), ("has not said whether a Pod uses it", 1), ("deleted", 0)),
        // What is only there: only with --force.
        case(rm, vec![stopped("a"), tree("a", "False")], diff(CHANGES), ("2 paths of its tree differ from its base", 1), ("deleted", 0)),
        case(
            workspace_rm,
            vec![stopped("a"), tree("a", "False")],
            diff(CHANGES),
            ("kubectl yoi diff a -n ns", 1),
            ("without it a does not start again", 0),
        ),
        case(
            rm,
            vec![stopped("a"), tree("a", "False")],
            (409, status(409, "Conflict", "YoiPod ns/a has stopped; kubectl yoi start a")),
            ("what is only in its tree cannot be looked at", 1),
            ("deleted", 0),
        ),
        case(workspace_rm, vec![claimed, ended()], diff(NO_CHANGE), ("because no agent works in it", 1), ("deleted", 0)),
        // Nothing stands against it.
        case(
            rm,
            vec![stopped("a"), tree("a", "False")],
            diff(NO_CHANGE),
            ("would delete yoipod.yoi.dev/a and its workspace", 0),
            ("deleted", 0),
        ),
        case(rm, vec![stopped("a")], (500, String::new()), ("would delete yoipod.yoi.dev/a", 0), ("deleted", 0)),
        case(
            workspace_rm,
            vec![stopped("a"), tree("a", "False")],
            diff(NO_CHANGE),
            ("would delete agentworkspace.yoi.dev/a", 0),
            ("deleted", 0),
        ),
    ]
}

/// H1 and H2 of the cases: of `rm` and of `workspace rm` alike.
#[tokio::test]
async fn h1_h2_what_lives_is_refused_and_without_force_there_is_a_report_only() -> Result<()> {
    for Case { words, objects, diff: (code, diff), told, forced } in cases() {
        let server = ApiServer::start().await?;
        let plugin = Plugin::new(&server)?;
        for object in &objects {
            server.put(object.clone());
        }
        server.answer_for("a", "diff", code, diff);
        let report = plugin.run(words).await?.expect_code(told.1)?;
        ensure!(format!("{report:?}").contains(told.0), "{words:?} says not `{}`: {report:#?}", told.0);
        ensure!(report.err.is_empty() == (told.1 == 0) && server.writes().is_empty(), "{words:?}: {report:#?} {:?}", server.writes());
        let with_force: Vec<&str> = words.iter().copied().chain(["--force"]).collect();
        let done = plugin.run(&with_force).await?.expect_code(forced.1)?;
        ensure!(format!("{done:?}").contains(forced.0), "{with_force:?} says not `{}`: {done:#?}", forced.0);
        let kind = if words.len() == 2 { "YoiPod" } else { "AgentWorkspace" };
        ensure!(server.object(kind, "a").is_some() == (forced.1 == 1), "{with_force:?}: {done:#?}");
    }
    Ok(())
}

#[tokio::test]
async fn of_several_none_is_deleted_when_one_of_them_lives() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(stopped("a")).put(live("b")).put(tree("w", "False")).put(tree("x", "True"));
    for (words, kind, first) in
        [(&["rm", "a", "b"][..], "YoiPod", "a"), (&["rm", "--all"], "YoiPod", "a"), (&["workspace", "rm", "w", "x"], "AgentWorkspace", "w")]
    {
        let report = plugin.run(words).await?.expect_code(1)?;
        ensure!(report.out.lines().count() == 2 && report.out.contains("would not delete"), "{words:?}: {report:?}");
        let forced: Vec<&str> = words.iter().copied().chain(["--force"]).collect();
        plugin.run(&forced).await?.expect_code(1)?;
        ensure!(server.object(kind, first).is_some() && server.writes().is_empty(), "{words:?}: {:?}", server.writes());
    }
    Ok(())
}

/// None of them goes before each was asked to. One after the other, the first would be waited for in vain.
#[tokio::test]
async fn several_are_deleted_side_by_side() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    let names = ["a", "b", "c"];
    for name in names {
        let mut held = stopped(name);
        held["metadata"]["finalizers"] = json!(["yoi.dev/operator"]);
        server.put(held);
    }
    let running = plugin.start(&["rm", "--all", "--force"])?;
    let all_asked = async || (server.writes().iter().filter(|write| write.starts_with("DELETE ")).count() == names.len()).then_some(());
    eventually("a deletion of each", all_asked).await;
    for name in names {
        server.remove("YoiPod", name);
    }
    let (code, said) = running.end().await?;
    ensure!(code == Some(0), "{code:?} {said}");
    ensure!(names.iter().all(|name| said.contains(&format!("yoipod.yoi.dev/{name} deleted"))), "{said}");
    Ok(())
}

#[tokio::test]
async fn what_runs_is_stopped_and_then_deleted_when_that_is_asked_for() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(live("a"));
    server.control(|collection, object| {
        if collection.ends_with("/yoipods") && object["spec"]["desiredState"] == "Stopped" {
            let generation = object["metadata"]["generation"].clone();
            object["status"] = with_conditions(&[("Ready", "False", "Stopped", "desiredState is Stopped")]);
            object["status"]["observedGeneration"] = generation;
        }
    });
    plugin.run(&["rm", "a", "--stop"]).await?.expect_code(2)?;
    ensure!(server.writes().is_empty(), "without --force: {:?}", server.writes());
    let done = plugin.run(&["rm", "a", "--force", "--stop"]).await?.expect_code(0)?;
    ensure!(server.object("YoiPod", "a").is_none() && done.out.contains("deleted"), "{done:?}");
    Ok(())
}
