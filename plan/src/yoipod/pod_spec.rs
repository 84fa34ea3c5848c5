//! The Kubernetes Pod of one run of an agent. It passes Pod Security *restricted*, has no API token and listens on no port.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    ConfigMapKeySelector, ConfigMapVolumeSource, Container, DownwardAPIProjection, DownwardAPIVolumeFile, EnvVar, EnvVarSource,
    LocalObjectReference, ObjectFieldSelector, PersistentVolumeClaimVolumeSource, Pod, PodSecurityContext, PodSpec, ProjectedVolumeSource,
    ResourceRequirements, SecretKeySelector, ServiceAccountTokenProjection, Volume, VolumeMount, VolumeProjection,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use yoi_crds::name::{annotation, label};
use yoi_crds::pod::{EnvSource, PodSettings, Scope, SecuritySettings};
use yoi_crds::source::TreeOwner;
use yoi_crds::{AgentWorkspace, YoiPod};
use yoi_wire::cover::Cover;
use yoi_wire::identity::{
    GATEWAY_AUDIENCE, MANIFEST_MOUNT, POLICY_FILE, REST_FILE, RUNTIME_BINARY, RUNTIME_MOUNT, SESSION_MOUNT, TOKEN_FILE, TOKEN_MOUNT,
    TOKENS_FILE, VOLUME_KIND, VOLUME_RUNTIME, VOLUME_RUNTIME_DIGEST, env,
};

use super::assets::ReadBy;
use super::manifest::Resolved;
use super::{assets, model_endpoint, program};
use crate::names;
use crate::node_affinity::NodeChoice;
use crate::restricted::{self, inline, mount, scratch};
use crate::settings::Settings;
use crate::stored::Stored;

/// Name of the one container.
pub const CONTAINER: &str = "agent";
const HOME: &str = "/home/agent";
const TOKEN_SECONDS: i64 = 3600;

/// The volumes that the operator gives every agent's Pod. No volume of the user's has one of these names.
pub(crate) const VOLUMES: [&str; 7] = ["runtime", "tree", "session", "manifest", "token", "tmp", "home"];

/// What an agent's Pod is made from.
pub(crate) struct PodContext<'a> {
    pub yoipod: Stored<'a, YoiPod>,
    pub workspace: Stored<'a, AgentWorkspace>,
    /// Where the agent sees the tree.
    pub path: &'a str,
    pub owner: TreeOwner,
    pub resolved: &'a Resolved,
    pub manifest: &'a str,
    pub session_claim: &'a str,
    pub run_generation: i64,
    pub runtime_digest: &'a str,
    pub nodes: NodeChoice,
    pub settings_digest: String,
    /// What the node lays over the tree.
    pub covers: &'a [Cover],
    /// What the agent may do in its tree, of one that may lend paths of it.
    pub lends: Option<Scope>,
    /// See [`super::rest::after`].
    pub rest: String,
    /// See [`super::policy_valid::text`].
    pub policy: String,
    pub settings: &'a Settings,
}

#[must_use]
pub(crate) fn pod(context: PodContext<'_>) -> Pod {
    let yoipod = context.yoipod;
    let labels = BTreeMap::from([
        (label::ROLE.to_owned(), label::ROLE_AGENT.to_owned()),
        (label::YOIPOD.to_owned(), yoipod.name().to_owned()),
        (label::PROJECT.to_owned(), yoipod.spec.project_ref.name.clone()),
        (label::WORKSPACE.to_owned(), context.workspace.name().to_owned()),
    ]);
    let settings = &context.resolved.pod;
    Pod {
        metadata: ObjectMeta {
            name: Some(names::pod(yoipod.name(), context.run_generation)),
            namespace: Some(yoipod.namespace().to_owned()),
            labels: Some(labels),
            annotations: Some(BTreeMap::from([
                (annotation::RUN_GENERATION.to_owned(), context.run_generation.to_string()),
                (annotation::SETTINGS_DIGEST.to_owned(), context.settings_digest.clone()),
                (annotation::TOKENS.to_owned(), tokens(yoipod.get())),
                (annotation::REST.to_owned(), context.rest.clone()),
                (annotation::POLICY.to_owned(), context.policy.clone()),
            ])),
            owner_references: Some(vec![yoipod.owner_reference()]),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            affinity: Some(context.nodes.affinity(settings.affinity.as_deref())),
            automount_service_account_token: Some(false),
            containers: vec![container(&context)],
            enable_service_links: Some(false),
            init_containers: non_empty(assets::fetch::containers(
                context.resolved.assets.as_deref(),
                resources(settings, context.settings).as_ref(),
                context.settings,
            )),
            image_pull_secrets: non_empty(
                settings.image_pull_secrets.iter().map(|s| LocalObjectReference { name: s.name.clone() }).collect(),
            ),
            node_selector: (!settings.node_selector.is_empty()).then(|| settings.node_selector.clone()),
            restart_policy: Some("Always".to_owned()),
            runtime_class_name: settings.runtime_class_name.clone(),
            security_context: Some(pod_security(context.owner, settings.security_context.as_deref())),
            termination_grace_period_seconds: Some(30),
            tolerations: non_empty(settings.tolerations.clone()),
            volumes: Some(volumes(&context)),
            ..PodSpec::default()
        }),
        status: None,
    }
}

