//! A base of a commit that the branch has moved to: whether its node begins it as a clone of the former base, and what its populator is told.

use super::*;

/// The former base and the next one of one project, as JSON. The node of both offers Btrfs.
struct Case {
    former: Value,
    next: Value,
}

impl Case {
    fn new(git: Value, prepare: Option<Value>) -> Self {
        let mut spec = json!({"source": {"git": git}});
        if let Some(prepare) = prepare {
            spec["prepare"] = prepare;
        }
        let project: YoiProject = made(json!({"metadata": meta("p"), "spec": spec}));
        let mut former = (*sealed_at(&project, OLD)).clone();
        former.status.as_mut().expect("a status").provider = Some(made(json!({"selected": "Btrfs", "reason": "Btrfs: the first"})));
        let told = with_status(&project, &found(&project, NEW));
        let moving = Look { project: told, bases: vec![Arc::new(former.clone())], pods: Vec::new() }.plan();
        let mut next = base_made(&moving).expect("the next generation");
        next.metadata.uid = Some("next".to_owned());
        next.metadata.resource_version = Some("1".to_owned());
        let [former, next] = [former, next].map(|base| serde_json::to_value(base).expect("JSON"));
        Case { former, next }
    }

    fn btrfs() -> Self {
        Self::new(json!({"url": "https://git.example/a", "refresh": "10m"}), None)
    }

    fn plan(&self) -> Plan<yoi_crds::AgentWorkspaceStatus> {
        self.plan_with(None)
    }

    fn plan_with(&self, populator: Option<&Value>) -> Plan<yoi_crds::AgentWorkspaceStatus> {
        let populators = populator.into_iter().map(|pod| Arc::new(ObservedPod::from(made::<v1::Pod>(pod.clone())))).collect();
        let [former, next] = [&self.former, &self.next].map(|base| stored::<AgentWorkspace>(base.clone()));
        let seen = workspace_with(next.clone(), nodes(vec![("a", plain(1))]));
        yoi_plan::workspace::plan(&yoi_plan::workspace::Observed { bases: vec![former, next], populators, ..seen }, &settings(), now())
    }

    /// What its node makes the next base from, as text.
    fn origin(&self) -> Value {
        serde_json::to_value(status(self.plan()).origin.expect("an origin")).expect("JSON")
    }
}

fn clone_of_former(case: &Case) -> Value {
    json!({"kind": "Base", "workspaceUID": case.former["metadata"]["uid"], "revision": OLD})
}

#[test]
fn the_next_base_begins_as_a_clone_of_the_former_one_on_its_node() {
    for provider in ["Btrfs", "Zfs"] {
        let mut case = Case::btrfs();
        case.former["spec"]["provider"] = json!(provider);
        case.next["spec"]["provider"] = json!(provider);
        case.former["status"]["provider"]["selected"] = json!(provider);
        assert_eq!(case.origin(), clone_of_former(&case), "{provider}");
    }
    assert_eq!(Case::btrfs().origin(), clone_of_former(&Case::btrfs()));
}

