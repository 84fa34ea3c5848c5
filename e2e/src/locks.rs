//! Locks between tests, each of which is a process of its own: files that the kernel unlocks when a process ends, however it ends.
//!
//! Every test that creates a [`TestNamespace`](crate::test_namespace::TestNamespace) holds all of [`INTACT`] shared until it has removed it: it needs Yoi as it
//! was installed. A test that replaces, stops or removes a part of it calls [`exclusive`] before it creates its namespace.
//!
//! # Guarantees
//! Nobody waits in a circle: locks are taken in their order, and a test that holds a later one gets no earlier one. Nobody waits for ever: who comes after
//! somebody that waits for a lock alone waits behind them.
//!
//! # Assumptions
//! A test asks on its own thread, as its body does: what it holds is remembered by thread, so that it never waits for itself.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use anyhow::{Context, Result, ensure};

/// The environment variable with the folder of the files: one for each cluster.
const FOLDER: &str = "YOI_LOCKS";

/// What a test holds alone while it breaks or replaces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lock {
    /// The gateways, and their registration as an aggregated API.
    Gateways,
    /// The charts: what they install, and the values that they have.
    Installation,
    /// The nodes with the shims on them, and the objects Node and WorkspaceNode.
    Nodes,
    /// The operator.
    Operator,
    /// The CRDs.
    Schemas,
    /// The folder of the nodes that is listed as a source. Only a test that uses it holds it.
    HostSource,
}

/// What every test with a namespace needs as it was installed.
pub const INTACT: [Lock; 5] = [Lock::Gateways, Lock::Installation, Lock::Nodes, Lock::Operator, Lock::Schemas];

impl Lock {
    const fn name(self) -> &'static str {
        match self {
            Lock::Gateways => "gateways",
            Lock::Installation => "installation",
            Lock::Nodes => "nodes",
            Lock::Operator => "operator",
            Lock::Schemas => "schemas",
            Lock::HostSource => "host-source",
        }
    }
}

/// Locks that are held until this is dropped.
pub struct Held(#[expect(dead_code, reason = "the kernel unlocks a file when it is closed")] Vec<Arc<File>>);

thread_local! {
    /// What the test of this thread holds, and whether alone.
    static OF_THIS_TEST: RefCell<BTreeMap<Lock, (bool, Weak<File>)>> = const { RefCell::new(BTreeMap::new()) };
}

/// Takes all of [`INTACT`] shared, but for what this test holds already.
///
/// # Errors
/// When the files cannot be made or locked.
pub async fn intact() -> Result<Held> {
    exclusive(&[]).await
}

/// Takes `locks` alone, and the rest of [`INTACT`] shared.
///
/// # Errors
/// When the files cannot be made or locked, and when this test holds one of `locks` shared: two that want it alone then would wait for each other.
pub async fn exclusive(locks: &[Lock]) -> Result<Held> {
    hold(&folder(), locks).await
}

async fn hold(folder: &Path, locks: &[Lock]) -> Result<Held> {
    let mut wanted = BTreeMap::from(INTACT.map(|lock| (lock, false)));
    wanted.extend(locks.iter().map(|lock| (*lock, true)));
    let mut files = Vec::new();
    for (lock, alone) in wanted {
        let held = OF_THIS_TEST.with_borrow_mut(|all| {
            all.retain(|_, (_, file)| file.strong_count() > 0);
            all.clone()
        });
        let file = match held.get(&lock).and_then(|(held_alone, file)| Some((*held_alone, file.upgrade()?))) {
            Some((held_alone, file)) => {
                ensure!(held_alone || !alone, "{lock:?} is held shared: take it alone before the first namespace is created");
                file
            }
            None => {
                let later = held.last_key_value().filter(|(last, _)| **last > lock);
                ensure!(later.is_none(), "{lock:?} is wanted by a test that holds {later:?}");
                // Blocks a thread of its own for as long as other tests take.
                let folder = folder.to_owned();
                let file = Arc::new(tokio::task::spawn_blocking(move || take(&folder, lock, alone)).await??);
                OF_THIS_TEST.with_borrow_mut(|all| all.insert(lock, (alone, Arc::downgrade(&file))));
                file
            }
        };
        files.push(file);
    }
    Ok(Held(files))
}

/// Waits for the file of this lock.
fn take(folder: &Path, lock: Lock, alone: bool) -> Result<File> {
    std::fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()))?;
    let open = |extension: &str| {
        let path = folder.join(format!("{}.{extension}", lock.name()));
        File::options().create(true).truncate(false).write(true).open(&path).with_context(|| format!("failed to open {}", path.display()))
    };
    let wait = |file: &File| {
        let now = if alone { file.try_lock() } else { file.try_lock_shared() };
        match now {
            Ok(()) => Ok(()),
            Err(TryLockError::WouldBlock) => {
                eprintln!("waits for the lock {}", lock.name());
                if alone { file.lock() } else { file.lock_shared() }
            }
            Err(TryLockError::Error(error)) => Err(error),
        }
        .with_context(|| format!("failed to lock {lock:?}"))
    };
    // flock lets everybody in who shares, so somebody who wants the lock alone would wait until no test is left. They close this gate meanwhile.
    let gate = open("gate")?;
    wait(&gate)?;
    let file = open("lock")?;
    wait(&file)?;
    Ok(file)
}

