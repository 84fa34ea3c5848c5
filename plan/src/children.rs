//! Children: YoiPods that an agent starts, each in a fork of its tree, or in paths of the tree itself that are lent to it. A pure function of the parent's object;
//! the gateway acts by it.
//!
//! | | |
//! |---|---|
//! | who may | an agent whose `spec.delegation` is there; a child never has one |
//! | how many | `spec.limits.children` that are not deleted, stopped ones among them |
//! | what it is | its parent's project, agent, model, Pod settings, Secrets, policy, limits and rest; a session of its own, and with a fork its parent's scope |
//! | narrower | by a template of its parent's sub-agents: [`template`] |
//! | where paths are lent | its scope is what was lent, and its tree its parent's: see [`crate::reservation`] |
//! | whose it is | nobody's: it outlives its parent, and `spec.spawnedBy` names that one for good |

mod template;

use yoi_crds::pod::{Completion, DesiredState, PodWorkspace, SessionSettings, SpawnedBy, WorkspaceTemplate};
use yoi_crds::source::{NamedRef, WorkspaceSource};
use yoi_crds::workspace::Claim;
use yoi_crds::{YoiPod, YoiPodSpec};
use yoi_wire::children::{MAX_TASK_TEXT, SpawnRequest};
use yoi_wire::entry::AgentRef;
use yoi_wire::hub::{Refusal, RefusalReason};

use crate::meta::{deleting, name, namespace, uid};
use crate::scope::{self, Entry, EntryKind, TreePath};
use crate::visibility::check_name;

/// The longest id of a request.
const MAX_ID: usize = 128;

/// Refuses what no agent could ask for, before anything is looked up.
///
/// # Errors
/// `Invalid`.
pub fn check_request(parent: &AgentRef, request: &SpawnRequest) -> Result<(), Refusal> {
    let SpawnRequest { name, task, request_id, share: _, cwd, template: _ } = request;
    let invalid = |message: String| Err(invalid(message));
    check_name(parent, name)?;
    if task.trim().is_empty() {
        return invalid("the task is empty; say what the agent is to do".to_owned());
    }
    if task.len() > MAX_TASK_TEXT {
        return invalid(format!(
            "the task has {} bytes, and {MAX_TASK_TEXT} are allowed; put it into a file of the tree and name the file in the task",
            task.len()
        ));
    }
    if let Some(why) = cwd.as_ref().and_then(|cwd| TreePath::parse(cwd.as_bytes()).err()) {
        return invalid(format!("cwd: {why}; name a folder of the tree, relative to it"));
    }
    if request_id.is_empty() || request_id.len() > MAX_ID || !request_id.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-') {
        return invalid(format!("requestId must be 1 to {MAX_ID} letters, digits and dashes; use a UUID"));
    }
    Ok(())
}

fn invalid(message: String) -> Refusal {
    Refusal { reason: RefusalReason::Invalid, message }
}

/// The one answer to an agent without a delegation.
pub(crate) fn no_delegation(name: &str) -> Refusal {
    let message =
        format!("{name} has no delegation: only with spec.delegation in its YoiPod, which a person sets, does an agent start others");
    Refusal { reason: RefusalReason::NoDelegation, message }
}

/// The child that works in its parent's tree by a claim on it.
///
/// # Errors
/// As [`child_of`].
pub fn child_by_claim(parent: &YoiPod, request: &SpawnRequest, tree: &str, claim: &Claim) -> Result<YoiPod, Refusal> {
    let mut child = child_of(parent, request)?;
    let spec = &mut child.spec;
    spec.workspace = Some(PodWorkspace { ref_: Some(NamedRef { name: tree.to_owned() }), template: None });
    spec.scope = Some(Box::new(claim.rules.clone()));
    if let Some(by) = &mut spec.spawned_by {
        by.loan = Some(claim.loan.clone());
        by.rules = Some(Box::new(claim.rules.clone()));
    }
    check_cwd(&child)?;
    Ok(child)
}

