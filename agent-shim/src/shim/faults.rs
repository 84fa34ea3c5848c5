//! The life of one workspace at the shim, cut at every disk operation and every verb: whatever fails, restarts and rounds bring it to an end.

use std::collections::BTreeMap;

use serde_json::json;
use yoi_workspace::{ProviderKind, RecordState};

use super::making::{Next, work};
use super::mounting::{NotMounted, publish, reopen, unpublish};
use super::tests::Stage;
use super::*;
use crate::args;
use crate::decide::mounting::{Asked, Wish};
use crate::mounter::verb::What;
use crate::sample::{Fake, offers, uid, workspace};
use crate::volume::PodVolume;

#[path = "../../../workspace/tests/conformance/syscall_faults.rs"]
mod syscall_faults;

use syscall_faults::{Counted, Fault, run_with_fault};

fn volume(name: &str) -> PodVolume {
    PodVolume { pod: uid(7), name: name.parse().unwrap() }
}

/// A shim that has just started on what the one before left.
fn start(dir: &Path, fake: &Arc<Fake>) -> Stage {
    let stage = Stage::with(dir.to_owned(), fake.clone());
    *stage.world.offers.write().unwrap() = offers(&[ProviderKind::Copy]);
    stage.told(1, 7);
    stage
}

/// As far as it comes: what went wrong first.
async fn life(stage: &Stage) -> Result<(), String> {
    let world = &stage.world;
    let alive = json!({ "status": { "podUID": uid(7) } });
    let wrong = |e: NotMounted| e.to_string();
    if work(world, &workspace(1, alive), uid(1)).await.map_err(|e| chain::whole(&e))?.next != Next::Rest {
        return Err("the tree was not made".into());
    }
    let digest = world.runtimes.digests()[0].clone();
    publish(world, Asked { volume: volume("runtime"), what: Wish::Runtime(digest), read_only: true }).await.map_err(wrong)?;
    publish(world, Asked { volume: volume("tree"), what: Wish::Tree(uid(1)), read_only: false }).await.map_err(wrong)?;
    for name in ["tree", "runtime"] {
        unpublish(world, &volume(name)).await.map_err(|e| chain::whole(&e))?;
    }
    ending(stage).await
}

/// The object is being deleted.
async fn ending(stage: &Stage) -> Result<(), String> {
    let world = &stage.world;
    let deleted = json!({ "metadata": { "deletionTimestamp": "2026-11-21T00:00:00Z" }, "status": { "podUID": uid(7) } });
    match work(world, &workspace(1, deleted), uid(1)).await.map_err(|e| chain::whole(&e))?.next {
        Next::LetGo => Ok(()),
        other => Err(format!("it was not let go: {other:?}")),
    }
}

/// What a restart does before its doors open.
async fn restart(stage: &Stage) -> Result<(), String> {
    let world = &stage.world;
    let troubled = recover::recover(&world.journal, &*world.mounter).await.map_err(|e| chain::whole(&e))?;
    if !troubled.lost.is_empty() {
        return Err(format!("a tree was promised and is gone: {:?}", troubled.lost));
    }
    for done in [world.adopt().await, world.sweep().await, reopen(world).await] {
        done.map_err(|e| chain::whole(&e))?;
    }
    Ok(())
}

/// Whoever shows a tree has a record, or the tree would be destroyed under it; and nothing stands that no record names.
fn agree(stage: &Stage, fake: &Fake) -> Result<(), String> {
    let shown = fake.shown.lock().unwrap();
    let unrecorded = shown.values().find(|s| matches!(s.what, What::Tree(_)) && stage.world.publications.get(&s.volume).is_none());
    if let Some(shown) = unrecorded {
        return Err(format!("{} is shown without a record", shown.volume));
    }
    let records: BTreeMap<_, _> = stage.world.journal.read_and_clean().unwrap().records.into_iter().map(|r| (r.uid, r.state)).collect();
    match fake.trees.lock().unwrap().keys().find(|uid| !records.contains_key(uid)) {
        Some(orphan) => Err(format!("tree {orphan} stands and no record names it")),
        None => Ok(()),
    }
}

