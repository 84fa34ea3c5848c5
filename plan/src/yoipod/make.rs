//! What a YoiPod needs and has not: its Pod with the manifest, its workspace.

use yoi_crds::name::{finalizer, label};
use yoi_crds::source::WorkspaceSource;
use yoi_crds::workspace::Binding;
use yoi_crds::{AgentWorkspace, AgentWorkspaceSpec};

use super::{Round, manifest, manifest_ref, pod_spec, session_claim_name};
use crate::meta::{controlled_by, name, owner_reference, uid};
use crate::step::Step;

impl Round<'_> {
    pub(super) fn make_pod(&mut self, workspace: &AgentWorkspace, run_generation: i64, runtime_digest: &str, hostnames: Vec<String>) {
        let yoipod = &self.seen.yoipod;
        let Some(resolved) = manifest::resolve(yoipod, self.seen.project.as_deref()) else { return };
        let words = manifest::manifest(yoipod, &workspace.spec.path, &resolved, self.settings);
        let (map, _) = manifest::config_map(yoipod, &words);
        let map_name = name(&map.metadata).to_owned();
        self.status.manifest = manifest_ref(&map);
        if !self.seen.manifests.iter().any(|m| name(&m.metadata) == map_name && controlled_by(&m.metadata, uid(self.meta()))) {
            self.steps.push(Step::EnsureConfigMap(Box::new(map)));
        }
        let parents = self.seen.parent.as_ref().and_then(|p| p.status.as_ref()?.owner);
        let owner = workspace.status.as_ref().and_then(|s| s.owner).or(parents).or(workspace.spec.owner);
        let pod = pod_spec::pod(pod_spec::Run {
            yoipod,
            workspace,
            owner: owner.or(self.seen.project.as_ref().map(|p| p.spec.owner)).unwrap_or_default(),
            resolved: &resolved,
            manifest: &map_name,
            session_claim: &session_claim_name(yoipod),
            run_generation,
            runtime_digest,
            hostnames,
            settings: self.settings,
        });
        self.steps.push(Step::EnsurePod(Box::new(pod)));
    }

    pub(super) fn make_workspace(&self) -> Step {
        let yoipod = &self.seen.yoipod;
        let project = self.seen.project.as_deref();
        let template = yoipod.spec.workspace.as_ref().and_then(|w| w.template.clone()).unwrap_or_default();
        let of_project = WorkspaceSource { project: Some(yoipod.spec.project_ref.clone()), ..WorkspaceSource::default() };
        let source = template.source.unwrap_or(of_project);
        let clone = source.project.is_some() || source.workspace.is_some();
        let spec = AgentWorkspaceSpec {
            source,
            provider: template.provider.or(project.map(|p| p.spec.provider)).unwrap_or_default(),
            path: project.map(|p| p.spec.path.clone()).unwrap_or_default(),
            // A clone has the owner of what it is made from.
            owner: project.filter(|_| !clone).map(|p| p.spec.owner),
            claim: false,
            binding: Binding::default(),
            read_only: false,
            ttl_after_release: None,
            base: None,
        };
        let mut workspace = AgentWorkspace::new(name(&yoipod.metadata), spec);
        workspace.metadata.namespace = yoipod.metadata.namespace.clone();
        workspace.metadata.labels = Some(
            [(label::YOIPOD, name(&yoipod.metadata)), (label::PROJECT, yoipod.spec.project_ref.name.as_str())]
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .into(),
        );
        workspace.metadata.owner_references = Some(vec![owner_reference("YoiPod", &yoipod.metadata)]);
        workspace.metadata.finalizers = Some(vec![finalizer::OPERATOR.to_owned(), finalizer::NODE_DATA.to_owned()]);
        Step::EnsureWorkspace(Box::new(workspace))
    }
}