#[test]
fn a_base_begins_empty_where_the_former_one_is_not_fit_to_be_cloned() {
    let git = json!({"url": "https://git.example/a", "refresh": "10m"});
    let changed = |change: fn(&mut Case)| {
        let mut case = Case::btrfs();
        change(&mut case);
        case
    };
    let shallow = json!({"url": "https://git.example/a", "refresh": "10m", "depth": 1});
    let prepare = json!({"image": "i", "command": ["make"]});
    let cases = [
        ("prepared", Case::new(git.clone(), Some(prepare))),
        ("shallow", Case::new(shallow, None)),
        ("overlay", {
            changed(|case| {
                for base in [&mut case.former, &mut case.next] {
                    base["spec"]["provider"] = json!("Overlay");
                }
                case.former["status"]["provider"]["selected"] = json!("Overlay");
            })
        }),
        ("copied file by file", {
            changed(|case| {
                for base in [&mut case.former, &mut case.next] {
                    base["spec"]["provider"] = json!("Copy");
                }
                case.former["status"]["provider"]["selected"] = json!("Copy");
            })
        }),
        ("a better provider by now", changed(|case| case.former["status"]["provider"]["selected"] = json!("Overlay"))),
        ("provider unknown", changed(|case| case.former["status"]["provider"] = Value::Null)),
        ("not sealed", changed(|case| case.former["status"]["conditions"] = json!([is_true("Provisioned")]))),
        ("deleted", changed(|case| case.former["metadata"]["deletionTimestamp"] = json!(ago(1)))),
        ("other node", changed(|case| case.former["spec"]["base"]["node"] = json!("b"))),
        ("other source", changed(|case| case.former["spec"]["source"]["git"]["url"] = json!("https://git.example/b"))),
        ("other ref", changed(|case| case.former["spec"]["source"]["git"]["ref"] = json!("other"))),
        ("other owner", changed(|case| case.former["spec"]["owner"] = json!({"uid": 7, "gid": 7}))),
        ("other parent", changed(|case| case.former["metadata"]["ownerReferences"][0]["uid"] = json!("other"))),
        ("no commit", changed(|case| case.former["status"]["volume"] = Value::Null)),
        ("the commit that the ref is at", changed(|case| case.next["spec"]["base"]["revision"] = Value::Null)),
    ];
    for (what, case) in cases {
        assert_eq!(case.origin(), json!({"kind": "Empty"}), "{what}");
    }
}

#[test]
fn a_node_that_cannot_clone_the_former_base_makes_an_empty_tree_and_one_that_still_tries_does_not() {
    let mut case = Case::btrfs();
    let clone = clone_of_former(&case);
    for (reason, expected) in
        [("Creating", clone.clone()), ("BackendError", json!({"kind": "Empty"})), ("SourceNotSealed", json!({"kind": "Empty"}))]
    {
        case.next["status"] = json!({"nodeName": "a", "origin": clone, "conditions": [is("Provisioned", "False", reason, "so it is")]});
        assert_eq!(case.origin(), expected, "{reason}");
    }
    case.next["status"] = json!({"nodeName": "a", "origin": clone});
    case.former["metadata"]["uid"] = json!("another");
    assert_eq!(case.origin(), json!({"kind": "Empty"}), "the former base is gone");
    case.next["status"]["conditions"] = json!([is_true("Provisioned")]);
    assert_eq!(case.origin(), clone, "it is made, and does without the former base");
}

#[test]
fn only_the_first_attempt_in_a_clone_goes_on_from_the_former_commit() {
    let mut case = Case::btrfs();
    let told = |case: &Case, failed: Option<&Value>| {
        let pod = case.plan_with(failed).steps.into_iter().find_map(|step| if let Step::EnsurePod(pod) = step { Some(*pod) } else { None });
        let env = pod.expect("a populator").spec.expect("a spec").containers.remove(0).env.expect("variables");
        let value = |name: &str| env.iter().find(|variable| variable.name == name).and_then(|variable| variable.value.clone());
        (value("FORMER"), value("REVISION"))
    };
    let some = |text: &str| Some(text.to_owned());
    case.next["status"] = json!({"nodeName": "a", "origin": clone_of_former(&case), "conditions": [is_true("Provisioned")]});
    assert_eq!(told(&case, None), (some(OLD), some(NEW)));
    let failed = json!({"metadata": {"name": "next-fill", "namespace": "ns", "uid": "fill", "resourceVersion": "1", "creationTimestamp": ago(900),
        "annotations": {"yoi.dev/attempt": "1"}}, "status": {"phase": "Failed"}});
    assert_eq!(told(&case, Some(&failed)), (some(""), some(NEW)), "nobody knows what the first has left");
    case.next["status"]["origin"] = json!({"kind": "Empty"});
    assert_eq!(told(&case, None), (some(""), some(NEW)));
}

