//! Pushes of what agents have committed: people ask for them, Pods carry them out on git servers, and the status says how they ended.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{ContainerState, Pod};
use yoi_crds::condition::{ConditionStatus, find};
use yoi_crds::name::{annotation, label};
use yoi_crds::pod::{Completion, PushResult, PushSettings, PushStatus, RequestedPush};
use yoi_crds::reason::{self, condition};
use yoi_crds::{YoiPod, YoiPodStatus};
use yoi_plan::meta::{annotation as annotation_of, controlled_by, controller, label as label_of, name, uid};
use yoi_plan::network;
use yoi_plan::step::Step;
use yoi_plan::yoipod::manifest;
use yoi_wire::hub::TaskState;
use yoi_wire::push::default_branch;

use crate::cluster::{Cluster, Violation};
use crate::invariants::{About, Verdict, has_policy, require};
use crate::kubernetes::{ended, phase, pod_status, running};
use crate::users::Random;

/// The repositories that are pushed to, the agents' commits, and what was asked for.
#[derive(Default)]
pub struct GitServers {
    /// The commit of each branch, by URL and branch.
    tips: BTreeMap<(String, String), String>,
    /// Every branch that was at a commit when a Pod that pushes had ended well.
    pushed: BTreeSet<(String, String)>,
    /// How many commits each agent has made, by UID of its YoiPod.
    made: BTreeMap<String, u64>,
    /// The commit of each request, by its id.
    asked: BTreeMap<String, String>,
}

pub fn is_pusher(pod: &Pod) -> bool {
    label_of(&pod.metadata, label::ROLE) == Some(label::ROLE_PUSHER)
}

/// Commits of one agent differ in their last eight digits, and each is made on top of the smaller ones.
fn commit(of: &str, number: u64) -> String {
    format!("{:0>32}{number:08x}", of.trim_start_matches("uid-"))
}

/// What is checked out in the agent's tree, if it has committed anything.
fn head(c: &Cluster, agent: &str) -> Option<String> {
    c.git.made.get(agent).map(|number| commit(agent, *number))
}

fn goes_on(from: &str, to: &str) -> bool {
    from[..32] == to[..32] && from <= to
}

/// What `spec.push` of a new agent says.
pub fn any(random: &mut Random) -> Option<Box<PushSettings>> {
    let branch = random.one_in(3).then(|| "shared".to_owned());
    (!random.one_in(3)).then(|| Box::new(PushSettings { branch }))
}

/// An agent commits, somebody else pushes to a branch, or a person asks for a push.
pub fn change(c: &mut Cluster, random: &mut Random) {
    let Some(title) = random.pick(&c.names::<YoiPod>()).cloned() else { return };
    let agent = uid(&c.now.yoipods[&title].metadata).to_owned();
    match random.roll(6) {
        0 => {
            c.coverage.feature("push: the agent commits");
            *c.git.made.entry(agent).or_default() += 1;
        }
        1 => {
            let branches: Vec<_> = c.git.tips.keys().cloned().collect();
            let Some(branch) = random.pick(&branches).cloned() else { return };
            c.coverage.feature("push: somebody else moves the branch");
            let other = format!("{:f>32}{:08x}", "", c.counter);
            c.git.tips.insert(branch, other);
        }
        _ => ask(c, random, &title, &agent),
    }
}

/// The gateway writes a request when the one before has ended. The agent has committed something by then.
fn ask(c: &mut Cluster, random: &mut Random, title: &str, agent: &str) {
    let before = c.now.yoipods[title].status.as_ref().and_then(|status| status.push.as_deref().cloned()).unwrap_or_default();
    if before.request.as_ref().is_some_and(|request| before.last_ended() != Some(&request.id)) {
        c.coverage.feature("push: asked for while one is under way");
        return;
    }
    let commit = commit(agent, *c.git.made.entry(agent.to_owned()).or_insert(1));
    let branch = if random.one_in(3) { "shared".to_owned() } else { default_branch(title) };
    let tips: Vec<_> = c.git.tips.iter().filter(|((_, of), _)| *of == branch).map(|(_, tip)| tip.clone()).collect();
    let expected = random.pick(&tips).filter(|_| random.0.is_multiple_of(3)).cloned();
    c.coverage.feature(if expected.is_some() { "push: asked for, with a lease" } else { "push: asked for" });
    let id = format!("push-{}", c.counter);
    c.git.asked.insert(id.clone(), commit.clone());
    let request = RequestedPush { id, branch, commit, expected, requested_at: c.now().to_string() };
    c.change::<YoiPod>(title, |y| y.status.get_or_insert_default().push.get_or_insert_default().request = Some(request));
}

