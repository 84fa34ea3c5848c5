//! What drives an agent.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SecretRef;
use crate::open_enum::open_enum;
use crate::source::SUBDOMAIN;

/// The tools that a sub-agent can have.
pub const SUBAGENT_TOOLS: &str = r"^(Command|Edit|Glob|Graph|Grep|List|Read|Shell|ShellOutput|ShellStop|Skill|Write)$";

/// What drives the agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = ("[has(self.builtin), has(self.cli), has(self.command)].filter(x, x).size() == 1",
    "exactly one of builtin, cli and command must be set"))]
#[serde(rename_all = "camelCase")]
pub struct Agent {
    /// The runtime's own loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub builtin: Option<BuiltinAgent>,
    /// A coding agent's program in the agent's image, e.g. Claude Code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cli: Option<Box<CliAgent>>,
    /// Any program and its arguments. One process is one run: it is given what is asked on its standard input, its output is the answer, and its exit code the
    /// outcome. It needs no model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 64), inner(length(max = 4096), regex(pattern = r"^[^\x00]*$")))]
    #[x_kube(validation = ("size(self) == 0 || size(self[0]) > 0", "the first of command is the program, and must not be empty"))]
    pub command: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
pub struct BuiltinAgent {
    /// Added to the system prompt.
    #[serde(default)]
    #[schemars(length(max = 65_536))]
    pub instruction: String,
    /// What it may start for a part of its work, in its own process and tree, at most three at a time for each of its conversations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub subagents: Vec<Subagent>,
}

/// A template of sub-agents: a conversation with one task, which has nothing that the agent has not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Subagent {
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    #[x_kube(validation = ("self != 'main'", "main is the agent's own conversation"))]
    pub name: String,
    /// What it is for. The agent's model reads it.
    #[schemars(length(min = 1, max = 256), regex(pattern = r"\S"))]
    pub description: String,
    /// Added to its system prompt.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 16_384))]
    pub instruction: String,
    /// The only tools that it has, e.g. `Read` and `Grep`, as far as the agent has them: none of those for other agents.
    #[schemars(length(min = 1, max = 16), inner(length(max = 64), regex(pattern = SUBAGENT_TOOLS)))]
    pub tools: Vec<String>,
    /// A mode that it cannot leave; `Planning` leaves it what changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<SubagentMode>,
    /// How long it may work, in seconds; 300 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub seconds: Option<i32>,
    /// Model calls that it may have; those of a run of the agent when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub turns: Option<i32>,
    /// Tokens in and out that it may use; what the agent has left when absent. What it uses counts for the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub tokens: Option<i64>,
}

/// What a conversation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum SubagentMode {
    /// All of its tools run.
    Coding,
    /// Those run that change nothing.
    Planning,
    /// All of its tools run, and a run has the most steps.
    Engineering,
    /// Of another version.
    #[schemars(skip)]
    Unknown,
}
open_enum!(SubagentMode: Coding, Planning, Engineering);

/// A program that is driven as its preset says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = ("has(self.preset) != has(self.presetFrom)", "exactly one of preset and presetFrom must be set"))]
#[serde(rename_all = "camelCase")]
pub struct CliAgent {
    /// Name of a preset of the chart, e.g. `claude`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 50), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub preset: Option<String>,
    /// A preset of one's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset_from: Option<PresetSource>,
    /// Added to the preset's arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 4096), regex(pattern = r"^[^\x00]*$")))]
    pub args: Vec<String>,
    /// A Secret of this namespace with a login of the program's own. It is copied into the program's HOME, where the program and all that it starts can read it.
    /// Without it, the program's model is `spec.model` or that of the project, and no key of it is beside the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_secret_ref: Option<SecretRef>,
}

/// A key of a ConfigMap of this namespace that holds a preset as YAML, of at most 128 KiB.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PresetSource {
    #[schemars(length(min = 1, max = 253), regex(pattern = SUBDOMAIN))]
    pub name: String,
    #[serde(default = "default_preset_key")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^(\.?[-_a-zA-Z0-9])[-._a-zA-Z0-9]*$"))]
    pub key: String,
}

fn default_preset_key() -> String {
    "preset.yaml".to_owned()
}