#[test]
fn a_base_that_began_as_a_clone_and_was_fetched_anew_says_why_after_its_pod_is_gone() {
    let mut case = Case::btrfs();
    let clone = clone_of_former(&case);
    case.next["status"] = json!({"nodeName": "a", "origin": clone, "conditions": [is_true("Provisioned")]});
    let filled = |attempt: &str, answer: &str| {
        let ended = json!({"terminated": {"exitCode": 0, "message": answer, "finishedAt": ago(1)}});
        json!({"metadata": {"name": "next-fill", "namespace": "ns", "uid": "fill", "resourceVersion": "1", "creationTimestamp": ago(9),
            "annotations": {"yoi.dev/attempt": attempt}}, "status": {"phase": "Succeeded", "containerStatuses":
            [{"name": "populate", "image": "i", "imageID": "i", "ready": false, "restartCount": 0, "state": ended}]}})
    };
    let message = |case: &Case, pod: Option<&Value>| condition(&status(case.plan_with(pod)).conditions, "Populated").message.clone();
    let plain = "the source's content is in the base";
    assert_eq!(message(&case, Some(&filled("1", &format!("{NEW} refs/heads/main\n")))), plain);
    let anew = message(&case, Some(&filled("1", &format!("{NEW} refs/heads/main\nthe former base has 20 packs\n"))));
    assert_eq!(anew, format!("{plain}; it was fetched anew: the former base has 20 packs"));
    let again = message(&case, Some(&filled("2", &format!("{NEW} refs/heads/main\n"))));
    assert_eq!(again, format!("{plain}; it was fetched anew: an attempt to go on from the former base failed"));
    let mut populated = is_true("Populated");
    populated["message"] = json!(anew);
    case.next["status"]["conditions"] = json!([is_true("Provisioned"), populated, is_true("Sealed")]);
    assert_eq!(message(&case, None), anew);
    case.next["status"] = json!({"nodeName": "a", "origin": {"kind": "Empty"}, "conditions": [is_true("Provisioned")]});
    assert_eq!(message(&case, Some(&filled("2", &format!("{NEW} refs/heads/main\n")))), plain, "it has begun with nothing");
}

#[test]
fn a_tree_that_is_made_stays_of_its_commit_when_the_branch_has_moved() {
    let project = every_ten_minutes();
    let mut moved = found(&project, NEW);
    moved.refresh.as_mut().expect("a refresh").in_use = Some(NEW.to_owned());
    let case = Case::btrfs();
    let mut next = case.next.clone();
    next["status"] = json!({"nodeName": "a", "origin": clone_of_former(&case), "volume": {"revision": NEW},
        "conditions": [is_true("Provisioned"), is_true("Populated"), is_true("Sealed")]});
    let bases: Vec<Arc<AgentWorkspace>> = vec![stored(case.former.clone()), stored(next)];
    let origin = clone_of_former(&case);
    let made_of = |status: Value| {
        let tree = json!({"metadata": meta("w"), "spec": {"source": {"project": {"name": "p"}}, "claim": true, "binding": "Immediate"}, "status": status});
        let seen = workspace_with(stored(tree), nodes(vec![("a", plain(1))]));
        let project = Some(Arc::new(with_status(&project, &moved)));
        let plan = yoi_plan::workspace::plan(&yoi_plan::workspace::Observed { project, bases: bases.clone(), ..seen }, &settings(), now());
        plan.status.expect("a status").origin.and_then(|origin| origin.revision)
    };
    let running = json!({"nodeName": "a", "origin": origin, "conditions": [is_true("Provisioned")]});
    assert_eq!(made_of(running).as_deref(), Some(OLD), "a refresh has changed what a tree is of");
    assert_eq!(made_of(json!({})).as_deref(), Some(NEW));
}