fn variable<'a>(pod: &'a Pod, name: &str) -> &'a str {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut variables = containers.flat_map(|container| container.env.iter().flatten());
    variables.find(|variable| variable.name == name).and_then(|variable| variable.value.as_deref()).unwrap_or_default()
}

/// The kubelet starts the Pod, and lets it push in the next round. Now and then it fails.
pub fn run(c: &mut Cluster, pod: &Pod) {
    let mut chance = Random(c.counter);
    let status = if phase(pod) == "Running" && chance.one_in(4) {
        pod_status(pod, "Failed", fail(c, pod, &mut chance))
    } else if phase(pod) == "Running" {
        let (code, words) = push(c, pod);
        pod_status(pod, if code == 0 { "Succeeded" } else { "Failed" }, with_words(ended(c.now(), code), words))
    } else {
        pod_status(pod, "Running", running())
    };
    c.change::<Pod>(name(&pod.metadata), |p| p.status = Some(status));
}

fn with_words(mut state: ContainerState, words: String) -> ContainerState {
    state.terminated.iter_mut().for_each(|terminated| terminated.message = Some(words.clone()));
    state
}

/// What the script of the Pod does: exit code and words.
fn push(c: &mut Cluster, pod: &Pod) -> (i32, String) {
    let agent = controller(&pod.metadata).map(|owner| owner.uid.clone()).unwrap_or_default();
    let Some(head) = head(c, &agent) else { return (0, "- - 1".to_owned()) };
    let (asked, expected, branch) = (variable(pod, "COMMIT"), variable(pod, "EXPECTED"), variable(pod, "BRANCH").to_owned());
    let commit = if asked.is_empty() { head } else { asked.to_owned() };
    let at = (variable(pod, "URL").to_owned(), branch.clone());
    let tip = c.git.tips.get(&at).cloned();
    let is_there = tip.as_ref() == Some(&commit);
    let may = match &tip {
        _ if is_there => true,
        tip if !expected.is_empty() => tip.as_deref() == Some(expected),
        Some(tip) => goes_on(tip, &commit),
        None => true,
    };
    if !may {
        c.coverage.feature("push: the branch has moved");
        return (1, format!("branch {branch} has moved"));
    }
    if is_there {
        c.coverage.feature("push: the branch is there already");
    }
    c.git.tips.insert(at, commit.clone());
    c.git.pushed.insert((branch, commit.clone()));
    (0, format!("{commit} {} 0", tip.as_deref().unwrap_or("-")))
}

/// Its container ends by itself or is killed, maybe after the server has done what it was asked for.
fn fail(c: &mut Cluster, pod: &Pod, random: &mut Random) -> ContainerState {
    if random.one_in(2) {
        c.coverage.feature("push: killed after the server did it");
        push(c, pod);
        return ended(c.now(), 137);
    }
    c.coverage.feature("push: fails");
    with_words(ended(c.now(), *random.pick(&[1, 75, 75]).expect("codes")), "the server has sent nothing".to_owned())
}

/// What holds when a Pod that pushes is made.
pub fn pod_made(c: &Cluster, about: &About, pod: &Pod, step: &Step) -> Verdict {
    require(has_policy(c, network::PUSHERS), "a pusher is made before its network policy", step)?;
    let other = c.now.pods.values().find(|p| is_pusher(p) && controlled_by(&p.metadata, &about.uid));
    require(other.is_none(), "two pushers of one agent", step)?;
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    let of_agent = volumes.iter().any(|volume| volume.persistent_volume_claim.is_some() || volume.csi.is_some());
    require(!of_agent, "a pusher has files of the agent", step)?;
    let asked = annotation_of(&pod.metadata, annotation::PUSH).and_then(|id| c.git.asked.get(id));
    require(asked.map_or("", |commit| commit) == variable(pod, "COMMIT"), "another commit is pushed than was asked for", step)?;
    let agent = c.now.yoipods.values().find(|y| uid(&y.metadata) == about.uid);
    require(!about.fresh || agent.is_some_and(|y| !has_ended(y)), "a Pod pushes, and nobody waits for it", step)
}

