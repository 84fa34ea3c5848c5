//! The kinds of faults, their order in a run, and how each is injected.

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

/// The fault of one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// SIGKILL for one or all processes of a component, up to three times.
    Kill(Component),
    /// SIGKILL for every process at once. The disk keeps its page cache.
    Everything,
    /// SIGSTOP for longer than the operator's Lease, then SIGCONT.
    Stop(Component),
    PowerCut,
    Partition,
}

/// Every kind of round once. `schedule` chooses the component of `Stop`.
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

    /// Returns whether `word` of `YOI_KILL_KINDS` names this kind: the first word of its name.
    fn matches(self, word: &str) -> bool {
        match self {
            FaultKind::Stop(_) => word == "stop",
            FaultKind::PowerCut => word == "power",
            FaultKind::Kill(_) | FaultKind::Everything | FaultKind::Partition => self.name().split([' ', ',']).next() == Some(word),
        }
    }
}

/// Returns the kinds of so many rounds: [`ALL_KINDS`] again and again, shuffled each time, so that none is left out. `only` names some of them.
pub fn schedule(rng: &mut SeededRng, rounds: usize, only: Option<&str>) -> Result<Vec<FaultKind>> {
    let wanted = |kind: &FaultKind| only.is_none_or(|only| only.split(',').any(|word| kind.matches(word)));
    let kinds: Vec<FaultKind> = ALL_KINDS.into_iter().filter(wanted).collect();
    ensure!(!kinds.is_empty(), "no kind of round is named {only:?}");
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

/// Injects the fault. Returns a description of it, and a sentence for each broken promise that was seen meanwhile.
pub async fn inject(workload: &Workload, kind: FaultKind, rng: &mut SeededRng) -> Result<(String, Vec<String>)> {
    match kind {
        FaultKind::Kill(component) => kill_repeatedly(workload, component, rng).await,
        FaultKind::Everything => {
            let at = rng.millis(500, 4500);
            sleep(at).await;
            let (mut pids, mut wrong) = (Vec::new(), Vec::new());
            for component in Component::ALL {
                let found = workload.node.pids(component).await?;
                // Agents do not always run a tool.
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

/// A round without a process to kill proves nothing, so it fails.
fn no_process(component: Component) -> String {
    format!("no process of {component} was running")
}

async fn kill_repeatedly(workload: &Workload, component: Component, rng: &mut SeededRng) -> Result<(String, Vec<String>)> {
    let (mut actions, mut wrong) = (Vec::new(), Vec::new());
    let mut elapsed = Duration::ZERO;
    // These two rounds are about two components each, and kill both.
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
        // Every component runs before its first kill. Later kills may come before the kubelet has started it again.
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

/// Returns the processes of a component. Waits a little for one that was just killed, or that runs only at times, as tools do.
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

/// How often the shim is stopped before it is killed, and for how long.
const STOPS: usize = 4;
const STOPPED_FOR: Duration = Duration::from_millis(300);

/// Stops the shim, and so, soon after, the mounter that works for it. Every tree on the disk must then be in the journal, because the shim
/// writes its intent before it acts. Returns a sentence for each tree that is not.
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
    // Restarted containers would get the dead file system, so the Pods are deleted, as they are when a node is lost.
    let quick = DeleteParams { grace_period_seconds: Some(1), ..DeleteParams::default() };
    let pods = workload.ns.api::<Pod>();
    for pod in workload.agent_pods().await? {
        retry(|| pods.delete(&pod, &quick)).await?;
    }
    let off = Instant::now();
    disk.restore().await?;
    Ok(format!("at {}, for {}", seconds(at), seconds(off.elapsed())))
}
