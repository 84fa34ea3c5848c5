//! Paths of a tree that are lent: what its Pods see of it, and who mounts it.

use std::path::Path;

use kube::runtime::watcher::Event;
use serde_json::{Value, json};
use tonic::Code;
use yoi_agent_shim::mounter::client::Mounter;
use yoi_agent_shim::mounter::protocol::Request;
use yoi_agent_shim::shim::provisioning::provision;
use yoi_crds::AgentWorkspace;
use yoi_crds::workspace::LoanView;
use yoi_workspace::mount::{LaidCover, Shown};
use yoi_workspace::{CloneAccess, ErrorReason};

use crate::fixtures::{uid, workspace};
use crate::real_disk::{RealDisk, base, clone_of_base, prepare};
use crate::test_shim::{TestShim, volume};

const LENDER: u8 = 7;
const HOLDER: u8 = 8;

/// A claim on a path.
fn claim(loan: &str, path: &str, state: &str) -> Value {
    json!({ "loan": loan, "lender": { "name": "lead", "uid": "u-lead" }, "holder": { "name": "child", "podUID": uid(HOLDER) },
        "rules": { "allow": [{ "path": path, "access": "Write" }] }, "state": state, "reservedAt": "2026-11-28T00:00:00Z" })
}

fn lent(claims: Value, loans: &[LoanView]) -> AgentWorkspace {
    workspace(1, json!({ "status": { "podUID": uid(LENDER), "claims": claims, "loans": loans } }))
}

fn covered(loan: &str) -> LoanView {
    LoanView { loan: loan.into(), covered: true, message: None }
}

/// What the status is to say of the loans after the workspace was seen so.
async fn seen(shim: &TestShim, ws: AgentWorkspace) -> Vec<LoanView> {
    shim.apply_event(Event::Apply(ws.clone()));
    let before = ws.status.as_ref().map(|status| status.loans.clone()).unwrap_or_default();
    provision(&shim.state, &ws, uid(1)).await.unwrap().update.loans.unwrap_or(before)
}

/// What changes what is seen, one line each.
fn views(shim: &TestShim) -> Vec<String> {
    let text = |covers: &[yoi_workspace::mount::Cover]| -> String {
        let one = |cover: &yoi_workspace::mount::Cover| format!(" {}={:?}", cover.path.display(), cover.shown);
        covers.iter().map(one).collect()
    };
    let line = |request: Request| match request {
        Request::Publish { volume, covers, .. } => Some(format!("publish {}{}", u8::from(volume.pod == uid(HOLDER)), text(&covers))),
        Request::Cover { view, check_names, .. } => Some(format!("cover{}{}", if check_names { " and check" } else { "" }, text(&view))),
        Request::Uncover { view, .. } => Some(format!("uncover{}", text(&view))),
        _ => None,
    };
    shim.mounter.take_requests().into_iter().filter_map(line).collect()
}

async fn lending_shim() -> TestShim {
    let shim = TestShim::new();
    shim.assign_pod(1, LENDER);
    shim.record_tree(1).await;
    shim.node().await.node_publish_volume(shim.lending_tree(LENDER, 1)).await.unwrap();
    shim
}

#[tokio::test]
async fn a_path_is_closed_to_its_lender_before_the_status_says_so_and_until_no_pod_of_the_holder_is_left() {
    let shim = lending_shim().await;
    assert_eq!(views(&shim), ["publish 0"]);
    assert_eq!(seen(&shim, lent(json!([]), &[])).await, []);
    assert_eq!(views(&shim), [""; 0], "nothing is lent, and nothing is asked");

    let reserved = lent(json!([claim("l", "src/a", "Reserved")]), &[]);
    assert_eq!(seen(&shim, reserved.clone()).await, [covered("l")]);
    assert_eq!(views(&shim), ["cover and check src=Writable src/a=ReadOnly", "uncover src=Writable src/a=ReadOnly"]);
    let active = |state: &str| lent(json!([claim("l", "src/a", state)]), &[covered("l")]);
    for ws in [active("Reserved"), active("Fenced"), active("Active")] {
        assert_eq!(seen(&shim, ws).await, [covered("l")]);
    }
    assert_eq!(views(&shim), [""; 0], "said again, it is done");

    let mut node = shim.node().await;
    node.node_publish_volume(shim.tree(HOLDER, 1)).await.unwrap();
    assert_eq!(views(&shim), ["publish 1 .=ReadOnly src/a=Writable"]);
    for over in [active("Reclaiming"), active("Released"), lent(json!([]), &[covered("l")])] {
        assert_eq!(seen(&shim, over).await, [covered("l")], "a Pod of the holder has the tree mounted");
    }
    assert_eq!(views(&shim), [""; 0]);
    node.node_unpublish_volume(shim.unpublish(HOLDER, "tree")).await.unwrap();
    assert_eq!(seen(&shim, lent(json!([]), &[covered("l")])).await, []);
    assert_eq!(views(&shim), ["cover", "uncover"]);
}

