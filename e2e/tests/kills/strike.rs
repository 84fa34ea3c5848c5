//! Blows: which there are, in what order they come, and how each is dealt.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use tokio::time::sleep;

use crate::chance::Chance;
use crate::churn::persist;
use crate::node::{Node, Part};
use crate::partition;
use crate::world::World;

/// A kind of round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// One part is killed, one process of it or all, up to three times.
    Kill(Part),
    /// As a loss of power is to processes, but not to the disk.
    Everything,
    /// Longer than the operator's Lease.
    Stop(Part),
    PowerCut,
    Partition,
}

/// One round of each kind; `Stop` once for each whole deck.
const DECK: [Kind; 12] = [
    Kind::Kill(Part::Operator),
    Kind::Kill(Part::Gateway),
    Kind::Kill(Part::Shim),
    Kind::Kill(Part::Mounter),
    Kind::Kill(Part::Runtime),
    Kind::Kill(Part::Tools),
    Kind::Kill(Part::Kubelet),
    Kind::Kill(Part::ApiServer),
    Kind::Everything,
    Kind::Stop(Part::Operator),
    Kind::PowerCut,
    Kind::Partition,
];

const STOPPED: [Part; 9] =
    [Part::Operator, Part::Gateway, Part::Shim, Part::Mounter, Part::Runtime, Part::Kubelet, Part::Containerd, Part::ApiServer, Part::Etcd];
const STOP_FOR: Duration = Duration::from_secs(18);

impl Kind {
    pub fn name(self) -> String {
        match self {
            Kind::Kill(Part::Kubelet) => "kubelet, containerd".to_owned(),
            Kind::Kill(Part::ApiServer) => "API server, etcd".to_owned(),
            Kind::Kill(part) => part.to_string(),
            Kind::Everything => "everything".to_owned(),
            Kind::Stop(part) => format!("{part} stopped"),
            Kind::PowerCut => "power cut".to_owned(),
            Kind::Partition => "partition".to_owned(),
        }
    }

    /// The first word of the name, for the environment.
    fn called(self, word: &str) -> bool {
        match self {
            Kind::Stop(_) => word == "stop",
            Kind::PowerCut => word == "power",
            Kind::Kill(_) | Kind::Everything | Kind::Partition => self.name().split([' ', ',']).next() == Some(word),
        }
    }
}

/// The kinds of so many rounds: whole decks, each shuffled, so that none is left out. `only` names some of them.
pub fn deal(chance: &mut Chance, rounds: usize, only: Option<&str>) -> Result<Vec<Kind>> {
    let wanted = |kind: &Kind| only.is_none_or(|only| only.split(',').any(|word| kind.called(word)));
    let deck: Vec<Kind> = DECK.into_iter().filter(wanted).collect();
    ensure!(!deck.is_empty(), "no kind of round is called {only:?}");
    let mut dealt = Vec::new();
    let mut stops = STOPPED;
    chance.shuffle(&mut stops);
    while dealt.len() < rounds {
        let mut next = deck.clone();
        chance.shuffle(&mut next);
        let turn = dealt.len() / deck.len();
        dealt.extend(next.into_iter().map(|kind| match kind {
            Kind::Stop(_) => Kind::Stop(stops[turn % stops.len()]),
            other => other,
        }));
    }
    dealt.truncate(rounds);
    Ok(dealt)
}

/// Deals the blow, and tells what was done and what was seen to be wrong in passing.
pub async fn strike(world: &World, kind: Kind, chance: &mut Chance) -> Result<(String, Vec<String>)> {
    match kind {
        Kind::Kill(part) => kills(world, part, chance).await,
        Kind::Everything => {
            let at = chance.millis(500, 4500);
            sleep(at).await;
            let (mut pids, mut wrong) = (Vec::new(), Vec::new());
            for part in Part::ALL {
                let found = world.node.pids(part).await?;
                // Agents do not run a tool at every moment.
                if found.is_empty() && part != Part::Tools {
                    wrong.push(missed(part));
                }
                pids.extend(found);
            }
            world.node.signal("KILL", &pids).await?;
            Ok((format!("{} processes at {}", pids.len(), shown(at)), wrong))
        }
        Kind::Stop(part) => {
            let at = chance.millis(500, 4000);
            sleep(at).await;
            let mut pids = world.node.pids(part).await?;
            let wrong = if pids.is_empty() { vec![missed(part)] } else { Vec::new() };
            if [Part::Gateway, Part::Runtime].contains(&part) && chance.below(2) == 0 {
                pids.truncate(1);
            }
            world.node.signal("STOP", &pids).await?;
            sleep(STOP_FOR).await;
            world.node.signal("CONT", &pids).await?;
            Ok((format!("{} of them at {} for {} s", pids.len(), shown(at), STOP_FOR.as_secs()), wrong))
        }
        Kind::PowerCut => power_cut(world, chance).await.map(|said| (said, Vec::new())),
        Kind::Partition => partition::late_writes(world, chance).await,
    }
}

