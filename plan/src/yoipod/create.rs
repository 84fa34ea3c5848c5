//! What a YoiPod needs and does not have yet: its workspace, and its Pod with the manifest.

use yoi_crds::name::{finalizer, label};
use yoi_crds::pod::ManifestRef;
use yoi_crds::source::{DEFAULT_PATH, ProjectRevision, TreeOwner, WorkspaceSource};
use yoi_crds::workspace::Binding;
use yoi_crds::{AgentWorkspace, AgentWorkspaceSpec, YoiPod, YoiProject};
use yoi_wire::policy::ToolPolicy;

use super::acceptance::Accepted;
use super::yoipod_input::YoiPodInput;
use super::{assets, manifest, pod_spec, policy_valid, rest};
use crate::node_affinity::NodeChoice;
use crate::settings::Settings;
use crate::step::Step;
use crate::stored::Stored;
use crate::tree::TreeSource;
use crate::tree::base_set::BaseSet;
use crate::{names, reservation, scope};

/// The steps that make a Pod, and the manifest that it mounts.
pub(super) struct CreatedPod {
    pub steps: Vec<Step>,
    pub manifest: ManifestRef,
}

/// Digest of the manifest and the Pod's settings as the spec, the project and the operator have them now.
pub(super) fn settings_digest(accepted: &Accepted<'_>, yoipod: Stored<'_, YoiPod>, path: &str, settings: &Settings) -> String {
    // Both reach the Pod that is there.
    let mut manifest = manifest::manifest(yoipod.get(), path, &accepted.resolved, &ToolPolicy::default(), settings);
    manifest.limits.tokens = None;
    let image = accepted.resolved.pod.image.as_ref().unwrap_or(&settings.agent_image);
    // Serializing these types does not fail; if it did, no Pod would be replaced for it.
    let mut text = serde_json::to_vec(&(manifest, &accepted.resolved.pod, image)).unwrap_or_default();
    if !accepted.covers.is_empty() {
        text.extend(serde_json::to_vec(&accepted.covers).unwrap_or_default());
    }
    text.extend(assets::fetch::digested(accepted.resolved.assets.as_deref(), settings));
    names::sha256(&text)
}

/// A tree whose path is known.
#[derive(Clone, Copy)]
pub(super) struct ShownTree<'a> {
    pub workspace: Stored<'a, AgentWorkspace>,
    /// Where its agent sees it.
    pub path: &'a str,
}

impl<'a> ShownTree<'a> {
    /// `None` until the operator has written the path.
    pub(super) fn new(workspace: Stored<'a, AgentWorkspace>) -> Option<Self> {
        Some(ShownTree { workspace, path: workspace.get().tree_path()? })
    }
}

pub(super) fn pod(
    input: &YoiPodInput<'_>,
    accepted: &Accepted<'_>,
    tree: ShownTree<'_>,
    settings: &Settings,
    run_generation: i64,
    runtime_digest: &str,
    nodes: NodeChoice,
) -> CreatedPod {
    let (yoipod, ShownTree { workspace, path }) = (input.yoipod, tree);
    let manifest = manifest::manifest(yoipod.get(), path, &accepted.resolved, &accepted.policy, settings);
    let (map, manifest) = manifest::config_map(yoipod, &manifest, &accepted.resolved);
    let exists = input.manifests.iter().any(|m| m.name() == manifest.name && m.is_controlled_by(yoipod.uid()));
    let pod = pod_spec::pod(pod_spec::PodContext {
        yoipod,
        workspace,
        path,
        owner: tree_owner(input, accepted.project),
        resolved: &accepted.resolved,
        manifest: &manifest.name,
        session_claim: &input.session_claim_name,
        run_generation,
        runtime_digest,
        nodes,
        settings_digest: settings_digest(accepted, yoipod, path, settings),
        covers: &accepted.covers,
        lends: reservation::lends(yoipod.get()).then(|| scope::scope_of(yoipod.get())),
        rest: rest::after(input).unwrap_or_default(),
        policy: policy_valid::text(&accepted.policy),
        settings,
    });
    let map = (!exists).then(|| Step::EnsureConfigMap(Box::new(map)));
    CreatedPod { steps: map.into_iter().chain([Step::EnsurePod(Box::new(pod))]).collect(), manifest }
}

