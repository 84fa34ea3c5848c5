//! What an agent's calls of tools may do.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::open_enum::open_enum;

/// The form of a rule. Whether its tool and its pattern are any is said by the condition PolicyValid.
const RULE_PATTERN: &str = r"^[A-Za-z_][A-Za-z0-9_.-]{0,127}(\(.+\))?$";
const TIMEOUT_RULE: &str = "duration(self) >= duration('10s') && duration(self) <= duration('168h')";
const TIMEOUT_MESSAGE: &str = "is at least 10s and at most 168h";
const OUTSIDE_PATTERN: &str = r"^/[^/\x00][^\x00]*$";
const VARIABLE_PATTERN: &str = r"^[A-Za-z_][A-Za-z0-9_]*$";
const FILE_PATTERN: &str = r"^[^\x00]+$";
const HOST_PATTERN: &str = r"^([A-Za-z0-9_]([-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?)(\.[A-Za-z0-9_]([-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?)*$";
const SCHEME_PATTERN: &str = r"^[a-z][a-z0-9+.-]{0,31}$";

/// What calls of tools may do, whoever makes them: the model, a hook of a program, or its MCP client. Rules are `Tool` or `Tool(pattern)`, e.g. `Write`,
/// `Shell(git push *)`, `Read(docs/**)`, `WebFetch(domain:example.org)`. They are help and not a fence: a command may run a program that does anything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    /// A call that one of these rules matches is refused, whatever else allows it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), inner(length(min = 1, max = 512), regex(pattern = RULE_PATTERN)))]
    pub deny: Vec<String>,
    /// A call that one of these rules matches waits until a person says yes or no to it (`kubectl yoi approvals`), whatever else allows it. A program that is
    /// the agent waits where its hook asks before each call; else its call is refused. A YoiPod may add rules and takes none away.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), inner(length(min = 1, max = 512), regex(pattern = RULE_PATTERN)))]
    pub ask: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    /// Every call has to match one of these rules, or one of `ask`. When absent, all calls that are not denied are allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), inner(length(min = 1, max = 512), regex(pattern = RULE_PATTERN)))]
    pub allow: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sensitive_files: Option<SensitiveFiles>,
    /// Folders outside of the tree that the tools Read and List may look into, each with a reason. A YoiPod names only folders that lie in those of its project.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub outside: Vec<OutsideFolder>,
    /// Variables that a call may set for its command (`env` of the tool Shell). None: no variable. A YoiPod names only such as its project names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 128), regex(pattern = VARIABLE_PATTERN)))]
    pub environment: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<PolicyNetwork>,
    /// What becomes of secrets in what calls return: tokens and keys of known kinds, and the values of variables that come from Secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets_in_results: Option<SecretsInResults>,
}

/// What becomes of secrets in what calls return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum SecretsInResults {
    /// The model, the log and whoever watches see their kind alone. So it is when nothing is said.
    Redact,
    /// They stay. A YoiPod says so only where its project does not say `Redact`.
    Keep,
    /// Of another version.
    #[schemars(skip)]
    Unknown,
}
open_enum!(SecretsInResults: Redact, Keep);

/// How long a call waits for a person.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// A call that nobody has answered for so long is refused, e.g. `30m`; `1h` when absent. At least `10s`, at most `168h`. That of a YoiPod is no longer than
    /// its project's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), regex(pattern = r"^[1-9][0-9]{0,5}(s|m|h)$"))]
    #[x_kube(validation = (TIMEOUT_RULE, TIMEOUT_MESSAGE))]
    pub timeout: Option<String>,
}

/// Files that may hold secrets. No call may name one: `.env`, `.env.*`, `*.pem`, `*.key`, `id_rsa`, `id_ed25519`, and those that are added here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SensitiveFiles {
    /// More of them, as patterns of paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 256), regex(pattern = FILE_PATTERN)))]
    pub add: Vec<String>,
    /// Files that are none of them, as patterns of paths, e.g. `.env.example`. A YoiPod names only such as its project names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 256), regex(pattern = FILE_PATTERN)))]
    pub except: Vec<String>,
}

/// A folder outside of the tree. What may hold secrets stays closed in it, and so does what the frame of the agent's processes closes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OutsideFolder {
    /// Its absolute path, such as `/usr/include`.
    #[schemars(length(min = 2, max = 256), regex(pattern = OUTSIDE_PATTERN))]
    pub path: String,
    /// Why it may be read, in one CamelCase word, such as `SystemHeaders`. Each use is an event of the agent with this word.
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[A-Z][A-Za-z0-9]*$"))]
    pub reason: String,
}

/// Hosts that the arguments of calls may name. What a command or a program reaches by itself is the cluster's to close.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyNetwork {
    /// Names of hosts, each with all names below it. None: tools of the network are closed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253), regex(pattern = HOST_PATTERN)))]
    pub hosts: Vec<String>,
    /// Schemes of URLs.
    #[serde(default = "default_schemes")]
    #[schemars(length(min = 1, max = 8), inner(length(min = 1, max = 32), regex(pattern = SCHEME_PATTERN)))]
    pub schemes: Vec<String>,
}

fn default_schemes() -> Vec<String> {
    vec!["http".to_owned(), "https".to_owned()]
}