/// Refuses a folder that the child cannot read. The parent has looked whether the folder is there.
fn check_cwd(child: &YoiPod) -> Result<(), Refusal> {
    let Some(cwd) = child.spec.working_dir.as_deref() else { return Ok(()) };
    if child.spec.agent.builtin.is_none() {
        let why = "cwd is of built-in agents, and this one is a program: leave cwd out, and name the folder in the task";
        return Err(invalid(why.to_owned()));
    }
    let path = TreePath::parse(cwd.as_bytes()).map_err(|why| invalid(format!("cwd: {why}")))?;
    // A scope that cannot be read keeps the child from starting, and says so.
    let Some(Ok(rules)) = child.spec.scope.as_deref().map(scope::rules) else { return Ok(()) };
    // What no rule is about can be read.
    if rules.hides(&Entry { path, kind: EntryKind::Folder }) {
        let why = format!("the child could not read cwd {cwd}: its scope hides that; name a folder that it may read, or leave cwd out");
        return Err(invalid(why));
    }
    Ok(())
}

/// The child that the request asks for, in a fork.
///
/// # Errors
/// `NoDelegation`, or `NotMade`: the parent is being deleted, or has no tree.
pub fn child_of(parent: &YoiPod, request: &SpawnRequest) -> Result<YoiPod, Refusal> {
    let meta = &parent.metadata;
    let refused = |reason, message: String| Err(Refusal { reason, message });
    let YoiPodSpec {
        project_ref,
        // A fork of the parent's tree is the child's.
        workspace: _,
        agent,
        // The child has its own, and stays up after it.
        task: _,
        completion: _,
        push: _,
        model,
        pod,
        desired_state: _,
        rest,
        // What a child has done is the parent's to look at, however long that takes.
        ttl_after_finished: _,
        session,
        limits,
        compaction,
        policy,
        // What is closed to the parent is in the fork, too.
        scope,
        delegation,
        working_dir,
        spawned_by: _,
    } = &parent.spec;
    if delegation.is_none() {
        return Err(no_delegation(name(meta)));
    }
    if deleting(meta) {
        return refused(RefusalReason::NotMade, format!("{} is being deleted", name(meta)));
    }
    let Some(tree) = parent.status.as_ref().and_then(|status| status.workspace.as_ref()) else {
        return refused(RefusalReason::NotMade, format!("{} has no tree yet that could be forked", name(meta)));
    };
    let source = WorkspaceSource { workspace: Some(NamedRef { name: tree.name.clone() }), ..WorkspaceSource::default() };
    let mut child = YoiPod::new(
        &request.name,
        YoiPodSpec {
            project_ref: project_ref.clone(),
            workspace: Some(PodWorkspace {
                ref_: None,
                template: Some(Box::new(WorkspaceTemplate { source: Some(source), provider: None })),
            }),
            agent: agent.clone(),
            task: Some(request.task.clone()),
            completion: Completion::Keep,
            push: None,
            model: model.clone(),
            pod: pod.clone(),
            desired_state: DesiredState::Running,
            rest: rest.clone(),
            ttl_after_finished: None,
            // A claim that the parent names is the parent's.
            session: SessionSettings { claim_name: None, ..session.clone() },
            limits: yoi_crds::pod::Limits { children: None, ..limits.clone() },
            compaction: *compaction,
            policy: policy.clone(),
            scope: scope.clone(),
            delegation: None,
            working_dir: request.cwd.clone().or_else(|| working_dir.clone()),
            spawned_by: Some(Box::new(SpawnedBy {
                name: name(meta).to_owned(),
                uid: uid(meta).to_owned(),
                request_id: request.request_id.clone(),
                loan: None,
                rules: None,
            })),
        },
    );
    child.metadata.namespace = Some(namespace(meta).to_owned());
    if let Some(template) = &request.template {
        template::narrow(&mut child.spec, template)?;
    }
    check_cwd(&child)?;
    Ok(child)
}

/// Refuses one child more than the limit.
///
/// # Errors
/// `Limit`.
pub fn check_limit(parent: &YoiPod, children: usize) -> Result<(), Refusal> {
    let most = parent.spec.limits.most_children();
    if children < most {
        return Ok(());
    }
    let message = format!(
        "{} has started {children} agents that are not deleted, and limits.children is {most}; a stopped one counts, too: give work to one that is idle, or \
         ask a person to delete some",
        name(&parent.metadata)
    );
    Err(Refusal { reason: RefusalReason::Limit, message })
}

/// Whether this object is what the request made: a repetition is answered by it.
///
/// # Errors
/// `NameTaken`.
pub fn is_made_by(existing: &YoiPod, parent: &AgentRef, request: &SpawnRequest) -> Result<(), Refusal> {
    let by = existing.spec.spawned_by.as_deref().filter(|by| by.uid == parent.uid);
    if by.is_some_and(|by| by.request_id == request.request_id) {
        return Ok(());
    }
    let message = match by {
        Some(_) => {
            format!("you have started an agent named {} before, and it is there; choose another name, or give it more work", request.name)
        }
        None => format!("the name {} is taken in this namespace; choose another one", request.name),
    };
    Err(Refusal { reason: RefusalReason::NameTaken, message })
}

