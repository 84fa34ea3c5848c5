//! A project whose branch moves: who looks when, what the status remembers, and which generation trees are made from.

mod increment;
mod revision;
mod sync;

use std::sync::Arc;

use serde_json::{Value, json};
use yoi_crds::{AgentWorkspace, YoiProject, YoiProjectStatus};
use yoi_plan::ObservedPod;
use yoi_plan::project::{self, Observed};
use yoi_plan::step::{Kind, Plan, Step};

use crate::nodes::*;

const OLD: &str = "1111111111111111111111111111111111111111";
const NEW: &str = "2222222222222222222222222222222222222222";

fn project(git: Value) -> YoiProject {
    made(json!({"metadata": meta("p"), "spec": {"source": {"git": git}}}))
}

fn every_ten_minutes() -> YoiProject {
    project(json!({"url": "https://git.example/a", "refresh": "10m"}))
}

/// The base of the project as the operator makes it for this node, sealed at `commit`.
fn sealed_at(project: &YoiProject, commit: &str) -> Arc<AgentWorkspace> {
    let mut base = (*sealed_on(&Arc::new(project.clone()), "a")).clone();
    let status = base.status.as_mut().expect("a status");
    status.volume = Some(made(json!({"revision": commit})));
    Arc::new(base)
}

struct Look<'a> {
    project: YoiProject,
    bases: Vec<Arc<AgentWorkspace>>,
    pods: Vec<&'a Value>,
}

impl Look<'_> {
    fn plan(&self) -> Plan<YoiProjectStatus> {
        let looks = self.pods.iter().map(|pod| Arc::new(ObservedPod::from(made::<v1::Pod>((*pod).clone())))).collect();
        let seen = project_with(&Arc::new(self.project.clone()), &self.bases, &nodes(vec![("a", plain(1))]));
        project::plan(&Observed { looks, ..seen }, &settings(), now())
    }
}

fn looked(plan: &Plan<YoiProjectStatus>) -> Option<v1::Pod> {
    plan.steps.iter().find_map(|step| if let Step::EnsurePod(pod) = step { Some((**pod).clone()) } else { None })
}

