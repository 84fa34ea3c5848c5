//! Blows: which there are, in what order they come, and how each is schedule.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use tokio::time::sleep;

use crate::churn::retry;
use crate::node::{Component, Node};
use crate::partition;
use crate::rng::SeededRng;
use crate::workload::Workload;

/// A kind of round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// One component is killed, one process of it or all, up to three times.
    Kill(Component),
    /// As a loss of power is to processes, but not to the disk.
    Everything,
    /// Longer than the operator's Lease.
    Stop(Component),
    PowerCut,
    Partition,
}

/// One round of each kind; `Stop` once for each whole kinds.
const ALL_KINDS: [FaultKind; 12] = [
    FaultKind::Kill(Component::Operator),
    FaultKind::Kill(Component::Gateway),
    FaultKind::Kill(Component::Shim),
    FaultKind::Kill(Component::Mounter),
    FaultKind::Kill(Component::Runtime),
    FaultKind::Kill(Component::Tools),
    FaultKind::Kill(Component::Kubelet),
    FaultKind::Kill(Component::ApiServer),
    FaultKind::Everything,
    FaultKind::Stop(Component::Operator),
    FaultKind::PowerCut,
    FaultKind::Partition,
];

const STOPPABLE: [Component; 9] = [
    Component::Operator,
    Component::Gateway,
    Component::Shim,
    Component::Mounter,
    Component::Runtime,
    Component::Kubelet,
    Component::Containerd,
    Component::ApiServer,
    Component::Etcd,
];
const STOP_FOR: Duration = Duration::from_secs(18);

impl FaultKind {
    pub fn name(self) -> String {
        match self {
            FaultKind::Kill(Component::Kubelet) => "kubelet, containerd".to_owned(),
            FaultKind::Kill(Component::ApiServer) => "API server, etcd".to_owned(),
            FaultKind::Kill(component) => component.to_string(),
            FaultKind::Everything => "everything".to_owned(),
            FaultKind::Stop(component) => format!("{component} stopped"),
            FaultKind::PowerCut => "power cut".to_owned(),
            FaultKind::Partition => "partition".to_owned(),
        }
    }

    /// The first word of the name, for the environment.
    fn matches(self, word: &str) -> bool {
        match self {
            FaultKind::Stop(_) => word == "stop",
            FaultKind::PowerCut => word == "power",
            FaultKind::Kill(_) | FaultKind::Everything | FaultKind::Partition => self.name().split([' ', ',']).next() == Some(word),
        }
    }
}

/// The kinds of so many rounds: whole decks, each shuffled, so that none is left out. `only` names some of them.
pub fn schedule(rng: &mut SeededRng, rounds: usize, only: Option<&str>) -> Result<Vec<FaultKind>> {
    let wanted = |kind: &FaultKind| only.is_none_or(|only| only.split(',').any(|word| kind.matches(word)));
    let kinds: Vec<FaultKind> = ALL_KINDS.into_iter().filter(wanted).collect();
    ensure!(!kinds.is_empty(), "no kind of round is called {only:?}");
    let mut schedule = Vec::new();
    let mut stopped = STOPPABLE;
    rng.shuffle(&mut stopped);
    while schedule.len() < rounds {
        let mut next = kinds.clone();
        rng.shuffle(&mut next);
        let turn = schedule.len() / kinds.len();
        schedule.extend(next.into_iter().map(|kind| match kind {
            FaultKind::Stop(_) => FaultKind::Stop(stopped[turn % stopped.len()]),
            other => other,
        }));
    }
    schedule.truncate(rounds);
    Ok(schedule)
}

/// Deals the kill, and tells what was done and what was seen to be wrong in passing.
pub async fn inject(workload: &Workload, kind: FaultKind, rng: &mut SeededRng) -> Result<(String, Vec<String>)> {
    match kind {
        FaultKind::Kill(component) => kill_repeatedly(workload, component, rng).await,
        FaultKind::Everything => {
            let at = rng.millis(500, 4500);
            sleep(at).await;
            let (mut pids, mut wrong) = (Vec::new(), Vec::new());
            for component in Component::ALL {
                let found = workload.node.pids(component).await?;
                // Agents do not run a tool at every moment.
                if found.is_empty() && component != Component::Tools {
                    wrong.push(no_process(component));
                }
                pids.extend(found);
            }
            workload.node.signal("KILL", &pids).await?;
            Ok((format!("{} processes at {}", pids.len(), seconds(at)), wrong))
        }
        FaultKind::Stop(component) => {
            let at = rng.millis(500, 4000);
            sleep(at).await;
            let mut pids = workload.node.pids(component).await?;
            let wrong = if pids.is_empty() { vec![no_process(component)] } else { Vec::new() };
            if [Component::Gateway, Component::Runtime].contains(&component) && rng.below(2) == 0 {
                pids.truncate(1);
            }
            workload.node.signal("STOP", &pids).await?;
            sleep(STOP_FOR).await;
            workload.node.signal("CONT", &pids).await?;
            Ok((format!("{} of them at {} for {} s", pids.len(), seconds(at), STOP_FOR.as_secs()), wrong))
        }
        FaultKind::PowerCut => power_cut(workload, rng).await.map(|actions| (actions, Vec::new())),
        FaultKind::Partition => partition::late_writes(workload, rng).await,
    }
}

