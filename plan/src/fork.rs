//! Another agent as one that is there, in a fork of its tree: what a person makes by hand, where [`crate::children`] is what an agent starts.

use yoi_crds::pod::{Completion, DesiredState, PodWorkspace, SessionSettings, WorkspaceTemplate};
use yoi_crds::source::{NamedRef, WorkspaceSource};
use yoi_crds::{YoiPod, YoiPodSpec};

use crate::meta::{deleting, name, namespace};

/// An agent named `new` as this one, in a fork of its tree, with a session of its own. It has all that the agent's spec says but its task, the end of it,
/// and whoever has started it: nobody is the parent of what a person makes.
///
/// # Errors
/// Why there is nothing to fork; a sentence without a subject.
pub fn fork_of(agent: &YoiPod, new: &str, task: Option<String>) -> Result<YoiPod, String> {
    if deleting(&agent.metadata) {
        return Err("it is being deleted".to_owned());
    }
    let Some(tree) = agent.status.as_ref().and_then(|status| status.workspace.as_ref()) else {
        return Err("it has no tree yet that could be forked".to_owned());
    };
    if new == name(&agent.metadata) {
        return Err("the new agent needs another name".to_owned());
    }
    let source = WorkspaceSource { workspace: Some(NamedRef { name: tree.name.clone() }), ..WorkspaceSource::default() };
    let template = WorkspaceTemplate { source: Some(source), provider: None };
    let mut fork = YoiPod::new(
        new,
        YoiPodSpec {
            workspace: Some(PodWorkspace { ref_: None, template: Some(Box::new(template)) }),
            task,
            completion: Completion::Keep,
            push: None,
            ttl_after_finished: None,
            desired_state: DesiredState::Running,
            // A claim that the agent names is the agent's.
            session: SessionSettings { claim_name: None, ..agent.spec.session.clone() },
            spawned_by: None,
            ..agent.spec.clone()
        },
    );
    fork.metadata.namespace = Some(namespace(&agent.metadata).to_owned());
    Ok(fork)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_fork_is_as_its_agent_in_a_fork_of_its_tree_and_nobodys_child() {
        let agent: YoiPod = serde_json::from_value(json!({
            "metadata": { "namespace": "ns", "name": "a", "uid": "u" },
            "spec": { "projectRef": { "name": "p" }, "agent": { "builtin": {} }, "task": "t", "completion": "Stop", "desiredState": "Stopped",
                "push": { "branch": "b" }, "ttlAfterFinished": "1h", "session": { "claimName": "c" }, "limits": { "tokens": 7 },
                "spawnedBy": { "name": "lead", "uid": "u-l", "requestId": "r" }, "scope": { "allow": [{ "path": "src", "access": "Write" }] } },
            "status": { "workspace": { "name": "tree" }, "conditions": [] },
        }))
        .unwrap();
        let fork = fork_of(&agent, "b", Some("other".to_owned())).unwrap();
        let spec = &fork.spec;
        assert_eq!((spec.task.as_deref(), spec.completion, spec.desired_state), (Some("other"), Completion::Keep, DesiredState::Running));
        assert!(spec.push.is_none() && spec.ttl_after_finished.is_none() && spec.spawned_by.is_none() && spec.session.claim_name.is_none());
        assert_eq!((&spec.scope, spec.limits.tokens, &spec.agent), (&agent.spec.scope, Some(7), &agent.spec.agent));
        let source = spec.workspace.as_ref().and_then(|workspace| workspace.template.as_ref()?.source.as_ref()?.workspace.as_ref());
        assert_eq!(source.map(|tree| tree.name.as_str()), Some("tree"));
        assert!(fork_of(&agent, "a", None).is_err());
        assert!(fork_of(&YoiPod { status: None, ..agent }, "b", None).is_err());
    }
}