fn nothing_left(stage: &Stage, fake: &Fake) -> Result<(), String> {
    let left = (
        fake.trees.lock().unwrap().len(),
        fake.shown.lock().unwrap().len(),
        stage.world.journal.read_and_clean().unwrap().records.len(),
        stage.world.publications.all().len(),
        stage.world.runtimes.pods().unwrap().len(),
        std::fs::read_dir(args::driver_dir(&stage.world.kubelet_dir).join("publish")).unwrap().count(),
    );
    if left == (0, 0, 0, 0, 0, 0) {
        Ok(())
    } else {
        Err(format!("left behind (trees, shown, records, publications, folders, files): {left:?}"))
    }
}

fn on_its_own<T>(act: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(act)
}

/// One case: true if a call failed.
fn case(counted: Counted, nth: usize, fault: Fault, late_record: bool) -> Result<bool, String> {
    let (dir, fake) = (tempfile::tempdir().unwrap(), Arc::new(Fake::default()));
    let stage = on_its_own(async { start(dir.path(), &fake) });
    let run = run_with_fault(counted, nth, fault, || {
        on_its_own(async { if late_record { careless_life(&stage).await } else { life(&stage).await } })
    });
    let run = run.map_err(|e| e.to_string())?;
    let Some(answer) = run.answer else { return Err("it panicked".into()) };
    let Some(failed_call) = run.failed_call else {
        answer?;
        nothing_left(&stage, &fake)?;
        return Ok(false);
    };
    let what = |e: String| format!("{e} [{fault:?} at operation {nth}, {failed_call}, after {} changes]", run.changed);
    mended(dir.path(), &fake, stage, fault == Fault::Death).map_err(what)?;
    Ok(true)
}

/// From whatever is left, restarts and rounds end well.
fn mended(dir: &Path, fake: &Arc<Fake>, stage: Stage, died: bool) -> Result<(), String> {
    on_its_own(async {
        let mut stage = stage;
        if died {
            stage = start(dir, fake);
            restart(&stage).await?;
            agree(&stage, fake)?;
        }
        // An object that was being deleted does not come back to life; its name may.
        if stage.world.journal.get(uid(1)).map_err(|e| e.to_string())?.is_some_and(|r| r.state == RecordState::Destroying) {
            ending(&stage).await?;
        }
        life(&stage).await?;
        nothing_left(&stage, fake)?;
        stage = start(dir, fake);
        restart(&stage).await?;
        nothing_left(&stage, fake)
    })
}

fn hunt(counted: Counted, fault: Fault, late_record: bool) -> Result<usize, String> {
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
        let n = hunt(counted, fault, false).unwrap_or_else(|complaint| panic!("{complaint}"));
        each.push(n);
        cases += n;
    }
    println!("{cases} cases: {each:?}");
    assert!(cases >= 150, "only {cases}");
}

/// True if an answer was lost.
fn lost_answer(nth: usize, done: bool, died: bool) -> Result<bool, String> {
    let (dir, fake) = (tempfile::tempdir().unwrap(), Arc::new(Fake::default()));
    let stage = on_its_own(async { start(dir.path(), &fake) });
    *fake.lose.lock().unwrap() = Some((nth, done));
    let answer = on_its_own(life(&stage));
    if fake.lose.lock().unwrap().take().is_some_and(|(left, _)| left > 0) {
        return answer.map(|()| false);
    }
    mended(dir.path(), &fake, stage, died).map_err(|e| format!("{e} [verb {nth}, done {done}, restarted {died}]"))?;
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

/// As [`life`], by a shim that writes its intent once the tree stands.
async fn careless_life(stage: &Stage) -> Result<(), String> {
    let making = yoi_workspace::TreeOrigin::Empty { owner: yoi_workspace::Owner { uid: 1000, gid: 1000 } };
    let world = &stage.world;
    world.mounter.make(uid(1), ProviderKind::Copy, making).await.map_err(|e| chain::whole(&e))?;
    world.journal(move |j| j.begin_create(uid(1), ProviderKind::Copy, making).map(drop)).await.map_err(|e| chain::whole(&e))?;
    life(stage).await
}

#[test]
fn planted_an_intent_written_too_late_is_found() {
    let complaint = hunt(Counted::Changes, Fault::Death, true).unwrap_err();
    println!("found: {complaint}");
    assert!(complaint.contains("no record names it"), "{complaint}");
}
