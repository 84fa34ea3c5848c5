//! The Pod that looks at a project's git repository. Like the Pod that fills a base it mounts the source's credentials, and it mounts no tree.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, EnvVar, Pod, PodSpec, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use yoi_crds::YoiProject;
use yoi_crds::name::{annotation, label};
use yoi_crds::source::GitSource;

use crate::observed_pod::ObservedPod;
use crate::settings::Settings;
use crate::stored::Stored;
use crate::workspace::populate_pod::{environment, source_volumes};
use crate::{names, restricted};

/// What the Pod runs, as one argument of a shell. It writes the commit into the file that `ANSWER` names.
pub const LOOK_SCRIPT: &str = concat!(
    include_str!("../workspace/populate/words.sh"),
    include_str!("../workspace/populate/hosts.sh"),
    include_str!("../workspace/populate/credentials.sh"),
    include_str!("../workspace/populate/environment.sh"),
    include_str!("../workspace/populate/watch.sh"),
    include_str!("../workspace/populate/look.sh"),
);
pub(super) const CONTAINER: &str = "look";
/// How long git may take, beside the Pod's start.
const DEADLINE_SECONDS: i64 = 120;

/// A name that none of `looks` has: one whose node does not answer keeps its own.
pub(super) fn free_name(project: Stored<'_, YoiProject>, looks: &[Stored<'_, ObservedPod>]) -> String {
    let is_free = |name: &String| looks.iter().all(|pod| pod.name() != name);
    (1..).map(|number| names::look(project.name(), number)).find(is_free).unwrap_or_default()
}

/// `request` is that of a person, if there was one.
pub(super) fn pod(
    name: String,
    project: Stored<'_, YoiProject>,
    git: &GitSource,
    source: &str,
    request: Option<&str>,
    settings: &Settings,
) -> Pod {
    let spec = &project.get().spec;
    let labels = BTreeMap::from([
        (label::ROLE.to_owned(), label::ROLE_POPULATOR.to_owned()),
        (label::PROJECT.to_owned(), project.name().to_owned()),
    ]);
    let request = request.map(|request| (annotation::LOOK.to_owned(), request.to_owned()));
    let annotations = [(annotation::LOOKS_AT.to_owned(), source.to_owned())].into_iter().chain(request).collect();
    let (mut volumes, mut mounts) = (vec![restricted::empty("tmp")], vec![restricted::mount("tmp", "/tmp", false)]);
    for (volume, mount) in source_volumes(git) {
        volumes.push(volume);
        mounts.push(mount);
    }
    // What Kubernetes reads as the container's last words.
    let answer = EnvVar { name: "ANSWER".to_owned(), value: Some("/dev/termination-log".to_owned()), value_from: None };
    let container = Container {
        name: CONTAINER.to_owned(),
        image: Some(settings.populator_image.clone()),
        image_pull_policy: settings.image_pull_policy.map(restricted::pull_policy),
        command: Some(["/bin/sh", "-eu", "-c", LOOK_SCRIPT].map(str::to_owned).to_vec()),
        env: Some(environment(git, "", "", settings).into_iter().chain([answer]).collect()),
        working_dir: Some("/".to_owned()),
        resources: Some(settings.populator_resources.clone()),
        security_context: Some(restricted::container_security()),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        volume_mounts: Some(mounts),
        ..Container::default()
    };
    let tolerations: Option<Vec<Toleration>> =
        spec.defaults.pod.as_ref().map(|pod| pod.tolerations.clone()).filter(|tolerations| !tolerations.is_empty());
    Pod {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(project.namespace().to_owned()),
            labels: Some(labels),
            annotations: Some(annotations),
            owner_references: Some(vec![project.owner_reference()]),
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
            active_deadline_seconds: Some(DEADLINE_SECONDS),
            volumes: Some(volumes),
            ..PodSpec::default()
        }),
        status: None,
    }
}
