//! The Kubernetes Pod of one run of an agent. Passes Pod Security *restricted*, bears no API token, listens nowhere.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, Container, EnvVar, EnvVarSource, LocalObjectReference, ObjectFieldSelector, PersistentVolumeClaimVolumeSource,
    Pod, PodSpec, ProjectedVolumeSource, ResourceRequirements, SecretKeySelector, ServiceAccountTokenProjection, Volume, VolumeProjection,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use yoi_crds::name::{annotation, label};
use yoi_crds::pod::Resources;
use yoi_crds::source::TreeOwner;
use yoi_crds::{AgentWorkspace, YoiPod};
use yoi_wire::identity::{
    GATEWAY_AUDIENCE, MANIFEST_MOUNT, RUNTIME_BINARY, RUNTIME_MOUNT, SESSION_MOUNT, TOKEN_FILE, TOKEN_MOUNT, VOLUME_KIND, VOLUME_RUNTIME,
    VOLUME_RUNTIME_DIGEST, env,
};

use super::manifest::Resolved;
use crate::meta::{name, owner_reference, uid};
use crate::names;
use crate::restricted::{self, empty, inline, mount};
use crate::settings::Settings;

/// Name of the one container.
pub const CONTAINER: &str = "agent";
const HOME: &str = "/home/agent";
const TOKEN_SECONDS: i64 = 3600;

pub(crate) struct Run<'a> {
    pub yoipod: &'a YoiPod,
    pub workspace: &'a AgentWorkspace,
    pub owner: TreeOwner,
    pub resolved: &'a Resolved,
    pub manifest: &'a str,
    pub session_claim: &'a str,
    pub run_generation: i64,
    pub runtime_digest: &'a str,
    /// Values of the hostname label of the nodes that can hold the tree.
    pub hostnames: Vec<String>,
    pub settings: &'a Settings,
}

#[must_use]
pub(crate) fn pod(run: Run<'_>) -> Pod {
    let meta = &run.yoipod.metadata;
    let labels = BTreeMap::from([
        (label::ROLE.to_owned(), label::ROLE_AGENT.to_owned()),
        (label::YOIPOD.to_owned(), name(meta).to_owned()),
        (label::PROJECT.to_owned(), run.yoipod.spec.project_ref.name.clone()),
        (label::WORKSPACE.to_owned(), name(&run.workspace.metadata).to_owned()),
    ]);
    let settings = &run.resolved.pod;
    Pod {
        metadata: ObjectMeta {
            name: Some(names::pod(name(meta), run.run_generation)),
            namespace: meta.namespace.clone(),
            labels: Some(labels),
            annotations: Some(BTreeMap::from([(annotation::RUN_GENERATION.to_owned(), run.run_generation.to_string())])),
            owner_references: Some(vec![owner_reference("YoiPod", meta)]),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            affinity: Some(restricted::only_on(run.hostnames.clone())),
            automount_service_account_token: Some(false),
            containers: vec![container(&run)],
            enable_service_links: Some(false),
            image_pull_secrets: some(settings.image_pull_secrets.iter().map(|s| LocalObjectReference { name: s.name.clone() }).collect()),
            node_selector: (!settings.node_selector.is_empty()).then(|| settings.node_selector.clone()),
            restart_policy: Some("Always".to_owned()),
            runtime_class_name: settings.runtime_class_name.clone(),
            security_context: Some(restricted::pod_security(run.owner)),
            termination_grace_period_seconds: Some(30),
            volumes: Some(volumes(&run)),
            ..PodSpec::default()
        }),
        status: None,
    }
}

fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

