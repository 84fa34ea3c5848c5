//! A child by a template: what its parent may start as a sub-agent, started as an agent of its own. It has nothing that its parent has not.

use yoi_crds::YoiPodSpec;
use yoi_crds::pod::{Subagent, SubagentMode};
use yoi_wire::hub::Refusal;
use yoi_wire::policy::Rule;

use super::invalid;
use crate::duration;

/// The longest instruction of an agent.
const MAX_INSTRUCTION: usize = 65_536;
/// Rules of a list of a policy.
const MAX_RULES: usize = 128;
/// The tools of templates that change something, which `Planning` takes away.
const WRITING: [&str; 5] = ["Command", "Edit", "Shell", "ShellStop", "Write"];

/// Narrows the child's spec, which is its parent's, as the template says.
///
/// # Errors
/// `Invalid`: there is no such template, or it leaves nothing that the child may do.
pub(super) fn narrow(spec: &mut YoiPodSpec, template: &str) -> Result<(), Refusal> {
    let Some(builtin) = spec.agent.builtin.as_mut() else {
        return Err(invalid("templates are of built-in agents, and this one is a program: leave template out".to_owned()));
    };
    let templates = std::mem::take(&mut builtin.subagents);
    let Some(Subagent { name, description: _, instruction, tools, mode, seconds, turns, tokens }) =
        templates.iter().find(|known| known.name == template)
    else {
        let known: Vec<&str> = templates.iter().map(|known| known.name.as_str()).collect();
        let known = if known.is_empty() { "none; spec.agent.builtin.subagents has them".to_owned() } else { known.join(", ") };
        return Err(invalid(format!("there is no template {template:?}; there are {known}")));
    };
    if !instruction.is_empty() {
        let separator = if builtin.instruction.is_empty() { "" } else { "\n\n" };
        builtin.instruction = format!("{}{separator}{instruction}", builtin.instruction);
    }
    if builtin.instruction.len() > MAX_INSTRUCTION {
        return Err(invalid(format!("with that of the template {name} the agent's instruction has more than {MAX_INSTRUCTION} bytes")));
    }
    let closed: &[&str] = if *mode == Some(SubagentMode::Planning) { &WRITING } else { &[] };
    let tools: Vec<String> = tools.iter().filter(|tool| !closed.contains(&tool.as_str())).cloned().collect();
    let policy = spec.policy.get_or_insert_default();
    let has_tool = |rule: &&String| Rule::parse(rule).is_ok_and(|rule| tools.iter().any(|tool| tool == rule.tool.as_str()));
    // A call that a rule of `ask` matches is allowed by a person's yes. Of another tool it is not asked for, but refused.
    let (asked, refused): (Vec<String>, Vec<String>) = policy.ask.drain(..).partition(|rule| has_tool(&rule));
    policy.ask = asked;
    policy.deny.extend(refused);
    if policy.deny.len() > MAX_RULES {
        return Err(invalid(format!("with the template {name} the agent's policy has more than {MAX_RULES} rules that deny")));
    }
    policy.allow = if policy.allow.is_empty() { tools } else { policy.allow.iter().filter(has_tool).cloned().collect() };
    // An empty list allows everything.
    if policy.allow.is_empty() {
        return Err(invalid(format!("the template {name} leaves none of the tools that the agent's policy allows")));
    }
    let least = |own: Option<i64>, of_template: Option<i64>| own.into_iter().chain(of_template).min();
    let limits = &mut spec.limits;
    limits.tokens = least(limits.tokens, *tokens);
    limits.turns_per_run = limits.turns_per_run.min(turns.unwrap_or(limits.turns_per_run));
    if let Some(seconds) = seconds.filter(|seconds| *seconds >= 10) {
        let of_template = format!("{seconds}s");
        let is_shorter = |own: &String| duration::parse(own).is_ok_and(|own| own.as_secs() <= u64::from(seconds.unsigned_abs()));
        limits.lifetime = limits.lifetime.take().filter(is_shorter).or(Some(of_template));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(more: Value) -> YoiPodSpec {
        let look = json!({ "name": "look", "description": "Looks.", "instruction": "Change nothing.", "tools": ["Read", "Grep", "Shell"],
            "mode": "Planning", "seconds": 60, "turns": 8, "tokens": 100 });
        let mut full =
            json!({ "projectRef": { "name": "p" }, "agent": { "builtin": { "instruction": "Be brief.", "subagents": [look] } } });
        full.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(full).unwrap()
    }

    #[test]
    fn c10_a_child_by_a_template_has_its_tools_instruction_and_limits_and_never_more_than_its_parent() {
        let mut plain = spec(json!({}));
        narrow(&mut plain, "look").unwrap();
        assert_eq!(plain.policy.as_ref().unwrap().allow, ["Read", "Grep"], "Planning leaves what changes nothing");
        let builtin = plain.agent.builtin.as_ref().unwrap();
        assert_eq!((builtin.instruction.as_str(), builtin.subagents.len()), ("Be brief.\n\nChange nothing.", 0));
        assert_eq!((plain.limits.tokens, plain.limits.turns_per_run, plain.limits.lifetime.as_deref()), (Some(100), 8, Some("60s")));

        let policy = json!({ "allow": ["Read(docs/**)", "Write"], "ask": ["Grep", "Shell(git push *)"], "deny": ["Read(docs/secret/**)"] });
        let mut narrower = spec(json!({ "policy": policy, "limits": { "tokens": 7, "turnsPerRun": 3, "lifetime": "30s" } }));
        narrow(&mut narrower, "look").unwrap();
        let policy = narrower.policy.as_ref().unwrap();
        assert_eq!(policy.allow, ["Read(docs/**)"]);
        assert_eq!(
            (&policy.ask[..], &policy.deny[..]),
            (&["Grep".to_owned()][..], &["Read(docs/secret/**)".to_owned(), "Shell(git push *)".to_owned()][..])
        );
        assert_eq!((narrower.limits.tokens, narrower.limits.turns_per_run, narrower.limits.lifetime.as_deref()), (Some(7), 3, Some("30s")));
    }

    #[test]
    fn a_template_that_is_not_there_or_leaves_nothing_is_refused_by_name() {
        let refused = |mut spec: YoiPodSpec, template| narrow(&mut spec, template).unwrap_err().message;
        assert!(refused(spec(json!({})), "build").contains("there is no template \"build\"; there are look"));
        assert!(refused(spec(json!({ "policy": { "allow": ["Write"] } })), "look").contains("leaves none of the tools"));
        let program = spec(json!({ "agent": { "command": ["true"] } }));
        assert!(refused(program, "look").contains("leave template out"));
    }
}