fn seconds(at: Duration) -> String {
    format!("{:.1} s", at.as_secs_f32())
}

/// A round that hits nothing proves nothing.
fn no_process(component: Component) -> String {
    format!("no process of {component} was there to be hit")
}

async fn kill_repeatedly(workload: &Workload, component: Component, rng: &mut SeededRng) -> Result<(String, Vec<String>)> {
    let (mut actions, mut wrong) = (Vec::new(), Vec::new());
    let mut elapsed = Duration::ZERO;
    // Two cards stand for two components each, and a round of theirs hits both.
    let mut components = match component {
        Component::Kubelet => vec![Component::Kubelet, Component::Containerd],
        Component::ApiServer => vec![Component::ApiServer, Component::Etcd],
        other => vec![other],
    };
    rng.shuffle(&mut components);
    let kills = components.len() + usize::try_from(rng.below(4 - components.len() as u64))?;
    for kill in 0..kills {
        let wait = rng.millis(200, 3000);
        sleep(wait).await;
        elapsed += wait;
        let component = components[kill % components.len()];
        let mut pids = wait_pids(&workload.node, component).await?;
        // The first kill comes when all is well; later ones may come before the kubelet's next try.
        if pids.is_empty() && kill < components.len() {
            wrong.push(no_process(component));
        }
        if rng.below(2) == 0 && !pids.is_empty() {
            pids = vec![*rng.choose(&pids)];
        }
        if component == Component::Shim {
            for _ in 0..STOPS {
                wrong.extend(unjournaled_trees(&workload.node, &pids).await?);
                let wait = rng.millis(20, 400);
                sleep(wait).await;
                elapsed += wait + STOPPED_FOR;
            }
        }
        workload.node.signal("KILL", &pids).await?;
        actions.push(format!("{component} x{} at {}", pids.len(), seconds(elapsed)));
    }
    Ok((actions.join(", "), wrong))
}

/// Its processes; one that has just been killed, or that comes and goes, is waited for a little, so that the kill hits something.
async fn wait_pids(node: &Node, component: Component) -> Result<Vec<u32>> {
    let (started, limit) = (Instant::now(), Duration::from_secs(if component == Component::Tools { 15 } else { 4 }));
    loop {
        let pids = node.pids(component).await?;
        if !pids.is_empty() || started.elapsed() > limit {
            return Ok(pids);
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// So often is the shim held still before its death, and so long.
const STOPS: usize = 4;
const STOPPED_FOR: Duration = Duration::from_millis(300);

/// The shim is held still, and so, soon after, is the mounter that works for it. What stands on the disk then must stand in the journal: the
/// intent is durable before the deed begins.
async fn unjournaled_trees(node: &Node, pids: &[u32]) -> Result<Vec<String>> {
    let Some(pid) = pids.first() else { return Ok(Vec::new()) };
    let seen = node
        .sh(&format!(
            "kill -STOP {pid} || exit 0; sleep {}
             for base in \"$ROOT\" \"$ROOT/pool\"; do
               [ -d \"$base/trees\" ] && find \"$base/trees\" -mindepth 2 -maxdepth 2 -printf 'tree %f\\n'
             done
             find /var/lib/kubelet/plugins/csi.yoi.dev/journal -name '*.json' -printf 'record %f\\n'
             kill -CONT {pid} || true",
            STOPPED_FOR.as_secs_f32()
        ))
        .await?;
    let names = |word: &str| seen.lines().filter_map(|line| line.strip_prefix(word)).map(str::to_owned).collect::<Vec<_>>();
    let records = names("record ");
    let unrecorded = |tree: &String| !records.contains(&format!("{}.json", tree.trim_end_matches(".tmp")));
    Ok(names("tree ")
        .iter()
        .filter(|tree| unrecorded(tree))
        .map(|tree| format!("a tree stands on the disk that the journal does not name: {tree}"))
        .collect())
}

async fn power_cut(workload: &Workload, rng: &mut SeededRng) -> Result<String> {
    let disk = workload.disk.as_ref().context("this workload has no disk of its own")?;
    let at = rng.millis(500, 6000);
    sleep(at).await;
    let mut kill = workload.node.pids(Component::Runtime).await?;
    kill.extend(workload.node.pids(Component::Tools).await?);
    disk.cut(&kill).await?;
    // The containers that the kubelet starts again would have the dead file system: their Pods go, as they do with a node.
    let quick = DeleteParams { grace_period_seconds: Some(1), ..DeleteParams::default() };
    let pods = workload.ns.api::<Pod>();
    for pod in workload.agent_pods().await? {
        retry(|| pods.delete(&pod, &quick)).await?;
    }
    let off = Instant::now();
    disk.restore().await?;
    Ok(format!("at {}, for {}", seconds(at), seconds(off.elapsed())))
}
