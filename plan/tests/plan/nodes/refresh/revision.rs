//! One commit of a project: which base its tree comes from, and which bases go.

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
    let project = project(json!({"url": "https://git.example/a", "ref": "main", "refresh": "10m", "credentialsSecretRef": {"name": "k"}}));
    for revision in [NEW, "refs/pull/7/head", "main"] {
        let plan = plan(&project, revision, vec![sealed_at(&project, OLD)]);
        let base = plan.steps.iter().find_map(|step| if let Step::EnsureWorkspace(base) = step { Some((**base).clone()) } else { None });
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
    let base = made_plan.steps.iter().find_map(|step| if let Step::EnsureWorkspace(base) = step { Some((**base).clone()) } else { None });
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

fn own_base(project: &YoiProject, uid: &str, populated: Value) -> AgentWorkspace {
    let made_plan = plan(project, NEW, vec![sealed_at(project, OLD)]);
    let mut base = base_made(&made_plan).expect("a base");
    (base.metadata.uid, base.metadata.resource_version) = (Some(uid.to_owned()), Some("1".to_owned()));
    base.status = Some(made(json!({"nodeName": "a", "origin": {"kind": "Empty"}, "conditions": [is_true("Provisioned"), populated]})));
    base
}

#[test]
fn bases_of_its_own_go_when_the_project_says_something_else_or_holds_the_commit_but_for_the_trees_origin() {
    let project = every_ten_minutes();
    let mended: YoiProject = made(json!({"metadata": meta("p"), "spec": {"source": {"git": {"url": "https://git.example/b"}}}}));
    let fails = own_base(&project, "own", is("Populated", "False", "PopulateFailed", "no such Secret"));
    let title = fails.metadata.name.clone().expect("a name");
    let fails = Arc::new(fails);
    let gone = |project: &YoiProject, bases| {
        let plan = plan(project, NEW, bases);
        outcome(&plan.steps, Kind::Workspace).1.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(gone(&project, vec![sealed_at(&project, OLD), fails.clone()]), Vec::<String>::new());
    assert_eq!(gone(&mended, vec![fails.clone()]), std::slice::from_ref(&title));
    assert_eq!(gone(&project, vec![sealed_at(&project, NEW), fails.clone()]), std::slice::from_ref(&title), "the project holds it by now");

    let settled = |origin: &str| {
        let mut workspace = workspace(NEW);
        workspace.status = Some(made(json!({"nodeName": "a", "origin": {"kind": "Base", "workspaceUID": origin},
            "conditions": [is_true("Provisioned")]})));
        let seen = workspace_with(Arc::new(workspace), nodes(vec![("a", plain(1))]));
        let seen = yoi_plan::workspace::Observed { project: Some(Arc::new(mended.clone())), bases: vec![fails.clone()], ..seen };
        let plan = yoi_plan::workspace::plan(&seen, &settings(), now());
        outcome(&plan.steps, Kind::Workspace).1.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(settled("own"), Vec::<String>::new(), "the tree was made from it");
    assert_eq!(settled("another"), [title]);
}

#[test]
fn before_a_consumer_is_there_the_workspace_says_that_its_commit_cannot_be_prepared() {
    let project = every_ten_minutes();
    for reason in ["PopulateFailed", "PrepareFailed"] {
        let fails = own_base(&project, "own", is("Populated", "False", reason, "make: *** [all] Error 2"));
        let waits: AgentWorkspace =
            made(json!({"metadata": meta("w"), "spec": {"source": {"project": {"name": "p", "revision": NEW}}, "claim": true}}));
        let seen = workspace_with(Arc::new(waits), nodes(vec![("a", plain(1))]));
        let bases = vec![sealed_at(&project, OLD), Arc::new(fails)];
        let seen = yoi_plan::workspace::Observed { project: Some(Arc::new(project.clone())), bases, ..seen };
        let status = status(yoi_plan::workspace::plan(&seen, &settings(), now()));
        let scheduled = condition(&status.conditions, "Scheduled");
        assert!(scheduled.reason == reason && scheduled.message.contains("Error 2"), "{scheduled:?}");
    }
}

#[test]
fn the_commit_under_test_is_fetched_and_prepared_as_the_projects_own_generation_is() {
    let taint = json!([{"key": "pool", "value": "agents", "effect": "NoSchedule"}]);
    let toleration = json!([{"key": "pool", "operator": "Exists"}]);
    let project: YoiProject = made(json!({"metadata": meta("p"), "spec": {
        "source": {"git": {"url": "https://git.example/a"}}, "prepare": {"image": "private:1", "command": ["make"]},
        "defaults": {"pod": {"imagePullSecrets": [{"name": "pull"}], "imagePullPolicy": "Always", "tolerations": toleration}}}}));
    let tainted = nodes(vec![("a", node(1, json!({"taints": taint}), None))]);
    let parent = Arc::new(workspace(NEW));
    let project = Some(Arc::new(project));
    let seen = yoi_plan::workspace::Observed { project: project.clone(), ..workspace_with(parent.clone(), tainted.clone()) };
    let mut base = base_made(&yoi_plan::workspace::plan(&seen, &settings(), now())).expect("the pool takes its Pods");
    (base.metadata.uid, base.metadata.resource_version) = (Some("own".to_owned()), Some("1".to_owned()));
    base.metadata.generation = Some(1);
    base.status = Some(made(json!({"nodeName": "a", "origin": {"kind": "Empty"}, "conditions": [is_true("Provisioned")]})));
    let base = Arc::new(base);
    let work = |populators: Vec<Arc<ObservedPod>>, parent: &Arc<AgentWorkspace>| {
        let seen = workspace_with(base.clone(), tainted.clone());
        let parent = Some(parent.clone());
        let seen = yoi_plan::workspace::Observed { project: project.clone(), parent, populators, bases: vec![base.clone()], ..seen };
        let steps = yoi_plan::workspace::plan(&seen, &settings(), now()).steps;
        steps.into_iter().find_map(|step| if let Step::EnsurePod(pod) = step { Some(*pod) } else { None }).expect("a Pod")
    };
    let mut fills = work(Vec::new(), &parent);
    let tolerations = |pod: &v1::Pod| serde_json::to_value(&pod.spec.as_ref().expect("a spec").tolerations).expect("JSON");
    assert_eq!(tolerations(&fills), toleration);
    fills.metadata.uid = Some("fills".to_owned());
    fills.status = Some(made(json!({"phase": "Succeeded"})));
    let prepares = work(vec![Arc::new(fills.clone().into())], &parent);
    assert_eq!(tolerations(&prepares), toleration);
    let spec = prepares.spec.expect("a spec");
    assert_eq!(spec.image_pull_secrets.expect("pull secrets")[0].name, "pull");
    assert_eq!(spec.init_containers.expect("the command")[0].image_pull_policy.as_deref(), Some("Always"));

    let mut stranger = (*parent).clone();
    stranger.metadata.uid = Some("stranger".to_owned());
    let of_stranger = work(vec![Arc::new(fills.into())], &Arc::new(stranger));
    assert_eq!(of_stranger.spec.expect("a spec").image_pull_secrets, None, "another workspace of the parent's name");
}

#[test]
fn a_base_on_a_further_node_is_filled_with_the_commit_it_is_for_though_prepare_has_committed_on_another() {
    let project = every_ten_minutes();
    let told = found(&project, NEW);
    let moving = Look { project: with_status(&project, &told), bases: vec![sealed_at(&project, OLD)], pods: Vec::new() }.plan();
    let mut first = base_made(&moving).expect("the next generation");
    let mut second = first.clone();
    first.metadata.uid = Some("first".to_owned());
    first.status = Some(made(json!({"nodeName": "a", "origin": {"kind": "Empty"},
        "volume": {"revision": "3333333333333333333333333333333333333333"}, "conditions": [is_true("Provisioned"), is_true("Populated"), is_true("Sealed")]})));
    let ref_ = second.spec.base.as_mut().expect("a base");
    ref_.node = "b".to_owned();
    second.metadata.name = Some(yoi_plan::names::base(&ref_.generation, "b"));
    second.metadata.uid = Some("second".to_owned());
    second.metadata.resource_version = Some("1".to_owned());
    second.status = Some(made(json!({"nodeName": "b", "origin": {"kind": "Empty"}, "conditions": [is_true("Provisioned")]})));
    let second = Arc::new(second);
    let seen = workspace_with(second.clone(), nodes(vec![("a", plain(1)), ("b", plain(1))]));
    let bases = vec![Arc::new(first), second];
    let seen = yoi_plan::workspace::Observed { project: Some(Arc::new(project)), bases, ..seen };
    let steps = yoi_plan::workspace::plan(&seen, &settings(), now()).steps;
    let pod = steps.iter().find_map(|step| if let Step::EnsurePod(pod) = step { Some((**pod).clone()) } else { None });
    let pod = pod.expect("a Pod that fills");
    let env = pod.spec.expect("a spec").containers.remove(0).env.unwrap_or_default();
    assert!(env.iter().any(|variable| variable.value.as_deref() == Some(NEW)), "{env:?}");
}
