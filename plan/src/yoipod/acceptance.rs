//! Whether the spec makes sense and what it names exists.

use yoi_crds::YoiProject;
use yoi_crds::condition::ConditionValue;
use yoi_crds::reason;
use yoi_wire::cover::Cover;
use yoi_wire::policy::ToolPolicy;

use super::manifest::{self, OfProject, Resolved};
use super::yoipod_input::{SessionClaim, YoiPodInput};
use super::{assets, create, loan_is_over, manifest_current, pod_settings, policy_valid, program};
use crate::settings::Settings;
use crate::stored::Stored;
use crate::{conditions, meta, scope, tree};

/// What an accepted YoiPod has, and its Pod is made from.
pub(super) struct Accepted<'a> {
    /// An agent that has its tree needs no project any more.
    pub project: Option<Stored<'a, YoiProject>>,
    pub resolved: Resolved,
    /// In force.
    pub policy: ToolPolicy,
    /// What the node lays over the tree.
    pub covers: Vec<Cover>,
    /// The project is not what the agent was last started with, and the agent waits for a change: its next manifest is of the project as it is.
    pub is_renewed: bool,
}

/// # Errors
/// The condition Accepted says why not.
pub(super) fn accept<'a>(input: &YoiPodInput<'a>, settings: &Settings) -> Result<Accepted<'a>, ConditionValue> {
    let yoipod = input.yoipod;
    if let Some(field) = yoipod.spec.unknown_field() {
        return Err(conditions::unknown_field(field));
    }
    let resolved = resolve(input)?;
    program::accept(&yoipod.spec.agent, &resolved, settings)?;
    let of_users = || resolved.pod.volumes.iter().map(|volume| volume.name.as_str());
    if let Some(name) = program::taken_volume_name(&yoipod.spec.agent, of_users()).or_else(|| assets::taken_volume_name(of_users())) {
        return Err(ConditionValue::no(reason::INVALID_SPEC, format!("volume {name} is one of the agent's own: take another name")));
    }
    accept_workspace(input)?;
    let covers = scope::covers(yoipod.get()).map_err(|why| ConditionValue::no(reason::INVALID_SPEC, why))?;
    let policy = policy_valid::in_force(input)?;
    let owner = create::tree_owner(input, input.project);
    let path = create::tree_path(input, input.project);
    let checked = pod_settings::check(&resolved.pod, path.as_deref(), owner, &input.session_claim_name);
    checked.map_err(|why| ConditionValue::no(reason::INVALID_SPEC, why))?;
    match input.session_claim {
        SessionClaim::Named(None) => Err(missing(input, "PersistentVolumeClaim", &input.session_claim_name)),
        SessionClaim::Former(claim) if let Some(owner) = meta::controller(claim.meta()).filter(|owner| owner.kind != "YoiPod") => {
            let message = format!(
                "claim {} would hold the session of this agent, and belongs to {} {}: name the agent otherwise, or name another claim in \
                 spec.session.claimName",
                claim.name(),
                owner.kind,
                owner.name
            );
            Err(ConditionValue::no(reason::INVALID_SPEC, message))
        }
        SessionClaim::Former(claim) => {
            let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
            let message = former_session(yoipod.name(), yoipod.namespace(), claim.name(), volume);
            Err(ConditionValue::no(reason::INVALID_SPEC, message))
        }
        SessionClaim::Named(Some(_)) | SessionClaim::Own(_) | SessionClaim::Undecided | SessionClaim::Chosen(_) => {
            let is_renewed = input.project.is_some() && manifest_current::waits_for_a_change(input);
            Ok(Accepted { project: input.project, resolved, policy, covers, is_renewed })
        }
    }
}

/// The manifest of the last run holds while the agent's own spec is unchanged. An agent that has its tree starts without its project: with the project's
/// defaults as they were at its last start.
pub(super) fn resolve(input: &YoiPodInput<'_>) -> Result<Resolved, ConditionValue> {
    let yoipod = input.yoipod;
    let title = &yoipod.spec.project_ref.name;
    let no_model = || {
        let message = format!("no model: set spec.model here or spec.defaults.model of YoiProject {title}");
        ConditionValue::no(reason::INVALID_SPEC, message)
    };
    match input.project {
        Some(project) if project.is_deleting() && !input.has_tree() => {
            let message = format!(
                "YoiProject {title} is being deleted, and nothing new begins from it; it goes once nothing names it, so delete this agent, or wait with \
                 making it until there is another project of this name"
            );
            Err(ConditionValue::no(reason::PROJECT_DELETING, message))
        }
        Some(_) | None if let Some(held) = manifest_current::held(input)?.filter(|_| input.has_tree()) => Ok(held),
        Some(project) => manifest::resolve(yoipod.get(), OfProject::new(project.get())).ok_or_else(no_model),
        None => {
            let missing = || missing(input, "YoiProject", title);
            let last = input.before.manifest.as_ref().filter(|_| input.has_tree()).ok_or_else(missing)?;
            let map = input.manifests.iter().find(|map| map.name() == last.name && map.is_controlled_by(yoipod.uid()));
            let defaults = map.and_then(|map| manifest::resolved_before(map.get())).ok_or_else(missing)?;
            manifest::resolve(yoipod.get(), defaults).ok_or_else(missing)
        }
    }
}