pub(super) fn non_empty<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

fn container(context: &PodContext<'_>) -> Container {
    let settings = &context.resolved.pod;
    let (image, image_pull_policy) = image(settings, context.settings);
    Container {
        name: CONTAINER.to_owned(),
        image: Some(image),
        image_pull_policy,
        command: Some(vec![format!("{RUNTIME_MOUNT}/{RUNTIME_BINARY}"), "agent".to_owned()]),
        env: Some(environment(context)),
        resources: resources(settings, context.settings),
        security_context: Some(restricted::container_security()),
        volume_mounts: Some(mounts(context)),
        // An agent may close the root of its tree to itself, and then a container that starts there would not start again.
        working_dir: Some("/".to_owned()),
        ..Container::default()
    }
}

fn resources(pod: &PodSettings, settings: &Settings) -> Option<ResourceRequirements> {
    restricted::with_defaults(restricted::resources(&pod.resources), &settings.agent_resources)
}

fn mounts(context: &PodContext<'_>) -> Vec<VolumeMount> {
    let own = [
        mount("runtime", RUNTIME_MOUNT, true),
        // A container runtime may make a mount writable that is asked for so. What lies below it stays as it is.
        VolumeMount {
            // What is lent is closed while the Pod runs, by mounts of its node.
            mount_propagation: context.lends.as_ref().map(|_| "HostToContainer".to_owned()),
            ..mount("tree", context.path, context.workspace.spec.read_only || restricted::root_is_read_only(context.covers))
        },
        mount("session", SESSION_MOUNT, false),
        mount("manifest", MANIFEST_MOUNT, true),
        mount("token", TOKEN_MOUNT, true),
        mount("tmp", "/tmp", false),
        mount("home", HOME, false),
    ];
    let of_program = program::mounts(&context.yoipod.spec.agent);
    let of_assets = assets::mounts(context.resolved.assets.as_deref(), context.settings, ReadBy::Agent);
    own.into_iter().chain(of_program).chain(of_assets).chain(context.resolved.pod.volume_mounts.iter().cloned()).collect()
}

/// What *restricted* and the tree ask for, with what it leaves to the user.
fn pod_security(owner: TreeOwner, settings: Option<&SecuritySettings>) -> PodSecurityContext {
    let base = restricted::pod_security(owner);
    let Some(settings) = settings else { return base };
    PodSecurityContext {
        supplemental_groups: non_empty(settings.supplemental_groups.clone()),
        seccomp_profile: settings.seccomp_profile.clone().or(base.seccomp_profile),
        app_armor_profile: settings.app_armor_profile.clone(),
        se_linux_options: settings.se_linux_options.clone(),
        ..base
    }
}

fn env_source(source: &EnvSource) -> EnvVarSource {
    let EnvSource { secret_key_ref, config_map_key_ref, field_ref } = source.clone();
    EnvVarSource {
        secret_key_ref: secret_key_ref.map(|r| SecretKeySelector { name: r.name, key: r.key, optional: r.optional }),
        config_map_key_ref: config_map_key_ref.map(|r| ConfigMapKeySelector { name: r.name, key: r.key, optional: r.optional }),
        field_ref: field_ref.map(|r| ObjectFieldSelector { field_path: r.field_path, api_version: None }),
        ..EnvVarSource::default()
    }
}

/// The image of an agent, and its pull policy.
pub(super) fn image(pod: &PodSettings, settings: &Settings) -> (String, Option<String>) {
    let default = if pod.image.is_some() { None } else { settings.image_pull_policy };
    (pod.image.clone().unwrap_or_else(|| settings.agent_image.clone()), pod.image_pull_policy.or(default).map(restricted::pull_policy))
}

