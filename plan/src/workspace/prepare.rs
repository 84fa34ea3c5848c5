//! The Pod that runs a project's `prepare` in a base. It mounts the base and nothing of the source's.
//!
//! Where the source is git, the command is an init container, and the Pod's one container then checks that HEAD is where it was: a generation is of one
//! commit on every node. The kubelet starts it when the command and every process of it have ended, so nothing changes what it reads.

use k8s_openapi::api::core::v1::{Container, LocalObjectReference, Pod, PodSpec, Toleration};
use yoi_crds::AgentWorkspace;
use yoi_crds::name::annotation::LOOK;
use yoi_crds::name::label;
use yoi_crds::pod::PodSettings;
use yoi_crds::prepare::Prepare;
use yoi_crds::source::{DEFAULT_PATH, TreeOwner};

use super::populate::ATTEMPT;
use super::populate_report::{Filled, cut, last_words, why_ended};
use crate::node_affinity::NodeChoice;
use crate::observed_pod::ObservedPod;
use crate::settings::Settings;
use crate::stored::Stored;
use crate::{duration, names, restricted};

pub(super) const CONTAINER: &str = "prepare";
/// What the container runs that looks at HEAD after the command, as one argument of a shell.
pub const HEAD_SCRIPT: &str =
    concat!(include_str!("populate/words.sh"), include_str!("populate/hosts.sh"), include_str!("populate/head.sh"));
const HEAD_CONTAINER: &str = "head";
/// Names the container whose output `kubectl logs` prints.
const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";
/// Where agents have theirs, too.
const HOME: &str = "/home/agent";
/// Seconds that the command may take if the project does not say.
const TIMEOUT: i64 = 3600;

/// What a Pod is made from that prepares a base.
pub(super) struct PreparePod<'a> {
    pub base: Stored<'a, AgentWorkspace>,
    pub prepare: &'a Prepare,
    /// How the images of the project's agents are pulled and run.
    pub agents: Option<&'a PodSettings>,
    pub owner: TreeOwner,
    pub node: &'a str,
    /// That of the Pod which has filled the base.
    pub attempt: u32,
    /// What that Pod says of the base; `None` where the source is not git.
    pub filled: Option<&'a Filled>,
    /// The request of a person that this attempt answers.
    pub asked: Option<&'a str>,
    pub tolerations: Option<Vec<Toleration>>,
    pub settings: &'a Settings,
}

impl PreparePod<'_> {
    pub(super) fn pod(self) -> Pod {
        let PreparePod { base, prepare, agents, owner, node, attempt, filled, asked, tolerations, settings } = self;
        let Prepare { image, command, egress, resources, timeout } = prepare;
        let egress = egress.to_string();
        let labels = [(label::ROLE, label::ROLE_PREPARE), (label::EGRESS, egress.as_str()), (label::WORKSPACE, base.name())];
        let seconds =
            timeout.as_deref().and_then(|text| duration::parse(text).ok()).and_then(|timeout| i64::try_from(timeout.as_secs()).ok());
        let pull_secrets = agents.map(|agents| agents.image_pull_secrets.as_slice()).unwrap_or_default();
        // A base has a path in its spec from the first write on.
        let path = base.get().tree_path().unwrap_or(DEFAULT_PATH);
        let (volumes, mounts) = [
            (restricted::tree_volume(base.uid(), false), restricted::mount("tree", path, false)),
            (restricted::scratch("tmp", settings), restricted::mount("tmp", "/tmp", false)),
            (restricted::scratch("home", settings), restricted::mount("home", HOME, false)),
        ]
        .into_iter()
        .unzip();
        let container = Container {
            name: CONTAINER.to_owned(),
            image: Some(image.clone()),
            image_pull_policy: agents.and_then(|agents| agents.image_pull_policy).map(restricted::pull_policy),
            command: Some(command.clone()),
            env: Some(vec![restricted::variable("HOME", HOME)]),
            working_dir: Some(path.to_owned()),
            resources: Some(restricted::resources(resources).unwrap_or_else(|| settings.populator_resources.clone())),
            volume_mounts: Some(mounts),
            ..restricted::container()
        };
        let seconds = seconds.unwrap_or(TIMEOUT);
        let run = match filled {
            None => restricted::single_run(container, volumes, owner, seconds),
            Some(filled) => PodSpec {
                init_containers: Some(vec![container]),
                ..restricted::single_run(head_container(filled, path, settings), volumes, owner, seconds)
            },
        };
        let own = [(ATTEMPT, attempt.to_string()), (DEFAULT_CONTAINER, CONTAINER.to_owned())];
        let annotations = own.into_iter().chain(asked.map(|asked| (LOOK, asked.to_owned())));
        Pod {
            metadata: restricted::metadata(names::prepare(base.name(), attempt), base, labels, annotations),
            spec: Some(PodSpec {
                affinity: Some(NodeChoice::Only(vec![node.to_owned()]).affinity(None)),
                tolerations,
                image_pull_secrets: (!pull_secrets.is_empty())
                    .then(|| pull_secrets.iter().map(|secret| LocalObjectReference { name: secret.name.clone() }).collect()),
                runtime_class_name: agents.and_then(|agents| agents.runtime_class_name.clone()),
                ..run
            }),
            status: None,
        }
    }
}

fn head_container(filled: &Filled, path: &str, settings: &Settings) -> Container {
    let env = [("DEST", path), ("COMMIT", &filled.commit), ("BRANCH", &filled.branch)];
    let env = env.map(|(name, value)| restricted::variable(name, value)).to_vec();
    restricted::script_container(HEAD_CONTAINER, HEAD_SCRIPT, env, vec![restricted::mount("tree", path, true)], settings)
}

/// Why `pod`, which has failed, could not prepare its base: how the command ended and its last words, or that it has moved HEAD.
pub(super) fn failure(pod: Stored<'_, ObservedPod>) -> String {
    let has_failed = |container: &str| pod.terminated(container).filter(|ended| ended.exit_code != 0);
    let how = match (pod.reason.as_deref(), has_failed(CONTAINER)) {
        (Some("DeadlineExceeded"), _) => "it took longer than spec.prepare.timeout allows".to_owned(),
        (_, Some(ended)) => format!("the command ended with exit code {}", ended.exit_code),
        (_, None) if let Some(words) = has_failed(HEAD_CONTAINER).and_then(|_| last_words(pod.get(), HEAD_CONTAINER)) => {
            return format!("the base could not be prepared by Pod {}: {}", pod.name(), cut(&words));
        }
        (_, None) => why_ended(pod.get(), CONTAINER),
    };
    let words = last_words(pod.get(), CONTAINER).map(|words| format!(": {}", cut(&words))).unwrap_or_default();
    format!("the base could not be prepared by Pod {}: {how}{words}", pod.name())
}