#[tokio::test(start_paused = true)]
async fn a_holder_mounts_the_tree_only_by_an_active_claim_that_names_its_pod_and_is_covered() {
    let shim = lending_shim().await;
    let mut node = shim.node().await;
    let mut refusal = async |ws: AgentWorkspace, pod: u8| {
        shim.apply_event(Event::Apply(ws));
        let refused = node.node_publish_volume(shim.tree(pod, 1)).await.unwrap_err();
        (refused.code(), refused.message().to_owned())
    };
    let by = |state: &str, loans: &[LoanView]| lent(json!([claim("l", "src/a", state)]), loans);
    for (ws, code, why) in [
        (by("Fenced", &[covered("l")]), Code::Aborted, "loan l is not Active yet"),
        (by("Active", &[]), Code::Aborted, "loan l is not closed to lead yet"),
        (by("Reclaiming", &[covered("l")]), Code::FailedPrecondition, "loan l is over"),
    ] {
        assert_eq!(refusal(ws, HOLDER).await, (code, why.to_owned()));
    }
    let (code, why) = refusal(by("Active", &[covered("l")]), 9).await;
    assert!(code == Code::Aborted && why.contains("is for the Pod with UID"), "no claim names it: {why}");
    // The status says so, and it is not so any more.
    shim.mounter.refuse_kind.lock().unwrap().insert("cover", ErrorReason::CoverRefused);
    shim.state.views.forget(&volume(LENDER, "tree"));
    let open = refusal(by("Active", &[covered("l")]), HOLDER).await;
    assert_eq!(open, (Code::Aborted, "loan l is not closed to its lender".to_owned()));
    assert!(views(&shim).iter().all(|view| !view.starts_with("publish 1")));
}

#[tokio::test(start_paused = true)]
async fn a_holder_works_while_its_lender_rests_and_the_lenders_next_pod_is_covered_from_its_start() {
    let shim = lending_shim().await;
    let active = lent(json!([claim("l", "src/a", "Active")]), &[covered("l")]);
    seen(&shim, active.clone()).await;
    let mut node = shim.node().await;
    node.node_unpublish_volume(shim.unpublish(LENDER, "tree")).await.unwrap();
    assert_eq!(seen(&shim, active).await, [covered("l")], "no Pod of the lender is there, and the next one sees the path read-only");
    shim.mounter.take_requests();
    node.node_publish_volume(shim.tree(HOLDER, 1)).await.unwrap();
    assert_eq!(views(&shim), ["publish 1 .=ReadOnly src/a=Writable"]);
    // What is at another path nobody knows until the lender runs.
    let more = lent(json!([claim("l", "src/a", "Active"), claim("m", "docs", "Reserved")]), &[covered("l")]);
    let report = seen(&shim, more).await;
    assert!(report[0].covered && report[1].message.as_deref().unwrap().contains("no Pod of the lender"), "{report:?}");
    // The claim that this node sees is gone. The Pod of its holder is not.
    shim.apply_event(Event::Apply(lent(json!([]), &[covered("l")])));
    shim.mounter.take_requests();
    node.node_publish_volume(shim.lending_tree(LENDER, 1)).await.unwrap();
    assert_eq!(views(&shim), ["publish 0 src=Writable src/a=ReadOnly"]);
}