/// The Pod that a plan made, as it ended so long ago.
fn ended(plan: &Plan<YoiProjectStatus>, seconds: i64, exit: i32, message: &str) -> Value {
    let mut pod = serde_json::to_value(looked(plan).expect("a Pod that looks")).expect("JSON");
    pod["metadata"]["uid"] = json!("look");
    pod["metadata"]["creationTimestamp"] = json!(ago(seconds + 3));
    let terminated = json!({"exitCode": exit, "message": message, "finishedAt": ago(seconds)});
    pod["status"] = json!({"phase": if exit == 0 { "Succeeded" } else { "Failed" },
        "containerStatuses": [{"name": "look", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": {"terminated": terminated}}]});
    pod
}

fn with_status(project: &YoiProject, status: &YoiProjectStatus) -> YoiProject {
    YoiProject { status: Some(status.clone()), ..project.clone() }
}

#[test]
fn a_project_is_looked_at_once_its_base_is_sealed_and_again_after_its_interval() {
    let project = every_ten_minutes();
    let base = sealed_at(&project, OLD);
    let fetching = Look { project: project.clone(), bases: Vec::new(), pods: Vec::new() }.plan();
    assert!(looked(&fetching).is_none(), "the Pod that fetches takes the branch as it is");
    let first = Look { project: project.clone(), bases: vec![base.clone()], pods: Vec::new() }.plan();
    let pod = looked(&first).expect("a Pod that looks").spec.expect("a spec");
    assert_eq!(pod.automount_service_account_token, Some(false));
    let volumes: Vec<&str> = pod.volumes.iter().flatten().map(|volume| volume.name.as_str()).collect();
    assert_eq!(volumes, ["tmp"], "it mounts no tree");

    let pod = ended(&first, 60, 0, &format!("{OLD}\n"));
    let read = Look { project: project.clone(), bases: vec![base.clone()], pods: vec![&pod] }.plan();
    assert_eq!(outcome(&read.steps, Kind::Pod).1, Vec::<&str>::new(), "what it found is not written yet");
    let status = status(read);
    let refresh = status.refresh.clone().expect("what was found");
    assert_eq!((refresh.revision.as_deref(), refresh.looked_at, refresh.failure), (Some(OLD), ago(60), None));
    assert_eq!(refresh.in_use, None, "it is the commit that was fetched first");

    let told = with_status(&project, &status);
    let after = Look { project: told.clone(), bases: vec![base.clone()], pods: vec![&pod] }.plan();
    assert_eq!(outcome(&after.steps, Kind::Pod).1, ["p-look"]);
    assert_eq!(after.status.expect("a status"), status, "a quiet project writes nothing between its looks");
    let quiet = Look { project: told, bases: vec![base.clone()], pods: Vec::new() }.plan();
    assert!(looked(&quiet).is_none() && quiet.requeue_after == Some(std::time::Duration::from_secs(540)), "{quiet:?}");

    let mut due = status.clone();
    due.refresh.as_mut().expect("a refresh").looked_at = ago(600);
    assert!(looked(&Look { project: with_status(&project, &due), bases: vec![base], pods: Vec::new() }.plan()).is_some());
}

#[test]
fn a_branch_that_moved_is_sealed_before_trees_are_made_from_it_and_the_former_generation_goes_only_then() {
    let project = every_ten_minutes();
    let former = sealed_at(&project, OLD);
    let first = Look { project: project.clone(), bases: vec![former.clone()], pods: Vec::new() }.plan();
    let pod = ended(&first, 60, 0, NEW);
    let found = status(Look { project: project.clone(), bases: vec![former.clone()], pods: vec![&pod] }.plan());
    let told = with_status(&project, &found);
    let moving = Look { project: told.clone(), bases: vec![former.clone()], pods: Vec::new() }.plan();
    let next = moving.steps.iter().find_map(|step| if let Step::EnsureWorkspace(base) = step { Some((**base).clone()) } else { None });
    let mut next = next.expect("the next generation");
    let ref_ = next.spec.base.clone().expect("a base");
    assert_eq!(ref_.revision.as_deref(), Some(NEW));
    assert_ne!(ref_.generation, former.spec.base.as_ref().expect("a base").generation);
    let moving = status(moving);
    assert_eq!(moving.generation.as_ref().and_then(|generation| generation.revision.as_deref()), Some(OLD));
    let refreshed = condition(&moving.conditions, "Refreshed");
    assert!(refreshed.status != yoi_crds::condition::ConditionStatus::True && refreshed.message.contains(NEW), "{refreshed:?}");

    next.metadata.uid = Some("next".to_owned());
    next.status = Some(made(json!({"nodeName": "a", "origin": {"kind": "Empty"}, "volume": {"revision": NEW},
        "conditions": [is_true("Provisioned"), is_true("Populated"), is_true("Sealed")]})));
    let both = vec![former.clone(), Arc::new(next)];
    let sealed = Look { project: told, bases: both.clone(), pods: Vec::new() }.plan();
    assert_eq!(outcome(&sealed.steps, Kind::Workspace).1, Vec::<&str>::new(), "workspaces read the status, which is not written yet");
    let sealed = status(sealed);
    assert_eq!(sealed.refresh.as_ref().and_then(|refresh| refresh.in_use.as_deref()), Some(NEW));
    let in_use = Look { project: with_status(&project, &sealed), bases: both, pods: Vec::new() }.plan();
    assert_eq!(outcome(&in_use.steps, Kind::Workspace).1, [former.metadata.name.as_deref().expect("a name")]);
    let in_use = status(in_use);
    assert_eq!(in_use.generation.and_then(|generation| generation.revision).as_deref(), Some(NEW));
    assert_eq!(condition(&in_use.conditions, "Refreshed").reason, "Refreshed");
}

#[test]
fn a_look_that_fails_says_gits_words_and_stops_nobody() {
    let project = every_ten_minutes();
    let base = sealed_at(&project, OLD);
    let first = Look { project: project.clone(), bases: vec![base.clone()], pods: Vec::new() }.plan();
    for (pod, words) in [
        (ended(&first, 60, 1, "fatal: could not read from remote"), "could not read from remote"),
        (ended(&first, 60, 0, "no commit; rm -rf /"), "its Pod named no commit"),
    ] {
        let status = status(Look { project: project.clone(), bases: vec![base.clone()], pods: vec![&pod] }.plan());
        let refreshed = condition(&status.conditions, "Refreshed");
        assert!(
            refreshed.reason == "RefreshFailed" && refreshed.message.contains(words) && refreshed.message.contains(OLD),
            "{refreshed:?}"
        );
        assert_eq!(condition(&status.conditions, "Ready").reason, "AllMet");
        assert!(status.refresh.expect("a refresh").failure.is_some_and(|failure| failure.contains(words)));
    }
}

#[test]
fn a_request_is_carried_out_once_without_an_interval() {
    let mut project = project(json!({"url": "https://git.example/a"}));
    let base = sealed_at(&project, OLD);
    let quiet = Look { project: project.clone(), bases: vec![base.clone()], pods: Vec::new() }.plan();
    assert!(looked(&quiet).is_none(), "nobody asked");
    project.metadata.annotations = Some([("yoi.dev/look".to_owned(), "now".to_owned())].into());
    let asked = Look { project: project.clone(), bases: vec![base.clone()], pods: Vec::new() }.plan();
    let pod = ended(&asked, 5, 0, OLD);
    let status = status(Look { project: project.clone(), bases: vec![base.clone()], pods: vec![&pod] }.plan());
    assert_eq!(status.refresh.as_ref().and_then(|refresh| refresh.request.as_deref()), Some("now"));
    let done = Look { project: with_status(&project, &status), bases: vec![base], pods: Vec::new() }.plan();
    assert!(looked(&done).is_none(), "{:?}", done.steps);
}

#[test]
fn what_was_found_of_a_former_source_counts_for_nothing_and_how_often_is_no_part_of_a_source() {
    let project = every_ten_minutes();
    let base = sealed_at(&project, OLD);
    let first = Look { project: project.clone(), bases: vec![base.clone()], pods: Vec::new() }.plan();
    let pod = ended(&first, 60, 0, NEW);
    let found = status(Look { project: project.clone(), bases: vec![base.clone()], pods: vec![&pod] }.plan());
    let often = with_status(&self::project(json!({"url": "https://git.example/a", "refresh": "1m"})), &found);
    let kept = status(Look { project: often, bases: vec![base.clone()], pods: Vec::new() }.plan());
    assert_eq!(kept.refresh, found.refresh);
    let other = with_status(&self::project(json!({"url": "https://git.example/b", "refresh": "10m"})), &found);
    let plan = Look { project: other, bases: vec![base], pods: vec![&pod] }.plan();
    assert_eq!(outcome(&plan.steps, Kind::Pod).1, ["p-look"], "it looked at the former source");
    assert_eq!(status(plan).refresh, None);
}

/// What the status says once a look has found `commit`, beside a base that is sealed at `OLD`.
fn found(project: &YoiProject, commit: &str) -> YoiProjectStatus {
    let bases = vec![sealed_at(project, OLD)];
    let first = Look { project: project.clone(), bases: bases.clone(), pods: Vec::new() }.plan();
    let pod = ended(&first, 60, 0, commit);
    status(Look { project: project.clone(), bases, pods: vec![&pod] }.plan())
}

fn base_made(plan: &Plan<impl Sized>) -> Option<AgentWorkspace> {
    plan.steps.iter().find_map(|step| if let Step::EnsureWorkspace(base) = step { Some((**base).clone()) } else { None })
}

#[test]
fn a_request_waits_for_what_is_fetched_first_and_what_was_found_before_that_is_forgotten() {
    let mut project = project(json!({"url": "https://git.example/a", "refresh": "10m"}));
    let told = found(&project, NEW);
    project.metadata.annotations = Some([("yoi.dev/look".to_owned(), "now".to_owned())].into());
    let asked = |bases| Look { project: project.clone(), bases, pods: Vec::new() }.plan();
    assert!(looked(&asked(Vec::new())).is_none(), "the Pod that fetches may take a newer commit than a look would find");
    let after = asked(vec![sealed_at(&project, OLD)]);
    let pod = ended(&after, 5, 0, NEW);
    let lost = Look { project: with_status(&project, &told), bases: Vec::new(), pods: vec![&pod] }.plan();
    assert_eq!(outcome(&lost.steps, Kind::Pod).1, ["p-look"]);
    assert_eq!(status(lost).refresh, None, "the base is fetched anew, from the branch as it is by now");
}

#[test]
fn a_commit_that_cannot_be_fetched_any_more_is_looked_past() {
    let project = every_ten_minutes();
    let mut told = found(&project, NEW);
    let refresh = told.refresh.as_mut().expect("a refresh");
    (refresh.in_use, refresh.looked_at) = (Some(NEW.to_owned()), ago(600));
    let lost = Look { project: with_status(&project, &told), bases: Vec::new(), pods: Vec::new() }.plan();
    assert!(base_made(&lost).is_some_and(|base| base.spec.base.is_some_and(|base| base.revision.as_deref() == Some(NEW))));
    assert!(looked(&lost).is_some(), "the bases of {NEW} are lost, and the server may not have it any more: {:?}", lost.steps);
}

#[test]
fn a_branch_that_moves_faster_than_a_base_is_made_is_sealed_all_the_same() {
    let project = every_ten_minutes();
    let former = sealed_at(&project, OLD);
    let mut told = found(&project, NEW);
    told.refresh.as_mut().expect("a refresh").looked_at = ago(600);
    let project = with_status(&project, &told);
    let moving = Look { project: project.clone(), bases: vec![former.clone()], pods: Vec::new() }.plan();
    assert!(looked(&moving).is_none(), "a newer commit would take its place");
    let next = base_made(&moving).expect("the next generation");
    for (reason, is_due) in [("Populating", false), ("Preparing", false), ("PopulateFailed", true), ("PrepareFailed", true)] {
        let mut next = next.clone();
        next.metadata.uid = Some("next".to_owned());
        let populated = is("Populated", "False", reason, "so it is");
        next.status = Some(made(json!({"nodeName": "a", "origin": {"kind": "Empty"}, "conditions": [is_true("Provisioned"), populated]})));
        let plan = Look { project: project.clone(), bases: vec![former.clone(), Arc::new(next)], pods: Vec::new() }.plan();
        assert_eq!(looked(&plan).is_some(), is_due, "{reason}: {:?}", plan.steps);
    }
}

#[test]
fn a_look_whose_node_does_not_answer_stops_no_other_look() {
    let project = every_ten_minutes();
    let base = sealed_at(&project, OLD);
    let mut told = found(&project, OLD);
    told.refresh.as_mut().expect("a refresh").looked_at = ago(600);
    let first = Look { project: project.clone(), bases: vec![base.clone()], pods: Vec::new() }.plan();
    let going_for = |seconds: i64, name: &str| {
        let mut pod = ended(&first, 600, 0, OLD);
        pod["status"] = json!({"phase": "Running"});
        pod["metadata"]["name"] = json!(name);
        pod["metadata"]["uid"] = json!(name);
        pod["metadata"]["deletionTimestamp"] = json!(ago(seconds));
        pod
    };
    let plan = |pods| Look { project: with_status(&project, &told), bases: vec![base.clone()], pods }.plan();
    let name = |plan: &Plan<YoiProjectStatus>| looked(plan).and_then(|pod| pod.metadata.name);
    let ends = going_for(20, "p-look");
    let waits = plan(vec![&ends]);
    assert!(name(&waits).is_none() && waits.requeue_after == Some(std::time::Duration::from_secs(40)), "{waits:?}");
    let (hangs, too) = (going_for(60, "p-look"), going_for(900, "p-look-x2"));
    assert_eq!(name(&plan(vec![&hangs])).as_deref(), Some("p-look-x2"));
    assert_eq!(name(&plan(vec![&too, &hangs])).as_deref(), Some("p-look-x3"));
    assert_eq!(name(&plan(vec![&too])).as_deref(), Some("p-look"));
}
