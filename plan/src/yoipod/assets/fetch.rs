//! What brings a set of a git repository or of an image into the agent's Pod: a container each, which ends before the agent starts.
//!
//! The container of a git repository alone mounts the credentials of its set. That of an image runs our own binary in the image, and no program of it.

use k8s_openapi::api::core::v1::{Container, EnvVar, ResourceRequirements, Volume, VolumeMount};
use yoi_crds::assets::{AssetGit, AssetImage, Assets};
use yoi_crds::source::GitSource;
use yoi_wire::identity::{RUNTIME_BINARY, RUNTIME_MOUNT};

use super::volumes::{own_folder, volume_name};
use super::{SetSource, fetched, sets};
use crate::restricted::{self, mount, variable};
use crate::settings::Settings;
use crate::workspace::populate_pod::{source_environment, source_volumes};

/// What the container of a git repository runs, as one argument of a shell.
pub const SCRIPT: &str = concat!(
    include_str!("../../workspace/populate/words.sh"),
    include_str!("../../workspace/populate/hosts.sh"),
    include_str!("../../workspace/populate/credentials.sh"),
    include_str!("../../workspace/populate/environment.sh"),
    include_str!("../../workspace/populate/watch.sh"),
    include_str!("../../workspace/populate/branches.sh"),
    include_str!("../../workspace/populate/commit.sh"),
    include_str!("../../workspace/populate/source.sh"),
    include_str!("fetch.sh"),
);
/// Where a container that fetches a set writes it.
const SET: &str = "/set";
/// The folder for temporary files of those that fetch from git, one after the other. The agent does not see it.
const TMP: &str = "yoi-assets-tmp";
/// What is fetched and what is written of it, beside each other.
const TMP_ROOM: &str = "256Mi";
/// Where the sets are in the spec of a project.
const FIELD: &str = "spec.assets.from[].git";

/// The containers that fetch sets, in the order of the sets. `resources` are those of the agent, so that its Pod asks for no more.
pub(in crate::yoipod) fn containers(
    assets: Option<&Assets>,
    resources: Option<&ResourceRequirements>,
    settings: &Settings,
) -> Vec<Container> {
    let is_strict = assets.is_some_and(|assets| assets.strict);
    let container = |(place, set): (usize, super::Set<'_>)| {
        let is_lenient = set.optional || !is_strict;
        let made = match set.from {
            SetSource::ConfigMap(_) => return None,
            SetSource::Git(git) => of_git(git, place, is_lenient, settings),
            SetSource::Image(image) => of_image(image, is_lenient),
        };
        let own = mount(&volume_name(place), SET, false);
        Some(Container {
            name: fetched::container_name(&set.name),
            resources: resources.cloned(),
            volume_mounts: Some(made.volume_mounts.into_iter().flatten().chain([own]).collect()),
            ..made
        })
    };
    sets(assets, settings).into_iter().enumerate().filter_map(container).collect()
}

fn of_git(git: &AssetGit, place: usize, is_lenient: bool, settings: &Settings) -> Container {
    let mounts = secrets(git, place).map(|(_, mount)| mount).chain([mount(TMP, "/tmp", false)]).collect();
    restricted::script_container("", SCRIPT, environment(git, is_lenient, settings), mounts, settings)
}

fn environment(git: &AssetGit, is_lenient: bool, settings: &Settings) -> Vec<EnvVar> {
    let own = [
        ("REF", git.ref_.as_deref().unwrap_or_default()),
        // No more of the history.
        ("DEPTH", "1"),
        ("PLACE", git.path.as_deref().unwrap_or_default()),
        ("SET", SET),
        ("LENIENT", if is_lenient { "yes" } else { "" }),
    ];
    source_environment(&source(git), FIELD, settings).into_iter().chain(own.map(|(name, value)| variable(name, value))).collect()
}

fn source(AssetGit { url, ref_, credentials_secret_ref, ca_ref, path: _ }: &AssetGit) -> GitSource {
    GitSource {
        url: url.clone(),
        ref_: ref_.clone(),
        credentials_secret_ref: credentials_secret_ref.clone(),
        ca_ref: ca_ref.clone(),
        ..GitSource::default()
    }
}

/// Secret and certificate of the set in this place. Each has its own, at the same paths.
fn secrets(git: &AssetGit, place: usize) -> impl Iterator<Item = (Volume, VolumeMount)> {
    let named = move |(volume, mount): (Volume, VolumeMount)| {
        let name = format!("{}-{}", volume_name(place), volume.name);
        (Volume { name: name.clone(), ..volume }, VolumeMount { name, ..mount })
    };
    source_volumes(&source(git)).map(named).collect::<Vec<_>>().into_iter()
}

/// Nothing but the runtime's own binary and the set's folder is mounted.
fn of_image(image: &AssetImage, is_lenient: bool) -> Container {
    let from = format!("/{}", image.path.as_deref().unwrap_or_default());
    let binary = format!("{RUNTIME_MOUNT}/{RUNTIME_BINARY}");
    let words = [binary.as_str(), "copy-assets", "--from", &from, "--to", SET];
    Container {
        image: Some(image.reference.clone()),
        command: Some(words.into_iter().chain(is_lenient.then_some("--lenient")).map(str::to_owned).collect()),
        volume_mounts: Some(vec![mount("runtime", RUNTIME_MOUNT, true)]),
        ..restricted::container()
    }
}

/// What those containers need beside the folders of the sets.
pub(super) fn volumes(assets: Option<&Assets>, settings: &Settings) -> Vec<Volume> {
    let of_git = sets(assets, settings).into_iter().enumerate().filter_map(|(place, set)| match set.from {
        SetSource::Git(git) => Some(secrets(git, place).map(|(volume, _)| volume).collect::<Vec<_>>()),
        SetSource::ConfigMap(_) | SetSource::Image(_) => None,
    });
    let of_git: Vec<Vec<Volume>> = of_git.collect();
    let tmp = (!of_git.is_empty()).then(|| own_folder(TMP, TMP_ROOM));
    of_git.into_iter().flatten().chain(tmp).collect()
}

/// What of the sets decides how they are fetched, and no manifest holds; empty where none is fetched.
pub(in crate::yoipod) fn digested(assets: Option<&Assets>, settings: &Settings) -> Vec<u8> {
    let fetched = sets(assets, settings).into_iter().filter_map(|set| match set.from {
        SetSource::ConfigMap(_) => None,
        SetSource::Git(git) => Some(serde_json::to_value(git)),
        SetSource::Image(image) => Some(serde_json::to_value(image)),
    });
    // These types serialize without fail: their keys are strings and their values plain data.
    let fetched: Vec<_> = fetched.filter_map(Result::ok).collect();
    if fetched.is_empty() { Vec::new() } else { serde_json::to_vec(&fetched).unwrap_or_default() }
}
