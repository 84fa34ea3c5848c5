//! A project whose branch moves: who looks when, what the status remembers, and which generation trees are made from.

use std::sync::Arc;

use serde_json::{Value, json};
use yoi_crds::{AgentWorkspace, YoiProject, YoiProjectStatus};
use yoi_plan::ObservedPod;
use yoi_plan::project::{self, Observed};
use yoi_plan::step::{Kind, Plan, Step};

use crate::*;

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

mod revision {
    use super::*;

    fn workspace(revision: &str) -> AgentWorkspace {
        made(
            json!({"metadata": meta("w"), "spec": {"source": {"project": {"name": "p", "revision": revision}}, "claim": true, "binding": "Immediate"}}),
        )
    }

    fn plan(project: &YoiProject, revision: &str, bases: Vec<Arc<AgentWorkspace>>) -> Plan<yoi_crds::AgentWorkspaceStatus> {
        let seen = workspace_with(Arc::new(workspace(revision)), nodes(vec![("a", plain(1))]));
        let seen = yoi_plan::workspace::Observed { project: Some(Arc::new(project.clone())), bases, ..seen };
        yoi_plan::workspace::plan(&seen, &settings(), now())
    }

    #[test]
    fn a_commit_that_the_projects_base_holds_is_cloned_from_it_at_once() {
        let project = every_ten_minutes();
        let base = sealed_at(&project, OLD);
        let status = status(plan(&project, OLD, vec![base.clone()]));
        let origin = status.origin.expect("an origin");
        assert_eq!((origin.workspace_uid, origin.revision.as_deref()), (base.metadata.uid.clone(), Some(OLD)));
    }

    #[test]
    fn another_commit_or_any_ref_is_fetched_into_a_base_of_the_workspaces_own_with_the_projects_credentials() {
        let project =
            project(json!({"url": "https://git.example/a", "ref": "main", "refresh": "10m", "credentialsSecretRef": {"name": "k"}}));
        for revision in [NEW, "refs/pull/7/head", "main"] {
            let plan = plan(&project, revision, vec![sealed_at(&project, OLD)]);
            let base =
                plan.steps.iter().find_map(|step| if let Step::EnsureWorkspace(base) = step { Some((**base).clone()) } else { None });
            let base = base.expect("a base");
            let git = serde_json::to_value(base.spec.source.git).expect("JSON");
            assert_eq!(git, json!({"url": "https://git.example/a", "ref": revision, "credentialsSecretRef": {"name": "k"}}));
            assert_eq!(base.metadata.owner_references.expect("an owner")[0].uid, "w", "it goes with the workspace");
        }
    }

    #[test]
    fn a_revision_that_does_not_exist_is_gits_words_on_the_workspace() {
        let project = every_ten_minutes();
        let made_plan = plan(&project, "wrong", vec![sealed_at(&project, OLD)]);
        let base =
            made_plan.steps.iter().find_map(|step| if let Step::EnsureWorkspace(base) = step { Some((**base).clone()) } else { None });
        let mut base = base.expect("a base");
        base.metadata.uid = Some("own".to_owned());
        let failed = is("Populated", "False", "PopulateFailed", "the source has no branch, tag or commit wrong");
        base.status = Some(made(json!({"nodeName": "a", "origin": {"kind": "Empty"}, "conditions": [is_true("Provisioned"), failed]})));
        let status = status(plan(&project, "wrong", vec![sealed_at(&project, OLD), Arc::new(base)]));
        let ready = condition(&status.conditions, "Ready");
        assert!(ready.reason == "PopulateFailed" && ready.message.contains("no branch, tag or commit wrong"), "{ready:?}");
    }

    #[test]
    fn a_project_without_git_has_no_revision() {
        let empty: YoiProject = made(json!({"metadata": meta("p"), "spec": {"source": {"empty": {}}}}));
        let status = status(plan(&empty, NEW, Vec::new()));
        let accepted = condition(&status.conditions, "Accepted");
        assert!(accepted.reason == "InvalidSpec" && accepted.message.contains("source.project.revision"), "{accepted:?}");
    }
}
