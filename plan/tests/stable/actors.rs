//! Everybody else in the tiny cluster: scheduler, kubelet, binder, node shim, gateway, and the user. Level triggered, one small thing at a time.

use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStatus, PersistentVolumeClaimStatus, Pod, PodCondition,
    PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use yoi_crds::condition::{Condition, Verdict, is_true, said};
use yoi_crds::name::{annotation, finalizer, label};
use yoi_crds::pod::{Completion, DesiredState, Report, TaskStatus};
use yoi_crds::reason::{self, condition};
use yoi_crds::source::{EmptySource, GitSource, NamedRef, ProjectSource, WorkspaceSource};
use yoi_crds::workspace::{Binding, Volume};
use yoi_crds::{AgentWorkspace, YoiPeer, YoiPod, YoiProject};
use yoi_plan::manage::{controlled_by, deleting, label as label_of, uid};
use yoi_plan::yoipod::run_generation;

use crate::sim::{Cluster, NS};

/// splitmix64: the same seed, the same life.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % sides
    }

    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        if all.is_empty() { None } else { all.get(usize::try_from(self.roll(all.len() as u64)).unwrap()) }
    }
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or("Pending")
}

fn allowed(pod: &Pod) -> Vec<String> {
    let affinity = pod.spec.as_ref().unwrap().affinity.as_ref().unwrap().node_affinity.as_ref().unwrap();
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref().unwrap();
    required.node_selector_terms[0].match_expressions.as_ref().unwrap()[0].values.clone().unwrap()
}

fn ended(cluster: &Cluster, code: i32) -> ContainerState {
    let finished_at = Some(Time(cluster.now()));
    ContainerState {
        terminated: Some(ContainerStateTerminated { exit_code: code, finished_at, ..Default::default() }),
        ..Default::default()
    }
}

/// `full`: the node that has no room for agents.
pub fn kubernetes(cluster: &mut Cluster, full: Option<&str>, populators_fail: bool) {
    cluster.collect_garbage();
    bind(cluster);
    let names: Vec<String> = cluster.pods.keys().cloned().collect();
    for name in names {
        let pod = cluster.pods[&name].clone();
        if deleting(&pod.metadata) {
            cluster.change(|c| &mut c.pods, &name, |p| p.metadata.finalizers = None);
            continue;
        }
        let agent = label_of(&pod.metadata, label::ROLE) == Some(label::ROLE_AGENT);
        let Some(node) = pod.spec.as_ref().unwrap().node_name.clone() else {
            schedule(cluster, &name, &pod, full.filter(|_| agent));
            continue;
        };
        if phase(&pod) != "Pending" {
            continue;
        }
        // The shim's mounting door.
        let tree = cluster.workspaces.get(label_of(&pod.metadata, label::WORKSPACE).unwrap_or_default());
        let may = tree.and_then(|w| w.status.as_ref()).is_some_and(|s| {
            s.pod_uid.as_deref() == Some(uid(&pod.metadata))
                && s.node_name.as_ref() == Some(&node)
                && is_true(&s.conditions, condition::PROVISIONED)
        });
        if !may {
            continue;
        }
        let (phase, container, state) = match (agent, populators_fail) {
            (true, _) => ("Running", "agent", ContainerState { running: Some(ContainerStateRunning::default()), ..Default::default() }),
            (false, true) => ("Failed", "populate", ended(cluster, 128)),
            (false, false) => ("Succeeded", "populate", ended(cluster, 0)),
        };
        let container = ContainerStatus { name: container.to_owned(), state: Some(state), ..Default::default() };
        cluster.change(
            |c| &mut c.pods,
            &name,
            |p| {
                p.status =
                    Some(PodStatus { phase: Some(phase.to_owned()), container_statuses: Some(vec![container]), ..Default::default() });
            },
        );
    }
}

fn schedule(cluster: &mut Cluster, name: &str, pod: &Pod, full: Option<&str>) {
    let claims = pod.spec.as_ref().unwrap().volumes.iter().flatten().filter_map(|v| v.persistent_volume_claim.as_ref());
    if claims.into_iter().any(|c| !cluster.claims.contains_key(&c.claim_name)) {
        return;
    }
    let free = allowed(pod).into_iter().find(|n| Some(n.as_str()) != full);
    let since = Time(cluster.now());
    cluster.change(
        |c| &mut c.pods,
        name,
        |p| match free {
            Some(node) => p.spec.as_mut().unwrap().node_name = Some(node),
            None if p.status.is_none() => {
                let waits = PodCondition {
                    type_: "PodScheduled".into(),
                    status: "False".into(),
                    reason: Some("Unschedulable".into()),
                    last_transition_time: Some(since),
                    ..Default::default()
                };
                p.status = Some(PodStatus { phase: Some("Pending".into()), conditions: Some(vec![waits]), ..Default::default() });
            }
            None => {}
        },
    );
}