/// The one answer about every name that the caller has not started.
#[must_use]
pub fn not_a_child(name: &str) -> Refusal {
    Refusal { reason: RefusalReason::NotAChild, message: format!("you have started no agent named {name:?}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parent(spec: serde_json::Value) -> YoiPod {
        let mut full = json!({ "projectRef": { "name": "p" }, "agent": { "builtin": { "instruction": "Be brief." } } });
        full.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        serde_json::from_value(json!({
            "metadata": { "namespace": "ns", "name": "lead", "uid": "u-lead" },
            "spec": full,
            "status": { "workspace": { "name": "tree" } },
        }))
        .unwrap()
    }

    fn request(name: &str, task: &str) -> SpawnRequest {
        SpawnRequest { name: name.to_owned(), task: task.to_owned(), request_id: "r-1".to_owned(), share: None, cwd: None, template: None }
    }

    fn lead() -> AgentRef {
        AgentRef { namespace: "ns".to_owned(), name: "lead".to_owned(), uid: "u-lead".to_owned() }
    }

    #[test]
    fn c1_a_name_or_task_that_cannot_be_is_refused_before_anything_is_looked_up() {
        let reason = |request| check_request(&lead(), &request).err().map(|refusal| refusal.reason);
        assert_eq!(reason(request("child", "do it")), None);
        let long = "x".repeat(MAX_TASK_TEXT + 1);
        for refused in [request("lead", "t"), request("x/y", "t"), request("", "t"), request("child", " "), request("child", &long)] {
            assert_eq!(reason(refused.clone()), Some(RefusalReason::Invalid), "{}", refused.name);
        }
        assert_eq!(reason(SpawnRequest { request_id: "a b".to_owned(), ..request("child", "t") }), Some(RefusalReason::Invalid));
    }

    #[test]
    fn c2_c12_without_delegation_nothing_is_started_and_the_refusal_names_it() {
        let refusal = child_of(&parent(json!({})), &request("child", "t")).unwrap_err();
        assert_eq!(refusal.reason, RefusalReason::NoDelegation);
        assert!(refusal.message.contains("delegation"), "{}", refusal.message);
        let mut deleted = parent(json!({ "delegation": {} }));
        deleted.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        assert_eq!(child_of(&deleted, &request("child", "t")).unwrap_err().reason, RefusalReason::NotMade);
    }

    #[test]
    fn c10_a_child_runs_as_its_parent_in_a_fork_and_has_no_delegation() {
        let spec = json!({
            "delegation": {}, "task": "lead them", "completion": "Stop", "desiredState": "Suspended", "limits": { "tokens": 7, "children": 3 },
            "model": { "provider": "OpenAI", "name": "m", "authSecretRef": { "name": "key" } },
            "pod": { "image": "own", "env": [{ "name": "A", "value": "b" }] },
            "session": { "claimName": "mine" }, "policy": { "deny": ["Shell"] },
            "scope": { "allow": [{ "path": "src", "access": "Write" }] },
        });
        let parent = parent(spec);
        let child = child_of(&parent, &request("child", "do it")).unwrap();
        let spec = &child.spec;
        assert_eq!(spec.delegation, None);
        assert_eq!(
            (&spec.agent, &spec.model, &spec.pod, &spec.policy),
            (&parent.spec.agent, &parent.spec.model, &parent.spec.pod, &parent.spec.policy)
        );
        assert!(spec.scope.is_some() && spec.scope == parent.spec.scope, "what is closed to the parent is closed to the child");
        assert_eq!((spec.task.as_deref(), spec.completion, spec.desired_state), (Some("do it"), Completion::Keep, DesiredState::Running));
        assert_eq!((spec.limits.tokens, spec.limits.children, spec.session.claim_name.as_deref()), (Some(7), None, None));
        let template = spec.workspace.as_ref().and_then(|workspace| workspace.template.as_deref()).unwrap();
        assert_eq!(template.source.as_ref().and_then(|source| source.workspace.as_ref()).map(|tree| tree.name.as_str()), Some("tree"));
        let by = spec.spawned_by.as_deref().unwrap();
        assert_eq!((by.name.as_str(), by.uid.as_str(), by.request_id.as_str()), ("lead", "u-lead", "r-1"));
        assert_eq!((child.metadata.namespace.as_deref(), child.metadata.owner_references.as_ref()), (Some("ns"), None));
        assert_eq!(child_of(&child, &request("grandchild", "t")).unwrap_err().reason, RefusalReason::NoDelegation);
    }

    #[test]
    fn c10_a_child_in_lent_paths_has_the_lent_scope_alone_and_its_parents_tree() {
        let parent = parent(json!({ "delegation": { "allow": [{ "path": ".", "access": "Write" }] } }));
        let claim: Claim = serde_json::from_value(json!({
            "loan": "l-1", "lender": { "name": "lead", "uid": "u-lead" }, "holder": { "name": "child" }, "state": "Fenced",
            "rules": { "allow": [{ "path": "docs", "access": "Write", "recursive": true }] }, "reservedAt": "2026-01-01T00:00:00Z",
        }))
        .unwrap();
        let spec = child_by_claim(&parent, &request("child", "do it"), "tree", &claim).unwrap().spec;
        let workspace = spec.workspace.as_ref().unwrap();
        assert_eq!((workspace.ref_.as_ref().map(|tree| tree.name.as_str()), workspace.template.is_none()), (Some("tree"), true));
        assert_eq!((spec.scope.as_deref(), &spec.delegation), (Some(&claim.rules), &None));
        let by = spec.spawned_by.as_deref().unwrap();
        assert_eq!((by.loan.as_deref(), by.rules.as_deref(), by.request_id.as_str()), (Some("l-1"), Some(&claim.rules), "r-1"));
    }

    #[test]
    fn c11_a_working_directory_is_a_folder_of_the_tree_that_the_child_may_read_and_allows_nothing() {
        let hidden = json!({ "allow": [{ "path": "src", "access": "Write" }], "deny": [{ "path": "keys", "access": "Read" }] });
        let parent = parent(json!({ "delegation": {}, "scope": hidden }));
        let at = |cwd: &str| SpawnRequest { cwd: Some(cwd.to_owned()), ..request("child", "t") };
        for cwd in ["/docs", "docs/../keys", "", "docs/.git", "a//b"] {
            assert_eq!(check_request(&lead(), &at(cwd)).map_err(|refusal| refusal.reason), Err(RefusalReason::Invalid), "{cwd}");
        }
        let child = child_of(&parent, &at("docs")).unwrap();
        assert_eq!((child.spec.working_dir.as_deref(), &child.spec.scope), (Some("docs"), &parent.spec.scope), "it grants nothing");
        for cwd in ["keys", "keys/old"] {
            let refusal = child_of(&parent, &at(cwd)).unwrap_err();
            assert!(refusal.reason == RefusalReason::Invalid && refusal.message.contains("its scope hides that"), "{}", refusal.message);
        }
        let program = self::parent(json!({ "delegation": {}, "agent": { "command": ["true"] } }));
        assert!(child_of(&program, &at("docs")).unwrap_err().message.contains("leave cwd out"));
    }

    #[test]
    fn one_child_more_than_the_limit_is_refused() {
        let of = |spec, children| check_limit(&parent(spec), children).err().map(|refusal| refusal.reason);
        assert_eq!((of(json!({}), 7), of(json!({}), 8)), (None, Some(RefusalReason::Limit)));
        let none = json!({ "limits": { "children": 0 } });
        assert_eq!(of(none, 0), Some(RefusalReason::Limit));
    }

    #[test]
    fn a_repeated_request_is_answered_by_the_child_that_it_made_and_another_one_is_told_that_the_name_is_taken() {
        let request = request("child", "t");
        let made = child_of(&parent(json!({ "delegation": {} })), &request).unwrap();
        let reason = |existing: &YoiPod, parent: &AgentRef, request: &SpawnRequest| {
            is_made_by(existing, parent, request).err().map(|refusal| refusal.reason)
        };
        assert_eq!(reason(&made, &lead(), &request), None);
        let other = SpawnRequest { request_id: "r-2".to_owned(), ..request.clone() };
        assert_eq!(reason(&made, &lead(), &other), Some(RefusalReason::NameTaken));
        assert_eq!(reason(&made, &AgentRef { uid: "u-2".to_owned(), ..lead() }, &request), Some(RefusalReason::NameTaken));
        assert_eq!(reason(&parent(json!({})), &lead(), &request), Some(RefusalReason::NameTaken));
    }
}