fn container(run: &Run<'_>) -> Container {
    let settings = &run.resolved.pod;
    let path = run.workspace.spec.path.as_str();
    let own_image = settings.image.is_some();
    Container {
        name: CONTAINER.to_owned(),
        image: Some(settings.image.clone().unwrap_or_else(|| run.settings.agent_image.clone())),
        image_pull_policy: settings
            .image_pull_policy
            .or(if own_image { None } else { run.settings.image_pull_policy })
            .map(restricted::pull_policy),
        command: Some(vec![format!("{RUNTIME_MOUNT}/{RUNTIME_BINARY}"), "agent".to_owned()]),
        env: Some(environment(run)),
        resources: resources(&settings.resources),
        security_context: Some(restricted::container_security()),
        volume_mounts: Some(vec![
            mount("runtime", RUNTIME_MOUNT, true),
            mount("tree", path, run.workspace.spec.read_only),
            mount("session", SESSION_MOUNT, false),
            mount("manifest", MANIFEST_MOUNT, true),
            mount("token", TOKEN_MOUNT, true),
            mount("tmp", "/tmp", false),
            mount("home", HOME, false),
        ]),
        working_dir: Some(path.to_owned()),
        ..Container::default()
    }
}

/// The user's first, ours last: of two entries of one name the last one counts.
fn environment(run: &Run<'_>) -> Vec<EnvVar> {
    let plain = |name: &str, value: &str| EnvVar { name: name.to_owned(), value: Some(value.to_owned()), value_from: None };
    let from = |name: &str, source: EnvVarSource| EnvVar { name: name.to_owned(), value: None, value_from: Some(source) };
    let user = &run.resolved.pod.env;
    let mut all: Vec<EnvVar> = Vec::new();
    if !user.iter().any(|v| v.name == "HOME") {
        all.push(plain("HOME", HOME));
    }
    all.extend(user.iter().map(|v| plain(&v.name, &v.value)));
    all.push(plain(env::RUN_GENERATION, &run.run_generation.to_string()));
    let pod_uid = ObjectFieldSelector { field_path: "metadata.uid".to_owned(), api_version: None };
    all.push(from(env::POD_UID, EnvVarSource { field_ref: Some(pod_uid), ..EnvVarSource::default() }));
    if let Some(key) = &run.resolved.model.auth_secret_ref {
        // Optional: the operator cannot see Secrets, so the runtime is the one to say that it is missing.
        let selector = SecretKeySelector { name: key.name.clone(), key: key.key.clone(), optional: Some(true) };
        all.push(from(env::MODEL_API_KEY, EnvVarSource { secret_key_ref: Some(selector), ..EnvVarSource::default() }));
    }
    all
}

fn resources(wanted: &Resources) -> Option<ResourceRequirements> {
    let quantities = |map: &BTreeMap<String, String>| {
        (!map.is_empty()).then(|| map.iter().map(|(k, v)| (k.clone(), Quantity(v.clone()))).collect::<BTreeMap<_, _>>())
    };
    (!wanted.is_empty()).then(|| ResourceRequirements {
        requests: quantities(&wanted.requests),
        limits: quantities(&wanted.limits),
        claims: None,
    })
}

fn volumes(run: &Run<'_>) -> Vec<Volume> {
    let runtime = BTreeMap::from([
        (VOLUME_KIND.to_owned(), VOLUME_RUNTIME.to_owned()),
        (VOLUME_RUNTIME_DIGEST.to_owned(), run.runtime_digest.to_owned()),
    ]);
    let token = ServiceAccountTokenProjection {
        audience: Some(GATEWAY_AUDIENCE.to_owned()),
        expiration_seconds: Some(TOKEN_SECONDS),
        path: TOKEN_FILE.to_owned(),
    };
    vec![
        inline("runtime", true, runtime),
        restricted::tree_volume(uid(&run.workspace.metadata), run.workspace.spec.read_only),
        Volume {
            name: "session".to_owned(),
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource { claim_name: run.session_claim.to_owned(), read_only: None }),
            ..Volume::default()
        },
        Volume {
            name: "manifest".to_owned(),
            config_map: Some(ConfigMapVolumeSource { name: run.manifest.to_owned(), ..ConfigMapVolumeSource::default() }),
            ..Volume::default()
        },
        Volume {
            name: "token".to_owned(),
            projected: Some(ProjectedVolumeSource {
                sources: Some(vec![VolumeProjection { service_account_token: Some(token), ..VolumeProjection::default() }]),
                default_mode: None,
            }),
            ..Volume::default()
        },
        empty("tmp"),
        empty("home"),
    ]
}
