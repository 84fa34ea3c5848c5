//! The Pod that fills a base from git, and its script. It alone mounts the source's credentials.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, Container, EnvVar, KeyToPath, Pod, PodSpec, SecretVolumeSource, Toleration, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use yoi_crds::AgentWorkspace;
use yoi_crds::name::label;
use yoi_crds::pod::{ConfigMapKeyRef, SecretRef};
use yoi_crds::source::{DEFAULT_PATH, GitSource, TreeOwner};

use super::populate::{ATTEMPT, CONTAINER};
use crate::node_affinity::NodeChoice;
use crate::settings::Settings;
use crate::stored::Stored;
use crate::{names, restricted};

/// What the Pod runs, as one argument of a shell. `/tmp` is its own, and the source's Secret and certificate are in the two folders below `/yoi`.
pub const SCRIPT: &str = concat!(
    include_str!("populate/words.sh"),
    include_str!("populate/hosts.sh"),
    include_str!("populate/credentials.sh"),
    include_str!("populate/environment.sh"),
    include_str!("populate/watch.sh"),
    include_str!("populate/source.sh"),
    include_str!("populate/lfs.sh"),
    include_str!("populate/submodules.sh"),
    include_str!("populate/increment.sh"),
    include_str!("populate/main.sh"),
);
/// The same for an empty source. A former attempt may have left files.
const EMPTY_SCRIPT: &str = r#"find "$DEST" -mindepth 1 -delete"#;
const CREDENTIALS_PATH: &str = "/yoi/credentials";
const CA_PATH: &str = "/yoi/ca";
const CA_FILE: &str = "ca.crt";

/// What a populator Pod is made from.
pub(super) struct PodParts<'a> {
    pub base: Stored<'a, AgentWorkspace>,
    /// `None`: the source is empty, and what is in the base is removed.
    pub git: Option<&'a GitSource>,
    pub owner: TreeOwner,
    pub node: &'a str,
    /// From 1.
    pub attempt: u32,
    /// The commit that another base of the same content holds.
    pub revision: Option<&'a str>,
    /// The commit of the former base that this one is a clone of, before anybody has written to it.
    pub former: Option<&'a str>,
    pub tolerations: Option<Vec<Toleration>>,
    pub settings: &'a Settings,
}

pub(super) fn pod(parts: PodParts<'_>) -> Pod {
    let PodParts { base, git, owner, node, attempt, revision, former, tolerations, settings } = parts;
    // A base has a path in its spec from the first write on.
    let path = base.get().tree_path().unwrap_or(DEFAULT_PATH);
    let labels =
        BTreeMap::from([(label::ROLE.to_owned(), label::ROLE_POPULATOR.to_owned()), (label::WORKSPACE.to_owned(), base.name().to_owned())]);
    let mut volumes = vec![restricted::tree_volume(base.uid(), false), restricted::empty("tmp")];
    let mut mounts = vec![restricted::mount("tree", path, false), restricted::mount("tmp", "/tmp", false)];
    for (volume, mount) in git.into_iter().flat_map(source_volumes) {
        volumes.push(volume);
        mounts.push(mount);
    }
    let container = Container {
        name: CONTAINER.to_owned(),
        image: Some(settings.populator_image.clone()),
        image_pull_policy: settings.image_pull_policy.map(restricted::pull_policy),
        command: Some(["/bin/sh", "-eu", "-c", if git.is_some() { SCRIPT } else { EMPTY_SCRIPT }].map(str::to_owned).to_vec()),
        env: Some(match git {
            Some(git) => environment(git, revision.unwrap_or_default(), path, settings)
                .into_iter()
                .chain([variable("FORMER", former.unwrap_or_default().to_owned())])
                .collect(),
            None => vec![variable("DEST", path.to_owned())],
        }),
        working_dir: Some("/".to_owned()),
        resources: Some(settings.populator_resources.clone()),
        security_context: Some(restricted::container_security()),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        volume_mounts: Some(mounts),
        ..Container::default()
    };
    Pod {
        metadata: ObjectMeta {
            name: Some(names::populator(base.name(), attempt)),
            namespace: Some(base.namespace().to_owned()),
            labels: Some(labels),
            annotations: Some(BTreeMap::from([(ATTEMPT.to_owned(), attempt.to_string())])),
            owner_references: Some(vec![base.owner_reference()]),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            affinity: Some(NodeChoice::Only(vec![node.to_owned()]).affinity(None)),
            tolerations,
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            containers: vec![container],
            restart_policy: Some("Never".to_owned()),
            security_context: Some(restricted::pod_security(owner)),
            termination_grace_period_seconds: Some(5),
            active_deadline_seconds: Some(3600),
            volumes: Some(volumes),
            ..PodSpec::default()
        }),
        status: None,
    }
}

