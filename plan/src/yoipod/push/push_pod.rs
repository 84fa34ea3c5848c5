//! The Pod that pushes what an agent has committed, and its script. It has the project's credentials, a token for the gateway, and no volume of the agent.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, EmptyDirVolumeSource, EnvVar, Pod, PodSpec, Volume};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use yoi_crds::name::{annotation, label};
use yoi_crds::source::GitSource;
use yoi_crds::{YoiPod, YoiProject};
use yoi_wire::identity::TOKEN_MOUNT;

use super::WantedPush;
use crate::settings::Settings;
use crate::stored::Stored;
use crate::tree::base_set::first_generation;
use crate::workspace::populate::ATTEMPT;
use crate::workspace::populate_pod::{source_environment, source_volumes};
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
    /// The commit of the tree's base, where the cluster's objects have it: the agent cannot write those.
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
    let mut volumes = vec![token_volume(), Volume { name: "tmp".to_owned(), empty_dir: Some(room), ..Volume::default() }];
    let mut mounts = vec![restricted::mount("token", TOKEN_MOUNT, true), restricted::mount("tmp", "/tmp", false)];
    for (volume, mount) in source_volumes(git) {
        volumes.push(volume);
        mounts.push(mount);
    }
    let container = Container {
        name: CONTAINER.to_owned(),
        image: Some(settings.populator_image.clone()),
        image_pull_policy: settings.image_pull_policy.map(restricted::pull_policy),
        command: Some(["/bin/sh", "-eu", "-c", SCRIPT].map(str::to_owned).to_vec()),
        env: Some(environment(parts)),
        working_dir: Some("/".to_owned()),
        resources: Some(settings.populator_resources.clone()),
        security_context: Some(restricted::container_security()),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        volume_mounts: Some(mounts),
        ..Container::default()
    };
    let tolerations = spec.defaults.pod.as_ref().map(|pod| pod.tolerations.clone()).filter(|tolerations| !tolerations.is_empty());
    Pod {
        metadata: ObjectMeta {
            name: Some(names::pusher(yoipod.name())),
            namespace: Some(yoipod.namespace().to_owned()),
            labels: Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
            annotations: Some(BTreeMap::from(annotations.map(|(key, value)| (key.to_owned(), value)))),
            owner_references: Some(vec![yoipod.owner_reference()]),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            tolerations,
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            containers: vec![container],
            restart_policy: Some("Never".to_owned()),
            security_context: Some(restricted::pod_security(spec.owner)),
            termination_grace_period_seconds: Some(5),
            active_deadline_seconds: Some(DEADLINE),
            volumes: Some(volumes),
            ..PodSpec::default()
        }),
        status: None,
    }
}

fn environment(parts: &PodParts<'_>) -> Vec<EnvVar> {
    let PodParts { git, push, base, settings, .. } = parts;
    let gateway = &settings.gateway;
    let own = [
        ("BRANCH", push.branch.clone()),
        ("COMMIT", push.commit.clone().unwrap_or_default()),
        ("EXPECTED", push.expected.clone().unwrap_or_default()),
        ("BASE", base.clone().unwrap_or_default()),
        ("GATEWAY", gateway.service.clone()),
        ("GATEWAY_NAME", gateway.server_name.clone()),
        ("GATEWAY_CA", gateway.ca.clone()),
    ];
    // Kubernetes replaces `$(NAME)` in the values of variables, and `$$` by `$`. A branch may hold both.
    let own = own.map(|(name, value)| EnvVar { name: name.to_owned(), value: Some(value.replace('$', "$$")), value_from: None });
    source_environment(git, settings).into_iter().chain(own).collect()
}
