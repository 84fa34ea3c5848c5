//! A team's skills, commands and knowledge: what of it agents of a project read, and how.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::pod::{ConfigMapKeyRef, SecretRef};
use crate::source::{
    GIT_URL_MESSAGE, GIT_URL_RULE, NO_USER_MESSAGE, NO_USER_RULE, NOT_IN_THE_CLEAR_MESSAGE, NOT_IN_THE_CLEAR_RULE, REF_PATTERN,
    SSH_MESSAGE, SSH_RULE,
};

/// The most sets of one project.
pub const MAX_SETS: usize = 8;
const DIR_PATTERN: &str = r"^\.(jido|agents|claude|github|gemini|jido_code)$";
const NAME_PATTERN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
const SET_RULE: &str = "[has(self.configMap), has(self.git), has(self.image)].filter(x, x).size() == 1";
const SET_MESSAGE: &str = "a set is exactly one of configMap, git and image";
const NAMED_RULE: &str = "has(self.name) != has(self.configMap)";
const NAMED_MESSAGE: &str = "a set of git or of an image needs a name, by which it is listed; that of a configMap has the ConfigMap's";
const SETS_RULE: &str = "self.all(x, !has(x.configMap) || self.exists_one(y, has(y.configMap) && y.configMap.name == x.configMap.name))";
const SETS_MESSAGE: &str = "two sets are one ConfigMap";
const NAMES_RULE: &str = "self.all(x, !has(x.name) || self.exists_one(y, has(y.name) && y.name == x.name))";
const NAMES_MESSAGE: &str = "two sets have one name";
/// Below a folder that is not named; no part of it is `.` or `..`.
const FOLDER_PATTERN: &str = r"^[A-Za-z0-9._@+-]+(/[A-Za-z0-9._@+-]+)*$";
const FOLDER_RULE: &str = "!('/' + self + '/').contains('/../') && !('/' + self + '/').contains('/./')";
const FOLDER_MESSAGE: &str = "path must not hold . or ..";
/// As an agent's image.
const REFERENCE_PATTERN: &str = r"^[A-Za-z0-9\[][-A-Za-z0-9._:/@+\[\]]*$";

/// Skills, commands, workflows and the skill graph, as agents of the project read them. A change counts from the next start of an agent on that takes the
/// project as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Assets {
    /// The folders of the tree that are read: `.jido`, `.agents`, `.claude`, `.github`, `.gemini`, `.jido_code`. Of two assets of one name that of the first
    /// in this order counts, whatever the order here. All of them when absent; none when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 6), inner(length(max = 16), regex(pattern = DIR_PATTERN)))]
    pub dirs: Option<Vec<String>>,
    /// Whether one file that is not as its format has it refuses all. What was loaded before counts on then, and the condition AssetsLoaded names the file.
    /// Else that file alone does not count.
    #[serde(default)]
    pub strict: bool,
    /// Whether files are watched: what changes counts soon, also for the next command of a run that is under way. Else it counts from the next run on.
    #[serde(default)]
    pub watch: bool,
    /// Sets that are not of the tree. They come after it: of two assets of one name the tree's counts, then that of the first set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_SETS))]
    #[x_kube(validation = (SETS_RULE, SETS_MESSAGE))]
    #[x_kube(validation = (NAMES_RULE, NAMES_MESSAGE))]
    pub from: Vec<AssetSource>,
}

/// Where a set of a team's is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = (SET_RULE, SET_MESSAGE))]
#[x_kube(validation = (NAMED_RULE, NAMED_MESSAGE))]
#[serde(rename_all = "camelCase")]
pub struct AssetSource {
    /// Of git and an image: by which it is listed, as `git/NAME` or `image/NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 50), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: Option<String>,
    /// A ConfigMap of the namespace. Its key `skills.NAME.md` is the skill NAME, and `commands.NAME.md` the command NAME. What is changed there reaches agents
    /// that run within about a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<AssetConfigMap>,
    /// A folder of a git repository that holds folders `skills` and `commands`. It is fetched at each start of an agent, as `ref` is then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<Box<AssetGit>>,
    /// A folder of a container image that holds folders `skills` and `commands`. It is read at each start of an agent, and nothing of the image is run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Box<AssetImage>>,
}

impl AssetSource {
    /// Whether it is of a kind that this version does not know, or of several. A schema of another version allowed it.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        let Self { name, config_map, git, image } = self;
        let count = [config_map.is_some(), git.is_some(), image.is_some()].iter().filter(|is_set| **is_set).count();
        count != 1 || name.is_some() == config_map.is_some()
    }
}

/// A ConfigMap with skills and commands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AssetConfigMap {
    #[schemars(length(min = 1, max = 253), regex(pattern = NAME_PATTERN))]
    pub name: String,
}

/// A git repository with skills and commands. The agent's Pod fetches it before the agent starts, so `agents.egress` of the chart must let it reach the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = (NO_USER_RULE, NO_USER_MESSAGE))]
#[x_kube(validation = (NOT_IN_THE_CLEAR_RULE, NOT_IN_THE_CLEAR_MESSAGE))]
#[x_kube(validation = (SSH_RULE, SSH_MESSAGE))]
#[serde(rename_all = "camelCase")]
pub struct AssetGit {
    /// As `spec.source.git.url`.
    #[schemars(length(max = 1024))]
    #[x_kube(validation = (GIT_URL_RULE, GIT_URL_MESSAGE))]
    pub url: String,
    /// Branch, tag, full commit id, or a ref such as `refs/pull/7/head`; the remote's HEAD when absent.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 250), regex(pattern = REF_PATTERN))]
    pub ref_: Option<String>,
    /// A Secret of the namespace, as `spec.source.git.credentialsSecretRef`. Only the container that fetches mounts it, and it ends before the agent starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_secret_ref: Option<SecretRef>,
    /// Key of a ConfigMap of the namespace with PEM certificates that are trusted beside the public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_ref: Option<ConfigMapKeyRef>,
    /// The folder that holds `skills` and `commands`, such as `.claude`; the repository's root when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 250), regex(pattern = FOLDER_PATTERN))]
    #[x_kube(validation = (FOLDER_RULE, FOLDER_MESSAGE))]
    pub path: Option<String>,
}

/// A container image with skills and commands. The node pulls it, with the `imagePullSecrets` of the agent's Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
pub struct AssetImage {
    /// By tag or digest. A tag that moves is pulled again where it is `latest`, and else only onto nodes that have none of that name.
    #[schemars(length(min = 1, max = 512), regex(pattern = REFERENCE_PATTERN))]
    pub reference: String,
    /// The folder that holds `skills` and `commands`, from the image's root on; that root when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 250), regex(pattern = FOLDER_PATTERN))]
    #[x_kube(validation = (FOLDER_RULE, FOLDER_MESSAGE))]
    pub path: Option<String>,
}

/// What the runtime has last said of the agent's skills, commands and workflows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AssetsStatus {
    /// How often the agent's process has read them. 0: it has not, or was refused each time.
    pub generation: i64,
    /// Skills that count.
    pub skills: i32,
    /// Commands that count.
    pub commands: i32,
    /// Workflows that are as their format has it.
    pub workflows: i32,
    /// Nodes of the skill graph.
    pub nodes: i32,
    /// Errors in files.
    pub errors: i32,
    /// Whether reading is strict and the files as they are now are refused: what counts is what was loaded before.
    #[serde(default)]
    pub refused: bool,
    /// The first errors, as `FILE:LINE: sentence`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5), inner(length(max = 300)))]
    pub first_errors: Vec<String>,
}