#[tokio::test]
async fn a_shim_that_is_killed_between_a_cover_and_its_report_lays_nothing_twice_and_opens_nothing() {
    let shim = lending_shim().await;
    let by = |state: &str, loans: &[LoanView]| lent(json!([claim("l", "src/a", state)]), loans);
    assert_eq!(seen(&shim, by("Reserved", &[])).await, [covered("l")]);
    // The cover lies, and the status never said so.
    let mut shim = shim.restart();
    shim.mounter.take_requests();
    assert_eq!(seen(&shim, by("Reserved", &[])).await, [covered("l")]);
    let closed = "src=Writable src/a=ReadOnly";
    assert_eq!(views(&shim), ["cover".to_owned(), format!("cover and check {closed}"), format!("uncover {closed}")]);
    // Whenever it is killed from then on, it says the same of what lies there, and asks for nothing less.
    for state in ["Reserved", "Fenced", "Active", "Reclaiming"] {
        shim = shim.restart();
        shim.mounter.take_requests();
        assert_eq!(seen(&shim, by(state, &[covered("l")])).await, [covered("l")], "{state}");
        assert_eq!(views(&shim), [format!("cover {closed}"), format!("uncover {closed}")], "{state}");
    }
    // It is killed before it has opened what is back.
    shim = shim.restart();
    shim.mounter.take_requests();
    assert_eq!(seen(&shim, lent(json!([]), &[covered("l")])).await, []);
    assert_eq!(views(&shim), ["cover", "uncover"]);
}

#[tokio::test]
async fn a_shim_that_starts_while_a_holder_works_keeps_the_path_closed_by_the_holders_record_and_without_it() {
    let shim = lending_shim().await;
    let active = lent(json!([claim("l", "src/a", "Active")]), &[covered("l")]);
    seen(&shim, active).await;
    shim.node().await.node_publish_volume(shim.tree(HOLDER, 1)).await.unwrap();
    // Meanwhile the claim went through to its end.
    let over = || lent(json!([]), &[covered("l")]);
    let shim = shim.restart();
    shim.mounter.take_requests();
    assert_eq!(seen(&shim, over()).await, [covered("l")]);
    assert!(views(&shim).iter().all(|view| view.ends_with("src=Writable src/a=ReadOnly")));
    // The kubelet starts anew, and asks again for what runs.
    shim.node().await.node_publish_volume(shim.tree(HOLDER, 1)).await.unwrap();
    assert_eq!(views(&shim), ["publish 1 .=ReadOnly src/a=Writable"]);
    // A record that is lost leaves a Pod that can write the tree, and nobody knows by what right.
    shim.state.publish_records.remove(&volume(HOLDER, "tree")).await.unwrap();
    let shim = shim.restart();
    shim.mounter.take_requests();
    seen(&shim, over()).await;
    assert!(views(&shim).iter().all(|view| !view.starts_with("uncover")), "{:?}", views(&shim));
}