/// Whether every push that was asked for has ended: by a person, and by `spec.push` for the task that has succeeded.
fn has_ended(y: &YoiPod) -> bool {
    let status = y.status.clone().unwrap_or_default();
    let push = status.push.as_deref().cloned().unwrap_or_default();
    let is_open = push.request.as_ref().is_some_and(|request| push.last_ended() != Some(&request.id));
    let by_task = y.spec.push.is_some() && y.spec.completion == Completion::Stop;
    let succeeded = status.task.as_ref().filter(|task| by_task && task.state.known() == Some(TaskState::Succeeded)).map(|task| &task.id);
    let current = manifest::task(y).map(|task| task.id);
    !is_open && succeeded.is_none_or(|task| current.as_ref() != Some(task) || push.task.as_ref() == Some(task))
}

/// What holds when the status of a push is written.
pub fn reported(c: &Cluster, title: &str, before: &YoiPodStatus, after: &YoiPodStatus) -> Verdict {
    let outcome = |status: &YoiPodStatus| status.push.as_ref().and_then(|push| push.outcome.clone());
    let Some(new) = outcome(after).filter(|new| outcome(before).as_ref() != Some(new)) else { return Ok(()) };
    let pushed = new.commit.as_ref().is_some_and(|commit| c.git.pushed.contains(&(new.branch.clone(), commit.clone())));
    if new.result == PushResult::Pushed && !pushed {
        return Err(Violation(format!("{title} says that branch {} is at {:?}, and no Pod has pushed that", new.branch, new.commit)));
    }
    let asked = c.git.asked.get(&new.id);
    if new.result == PushResult::Pushed && asked.is_some() && asked != new.commit.as_ref() {
        return Err(Violation(format!("{title} was to push {asked:?} and says that it is {:?}", new.commit)));
    }
    Ok(())
}

/// What holds of an agent that stays, once nothing changes any more.
pub fn check(title: &str, y: &YoiPod) -> Verdict {
    let broken = |why: String| Err(Violation(format!("{title} {why}")));
    let push = y.status.as_ref().and_then(|status| status.push.as_deref().cloned()).unwrap_or_default();
    if !has_ended(y) {
        return broken(format!("was to push, and rests at {push:?}"));
    }
    let PushStatus { request, pod, attempts, outcome, ended_request: _, task } = &push;
    if pod.is_some() || attempts.is_some() {
        return broken(format!("has pushed, and still says {push:?}"));
    }
    if request.is_none() && task.is_none() {
        return Ok(());
    }
    let Some(outcome) = outcome else { return broken(format!("has pushed, and does not say how that ended: {push:?}")) };
    let conditions = y.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let says = find(conditions, condition::PUSHED).map(|c| (c.status, c.reason.as_str(), c.message.as_str()));
    let ended = [
        (ConditionStatus::True, reason::PUSHED),
        (ConditionStatus::True, reason::NOTHING_TO_PUSH),
        (ConditionStatus::False, reason::PUSH_FAILED),
    ];
    let known = says
        .is_some_and(|(status, reason, message)| ended.iter().any(|(s, r)| *s == status && *r == *reason) && message == outcome.message);
    if known { Ok(()) } else { broken(format!("has ended its push with {outcome:?}, and says {says:?}")) }
}

/// Whether a Pod that has pushed is still there.
pub fn left_over(c: &Cluster) -> Verdict {
    let pusher = c.now.pods.values().find(|pod| is_pusher(pod) && c.ours.contains_key(uid(&pod.metadata)));
    pusher.map_or(Ok(()), |pod| Err(Violation(format!("pusher {} is left over", name(&pod.metadata)))))
}