fn bind(cluster: &mut Cluster) {
    let names: Vec<String> = cluster.claims.keys().cloned().collect();
    for name in names {
        let claim = cluster.claims[&name].clone();
        if deleting(&claim.metadata) {
            cluster.change(|c| &mut c.claims, &name, |c| c.metadata.finalizers = None);
            continue;
        }
        let class = claim.spec.as_ref().unwrap().storage_class_name.clone();
        let volume = cluster
            .volumes
            .values()
            .find(|v| v.spec.as_ref().unwrap().claim_ref.as_ref().and_then(|r| r.uid.as_deref()) == Some(uid(&claim.metadata)));
        let volume = volume.and_then(|v| v.metadata.name.clone());
        // A foreign Pod came, and the scheduler chose for it.
        let chosen = class.as_deref() == Some("yoi")
            && claim.metadata.annotations.as_ref().is_none_or(|a| !a.contains_key(annotation::SELECTED_NODE));
        let first = cluster.nodes.0.keys().next().cloned().unwrap_or_default();
        let bound = claim.status.as_ref().is_some_and(|s| s.phase.as_deref() == Some("Bound"));
        cluster.change(
            |c| &mut c.claims,
            &name,
            |c| {
                if chosen {
                    c.metadata.annotations.get_or_insert_default().insert(annotation::SELECTED_NODE.to_owned(), first);
                }
                if let (Some(volume), false) = (volume, bound) {
                    c.spec.as_mut().unwrap().volume_name = Some(volume);
                    c.status = Some(PersistentVolumeClaimStatus { phase: Some("Bound".to_owned()), ..Default::default() });
                }
            },
        );
    }
}

fn tell(conditions: &mut Vec<Condition>, type_: &str, verdict: Verdict, now: &str) {
    let condition = said(conditions, type_, verdict, 1, now);
    conditions.retain(|c| c.type_ != type_);
    conditions.push(condition);
}

pub fn shim(cluster: &mut Cluster) {
    let now = yoi_plan::say::stamp(cluster.now());
    let names: Vec<String> = cluster.workspaces.keys().cloned().collect();
    for name in names {
        let workspace = cluster.workspaces[&name].clone();
        let status = workspace.status.clone().unwrap_or_default();
        if !status.node_name.as_ref().is_some_and(|n| cluster.nodes.exists(n)) {
            continue;
        }
        if deleting(&workspace.metadata) {
            let mounted = cluster.pods.values().any(|p| label_of(&p.metadata, label::WORKSPACE) == Some(&name));
            if !mounted {
                cluster.change(
                    |c| &mut c.workspaces,
                    &name,
                    |w| w.metadata.finalizers.iter_mut().for_each(|f| f.retain(|f| f != finalizer::NODE_DATA)),
                );
            }
            continue;
        }
        let source = status.origin.as_ref().and_then(|o| o.workspace_uid.clone());
        let source_there = source.is_none_or(|s| cluster.workspaces.values().any(|w| uid(&w.metadata) == s));
        let make = !is_true(&status.conditions, condition::PROVISIONED) && source_there;
        let seal = workspace.spec.base.is_some()
            && is_true(&status.conditions, condition::POPULATED)
            && !is_true(&status.conditions, condition::SEALED);
        if make || seal {
            cluster.change(
                |c| &mut c.workspaces,
                &name,
                |w| {
                    let status = w.status.get_or_insert_default();
                    if make {
                        tell(&mut status.conditions, condition::PROVISIONED, Verdict::yes(reason::CLONE_CREATED, "made"), &now);
                    }
                    if seal {
                        tell(&mut status.conditions, condition::SEALED, Verdict::yes(reason::SEALED, "sealed"), &now);
                        status.volume = Some(Volume { revision: Some("r".into()), ..Volume::default() });
                    }
                },
            );
        }
    }
}

pub fn gateway(cluster: &mut Cluster) {
    let names: Vec<String> = cluster.yoipods.keys().cloned().collect();
    for name in names {
        let yoipod = cluster.yoipods[&name].clone();
        let Some(pod) = yoipod.status.as_ref().and_then(|s| s.pod.clone()) else { continue };
        let Some(running) = cluster.pods.get(&pod.name).filter(|p| uid(&p.metadata) == pod.uid && phase(p) == "Running") else { continue };
        let report = Report {
            pod_uid: pod.uid,
            run_generation: run_generation(running),
            ready: true,
            reason: reason::REPLAYED.into(),
            message: "replayed".into(),
        };
        let task = yoi_plan::yoipod::manifest::task(&yoipod).map(|t| TaskStatus { id: t.id, state: "Succeeded".into() });
        let before = yoipod.status.as_ref().unwrap();
        if before.report.as_ref() != Some(&report) || before.task != task {
            cluster.change(
                |c| &mut c.yoipods,
                &name,
                |y| {
                    let status = y.status.as_mut().unwrap();
                    status.report = Some(report);
                    status.task = task;
                },
            );
        }
    }
}

fn git(n: u64) -> GitSource {
    GitSource { url: format!("https://example.invalid/{n}"), ref_: None }
}

