//! The Pod that looks at a project's git repository. Like the Pod that fills a base it mounts the source's credentials, and it mounts no tree.

use k8s_openapi::api::core::v1::{Pod, PodSpec};
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
    include_str!("../workspace/populate/branches.sh"),
    include_str!("../workspace/populate/commit.sh"),
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
    let labels = [(label::ROLE, label::ROLE_POPULATOR), (label::PROJECT, project.name())];
    let request = request.map(|request| (annotation::LOOK, request.to_owned()));
    let annotations = [(annotation::LOOKS_AT, source.to_owned())].into_iter().chain(request);
    let own = [(restricted::scratch("tmp", settings), restricted::mount("tmp", "/tmp", false))];
    let (volumes, mounts) = own.into_iter().chain(source_volumes(git)).unzip();
    // What Kubernetes reads as the container's last words.
    let answer = restricted::variable("ANSWER", "/dev/termination-log");
    let env = environment(git, "", "", settings).into_iter().chain([answer]).collect();
    let container = restricted::script_container(CONTAINER, LOOK_SCRIPT, env, mounts, settings);
    Pod {
        metadata: restricted::metadata(name, project, labels, annotations),
        spec: Some(PodSpec {
            tolerations: restricted::tolerations(spec.defaults.pod.as_ref()),
            ..restricted::single_run(container, volumes, spec.owner, DEADLINE_SECONDS)
        }),
        status: None,
    }
}