/// Without the variable, tests that somebody runs by hand, one program at a time, exclude each other: a folder of the cluster below that for temporary files.
fn folder() -> PathBuf {
    let of_cluster = || std::env::temp_dir().join("yoi-locks").join(std::env::var("YOI_CLUSTER").unwrap_or_default());
    std::env::var_os(FOLDER).map_or_else(of_cluster, PathBuf::from)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    /// A test of its own, on its own thread: it takes the locks, says `name`, and holds them until it is told to end.
    fn start(
        folder: &Path,
        name: &'static str,
        locks: &'static [Lock],
        said: &mpsc::Sender<&'static str>,
    ) -> (mpsc::Sender<()>, thread::JoinHandle<()>) {
        let (end, ended) = mpsc::channel();
        let (folder, said) = (folder.to_owned(), said.clone());
        let running = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let held = runtime.block_on(hold(&folder, locks)).unwrap();
            said.send(name).unwrap();
            ended.recv().unwrap();
            drop(held);
        });
        (end, running)
    }

    /// Whether somebody waits at the gate or has passed it: it cannot be had alone.
    fn gate_is_taken(folder: &Path, lock: Lock) -> bool {
        let gate = File::open(folder.join(format!("{}.gate", lock.name()))).unwrap();
        matches!(gate.try_lock_shared(), Err(TryLockError::WouldBlock))
    }

    #[test]
    fn who_wants_a_lock_alone_waits_for_those_who_share_it_and_goes_before_those_who_come_later() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let (said, heard) = mpsc::channel();
        let (end_one, one) = start(folder, "one", &[], &said);
        let (end_two, two) = start(folder, "two", &[], &said);
        let mut both = [heard.recv().unwrap(), heard.recv().unwrap()];
        both.sort_unstable();
        assert_eq!(both, ["one", "two"], "they share");
        let (end_alone, alone) = start(folder, "alone", &[Lock::Gateways], &said);
        yoi_test_support::wait_until("the gate closed", || gate_is_taken(folder, Lock::Gateways).then_some(()));
        let (end_later, later) = start(folder, "later", &[], &said);
        end_one.send(()).unwrap();
        one.join().unwrap();
        end_two.send(()).unwrap();
        two.join().unwrap();
        assert_eq!(heard.recv().unwrap(), "alone");
        assert!(heard.try_recv().is_err(), "somebody came in beside it");
        end_alone.send(()).unwrap();
        alone.join().unwrap();
        assert_eq!(heard.recv().unwrap(), "later");
        end_later.send(()).unwrap();
        later.join().unwrap();
    }

    #[tokio::test]
    async fn a_test_does_not_wait_for_itself_and_cannot_wait_in_a_circle() {
        let folder = tempfile::tempdir().unwrap();
        let alone = hold(folder.path(), &[Lock::Nodes]).await.unwrap();
        let of_namespace = hold(folder.path(), &[]).await.unwrap();
        drop(alone);
        let other = File::open(folder.path().join("nodes.lock")).unwrap();
        assert!(other.try_lock_shared().is_err(), "a namespace keeps what its test had alone");
        drop(of_namespace);
        other.try_lock_shared().unwrap();
        other.unlock().unwrap();
        let _shared = hold(folder.path(), &[]).await.unwrap();
        let refused = hold(folder.path(), &[Lock::Nodes]).await.err().map(|error| error.to_string());
        assert!(refused.is_some_and(|words| words.contains("take it alone before")));
        hold(folder.path(), &[Lock::HostSource]).await.unwrap();
    }
}