/// One thing that people, or bad luck, do.
pub fn user(cluster: &mut Cluster, dice: &mut Dice) {
    let yoipods: Vec<String> = cluster.yoipods.keys().cloned().collect();
    let workspaces: Vec<String> = cluster.workspaces.keys().cloned().collect();
    let pods: Vec<String> = cluster.pods.keys().cloned().collect();
    let claims: Vec<String> = cluster.claims.keys().cloned().collect();
    match dice.roll(16) {
        0 | 1 => make_project(cluster, dice),
        2..=5 => make_yoipod(cluster, dice),
        6 => make_workspace(cluster, dice),
        7 => {
            let mut peer = YoiPeer::new("a.b", yoi_crds::YoiPeerSpec { members: vec!["a".into(), "b".into()] });
            peer.metadata.namespace = Some(NS.to_owned());
            cluster.born(|c| &mut c.peers, peer);
        }
        8 => drop(dice.pick(&yoipods).map(|n| cluster.remove(|c| &mut c.yoipods, n))),
        9 => drop(dice.pick(&workspaces).map(|n| cluster.remove(|c| &mut c.workspaces, n))),
        10 => cluster.remove(|c| &mut c.projects, "p"),
        11 | 12 => drop(dice.pick(&pods).map(|n| cluster.remove(|c| &mut c.pods, n))),
        13 => drop(dice.pick(&claims).map(|n| cluster.remove(|c| &mut c.claims, n))),
        14 => {
            let state = if dice.roll(2) == 0 { DesiredState::Stopped } else { DesiredState::Running };
            if let Some(name) = dice.pick(&yoipods) {
                cluster.change(|c| &mut c.yoipods, name, |y| y.spec.desired_state = state);
            }
        }
        _ => {
            // Evicted.
            if let Some(name) = dice.pick(&pods) {
                cluster.change(|c| &mut c.pods, name, |p| p.status.get_or_insert_default().phase = Some("Failed".into()));
            }
        }
    }
}

fn make_project(cluster: &mut Cluster, dice: &mut Dice) {
    let source = match dice.roll(3) {
        0 => ProjectSource { empty: Some(EmptySource {}), git: None },
        n => ProjectSource { git: Some(git(n)), empty: None },
    };
    let model = serde_json::json!({"model": {"provider": "OpenAI", "name": "m"}});
    let mut project = YoiProject::new("p", serde_json::from_value(serde_json::json!({"source": source, "defaults": model})).unwrap());
    project.metadata.namespace = Some(NS.to_owned());
    if !cluster.born(|c| &mut c.projects, project) {
        cluster.change(|c| &mut c.projects, "p", |p| p.spec.source = source);
    }
}

fn sources(dice: &mut Dice) -> WorkspaceSource {
    let named = |n: &str| Some(NamedRef { name: n.to_owned() });
    match dice.roll(5) {
        0 => WorkspaceSource { git: Some(git(7)), ..Default::default() },
        1 => WorkspaceSource { empty: Some(EmptySource {}), ..Default::default() },
        2 => WorkspaceSource { workspace: named(["a", "w"][usize::try_from(dice.roll(2)).unwrap()]), ..Default::default() },
        _ => WorkspaceSource { project: named("p"), ..Default::default() },
    }
}

fn make_yoipod(cluster: &mut Cluster, dice: &mut Dice) {
    let name = *dice.pick(&["a", "b", "c"]).unwrap();
    let workspace = match dice.roll(5) {
        0 => serde_json::json!({"ref": {"name": dice.pick(&["w", "a"]).unwrap()}}),
        1 | 2 => serde_json::json!({"template": {"source": sources(dice)}}),
        _ => serde_json::Value::Null,
    };
    let retain = if dice.roll(2) == 0 { "Retain" } else { "Delete" };
    let mut spec = serde_json::json!({"projectRef": {"name": "p"}, "agent": {"builtin": {}}, "session": {"retain": retain}});
    if !workspace.is_null() {
        spec["workspace"] = workspace;
    }
    let mut yoipod = YoiPod::new(name, serde_json::from_value(spec).unwrap());
    if dice.roll(3) == 0 {
        yoipod.spec.task = Some("do".into());
        yoipod.spec.completion = Completion::Stop;
    }
    yoipod.metadata.namespace = Some(NS.to_owned());
    cluster.born(|c| &mut c.yoipods, yoipod);
}

fn make_workspace(cluster: &mut Cluster, dice: &mut Dice) {
    let claim = dice.roll(3) > 0;
    let spec = serde_json::json!({"source": sources(dice), "claim": claim});
    let mut workspace = AgentWorkspace::new("w", serde_json::from_value(spec).unwrap());
    workspace.spec.binding = if dice.roll(2) == 0 { Binding::Immediate } else { Binding::WaitForConsumer };
    workspace.metadata.namespace = Some(NS.to_owned());
    cluster.born(|c| &mut c.workspaces, workspace);
}

/// Whether the Pods that exist are a fair picture of what runs: no agent twice.
pub fn twice(cluster: &Cluster) -> Option<String> {
    cluster.yoipods.iter().find_map(|(name, y)| {
        let running = cluster.pods.values().filter(|p| controlled_by(&p.metadata, uid(&y.metadata)) && phase(p) == "Running").count();
        (running > 1).then(|| format!("{name} runs {running} times"))
    })
}
