//! The shims of all nodes, the runtimes, and the gateway that writes what runtimes report.

use yoi_crds::condition::{Condition, ConditionStatus, ConditionValue, condition, find, is_true};
use yoi_crds::name::finalizer;
use yoi_crds::pod::{DesiredState, LastReport, RestStatus, TaskStatus, Wake};
use yoi_crds::reason::{self, Reason, condition};
use yoi_crds::workspace::{OriginKind, VolumeStatus};
use yoi_crds::{AgentWorkspace, WorkspaceNode, YoiPod};
use yoi_plan::meta::{deleting, uid};
use yoi_plan::yoipod::{may_be_woken, run_generation};
use yoi_wire::hub::{ReportReason, TaskState};
use yoi_wire::open::{NamedValue as _, Open};

use crate::cluster::Cluster;
use crate::kubernetes::{mounted, phase};
use crate::users::Random;
use crate::{host_sources, loans, quotas};

fn set_condition(conditions: &mut Vec<Condition>, type_: &str, value: ConditionValue, now: &str) {
    let condition = condition(conditions, type_, value, 1, now);
    conditions.retain(|c| c.type_ != type_);
    conditions.push(condition);
}

const UNMADE: &[Reason] = &[
    reason::OUT_OF_SPACE,
    reason::BACKEND_ERROR,
    reason::READ_ONLY_FILESYSTEM,
    reason::KERNEL_TOO_OLD,
    reason::NESTED_VOLUME,
    reason::TREE_TOO_DEEP,
    reason::SOURCE_NOT_SEALED,
    reason::PROVIDER_UNAVAILABLE,
    reason::DATA_ROOT_MISSING,
    reason::JOURNAL_DAMAGED,
];

