//! Sub-agents: conversations that a model starts from a template of its project, for one task, in the agent's own process.

use serde::{Deserialize, Serialize};

use crate::conversation::is_other_name;
use crate::mode::Mode;
use crate::policy::{Rule, RuleError, ToolPolicy};

/// Sub-agents of one conversation that run at a time.
pub const MAX_SUBAGENTS: usize = 3;
/// The tools that a sub-agent can have, sorted: not those for other agents and for sub-agents.
pub const SUBAGENT_TOOLS: [&str; 12] =
    ["Command", "Edit", "Glob", "Graph", "Grep", "List", "Read", "Shell", "ShellOutput", "ShellStop", "Skill", "Write"];
/// Templates of a project.
pub const MAX_TEMPLATES: usize = 16;
/// How long a sub-agent may work, unless its template says otherwise, in seconds.
pub const DEFAULT_SECONDS: u32 = 300;
/// The longest that a template may say, in seconds.
pub const MAX_SECONDS: u32 = 3600;
/// Bytes of a template's description.
const MAX_DESCRIPTION: usize = 1024;
/// Bytes of a template's instruction.
const MAX_INSTRUCTION: usize = 64 << 10;

/// What a sub-agent is, and how much narrower than the agent it is. It has nothing that the agent has not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SubagentTemplate {
    /// Its name: 1 to 63 lower-case letters, digits and `-`.
    pub name: String,
    /// What it is for. The agent's model reads it.
    pub description: String,
    /// Added to its system prompt.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instruction: String,
    /// The tools that it has, as far as the agent has them.
    pub tools: Vec<String>,
    /// A mode that it cannot leave; absent: all of its tools run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Rules beside those of the agent by which its calls are refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
    /// Rules beside those of the agent by which a person is asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ask: Vec<String>,
    /// Its calls have to match one of these rules, too; none: those of the agent alone count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// How long it may work; absent: [`DEFAULT_SECONDS`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u32>,
    /// Model calls that it may have; absent: those of a run of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
    /// Tokens in and out that it may use; absent: what the agent has left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
}

/// Why a template is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubagentTemplateError {
    /// The name is none.
    #[error("{0:?} is no name of a sub-agent's template: 1 to 63 lower-case letters, digits and `-`, which is neither first nor last")]
    Name(String),
    /// Two of one name.
    #[error("there are two templates of sub-agents with the name {0}")]
    Twice(String),
    /// There are more than [`MAX_TEMPLATES`].
    #[error("there are {0} templates of sub-agents, and {MAX_TEMPLATES} are allowed")]
    TooMany(usize),
    /// A field of it.
    #[error("the template {name} of a sub-agent: {why}")]
    Field {
        /// Of the template.
        name: String,
        /// A clause.
        why: String,
    },
    /// A rule of it.
    #[error("the template {name} of a sub-agent: the rule {rule:?} {why}")]
    Rule {
        /// Of the template.
        name: String,
        /// As it was written.
        rule: String,
        /// Why it is none.
        why: RuleError,
    },
}

impl SubagentTemplate {
    /// How long a sub-agent of it may work, in seconds.
    #[must_use]
    pub fn most_seconds(&self) -> u32 {
        self.seconds.unwrap_or(DEFAULT_SECONDS)
    }

    /// The policy of a sub-agent of it: that of the agent, narrowed.
    #[must_use]
    pub fn narrowed(&self, policy: &ToolPolicy) -> ToolPolicy {
        let mut policy = policy.clone();
        policy.deny.extend(self.deny.iter().cloned());
        policy.ask.extend(self.ask.iter().cloned());
        if !self.allow.is_empty() {
            policy.allow.push(self.allow.clone());
        }
        policy
    }

    fn check(&self) -> Result<(), SubagentTemplateError> {
        let Self { name, description, instruction, tools, mode: _, deny, ask, allow, seconds, turns, tokens } = self;
        if !is_other_name(name) {
            return Err(SubagentTemplateError::Name(name.clone()));
        }
        let wrong = |why: String| Err(SubagentTemplateError::Field { name: name.clone(), why });
        if description.trim().is_empty() || description.len() > MAX_DESCRIPTION {
            return wrong(format!("its description has 1 to {MAX_DESCRIPTION} bytes"));
        }
        if instruction.len() > MAX_INSTRUCTION {
            return wrong(format!("its instruction has at most {MAX_INSTRUCTION} bytes"));
        }
        if tools.is_empty() {
            return wrong("it has no tools".to_owned());
        }
        if seconds.is_some_and(|seconds| seconds == 0 || seconds > MAX_SECONDS) {
            return wrong(format!("it may work for 1 to {MAX_SECONDS} s"));
        }
        if turns.is_some_and(|turns| turns == 0) || tokens.is_some_and(|tokens| tokens == 0) {
            return wrong("a limit of nothing lets it do nothing: leave it out, or say how much".to_owned());
        }
        for rule in [deny, ask, allow].into_iter().flatten() {
            Rule::parse(rule).map_err(|why| SubagentTemplateError::Rule { name: name.clone(), rule: rule.clone(), why })?;
        }
        Ok(())
    }
}

/// Checks the templates of a project, as far as they say it themselves.
///
/// # Errors
/// The first that is none.
pub fn check_templates(templates: &[SubagentTemplate]) -> Result<(), SubagentTemplateError> {
    if templates.len() > MAX_TEMPLATES {
        return Err(SubagentTemplateError::TooMany(templates.len()));
    }
    for (place, template) in templates.iter().enumerate() {
        template.check()?;
        if templates.iter().take(place).any(|other| other.name == template.name) {
            return Err(SubagentTemplateError::Twice(template.name.clone()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template() -> SubagentTemplate {
        SubagentTemplate {
            name: "look".to_owned(),
            description: "Looks.".to_owned(),
            tools: vec!["Read".to_owned()],
            ..SubagentTemplate::default()
        }
    }

    #[test]
    fn p38_a_template_that_is_none_is_refused_by_name_and_one_only_narrows() {
        assert_eq!(check_templates(&[template()]), Ok(()));
        let bad = [
            (SubagentTemplate { name: "Look".to_owned(), ..template() }, "is no name"),
            (SubagentTemplate { description: " ".to_owned(), ..template() }, "description"),
            (SubagentTemplate { tools: Vec::new(), ..template() }, "it has no tools"),
            (SubagentTemplate { seconds: Some(MAX_SECONDS + 1), ..template() }, "1 to 3600 s"),
            (SubagentTemplate { tokens: Some(0), ..template() }, "a limit of nothing"),
            (SubagentTemplate { deny: vec!["Shel".to_owned()], ..template() }, "\"Shel\""),
        ];
        for (bad, words) in bad {
            let error = check_templates(&[bad]).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(words), "{error}");
        }
        assert_eq!(check_templates(&[template(), template()]), Err(SubagentTemplateError::Twice("look".to_owned())));
        let of_agent = ToolPolicy { deny: vec!["Shell(rm *)".to_owned()], allow: vec![vec!["Read".to_owned()]], ..ToolPolicy::default() };
        let narrow = SubagentTemplate { deny: vec!["Grep".to_owned()], allow: vec!["Read(docs/**)".to_owned()], ..template() };
        let policy = narrow.narrowed(&of_agent);
        assert_eq!(policy.deny, ["Shell(rm *)", "Grep"]);
        assert_eq!(policy.allow, [vec!["Read".to_owned()], vec!["Read(docs/**)".to_owned()]], "a call has to match both lists");
    }
}
