//! The tree that the session is about. When somebody deletes its workspace, the agent does not begin in another tree by itself: what its session says of
//! files would be about a tree that is gone. A person allows it by an annotation with the UID of the workspace that is gone.

use yoi_crds::condition::ConditionValue;
use yoi_crds::name::annotation;
use yoi_crds::reason::{self, condition};

use super::yoipod_input::YoiPodInput;
use crate::{meta, tree};

/// UID of the workspace whose tree the session is about, as an earlier plan wrote it.
fn recorded<'a>(input: &'a YoiPodInput<'_>) -> Option<&'a str> {
    input.before.workspace.as_ref()?.uid.as_deref()
}

/// What to write down as [`recorded`] after this plan. A tree counts from its agent's first Pod on: the status names both in one write, and the gateway
/// takes no report of a Pod that the status does not name. An agent of an older operator may have no Pod now.
pub(super) fn record(input: &YoiPodInput<'_>, is_accepted: bool) -> Option<String> {
    if why(input).is_some() {
        return recorded(input).map(str::to_owned);
    }
    let workspace = input.workspace?;
    let uid = workspace.uid().as_str();
    let has_pod = input.own_pods.iter().any(|pod| pod.tree() == Some(workspace.uid()));
    let has_run = is_accepted && input.before.run_generation.is_some() && workspace.is_true(condition::PROVISIONED);
    (has_pod || has_run || recorded(input) == Some(uid)).then(|| uid.to_owned())
}

/// Why the agent cannot have its tree any more; `None` while it has it, before it had one, and when a person allows another one.
pub(super) fn why(input: &YoiPodInput<'_>) -> Option<ConditionValue> {
    // What became of a tree that it was lent paths of, its loan says.
    let former = recorded(input).filter(|_| tree::loan(input.yoipod.get()).is_none())?;
    let is_there = input.workspace.is_some_and(|workspace| workspace.uid().as_str() == former);
    let yoipod = input.yoipod;
    if is_there || meta::annotation(yoipod.meta(), annotation::NEW_TREE) == Some(former) {
        return None;
    }
    let (title, name, namespace) = (input.workspace_name, yoipod.name(), yoipod.namespace());
    let then = if input.workspace.is_some() { "; the one of this name is another" } else { "" };
    let message = format!(
        "AgentWorkspace {title} was deleted, and with it the tree that the session is about{then}. To go on with the session in a new tree: \
         `kubectl annotate yoipod {name} -n {namespace} --overwrite {}={former}`. To begin anew: `kubectl yoi rm {name} --purge --force -n {namespace}`, \
         and make the agent again",
        annotation::NEW_TREE
    );
    Some(ConditionValue::no(reason::TREE_DELETED, message))
}
