//! The Pod that pushes what an agent has committed, and its script. It has the project's credentials, a token for the gateway, and no volume of the agent.

use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, EnvVar, Pod, PodSpec, Volume};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use yoi_crds::name::{annotation, label};
use yoi_crds::source::GitSource;
use yoi_crds::{YoiPod, YoiProject};
use yoi_wire::identity::TOKEN_MOUNT;

use super::WantedPush;
use crate::settings::Settings;
use crate::stored::Stored;
use crate::tree::base_set::first_generation;
use crate::workspace::populate::ATTEMPT;
use crate::workspace::populate_pod::{SOURCE_FIELD, source_environment, source_volumes};
use crate::yoipod::pod_spec::token_volume;
use crate::{names, restricted};

/// What the Pod runs, as one argument of a shell.
pub const SCRIPT: &str = concat!(
    include_str!("../../workspace/populate/words.sh"),
    include_str!("../../workspace/populate/hosts.sh"),
    include_str!("../../workspace/populate/credentials.sh"),
    include_str!("../../workspace/populate/environment.sh"),
    include_str!("../../workspace/populate/watch.sh"),
    include_str!("push.sh"),
);
/// Name of the one container.
pub(super) const CONTAINER: &str = "push";
/// Seconds that one attempt may take.
const DEADLINE: i64 = 1800;
/// A bundle and its objects twice, and the trees of the history.
const ROOM: &str = "4Gi";

/// What a pusher's Pod is made from.
pub(super) struct PodParts<'a> {
    pub yoipod: Stored<'a, YoiPod>,
    pub project: Stored<'a, YoiProject>,
    pub git: &'a GitSource,
    pub push: &'a WantedPush,
    /// The commit of the tree's base, as the cluster's objects have it: the agent cannot write those. `None` where they have none.
    pub base: Option<String>,
    /// From 1.
    pub attempt: i32,
    pub settings: &'a Settings,
}

pub(super) fn pod(parts: &PodParts<'_>) -> Pod {
    let PodParts { yoipod, project, git, push, base: _, attempt, settings } = parts;
    let spec = &project.get().spec;
    let labels = [(label::ROLE, label::ROLE_PUSHER), (label::YOIPOD, yoipod.name()), (label::PROJECT, project.name())];
    let annotations =
        [(annotation::PUSH, push.id.clone()), (annotation::LOOKS_AT, first_generation(*project)), (ATTEMPT, attempt.to_string())];
    let room = EmptyDirVolumeSource { size_limit: Some(Quantity(ROOM.to_owned())), ..EmptyDirVolumeSource::default() };
    let own = [
        (token_volume(), restricted::mount("token", TOKEN_MOUNT, true)),
        (Volume { name: "tmp".to_owned(), empty_dir: Some(room), ..Volume::default() }, restricted::mount("tmp", "/tmp", false)),
    ];
    let (volumes, mounts) = own.into_iter().chain(source_volumes(git)).unzip();
    let container = restricted::script_container(CONTAINER, SCRIPT, environment(parts), mounts, settings);
    Pod {
        metadata: restricted::metadata(names::pusher(yoipod.name()), *yoipod, labels, annotations),
        spec: Some(PodSpec {
            tolerations: restricted::tolerations(spec.defaults.pod.as_ref()),
            ..restricted::single_run(container, volumes, spec.owner, DEADLINE)
        }),
        status: None,
    }
}

fn environment(parts: &PodParts<'_>) -> Vec<EnvVar> {
    let PodParts { git, push, base, settings, .. } = parts;
    let gateway = &settings.gateway;
    let own = [
        ("BRANCH", push.branch.as_str()),
        ("COMMIT", push.commit.as_deref().unwrap_or_default()),
        ("EXPECTED", push.expected.as_deref().unwrap_or_default()),
        ("BASE", base.as_deref().unwrap_or_default()),
        ("GATEWAY", &gateway.service),
        ("GATEWAY_NAME", &gateway.server_name),
        ("GATEWAY_CA", &gateway.ca),
    ];
    source_environment(git, SOURCE_FIELD, settings).into_iter().chain(own.map(|(name, value)| restricted::variable(name, value))).collect()
}