fn shown(at: Duration) -> String {
    format!("{:.1} s", at.as_secs_f32())
}

/// A round that hits nothing proves nothing.
fn missed(part: Part) -> String {
    format!("no process of {part} was there to be hit")
}

async fn kills(world: &World, card: Part, chance: &mut Chance) -> Result<(String, Vec<String>)> {
    let (mut said, mut wrong) = (Vec::new(), Vec::new());
    let mut passed = Duration::ZERO;
    // Two cards stand for two parts each, and a round of theirs hits both.
    let mut parts = match card {
        Part::Kubelet => vec![Part::Kubelet, Part::Containerd],
        Part::ApiServer => vec![Part::ApiServer, Part::Etcd],
        other => vec![other],
    };
    chance.shuffle(&mut parts);
    let blows = parts.len() + usize::try_from(chance.below(4 - parts.len() as u64))?;
    for blow in 0..blows {
        let wait = chance.millis(200, 3000);
        sleep(wait).await;
        passed += wait;
        let part = parts[blow % parts.len()];
        let mut pids = alive(&world.node, part).await?;
        // The first blow comes when all is well; later ones may come before the kubelet's next try.
        if pids.is_empty() && blow < parts.len() {
            wrong.push(missed(part));
        }
        if chance.below(2) == 0 && !pids.is_empty() {
            pids = vec![*chance.one(&pids)];
        }
        if part == Part::Shim {
            for _ in 0..LOOKS {
                wrong.extend(freeze(&world.node, &pids).await?);
                let wait = chance.millis(20, 400);
                sleep(wait).await;
                passed += wait + HELD;
            }
        }
        world.node.signal("KILL", &pids).await?;
        said.push(format!("{part} x{} at {}", pids.len(), shown(passed)));
    }
    Ok((said.join(", "), wrong))
}

/// Its processes; one that has just been killed, or that comes and goes, is waited for a little, so that the blow hits something.
async fn alive(node: &Node, part: Part) -> Result<Vec<u32>> {
    let (begun, patience) = (Instant::now(), Duration::from_secs(if part == Part::Tools { 15 } else { 4 }));
    loop {
        let pids = node.pids(part).await?;
        if !pids.is_empty() || begun.elapsed() > patience {
            return Ok(pids);
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// So often is the shim held still before its death, and so long.
const LOOKS: usize = 4;
const HELD: Duration = Duration::from_millis(300);

/// The shim is held still, and so, soon after, is the mounter that works for it. What stands on the disk then must stand in the journal: the
/// intent is durable before the deed begins.
async fn freeze(node: &Node, pids: &[u32]) -> Result<Vec<String>> {
    let Some(pid) = pids.first() else { return Ok(Vec::new()) };
    let seen = node
        .sh(&format!(
            "kill -STOP {pid} || exit 0; sleep {}
             for base in \"$ROOT\" \"$ROOT/pool\"; do
               [ -d \"$base/trees\" ] && find \"$base/trees\" -mindepth 2 -maxdepth 2 -printf 'tree %f\\n'
             done
             find /var/lib/kubelet/plugins/csi.yoi.dev/journal -name '*.json' -printf 'record %f\\n'
             kill -CONT {pid} || true",
            HELD.as_secs_f32()
        ))
        .await?;
    let named = |word: &str| seen.lines().filter_map(|line| line.strip_prefix(word)).map(str::to_owned).collect::<Vec<_>>();
    let records = named("record ");
    let unnamed = |tree: &String| !records.contains(&format!("{}.json", tree.trim_end_matches(".tmp")));
    Ok(named("tree ")
        .iter()
        .filter(|tree| unnamed(tree))
        .map(|tree| format!("a tree stands on the disk that the journal does not name: {tree}"))
        .collect())
}

async fn power_cut(world: &World, chance: &mut Chance) -> Result<String> {
    let disk = world.disk.as_ref().context("this world has no disk of its own")?;
    let at = chance.millis(500, 6000);
    sleep(at).await;
    let mut kill = world.node.pids(Part::Runtime).await?;
    kill.extend(world.node.pids(Part::Tools).await?);
    disk.cut(&kill).await?;
    // The containers that the kubelet starts again would have the dead file system: their Pods go, as they do with a node.
    let quick = DeleteParams { grace_period_seconds: Some(1), ..DeleteParams::default() };
    let pods = world.ns.api::<Pod>();
    for pod in world.agent_pods().await? {
        persist(|| pods.delete(&pod, &quick)).await?;
    }
    let off = Instant::now();
    disk.restore().await?;
    Ok(format!("at {}, for {}", shown(at), shown(off.elapsed())))
}
