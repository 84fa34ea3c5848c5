//! A team's skills, commands and knowledge: what of it agents of a project read, and how.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The most sets of one project.
pub const MAX_SETS: usize = 8;
const DIR_PATTERN: &str = r"^\.(jido|agents|claude|github|gemini|jido_code)$";
const NAME_PATTERN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
const SET_RULE: &str = "has(self.configMap)";
const SET_MESSAGE: &str = "a set is a configMap";
const SETS_RULE: &str = "self.all(x, !has(x.configMap) || self.exists_one(y, has(y.configMap) && y.configMap.name == x.configMap.name))";
const SETS_MESSAGE: &str = "two sets are one ConfigMap";

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
    pub from: Vec<AssetSource>,
}

/// Where a set of a team's is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = (SET_RULE, SET_MESSAGE))]
#[serde(rename_all = "camelCase")]
pub struct AssetSource {
    /// A ConfigMap of the namespace. Its key `skills.NAME.md` is the skill NAME, and `commands.NAME.md` the command NAME. What is changed there reaches agents
    /// that run within about a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<AssetConfigMap>,
}

/// A ConfigMap with skills and commands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AssetConfigMap {
    #[schemars(length(min = 1, max = 253), regex(pattern = NAME_PATTERN))]
    pub name: String,
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