/// The user that the agent runs as: the owner of its tree's files.
pub(super) fn tree_owner(input: &YoiPodInput<'_>, project: Option<Stored<'_, YoiProject>>) -> TreeOwner {
    let reported = |workspace: Stored<'_, AgentWorkspace>| workspace.get().status.as_ref().and_then(|status| status.owner);
    let of_tree = input.workspace.and_then(reported).or(input.parent.and_then(reported));
    let of_project = project.map(|project| project.get().spec.owner);
    of_tree.or(input.workspace.and_then(|workspace| workspace.get().spec.owner)).or(of_project).unwrap_or_default()
}

/// Where the agent sees its tree; `None` while that is not known. Of a workspace that is not made yet, where it will show.
pub(super) fn tree_path(input: &YoiPodInput<'_>, project: Option<Stored<'_, YoiProject>>) -> Option<String> {
    match input.workspace {
        Some(tree) => tree.get().tree_path().map(str::to_owned),
        None => workspace(input, project?).spec.path,
    }
}

/// Where a tree of this source shows, as far as it is known. What is known is written into the workspace, so that its Pod need not wait for a status.
fn path_of_source(input: &YoiPodInput<'_>, project: Stored<'_, YoiProject>, source: &WorkspaceSource) -> Option<String> {
    match TreeSource::new(source) {
        TreeSource::Project { name, .. } if name == project.name() => {
            BaseSet::of_project(project, &input.bases, input.nodes).tree_path().map(str::to_owned)
        }
        TreeSource::Fork(_) => input.parent.and_then(|parent| parent.get().tree_path().map(str::to_owned)),
        TreeSource::Git(_) | TreeSource::Empty => Some(DEFAULT_PATH.to_owned()),
        TreeSource::Project { .. } | TreeSource::Host(_) => None,
    }
}

/// The workspace of a YoiPod that names none.
pub(super) fn workspace(input: &YoiPodInput<'_>, project: Stored<'_, YoiProject>) -> AgentWorkspace {
    let yoipod = input.yoipod;
    let template = yoipod.spec.workspace.as_ref().and_then(|w| w.template.clone()).unwrap_or_default();
    let of_project = ProjectRevision { name: yoipod.spec.project_ref.name.clone(), revision: None };
    let of_project = WorkspaceSource { project: Some(Box::new(of_project)), ..WorkspaceSource::default() };
    let source = template.source.unwrap_or(of_project);
    let is_clone = source.project.is_some() || source.workspace.is_some();
    let path = project.spec.path.clone().or_else(|| path_of_source(input, project, &source));
    let spec = AgentWorkspaceSpec {
        source,
        provider: template.provider.unwrap_or(project.spec.provider),
        path,
        // A clone has the owner of what it is made from.
        owner: (!is_clone).then_some(project.spec.owner),
        claim: false,
        binding: Binding::default(),
        read_only: false,
        ttl_after_release: None,
        // That of the project's defaults, while they stand.
        quota: None,
        base: None,
    };
    let mut workspace = AgentWorkspace::new(yoipod.name(), spec);
    workspace.metadata.namespace = Some(yoipod.namespace().to_owned());
    workspace.metadata.labels = Some(
        [(label::YOIPOD, yoipod.name()), (label::PROJECT, yoipod.spec.project_ref.name.as_str())]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into(),
    );
    workspace.metadata.owner_references = Some(vec![yoipod.owner_reference()]);
    workspace.metadata.finalizers = Some(vec![finalizer::OPERATOR.to_owned(), finalizer::NODE_DATA.to_owned()]);
    workspace
}