/// With `random`, shims fail now and then.
pub fn shims(c: &mut Cluster, mut random: Option<&mut Random>) {
    offers(c);
    host_sources::publish(c, random.as_deref_mut());
    let mounted = mounted(c);
    for title in c.names::<AgentWorkspace>() {
        let workspace = c.now.workspaces[&title].clone();
        let status = workspace.status.clone().unwrap_or_default();
        let Some(node) = status.node_name.clone().filter(|n| c.alive(n)) else { continue };
        let id = uid(&workspace.metadata).to_owned();
        let used = mounted.contains(&id);
        let mut reported: Vec<(&str, ConditionValue)> = Vec::new();
        let stands = c.disks.get(&node).is_some_and(|d| d.contains(&id));
        let provisioned = is_true(&status.conditions, condition::PROVISIONED);
        let mut volume = None;
        if deleting(&workspace.metadata) {
            if !workspace.metadata.finalizers.iter().flatten().any(|f| f == finalizer::NODE_DATA) {
                continue;
            }
            if used {
                reported.push((condition::CLEANED_UP, ConditionValue::no(reason::WAITING_FOR_PODS, "mounts are left")));
            } else if random.as_mut().is_some_and(|d| d.one_in(6)) {
                reported.push((condition::CLEANED_UP, ConditionValue::no(reason::BUSY, "the tree is busy")));
            } else {
                c.disks.entry(node).or_default().remove(&id);
                report(c, &title, vec![(condition::CLEANED_UP, ConditionValue::yes(reason::DESTROYED, "nothing is left"))], None);
                c.change::<AgentWorkspace>(&title, |w| {
                    w.metadata.finalizers.iter_mut().for_each(|f| f.retain(|f| f != finalizer::NODE_DATA));
                });
                continue;
            }
        } else if provisioned && !stands {
            c.coverage.feature("shim: loses a tree");
            reported.push((condition::PROVISIONED, ConditionValue::no(reason::TREE_LOST, "the tree is gone from the node's disk")));
        } else if !stands && !was_made(&status.conditions) {
            let source = status.origin.as_ref().and_then(|o| o.workspace_uid.clone());
            let there = source.as_ref().is_none_or(|s| c.disks.get(&node).is_some_and(|d| d.contains(s)));
            if status.origin.is_none() {
                continue;
            }
            let folder = status.origin.as_ref().filter(|o| o.kind == OriginKind::Host).and(workspace.spec.source.host.as_ref());
            if let Some((why, message)) = folder.and_then(|folder| host_sources::refusal(c, &node, folder)) {
                c.coverage.feature("shim: cannot take a folder");
                reported.push((condition::PROVISIONED, ConditionValue::no(why, message)));
            } else if let Some(no) = quotas::refusal(status.quota_bytes) {
                reported.push((condition::PROVISIONED, no));
            } else if !there {
                reported.push((condition::PROVISIONED, ConditionValue::no(reason::SOURCE_NOT_SEALED, "its source is not on this node")));
            } else if let Some(why) = random.as_mut().and_then(|d| if d.one_in(8) { d.pick(UNMADE) } else { None }) {
                c.coverage.feature("shim: cannot make a tree");
                reported.push((condition::PROVISIONED, ConditionValue::no(*why, "it could not be made")));
            } else {
                c.disks.entry(node.clone()).or_default().insert(id.clone());
                if random.as_mut().is_some_and(|d| d.one_in(10)) {
                    c.coverage.feature("shim: dies before it tells of a tree");
                    continue;
                }
                let made = if source.is_some() { reason::CLONE_CREATED } else { reason::TREE_CREATED };
                reported.push((condition::PROVIDER_SELECTED, ConditionValue::yes(reason::SELECTED, "btrfs")));
                reported.push((condition::PROVISIONED, ConditionValue::yes(made, "the tree stands on its node")));
                reported.push((condition::IN_USE, in_use(false, false)));
                reported.extend(quotas::set(c, &node, &id, &status).map(|value| (condition::QUOTA_ENFORCED, value)));
            }
        } else if stands {
            if !provisioned {
                reported.push((condition::PROVISIONED, ConditionValue::yes(reason::ADOPTED, "the tree was found on its node")));
            }
            if workspace.spec.base.is_none() {
                reported.extend(quotas::set(c, &node, &id, &status).map(|value| (condition::QUOTA_ENFORCED, value)));
                reported.extend(quotas::health(c, &id, &status).map(|value| (condition::HEALTHY, value)));
            }
            let former = yoi_crds::condition::find(&status.conditions, condition::IN_USE);
            let was = former.is_some_and(|c| c.status == yoi_crds::ConditionStatus::True || c.reason == *reason::RELEASED);
            reported.push((condition::IN_USE, in_use(used, was)));
            if workspace.spec.base.is_some()
                && is_true(&status.conditions, condition::POPULATED)
                && !is_true(&status.conditions, condition::SEALED)
            {
                reported.push((condition::SEALED, ConditionValue::yes(reason::SEALED, "sealed")));
                volume = Some(VolumeStatus { revision: c.fetched.get(&id).cloned(), ..VolumeStatus::default() });
            }
        }
        report(c, &title, reported, volume);
    }
    loans::shims(c, random);
}

/// Whether the tree existed once. A lost tree is never made again, silently and empty.
fn was_made(conditions: &[Condition]) -> bool {
    yoi_crds::condition::find(conditions, condition::PROVISIONED).is_some_and(|c| c.reason == *reason::TREE_LOST)
}

fn in_use(used: bool, was: bool) -> ConditionValue {
    match (used, was) {
        (true, _) => ConditionValue::yes(reason::PUBLISHED, "a Pod has the tree mounted"),
        (false, true) => ConditionValue::no(reason::RELEASED, "the last Pod let the tree go"),
        (false, false) => ConditionValue::no(reason::NOT_PUBLISHED, "no Pod has the tree mounted"),
    }
}

