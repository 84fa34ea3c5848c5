//! Of several assets of one name the first wins, and the others are listed with its path.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::AssetSnapshot;
use crate::diagnostic::{Diagnostics, quote};
use crate::{AssetState, Level, Source, StepKind, Strictness, workflow};

/// Names with the path of who has them, and the set that it is of.
type Taken = BTreeMap<String, (String, String)>;

pub(super) fn settle(snapshot: &mut AssetSnapshot, strictness: Strictness, diagnostics: &mut Diagnostics) {
    diagnostics.begin_file();
    let mut taken = Taken::new();
    for skill in &mut snapshot.skills {
        let shadowed = shadow(&mut taken, "skill", &skill.name, &skill.path, skill.source, &skill.state, strictness, diagnostics);
        if let Some(state) = shadowed {
            Arc::make_mut(skill).state = state;
        }
    }
    // A skill that people may call is called as a command is, and wins.
    let callable = snapshot.skills.iter().filter(|skill| skill.state.is_valid() && skill.for_people);
    let skills: BTreeMap<&str, &str> = callable.map(|skill| (skill.name.as_str(), skill.path.as_str())).collect();
    let mut taken = Taken::new();
    for command in &mut snapshot.commands {
        let shadowed = shadow(&mut taken, "command", &command.name, &command.path, command.source, &command.state, strictness, diagnostics);
        if let Some(state) = shadowed {
            Arc::make_mut(command).state = state;
        }
        if let Some(by) = skills.get(command.name.as_str()).filter(|_| command.state.is_valid()) {
            diagnostics.begin_file();
            diagnostics.push(&command.path, None, Level::Warning, format!("is not called: /{} is the skill {by}", command.name));
            Arc::make_mut(command).state = AssetState::Shadowed { by: (*by).to_owned() };
        }
    }
    let mut taken = Taken::new();
    for workflow in &mut snapshot.workflows {
        let shadowed =
            shadow(&mut taken, "workflow", &workflow.name, &workflow.path, workflow.source, &workflow.state, strictness, diagnostics);
        if let Some(state) = shadowed {
            Arc::make_mut(workflow).state = state;
        }
    }
    check_sub_workflows(snapshot, &taken, diagnostics);
    workflow::settle_triggers(&mut snapshot.triggers, &snapshot.workflows, strictness, diagnostics);
}

/// The state of an asset whose name is taken.
#[allow(clippy::too_many_arguments, reason = "three kinds of assets have these in common, and no type")]
fn shadow(
    taken: &mut Taken,
    what: &str,
    name: &str,
    path: &str,
    source: Source,
    state: &AssetState,
    strictness: Strictness,
    diagnostics: &mut Diagnostics,
) -> Option<AssetState> {
    // One that is invalid takes no name: what else is called so is in effect.
    if matches!(state, AssetState::Invalid { .. }) {
        return None;
    }
    let set = source.name_of(path);
    let Some((by, set_of_first)) = taken.get(name) else {
        taken.insert(name.to_owned(), (path.to_owned(), set.to_owned()));
        return None;
    };
    // Two in one set are a mistake; in two sets, one is there to stand before the other.
    let is_mistake = set_of_first == set && strictness == Strictness::Strict;
    let level = if is_mistake { Level::Error } else { Level::Warning };
    diagnostics.begin_file();
    diagnostics.push(path, None, level, format!("is not in effect: the {what} {} is {by}, which comes first", quote(name)));
    Some(AssetState::Shadowed { by: by.clone() })
}

/// A workflow that runs one that is not there cannot be run.
fn check_sub_workflows(snapshot: &mut AssetSnapshot, taken: &Taken, diagnostics: &mut Diagnostics) {
    for workflow in snapshot.workflows.iter_mut().filter(|workflow| workflow.state.is_valid()) {
        let missing = workflow.steps.iter().find_map(|step| match &step.kind {
            StepKind::SubWorkflow(name) if !taken.contains_key(name) => Some((step.line, name)),
            StepKind::SubWorkflow(_) | StepKind::Action(_) | StepKind::Agent(_) | StepKind::Skill(_) => None,
        });
        if let Some((line, name)) = missing {
            let reason = format!("runs the workflow {}, which is not there", quote(name));
            diagnostics.begin_file();
            diagnostics.push(&workflow.path, Some(line), Level::Error, reason.clone());
            Arc::make_mut(workflow).state = AssetState::invalid(reason, Some(line));
        }
    }
}
