//! What runs in a base before it is sealed.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::open_enum::open_enum;
use crate::pod::Resources;

/// A command that runs in every base of a project, once the source is in it and before it is sealed: what it builds is in every tree. It runs at the
/// path where agents see the tree, as the tree's owner, without the source's credentials and without a token. `HOME` and `/tmp` are its own and go with
/// it, so caches that shall stay belong below the tree. It may not move HEAD of a git source. A run that fails is tried again in a base that is made anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Prepare {
    /// The image that the command runs in: the one that the agents have, as a rule. It is pulled as the images of the project's agents are.
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^[A-Za-z0-9\[][-A-Za-z0-9._:/@+\[\]]*$"))]
    pub image: String,
    /// The command and its arguments, e.g. `["make", "-j4"]`. No shell reads it.
    #[schemars(length(min = 1, max = 64), inner(length(max = 16_384), regex(pattern = r"^[^\x00]*$")))]
    #[x_kube(validation = ("size(self[0]) > 0", "the first word of command is the program and must not be empty"))]
    pub command: Vec<String>,
    /// What it may reach in the network.
    #[serde(default)]
    pub egress: PrepareEgress,
    /// Those of the Pods that fill bases when absent.
    #[serde(default, skip_serializing_if = "Resources::is_empty")]
    pub resources: Resources,
    /// How long it may take, with the time to pull its image, e.g. `30m`, `2h`. `1h` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), regex(pattern = r"^[1-9][0-9]{0,5}(s|m|h)$"))]
    pub timeout: Option<String>,
}

/// What [`Prepare`] may reach in the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub enum PrepareEgress {
    /// What agents may reach, but for the gateway: DNS, and what the chart's `agents.egress` allows. The same code runs in agents later, and most builds
    /// fetch something.
    #[default]
    Agents,
    /// Nothing, not even names.
    None,
    /// Of another version.
    #[schemars(skip)]
    Unknown,
}
open_enum!(PrepareEgress: Agents, None);