fn report(c: &mut Cluster, title: &str, reported: Vec<(&str, ConditionValue)>, volume: Option<VolumeStatus>) {
    let now = yoi_plan::conditions::format_time(c.now());
    let before = c.now.workspaces[title].status.clone().unwrap_or_default();
    let mut after = before.clone();
    for (type_, value) in reported {
        set_condition(&mut after.conditions, type_, value, &now);
    }
    after.volume = volume.or(after.volume);
    after.conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
    let mut sorted = before;
    sorted.conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
    if sorted != after {
        for told in &after.conditions {
            c.coverage.reason(&told.reason);
        }
        c.change::<AgentWorkspace>(title, |w| w.status = Some(after));
    }
}

/// The WorkspaceNodes that the shims of living nodes write, once a minute.
fn offers(c: &mut Cluster) {
    for node in c.names::<crate::cluster::Machine>() {
        let Some(known) = c.get::<WorkspaceNode>(&node).cloned() else {
            first_offer(c, &node);
            continue;
        };
        let ready = known.status.as_ref().and_then(|status| find(&status.conditions, condition::READY));
        if c.alive(&node) && ready.is_some_and(|ready| ready.status == ConditionStatus::Unknown) {
            c.coverage.feature("node: heard of again");
            let again = offered(c, &node, true);
            c.change::<WorkspaceNode>(&node, |o| o.status = Some(again));
        }
    }
}

fn first_offer(c: &mut Cluster, node: &str) {
    if c.alive(node) && !c.now.machines[node].metadata.labels.as_ref().is_some_and(|l| l.contains_key("no-shim")) {
        let mut offer = WorkspaceNode::new(node, yoi_crds::node::WorkspaceNodeSpec::default());
        offer.status = Some(offered(c, node, true));
        c.create(offer);
    }
}

pub fn offered(c: &Cluster, node: &str, ready: bool) -> yoi_crds::WorkspaceNodeStatus {
    use yoi_crds::node::{Capacity, OfferedProvider};
    let free = if node == "n1" { quotas::TOTAL / 2 } else { quotas::TOTAL / 3 };
    let value = if ready { ConditionValue::yes(reason::ALL_MET, "") } else { ConditionValue::no(reason::PROVIDER_UNAVAILABLE, "") };
    let provider = OfferedProvider { name: yoi_crds::source::ProviderName::Btrfs, available: ready, reason: "here".into() };
    yoi_crds::WorkspaceNodeStatus {
        host_sources: host_sources::offered(c, node),
        unclaimed: None,
        providers: vec![provider],
        capacity: Some(Capacity::new(quotas::TOTAL, free)),
        kernel: None,
        runtime_digests: vec!["d".into()],
        conditions: vec![condition(&[], condition::READY, value, 1, &c.now().to_string())],
    }
}

/// Reasons that a runtime reports. `None` is a reason of a runtime that is newer than the operator.
const FAILURES: &[Option<ReportReason>] = &[
    Some(ReportReason::SecretMissing),
    Some(ReportReason::SessionLocked),
    Some(ReportReason::ReplayFailed),
    Some(ReportReason::LogNewer),
    Some(ReportReason::ModelUnreachable),
    Some(ReportReason::ModelRefused),
    Some(ReportReason::ModelRefusedHistory),
    Some(ReportReason::DiskFull),
    Some(ReportReason::DiskFailed),
    Some(ReportReason::ProgramMissing),
    Some(ReportReason::PresetInvalid),
    Some(ReportReason::ModelFormatNotSpoken),
    None,
];

