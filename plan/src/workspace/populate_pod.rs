//! The Pod that fills a base from git, and its script. It alone mounts the source's credentials.

use k8s_openapi::api::core::v1::{
    ConfigMapProjection, ConfigMapVolumeSource, EnvVar, KeyToPath, Pod, PodSpec, ProjectedVolumeSource, SecretVolumeSource, Toleration,
    Volume, VolumeMount, VolumeProjection,
};
use yoi_crds::AgentWorkspace;
use yoi_crds::name::annotation::LOOK;
use yoi_crds::name::label;
use yoi_crds::pod::{ConfigMapKeyRef, SecretRef};
use yoi_crds::source::{DEFAULT_PATH, GitSource, LinkedContent, TreeOwner};
use yoi_crds::sync::PART_KEY;
use yoi_crds::workspace::BundleRef;

use super::populate::{ATTEMPT, CONTAINER};
use crate::node_affinity::NodeChoice;
use crate::restricted::variable;
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
    include_str!("populate/branches.sh"),
    include_str!("populate/source.sh"),
    include_str!("populate/bundle.sh"),
    include_str!("populate/lfs.sh"),
    include_str!("populate/submodules.sh"),
    include_str!("populate/increment.sh"),
    include_str!("populate/main.sh"),
);
/// The same for an empty source. A former attempt may have left files.
const EMPTY_SCRIPT: &str = r#"find "$DEST" -mindepth 1 -delete"#;
/// Seconds that one attempt may take.
const DEADLINE: i64 = 3600;
/// Where a source is in the spec of a project or workspace.
pub(crate) const SOURCE_FIELD: &str = "spec.source.git";
const CREDENTIALS_PATH: &str = "/yoi/credentials";
const CA_PATH: &str = "/yoi/ca";
const CA_FILE: &str = "ca.crt";
const BUNDLE_PATH: &str = "/yoi/bundle";

/// What a populator Pod puts into the base.
#[derive(Clone, Copy)]
pub(super) enum Content<'a> {
    /// What this repository has, and what was synced on top of it.
    Git(&'a GitSource),
    /// What was synced, of which no server has anything.
    Synced,
    /// What is in the base is removed.
    Nothing,
}

/// What a populator Pod is made from.
pub(super) struct PodParts<'a> {
    pub base: Stored<'a, AgentWorkspace>,
    pub content: Content<'a>,
    pub owner: TreeOwner,
    pub node: &'a str,
    /// From 1.
    pub attempt: u32,
    /// The commit that another base of the same content holds.
    pub revision: Option<&'a str>,
    /// The commit of the former base that this one is a clone of, before anybody has written to it.
    pub former: Option<&'a str>,
    /// The request of a person that this attempt answers.
    pub asked: Option<&'a str>,
    pub tolerations: Option<Vec<Toleration>>,
    /// Where what the source lacks of `revision` is.
    pub bundle: Option<&'a BundleRef>,
    pub settings: &'a Settings,
}

pub(super) fn pod(parts: PodParts<'_>) -> Pod {
    let PodParts { base, content, owner, node, attempt, revision, former, asked, tolerations, bundle, settings } = parts;
    // A base has a path in its spec from the first write on.
    let path = base.get().tree_path().unwrap_or(DEFAULT_PATH);
    let labels = [(label::ROLE, label::ROLE_POPULATOR), (label::WORKSPACE, base.name())];
    let own = [
        (restricted::tree_volume(base.uid(), false), restricted::mount("tree", path, false)),
        (restricted::scratch("tmp", settings), restricted::mount("tmp", "/tmp", false)),
    ];
    // What a server would have to give is left out: there is none.
    let nowhere = GitSource { submodules: Some(LinkedContent::Skip), lfs: Some(LinkedContent::Skip), ..GitSource::default() };
    let git = match content {
        Content::Git(git) => Some(git),
        Content::Synced => Some(&nowhere),
        Content::Nothing => None,
    };
    let (volumes, mounts) = own.into_iter().chain(git.into_iter().flat_map(source_volumes)).chain(bundle.map(bundle_volume)).unzip();
    let (script, env) = match git {
        Some(git) => {
            let own = [
                variable("FORMER", former.unwrap_or_default()),
                variable("BUNDLE", bundle.map(|bundle| bundle.sha256.as_str()).unwrap_or_default()),
                variable("BUNDLE_PARTS", &bundle.map(|bundle| bundle.parts.len().to_string()).unwrap_or_default()),
            ];
            (SCRIPT, environment(git, revision.unwrap_or_default(), path, settings).into_iter().chain(own).collect())
        }
        None => (EMPTY_SCRIPT, vec![variable("DEST", path)]),
    };
    let container = restricted::script_container(CONTAINER, script, env, mounts, settings);
    let annotations = [(ATTEMPT, attempt.to_string())].into_iter().chain(asked.map(|asked| (LOOK, asked.to_owned())));
    Pod {
        metadata: restricted::metadata(names::populator(base.name(), attempt), base, labels, annotations),
        spec: Some(PodSpec {
            affinity: Some(NodeChoice::Only(vec![node.to_owned()]).affinity(None)),
            tolerations,
            ..restricted::single_run(container, volumes, owner, DEADLINE)
        }),
        status: None,
    }
}

