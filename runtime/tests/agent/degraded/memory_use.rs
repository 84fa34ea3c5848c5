//! Memory of an idle agent.

use yoi_wire::hub::Activity;

use crate::harness::{EXAMPLE, Harness, status_kib};

/// The shipped build (`YOI_RUNTIME_BINARY`) has 10 MiB for all of it. Most of a debug build's pages are those of its file, several times the size, so of
/// these only what is its own is judged.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_agent_uses_little_memory_before_and_after_its_work() {
    let shipped = std::env::var_os("YOI_RUNTIME_BINARY").is_some();
    let harness = Harness::new(EXAMPLE).await;
    let fresh = harness.start(1, None);
    harness.gateway.wait_for_report(|report| report.ready).await;
    harness.gateway.log("").await;
    let settled = |pid: u32, when: &str| {
        let [all, own, file] = ["VmRSS", "RssAnon", "RssFile"].map(|what| status_kib(pid, what));
        println!("{when}: {all} KiB resident, {own} of its own, {file} of its file");
        assert!(own <= 5 << 10, "{when}: {own} KiB of its own");
        assert!(!shipped || all <= 10 << 10, "{when}: {all} KiB");
    };
    settled(fresh.child.id(), "before any work");
    drop(fresh);
    let harness = Harness::new(EXAMPLE).await;
    let worked = harness.start(1, Some("write the greeting"));
    harness.wait_for_runs(1).await;
    harness.gateway.wait_for_report(|report| report.ready && report.activity == Activity::Idle && report.task.is_some()).await;
    settled(worked.child.id(), "after a run of three turns");
}