pub fn gateway(c: &mut Cluster, mut random: Option<&mut Random>) {
    for title in c.names::<YoiPod>() {
        let run = c.now.yoipods[&title].status.as_ref().and_then(|status| Some(status.rest.as_ref()?.run_generation));
        if let Some(run) = run.filter(|_| may_be_woken(&c.now.yoipods[&title])) {
            // At the end each second rest is ended, so that the world comes to rest.
            let wakes = random.as_mut().map_or(run % 2 == 1, |random| random.one_in(3));
            if wakes {
                wake(c, &title);
            }
        }
        let yoipod = c.now.yoipods[&title].clone();
        let Some(pod) = yoipod.status.as_ref().and_then(|s| s.pod.clone()) else { continue };
        let Some(live) = c.now.pods.get(&pod.name).filter(|p| uid(&p.metadata) == pod.uid && phase(p) == "Running").cloned() else {
            continue;
        };
        let mut run = run_generation(&live);
        let mut why = Open::from(ReportReason::Replayed);
        let mut state = TaskState::Succeeded;
        if let Some(random) = random.as_mut() {
            if random.one_in(2) {
                c.coverage.feature("runtime: reports a failure");
                let known = *random.pick(FAILURES).expect("there are some");
                why = known.map_or_else(|| Open::Other("NotYetInvented".to_owned()), Open::from);
            }
            if random.one_in(8) {
                c.coverage.feature("runtime: reports a run that is over");
                run -= 1;
            }
            state = if random.one_in(2) { TaskState::Failed } else { *random.pick(TaskState::ALL).expect("there are some") };
        }
        let before = yoipod.status.as_ref().expect("a status");
        if before.report.as_ref().is_some_and(|report| report.pod_uid == pod.uid && report.reason == ReportReason::Resting) {
            // Its inbox is closed, and nothing follows on that.
            continue;
        }
        let task = yoi_plan::yoipod::manifest::task(&yoipod);
        // A task that has ended does not run again.
        let ended = before.task.as_ref().filter(|t| {
            task.as_ref().is_some_and(|n| n.id == t.id) && matches!(t.state.known(), Some(TaskState::Succeeded | TaskState::Failed))
        });
        let words = [
            "Cancelled",
            "Truncated",
            "Refused",
            "ContentFilter",
            "ContextFull",
            "LimitReached",
            "ModelRefusedHistory",
            "EmptyAnswer",
            "NotYetInvented",
        ];
        let failed = random.as_mut().filter(|_| state == TaskState::Failed);
        let task_reason = failed.and_then(|random| random.pick(&words)).map(|word| (*word).to_owned());
        let task = ended.cloned().or_else(|| task.map(|t| TaskStatus { id: t.id, state: state.into(), reason: task_reason }));
        if task.as_ref().is_some_and(|t| t.state == TaskState::Failed) {
            c.coverage.feature("task: fails");
        }
        let is_idle = why == ReportReason::Replayed && run == run_generation(&live);
        let has_open_task = task.as_ref().is_some_and(|t| !matches!(t.state.known(), Some(TaskState::Succeeded | TaskState::Failed)));
        let rests = yoipod.spec.desired_state == DesiredState::Suspended && is_idle && !has_open_task;
        if rests {
            c.coverage.feature("yoipod: rests");
            why = ReportReason::Resting.into();
        }
        let report = LastReport {
            pod_uid: pod.uid,
            run_generation: run,
            ready: why == ReportReason::Replayed,
            reason: why,
            message: "said".into(),
            volume_run_generation: None,
            scope: (title != "c").then(|| if title == "b" { "the kernel has no Landlock".to_owned() } else { String::new() }),
            has_frame: Some(title != "b"),
            has_git: Some(title != "c"),
            program: (title == "b").then(|| "claude is 3.0.1, and 2. is known".to_owned()),
            program_session: None,
            assets: None,
        };
        if before.report.as_ref() != Some(&report) || before.task != task {
            let since = c.now().to_string();
            c.change::<YoiPod>(&title, |y| {
                let status = y.status.get_or_insert_default();
                if rests {
                    status.rest = Some(Box::new(RestStatus { run_generation: run, since, wake: None }));
                }
                status.report = Some(report);
                status.task = task;
            });
        }
    }
}

fn wake(c: &mut Cluster, title: &str) {
    c.coverage.feature("yoipod: woken");
    let requested_at = c.now().to_string();
    c.change::<YoiPod>(title, |y| {
        if let Some(rest) = y.status.get_or_insert_default().rest.as_mut() {
            rest.wake = Some(Wake { requested_at, by: "a message".to_owned() });
        }
    });
}