/// What `main.sh` compares with.
fn skip(content: Option<LinkedContent>) -> &'static str {
    match content {
        Some(LinkedContent::Skip) => "Skip",
        // An unknown word is refused before a Pod is made.
        Some(LinkedContent::Fetch | LinkedContent::Unknown) | None => "",
    }
}

pub(crate) fn environment(git: &GitSource, revision: &str, path: &str, settings: &Settings) -> Vec<EnvVar> {
    let own = [
        ("REF", git.ref_.as_deref().unwrap_or_default()),
        ("REVISION", revision),
        ("DEST", path),
        ("DEPTH", &git.depth.map(|depth| depth.to_string()).unwrap_or_default()),
        ("SUBMODULES", skip(git.submodules)),
        ("LFS", skip(git.lfs)),
    ];
    source_environment(git, SOURCE_FIELD, settings).into_iter().chain(own.map(|(name, value)| variable(name, value))).collect()
}

/// The source's Secret and certificate, where the scripts expect them.
pub(crate) fn source_volumes(git: &GitSource) -> impl Iterator<Item = (Volume, VolumeMount)> {
    [git.credentials_secret_ref.as_ref().map(secret_volume), git.ca_ref.as_ref().map(ca_volume)].into_iter().flatten()
}

/// What `environment.sh` reads. Names only: the content of the Secret is in no variable. `field` is where the user wrote it.
pub(crate) fn source_environment(git: &GitSource, field: &str, settings: &Settings) -> Vec<EnvVar> {
    let GitSource { url, ref_: _, credentials_secret_ref, ca_ref, submodule_hosts, submodules: _, lfs: _, depth: _, refresh: _, sync: _ } =
        git;
    let ca = ca_ref.as_ref().map(|ConfigMapKeyRef { name, key }| format!("key {key} of ConfigMap {name}"));
    let hosts = submodule_hosts.join(" ");
    let mut variables = vec![
        ("FIELD", field),
        ("URL", url.as_str()),
        ("SECRET", credentials_secret_ref.as_ref().map(|secret| secret.name.as_str()).unwrap_or_default()),
        ("CA", ca.as_deref().unwrap_or_default()),
        ("SUBMODULE_HOSTS", &hosts),
    ];
    // curl, which git uses, and git-lfs read the names in small letters; only these exist for http://.
    if let Some(proxy) = &settings.git_proxy {
        variables.extend([("https_proxy", proxy.url.as_str()), ("http_proxy", &proxy.url), ("no_proxy", &proxy.except)]);
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

/// Each part as a file that is named by its number. Optional, as the script says which part is missing.
fn bundle_volume(bundle: &BundleRef) -> (Volume, VolumeMount) {
    let part = |(number, name): (usize, &String)| VolumeProjection {
        config_map: Some(ConfigMapProjection {
            name: name.clone(),
            items: Some(vec![KeyToPath { key: PART_KEY.to_owned(), path: number.to_string(), mode: None }]),
            optional: Some(true),
        }),
        ..VolumeProjection::default()
    };
    let sources = Some(bundle.parts.iter().enumerate().map(part).collect());
    let projected = Some(ProjectedVolumeSource { sources, ..ProjectedVolumeSource::default() });
    let volume = Volume { name: "bundle".to_owned(), projected, ..Volume::default() };
    (volume, restricted::mount("bundle", BUNDLE_PATH, true))
}

fn ca_volume(ConfigMapKeyRef { name, key }: &ConfigMapKeyRef) -> (Volume, VolumeMount) {
    let items = Some(vec![KeyToPath { key: key.clone(), path: CA_FILE.to_owned(), mode: None }]);
    let source = ConfigMapVolumeSource { name: name.clone(), items, optional: Some(true), ..ConfigMapVolumeSource::default() };
    let volume = Volume { name: "ca".to_owned(), config_map: Some(source), ..Volume::default() };
    (volume, restricted::mount("ca", CA_PATH, true))
}