impl Agent {
    /// The field that says something of another version: a member of the union that this version does not know is read as none.
    pub(crate) fn unknown_field(&self) -> Option<&'static str> {
        let Agent { builtin, cli, command } = self;
        if [builtin.is_some(), cli.is_some(), !command.is_empty()].iter().filter(|set| **set).count() != 1 {
            return Some("spec.agent");
        }
        if builtin.as_ref().is_some_and(|builtin| builtin.subagents.iter().any(|of| of.mode == Some(SubagentMode::Unknown))) {
            return Some("spec.agent.builtin.subagents.mode");
        }
        cli.as_ref().filter(|cli| cli.preset.is_some() == cli.preset_from.is_some()).map(|_| "spec.agent.cli")
    }

    /// Whether it cannot work without a model: the runtime's own loop, and a program that has no login of its own.
    #[must_use]
    pub fn needs_model(&self) -> bool {
        self.builtin.is_some() || self.cli.as_ref().is_some_and(|cli| cli.credentials_secret_ref.is_none())
    }

    /// What it is, in one word: `builtin`, the name of the preset or of the ConfigMap with it, or the command's file name.
    #[must_use]
    pub fn title(&self) -> &str {
        let Agent { builtin, cli, command } = self;
        match (builtin, cli, command.first()) {
            (Some(_), _, _) => "builtin",
            (None, Some(cli), _) => cli.preset.as_deref().or(cli.preset_from.as_ref().map(|from| from.name.as_str())).unwrap_or_default(),
            (None, None, Some(program)) => program.rsplit('/').next().unwrap_or_default(),
            (None, None, None) => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(text: &str) -> Agent {
        serde_json::from_str(text).expect("an agent is read")
    }

    #[test]
    fn an_agent_is_exactly_one_of_three_and_a_program_has_exactly_one_preset() {
        for known in [r#"{"builtin":{}}"#, r#"{"cli":{"preset":"p"}}"#, r#"{"cli":{"presetFrom":{"name":"m"}}}"#, r#"{"command":["true"]}"#]
        {
            assert_eq!(agent(known).unknown_field(), None, "{known}");
        }
        for unknown in [
            "{}",
            r#"{"tomorrow":{}}"#,
            r#"{"command":[]}"#,
            r#"{"builtin":{},"command":["true"]}"#,
            r#"{"builtin":{},"cli":{"preset":"p"}}"#,
        ] {
            assert_eq!(agent(unknown).unknown_field(), Some("spec.agent"), "{unknown}");
        }
        for unknown in [r#"{"cli":{}}"#, r#"{"cli":{"tomorrow":{}}}"#, r#"{"cli":{"preset":"p","presetFrom":{"name":"m"}}}"#] {
            assert_eq!(agent(unknown).unknown_field(), Some("spec.agent.cli"), "{unknown}");
        }
        let of_mode = |mode: &str| {
            let one = serde_json::json!({"name": "look", "description": "Looks.", "tools": ["Read"], "mode": mode});
            agent(&serde_json::json!({"builtin": {"subagents": [one]}}).to_string()).unknown_field()
        };
        assert_eq!((of_mode("Planning"), of_mode("Tomorrow")), (None, Some("spec.agent.builtin.subagents.mode")));
        assert_eq!(
            agent(r#"{"cli":{"presetFrom":{"name":"m"}}}"#).cli.and_then(|cli| Some(cli.preset_from?.key)).as_deref(),
            Some("preset.yaml")
        );
    }

    #[test]
    fn an_agent_of_an_earlier_version_is_written_as_it_was_read() {
        for text in [r#"{"builtin":{"instruction":""}}"#, r#"{"builtin":{"instruction":"Be brief."}}"#] {
            assert_eq!(serde_json::to_string(&agent(text)).expect("JSON"), text, "its manifests would all count as changed");
        }
    }

    #[test]
    fn only_a_command_and_a_program_with_a_login_can_do_without_a_model() {
        let table = [
            (r#"{"builtin":{}}"#, true, "builtin"),
            (r#"{"cli":{"preset":"claude"}}"#, true, "claude"),
            (r#"{"cli":{"preset":"claude","credentialsSecretRef":{"name":"login"}}}"#, false, "claude"),
            (r#"{"cli":{"presetFrom":{"name":"mine"}}}"#, true, "mine"),
            (r#"{"command":["/usr/bin/make","-j"]}"#, false, "make"),
        ];
        for (text, needs_model, title) in table {
            assert_eq!((agent(text).needs_model(), agent(text).title()), (needs_model, title), "{text}");
        }
    }
}
