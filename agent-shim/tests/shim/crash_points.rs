//! Provisions, publishes and destroys one workspace, with a failure or a crash at each disk operation and each request to the mounter. Restarts
//! and repeated attempts must always bring it to its end.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use yoi_workspace::{ProviderKind, RecordState};

use crate::fixtures::{FakeMounter, offers, uid, workspace};
use crate::test_shim::TestShim;
use yoi_agent_shim::args;
use yoi_agent_shim::decide::publish::{PublishRequest, RequestedVolume};
use yoi_agent_shim::mounter::log_context::LogContext;
use yoi_agent_shim::mounter::protocol::MountedContent;
use yoi_agent_shim::shim::provisioning::{Next, provision};
use yoi_agent_shim::shim::publishing::{PublishFailure, publish, restore_pod_sockets, unpublish};
use yoi_agent_shim::shim::{record_sweep, recovery};
use yoi_agent_shim::volume::PodVolume;
use yoi_wire::error_chain;

#[path = "../../../workspace/tests/conformance/syscall_faults.rs"]
mod syscall_faults;

use syscall_faults::{Counted, Fault, run_with_fault};

fn volume(name: &str) -> PodVolume {
    PodVolume { pod: uid(7), name: name.parse().unwrap() }
}

/// A shim that has just started on what the one before left.
fn start(dir: &Path, fake: &Arc<FakeMounter>) -> TestShim {
    let shim = TestShim::with(dir.to_owned(), fake.clone());
    *shim.state.offers.write().unwrap() = offers(&[ProviderKind::Copy]);
    shim.assign_pod(1, 7);
    shim
}

/// Makes, publishes and destroys a workspace. Returns the first failure.
async fn run_lifecycle(shim: &TestShim) -> Result<(), String> {
    let state = &shim.state;
    let alive = json!({ "status": { "podUID": uid(7) } });
    let wrong = |e: PublishFailure| e.to_string();
    if provision(state, &workspace(1, alive), uid(1)).await.map_err(|e| error_chain(&e))?.next != Next::AwaitChange {
        return Err("the tree was not made".into());
    }
    let digest = state.runtimes.digests()[0].clone();
    let nobody = || (LogContext::default(), tracing::Span::none());
    publish(
        state,
        PublishRequest {
            volume: volume("runtime"),
            requested: RequestedVolume::Runtime(digest),
            read_only: true,
            covers: Vec::new(),
            lends: None,
        },
        &nobody,
    )
    .await
    .map_err(wrong)?;
    publish(
        state,
        PublishRequest {
            volume: volume("tree"),
            requested: RequestedVolume::Tree(uid(1)),
            read_only: false,
            covers: Vec::new(),
            lends: None,
        },
        &nobody,
    )
    .await
    .map_err(wrong)?;
    for name in ["tree", "runtime"] {
        unpublish(state, &volume(name)).await.map_err(|e| error_chain(&e))?;
    }
    ending(shim).await
}

/// The object is being deleted.
async fn ending(shim: &TestShim) -> Result<(), String> {
    let state = &shim.state;
    let deleted = json!({ "metadata": { "deletionTimestamp": "2026-11-21T00:00:00Z" }, "status": { "podUID": uid(7) } });
    match provision(state, &workspace(1, deleted), uid(1)).await.map_err(|e| error_chain(&e))?.next {
        Next::RemoveFinalizer => Ok(()),
        other => Err(format!("it was not let go: {other:?}")),
    }
}

/// What a start does before the CSI socket is served.
async fn restart(shim: &TestShim) -> Result<(), String> {
    let state = &shim.state;
    let damage = recovery::recover(&state.journal, &*state.mounter).await.map_err(|e| error_chain(&e))?;
    if !damage.lost.is_empty() {
        return Err(format!("a tree was promised and is gone: {:?}", damage.lost));
    }
    for done in
        [record_sweep::add_missing_records(state).await, record_sweep::remove_stale_records(state).await, restore_pod_sockets(state).await]
    {
        done.map_err(|e| error_chain(&e))?;
    }
    Ok(())
}

/// Each mounted tree has a publish record, without which it would be destroyed while mounted, and each tree has a journal record.
fn agree(shim: &TestShim, fake: &FakeMounter) -> Result<(), String> {
    let shown = fake.shown.lock().unwrap();
    let unrecorded =
        shown.values().find(|s| matches!(s.what, MountedContent::Tree(_)) && shim.state.publish_records.get(&s.volume).is_none());
    if let Some(shown) = unrecorded {
        return Err(format!("{} is shown without a record", shown.volume));
    }
    let records: BTreeMap<_, _> = shim.state.journal.read_and_clean().unwrap().records.into_iter().map(|r| (r.uid, r.state)).collect();
    match fake.trees.lock().unwrap().keys().find(|uid| !records.contains_key(uid)) {
        Some(orphan) => Err(format!("tree {orphan} exists and no record names it")),
        None => Ok(()),
    }
}

fn nothing_left(shim: &TestShim, fake: &FakeMounter) -> Result<(), String> {
    let left = (
        fake.trees.lock().unwrap().len(),
        fake.shown.lock().unwrap().len(),
        shim.state.journal.read_and_clean().unwrap().records.len(),
        shim.state.publish_records.all().len(),
        shim.state.runtimes.pods().unwrap().len(),
        std::fs::read_dir(args::driver_dir(&shim.state.kubelet_dir).join("publish")).unwrap().count(),
    );
    if left == (0, 0, 0, 0, 0, 0) {
        Ok(())
    } else {
        Err(format!("left behind (trees, shown, records, publish_records, folders, files): {left:?}"))
    }
}