/// The user's variables come first and the operator's last: of two entries of one name, the last one counts.
fn environment(context: &PodContext<'_>) -> Vec<EnvVar> {
    let plain = |name: &str, value: &str| EnvVar { name: name.to_owned(), value: Some(value.to_owned()), value_from: None };
    let from = |name: &str, source: EnvVarSource| EnvVar { name: name.to_owned(), value: None, value_from: Some(source) };
    let user = &context.resolved.pod.env;
    let mut all: Vec<EnvVar> = Vec::new();
    if !user.iter().any(|v| v.name == "HOME") {
        all.push(plain("HOME", HOME));
    }
    all.extend(user.iter().map(|v| match &v.value_from {
        Some(source) => from(&v.name, env_source(source)),
        None => plain(&v.name, &v.value),
    }));
    all.push(plain(env::RUN_GENERATION, &context.run_generation.to_string()));
    if context.run_generation == names::FIRST_RUN && names::is_warm_claim(context.session_claim) {
        all.push(plain(env::NEW_SESSION, "true"));
    }
    let pod_uid = ObjectFieldSelector { field_path: "metadata.uid".to_owned(), api_version: None };
    all.push(from(env::POD_UID, EnvVarSource { field_ref: Some(pod_uid), ..EnvVarSource::default() }));
    all.extend(context.resolved.model.iter().flat_map(model_endpoint::variables));
    all.extend(program::variables(&context.yoipod.spec.agent, context.settings));
    all
}

/// The binary `yoi-runtime` of this digest, and the Pod's socket to the node's shim.
pub(super) fn runtime_volume(digest: &str) -> Volume {
    let attributes =
        BTreeMap::from([(VOLUME_KIND.to_owned(), VOLUME_RUNTIME.to_owned()), (VOLUME_RUNTIME_DIGEST.to_owned(), digest.to_owned())]);
    inline("runtime", true, attributes)
}

pub(super) fn session_volume(claim: &str, read_only: bool) -> Volume {
    let source = PersistentVolumeClaimVolumeSource { claim_name: claim.to_owned(), read_only: read_only.then_some(true) };
    Volume { name: "session".to_owned(), persistent_volume_claim: Some(source), ..Volume::default() }
}

/// A token that only the gateway takes.
pub(super) fn token_volume() -> Volume {
    let token = ServiceAccountTokenProjection {
        audience: Some(GATEWAY_AUDIENCE.to_owned()),
        expiration_seconds: Some(TOKEN_SECONDS),
        path: TOKEN_FILE.to_owned(),
    };
    Volume {
        name: "token".to_owned(),
        projected: Some(ProjectedVolumeSource {
            sources: Some(vec![VolumeProjection { service_account_token: Some(token), ..VolumeProjection::default() }]),
            default_mode: None,
        }),
        ..Volume::default()
    }
}

/// Value of the annotation [`annotation::TOKENS`].
pub(super) fn tokens(yoipod: &YoiPod) -> String {
    yoipod.spec.limits.tokens.map(|tokens| tokens.to_string()).unwrap_or_default()
}

/// Beside the token, a file for each of three annotations of the Pod: the kubelet writes it anew when that changes, and no container is restarted.
fn with_annotations(mut volume: Volume) -> Volume {
    let annotations = [(annotation::TOKENS, TOKENS_FILE), (annotation::REST, REST_FILE), (annotation::POLICY, POLICY_FILE)];
    let files = annotations.map(|(annotation, file)| {
        let field = ObjectFieldSelector { field_path: format!("metadata.annotations['{annotation}']"), api_version: None };
        DownwardAPIVolumeFile { path: file.to_owned(), field_ref: Some(field), ..DownwardAPIVolumeFile::default() }
    });
    let source = DownwardAPIProjection { items: Some(files.to_vec()) };
    if let Some(projected) = &mut volume.projected {
        let source = VolumeProjection { downward_api: Some(source), ..VolumeProjection::default() };
        projected.sources.get_or_insert_default().push(source);
    }
    volume
}

fn volumes(context: &PodContext<'_>) -> Vec<Volume> {
    let own = [
        runtime_volume(context.runtime_digest),
        restricted::scoped_tree_volume(context.workspace.uid(), context.workspace.spec.read_only, context.covers, context.lends.as_ref()),
        session_volume(context.session_claim, false),
        Volume {
            name: "manifest".to_owned(),
            config_map: Some(ConfigMapVolumeSource { name: context.manifest.to_owned(), ..ConfigMapVolumeSource::default() }),
            ..Volume::default()
        },
        with_annotations(token_volume()),
        scratch("tmp", context.settings),
        scratch("home", context.settings),
    ];
    let of_program = program::volumes(&context.yoipod.spec.agent, context.settings);
    let of_assets = assets::volumes(context.resolved.assets.as_deref(), context.settings, ReadBy::Agent);
    own.into_iter().chain(of_program).chain(of_assets).chain(context.resolved.pod.volumes.iter().cloned()).collect()
}