fn missing(input: &YoiPodInput<'_>, kind: &str, title: &str) -> ConditionValue {
    ConditionValue::no(reason::SOURCE_NOT_FOUND, format!("{kind} {title} does not exist in namespace {}", input.yoipod.namespace()))
}

/// `spec.session` is immutable, so going on with that session takes a new object. Without its claim a volume stays, and the data on it, unless its
/// reclaim policy is set to Delete before.
fn former_session(yoipod: &str, namespace: &str, claim: &str, volume: Option<&str>) -> String {
    let policy = r#"{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}"#;
    let release = volume.filter(|volume| !volume.is_empty()).map(|volume| format!("kubectl patch pv {volume} -p '{policy}' && "));
    format!(
        "claim {claim} holds the session of a former agent of this name. To go on with it: `kubectl delete yoipod {yoipod} -n {namespace}`, then make it \
         again with `spec.session.claimName: {claim}`. To begin anew, and lose that session with its data: `{}kubectl delete pvc {claim} -n {namespace}`",
        release.unwrap_or_default()
    )
}

fn accept_workspace(input: &YoiPodInput<'_>) -> Result<(), ConditionValue> {
    let yoipod = input.yoipod;
    let title = input.workspace_name;
    let invalid = |message: String| Err(ConditionValue::no(reason::INVALID_SPEC, message));
    let spec = yoipod.get().spec.workspace.as_ref();
    let by_ref = spec.is_some_and(|w| w.ref_.is_some());
    // Whether it may work in another one's tree, the claims on that say; and a tree whose loan is over is not needed any more.
    if tree::loan(yoipod.get()).is_some() && (input.workspace.is_some() || loan_is_over(yoipod.get())) {
        return Ok(());
    }
    let Some(workspace) = input.workspace else {
        let fork_source = spec.and_then(|w| w.template.as_ref()?.source.as_ref()?.workspace.as_ref());
        return match fork_source {
            _ if by_ref => Err(missing(input, "AgentWorkspace", title)),
            Some(parent) if input.parent.is_none_or(|p| p.is_deleting()) => Err(missing(input, "AgentWorkspace", &parent.name)),
            _ => Ok(()),
        };
    };
    if workspace.spec.base.is_some() {
        return invalid(format!("AgentWorkspace {title} is a base, and a base is never written again"));
    }
    if workspace.spec.claim {
        return invalid(format!("AgentWorkspace {title} has a claim for other Pods; a YoiPod needs one with claim: false"));
    }
    match meta::controller(workspace.meta()) {
        Some(owner) if owner.uid == yoipod.uid().as_str() => {}
        // The garbage collector follows its YoiPod's deletion a little later, and another tree is made then.
        Some(owner) if owner.kind == "YoiPod" && owner.name == yoipod.name() => {
            let message = format!(
                "AgentWorkspace {title} of a former YoiPod of this name is still there; it is deleted with its tree, and waited for"
            );
            return Err(ConditionValue::no(reason::CREATING, message));
        }
        Some(owner) if !by_ref || owner.kind == "YoiPod" => {
            return invalid(format!("AgentWorkspace {title} exists and belongs to {} {}", owner.kind, owner.name));
        }
        None if !by_ref => {
            let message =
                format!("AgentWorkspace {title} exists and was not made for this YoiPod; name it by spec.workspace.ref to use it");
            return invalid(message);
        }
        Some(_) | None => {}
    }
    match tree::holder(workspace, &input.users) {
        Some(holder) if holder.uid() != yoipod.uid() => {
            invalid(format!("AgentWorkspace {title} is used by YoiPod {}; two agents cannot share a tree", holder.name()))
        }
        Some(_) | None => Ok(()),
    }
}