fn on_its_own<T>(act: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(act)
}

/// One case: true if a call failed.
fn case(counted: Counted, nth: usize, fault: Fault, late_record: bool) -> Result<bool, String> {
    let (dir, fake) = (tempfile::tempdir().unwrap(), Arc::new(FakeMounter::default()));
    let shim = on_its_own(async { start(dir.path(), &fake) });
    let run = run_with_fault(counted, nth, fault, || {
        on_its_own(async { if late_record { lifecycle_with_late_record(&shim).await } else { run_lifecycle(&shim).await } })
    });
    let run = run.map_err(|e| e.to_string())?;
    let Some(answer) = run.answer else { return Err("it panicked".into()) };
    let Some(failed_call) = run.failed_call else {
        answer?;
        nothing_left(&shim, &fake)?;
        return Ok(false);
    };
    let what = |e: String| format!("{e} [{fault:?} at operation {nth}, {failed_call}, after {} changes]", run.changed);
    check_recovers(dir.path(), &fake, shim, fault == Fault::Death).map_err(what)?;
    Ok(true)
}

/// Checks that restarts and further attempts bring the workspace to its end, whatever the fault left behind.
fn check_recovers(dir: &Path, fake: &Arc<FakeMounter>, shim: TestShim, died: bool) -> Result<(), String> {
    on_its_own(async {
        let mut shim = shim;
        if died {
            shim = start(dir, fake);
            restart(&shim).await?;
            agree(&shim, fake)?;
        }
        // An object that was being deleted does not come back to life; its name may.
        if shim.state.journal.get(uid(1)).map_err(|e| e.to_string())?.is_some_and(|r| r.state == RecordState::Destroying) {
            ending(&shim).await?;
        }
        run_lifecycle(&shim).await?;
        nothing_left(&shim, fake)?;
        shim = start(dir, fake);
        restart(&shim).await?;
        nothing_left(&shim, fake)
    })
}

fn run_all_cases(counted: Counted, fault: Fault, late_record: bool) -> Result<usize, String> {
    for nth in 1.. {
        if !case(counted, nth, fault, late_record)? {
            return Ok(nth - 1);
        }
    }
    Ok(0)
}

#[test]
fn whatever_disk_operation_fails_the_life_of_a_workspace_ends_well() {
    let (mut cases, mut each) = (0, Vec::new());
    let once = |errno| (Counted::Changes, Fault::Once(errno));
    let ways = [
        (Counted::Changes, Fault::Death),
        (Counted::All, Fault::Once(libc::EIO)),
        once(libc::ENOSPC),
        once(libc::EDQUOT),
        once(libc::EROFS),
    ];
    for (counted, fault) in ways {
        let n = run_all_cases(counted, fault, false).unwrap_or_else(|complaint| panic!("{complaint}"));
        each.push(n);
        cases += n;
    }
    println!("{cases} cases: {each:?}");
    assert!(cases >= 150, "only {cases}");
}

/// True if an answer was lost.
fn lost_answer(nth: usize, done: bool, died: bool) -> Result<bool, String> {
    let (dir, fake) = (tempfile::tempdir().unwrap(), Arc::new(FakeMounter::default()));
    let shim = on_its_own(async { start(dir.path(), &fake) });
    *fake.lose_response.lock().unwrap() = Some((nth, done));
    let answer = on_its_own(run_lifecycle(&shim));
    if fake.lose_response.lock().unwrap().take().is_some_and(|(left, _)| left > 0) {
        return answer.map(|()| false);
    }
    check_recovers(dir.path(), &fake, shim, died).map_err(|e| format!("{e} [verb {nth}, done {done}, restarted {died}]"))?;
    Ok(true)
}

#[test]
fn whatever_answer_of_the_mounter_is_lost_the_life_of_a_workspace_ends_well() {
    let mut cases = 0;
    for (done, died) in [(true, true), (true, false), (false, true), (false, false)] {
        let lost = (1..).take_while(|nth| lost_answer(*nth, done, died).unwrap_or_else(|complaint| panic!("{complaint}"))).count();
        assert!(lost >= 6, "only {lost} verbs");
        cases += lost;
    }
    println!("{cases} cases");
}

/// As [`run_lifecycle`], by a shim that writes its intent only after the tree was made.
async fn lifecycle_with_late_record(shim: &TestShim) -> Result<(), String> {
    let making = yoi_workspace::TreeOrigin::Empty { owner: yoi_workspace::Owner { uid: 1000, gid: 1000 } };
    let state = &shim.state;
    state.mounter.make(uid(1), ProviderKind::Copy, making).await.map_err(|e| error_chain(&e))?;
    state.journal(move |j| j.begin_create(uid(1), ProviderKind::Copy, making).map(drop)).await.map_err(|e| error_chain(&e))?;
    run_lifecycle(shim).await
}

#[test]
fn planted_an_intent_written_too_late_is_found() {
    let complaint = run_all_cases(Counted::Changes, Fault::Death, true).unwrap_err();
    println!("found: {complaint}");
    assert!(complaint.contains("no record names it"), "{complaint}");
}