/// Its object may be gone by force, and the loan back, while its containers still run.
#[tokio::test(start_paused = true)]
async fn c20_a_path_is_shown_to_no_second_holder_while_the_first_one_has_it_mounted() {
    let shim = lending_shim().await;
    let mut node = shim.node().await;
    let first = lent(json!([claim("l", "src/a", "Active")]), &[covered("l")]);
    seen(&shim, first).await;
    node.node_publish_volume(shim.tree(HOLDER, 1)).await.unwrap();
    let of = |loan: &str, path: &str| {
        let mut claim = claim(loan, path, "Active");
        claim["holder"] = json!({ "name": "second", "podUID": uid(9) });
        lent(json!([claim]), &[covered(loan)])
    };
    let above = of("m", "src");
    seen(&shim, above.clone()).await;
    let refused = node.node_publish_volume(shim.tree(9, 1)).await.unwrap_err();
    let why = "a Pod that holds by loan l what loan m lends is not gone from this node yet";
    assert_eq!((refused.code(), refused.message()), (Code::Aborted, why));
    // Elsewhere it hinders nobody.
    seen(&shim, of("n", "docs")).await;
    node.node_publish_volume(shim.tree(9, 1)).await.unwrap();
    node.node_unpublish_volume(shim.unpublish(9, "tree")).await.unwrap();
    node.node_unpublish_volume(shim.unpublish(HOLDER, "tree")).await.unwrap();
    seen(&shim, above).await;
    node.node_publish_volume(shim.tree(9, 1)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lender_that_starts_again_has_closed_from_the_start_what_is_lent() {
    let shim = lending_shim().await;
    let active = lent(json!([claim("l", "src/a", "Active"), claim("m", "src/b", "Reserved")]), &[covered("l")]);
    shim.apply_event(Event::Apply(active.clone()));
    // A reboot: nothing is mounted.
    shim.mounter.shown.lock().unwrap().clear();
    shim.mounter.take_requests();
    shim.node().await.node_publish_volume(shim.lending_tree(LENDER, 1)).await.unwrap();
    assert_eq!(views(&shim), ["publish 0 src=Writable src/a=ReadOnly"]);
    // The kubelet asks again while it runs: more may be closed by now, and nothing is opened.
    assert_eq!(seen(&shim, active).await.len(), 2);
    shim.mounter.take_requests();
    shim.node().await.node_publish_volume(shim.lending_tree(LENDER, 1)).await.unwrap();
    assert_eq!(views(&shim), ["cover src=Writable src/a=ReadOnly"]);

    // The shim starts anew, and the API server does not answer: what is mounted stays as it is, and nothing else is mounted.
    let shim = shim.restart();
    shim.mounter.take_requests();
    shim.node().await.node_publish_volume(shim.lending_tree(LENDER, 1)).await.unwrap();
    shim.mounter.shown.lock().unwrap().clear();
    let unknown = shim.node().await.node_publish_volume(shim.lending_tree(LENDER, 1)).await.unwrap_err();
    assert!(unknown.code() == Code::Aborted && unknown.message().contains("which paths of the tree are lent"), "{unknown}");
    assert!(views(&shim).iter().all(|view| !view.starts_with("publish")), "nothing is shown that may be lent");
}

#[tokio::test]
async fn a_path_that_cannot_be_closed_is_reported_by_its_loan_and_hinders_no_other() {
    let shim = lending_shim().await;
    let one = lent(json!([claim("l", "src/a", "Active")]), &[covered("l")]);
    assert_eq!(seen(&shim, one).await, [covered("l")]);
    shim.mounter.take_requests();
    shim.mounter.refuse_kind.lock().unwrap().insert("cover", ErrorReason::CoverRefused);
    let two = lent(json!([claim("l", "src/a", "Active"), claim("m", "docs", "Reserved")]), &[covered("l")]);
    let refused = LoanView { loan: "m".into(), covered: false, message: Some("as the test says".into()) };
    assert_eq!(seen(&shim, two.clone()).await, [covered("l"), refused]);
    let tried = ["cover and check docs=ReadOnly src=Writable src/a=ReadOnly", "uncover src=Writable src/a=ReadOnly"];
    assert_eq!(views(&shim), tried, "what was laid of it goes again");
    shim.mounter.refuse_kind.lock().unwrap().clear();
    assert_eq!(seen(&shim, two).await, [covered("l"), covered("m")]);
    // The mounter dies: nothing is said.
    shim.mounter.unanswered.lock().unwrap().insert("cover");
    let three = lent(json!([claim("l", "src/a", "Active"), claim("n", "lib", "Reserved")]), &[covered("l")]);
    shim.apply_event(Event::Apply(three.clone()));
    assert!(provision(&shim.state, &three, uid(1)).await.is_err());
    shim.mounter.unanswered.lock().unwrap().clear();
    assert_eq!(seen(&shim, three).await, [covered("l"), covered("n")]);
}

#[tokio::test(start_paused = true)]
async fn while_paths_are_lent_nobody_else_gets_to_write_the_tree_and_who_does_keeps_them_from_being_lent() {
    let shim = TestShim::new();
    shim.assign_pod(1, LENDER);
    shim.record_tree(1).await;
    let mut node = shim.node().await;
    // Made before its agent might lend.
    node.node_publish_volume(shim.tree(LENDER, 1)).await.unwrap();
    let reserved = lent(json!([claim("l", "src/a", "Reserved")]), &[]);
    let report = seen(&shim, reserved.clone()).await;
    assert!(!report[0].covered && report[0].message.as_deref().unwrap().contains("start the agent anew"), "{report:?}");
    assert!(views(&shim).iter().all(|view| view == "publish 0"));
    node.node_unpublish_volume(shim.unpublish(LENDER, "tree")).await.unwrap();
    let waits = node.node_publish_volume(shim.tree(LENDER, 1)).await.unwrap_err();
    assert!(waits.code() == Code::Aborted && waits.message().contains("are lent to child"), "{waits}");
    shim.apply_event(Event::Apply(lent(json!([claim("l", "src/a", "Released")]), &[])));
    node.node_publish_volume(shim.tree(LENDER, 1)).await.unwrap();
}

fn laid(path: &str, shown: Shown) -> LaidCover {
    LaidCover { path: path.into(), shown }
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_real_disk_a_lent_path_is_closed_to_one_pod_and_open_to_the_other_and_then_the_other_way_round() {
    let Some(disk) = RealDisk::new() else { return };
    let shim = prepare(&disk).await;
    base(&shim).await;
    let of_tree = |claims: Value, loans: &[LoanView]| {
        let mut over = clone_of_base();
        over["status"]["claims"] = claims;
        over["status"]["loans"] = json!(loans);
        workspace(2, over)
    };
    let settled = async |claims: Value, loans: &[LoanView]| {
        let ws = of_tree(claims, loans);
        shim.apply_event(Event::Apply(ws.clone()));
        provision(&shim.state, &ws, uid(2)).await.unwrap().update.loans.unwrap_or_default()
    };
    settled(json!([]), &[]).await;
    let mut node = shim.node().await;
    let (lender, holder) = (shim.lending_tree(LENDER, 2), shim.tree(HOLDER, 2));
    for request in [&lender, &holder] {
        std::fs::create_dir_all(Path::new(&request.target_path).parent().unwrap()).unwrap();
    }
    node.node_publish_volume(lender.clone()).await.unwrap();
    let (of_lender, of_holder) = (Path::new(&lender.target_path), Path::new(&holder.target_path));
    std::fs::create_dir_all(of_lender.join("src/a")).unwrap();
    std::fs::create_dir(of_lender.join("docs")).unwrap();

    let refused = settled(json!([claim("l", "nowhere", "Reserved")]), &[]).await;
    assert!(!refused[0].covered && refused[0].message.as_deref().unwrap().contains("nowhere: it is not in the tree"), "{refused:?}");
    std::fs::write(of_lender.join("src/a/one"), "x").unwrap();
    std::fs::hard_link(of_lender.join("src/a/one"), of_lender.join("docs/one")).unwrap();
    let refused = settled(json!([claim("l", "src/a", "Reserved")]), &[]).await;
    assert!(!refused[0].covered && refused[0].message.as_deref().unwrap().contains("docs/one"), "{refused:?}");
    std::fs::write(of_lender.join("src/a/two"), "what was laid for it is gone").unwrap();
    std::fs::remove_file(of_lender.join("docs/one")).unwrap();

    assert_eq!(settled(json!([claim("l", "src/a", "Reserved")]), &[]).await, [covered("l")]);
    let is_closed = |path: &Path| std::fs::write(path, "x").is_err_and(|error| error.kind() == std::io::ErrorKind::ReadOnlyFilesystem);
    assert!(is_closed(&of_lender.join("src/a/one")));
    std::fs::write(of_lender.join("docs/beside"), "x").unwrap();
    settled(json!([claim("l", "src/a", "Active")]), &[covered("l")]).await;
    node.node_publish_volume(holder.clone()).await.unwrap();
    std::fs::write(of_holder.join("src/a/by-the-holder"), "x").unwrap();
    assert!(is_closed(&of_holder.join("docs/new")) && is_closed(&of_lender.join("src/a/new")));
    let line: &dyn Mounter = &*shim.state.mounter;
    let shown = line.mounts().await.unwrap().shown;
    let covers = |pod: u8| shown.iter().find(|mount| mount.volume == volume(pod, "tree")).unwrap().covers.clone();
    assert_eq!(covers(LENDER), [laid("src", Shown::Writable), laid("src/a", Shown::ReadOnly)]);
    assert_eq!(covers(HOLDER), [laid("src/a", Shown::Writable)]);
    // The mounter takes no volume for a tree that shows none.
    assert!(
        line.cover(volume(9, "tree"), CloneAccess::ReadWrite, Vec::new(), true).await.unwrap_err().to_string().contains("shows no tree")
    );

    settled(json!([claim("l", "src/a", "Released")]), &[covered("l")]).await;
    assert!(is_closed(&of_lender.join("src/a/new")), "its holder's Pod is left");
    node.node_unpublish_volume(shim.unpublish(HOLDER, "tree")).await.unwrap();
    assert_eq!(settled(json!([claim("l", "src/a", "Released")]), &[covered("l")]).await, []);
    std::fs::write(of_lender.join("src/a/by-the-holder"), "back").unwrap();
    // The end of a Pod while something is lent takes the covers along.
    assert_eq!(settled(json!([claim("m", "docs", "Reserved")]), &[]).await, [covered("m")]);
    node.node_unpublish_volume(shim.unpublish(LENDER, "tree")).await.unwrap();
    assert!(!of_lender.exists());
}