pub(crate) fn environment(git: &GitSource, revision: &str, path: &str, settings: &Settings) -> Vec<EnvVar> {
    let own = [
        ("REF", git.ref_.clone().unwrap_or_default()),
        ("REVISION", revision.to_owned()),
        ("DEST", path.to_owned()),
        ("DEPTH", git.depth.map(|depth| depth.to_string()).unwrap_or_default()),
    ];
    source_environment(git, settings).into_iter().chain(own.map(|(name, value)| variable(name, value))).collect()
}

fn variable(name: &str, value: String) -> EnvVar {
    EnvVar { name: name.to_owned(), value: Some(value), value_from: None }
}

/// The source's Secret and certificate, where the scripts expect them.
pub(crate) fn source_volumes(git: &GitSource) -> impl Iterator<Item = (Volume, VolumeMount)> {
    [git.credentials_secret_ref.as_ref().map(secret_volume), git.ca_ref.as_ref().map(ca_volume)].into_iter().flatten()
}

/// What `environment.sh` reads. Names only: the content of the Secret is in no variable.
pub(crate) fn source_environment(git: &GitSource, settings: &Settings) -> Vec<EnvVar> {
    let GitSource { url, ref_: _, credentials_secret_ref, ca_ref, submodule_hosts, depth: _, refresh: _ } = git;
    let ca = ca_ref.as_ref().map(|ConfigMapKeyRef { name, key }| format!("key {key} of ConfigMap {name}"));
    let mut variables = vec![
        ("URL", url.clone()),
        ("SECRET", credentials_secret_ref.as_ref().map(|secret| secret.name.clone()).unwrap_or_default()),
        ("CA", ca.unwrap_or_default()),
        ("SUBMODULE_HOSTS", submodule_hosts.join(" ")),
    ];
    // curl, which git uses, and git-lfs read the names in small letters; only these exist for http://.
    if let Some(proxy) = &settings.git_proxy {
        variables.extend([("https_proxy", proxy.url.clone()), ("http_proxy", proxy.url.clone()), ("no_proxy", proxy.except.clone())]);
    }
    variables.into_iter().map(|(name, value)| variable(name, value)).collect()
}

/// Optional, as a required one that is missing keeps the Pod waiting without a word; the script says what is missing. The Pod's group may read it.
fn secret_volume(SecretRef { name }: &SecretRef) -> (Volume, VolumeMount) {
    let source = SecretVolumeSource {
        secret_name: Some(name.clone()),
        default_mode: Some(0o400),
        optional: Some(true),
        ..SecretVolumeSource::default()
    };
    let volume = Volume { name: "credentials".to_owned(), secret: Some(source), ..Volume::default() };
    (volume, restricted::mount("credentials", CREDENTIALS_PATH, true))
}

fn ca_volume(ConfigMapKeyRef { name, key }: &ConfigMapKeyRef) -> (Volume, VolumeMount) {
    let items = Some(vec![KeyToPath { key: key.clone(), path: CA_FILE.to_owned(), mode: None }]);
    let source = ConfigMapVolumeSource { name: name.clone(), items, optional: Some(true), ..ConfigMapVolumeSource::default() };
    let volume = Volume { name: "ca".to_owned(), config_map: Some(source), ..Volume::default() };
    (volume, restricted::mount("ca", CA_PATH, true))
}
