//! Whether the steps of a workflow can be put in an order, and what they refer to is there.

use std::collections::{BTreeMap, BTreeSet};

use crate::diagnostic::quote;
use crate::reading::Reading;
use crate::workflow::{Step, Workflow};

/// Checks a workflow, and adds to the dependencies of each step those that its references show.
pub(super) fn check(reading: &mut Reading<'_>, workflow: &mut Workflow) {
    let names: BTreeSet<String> = workflow.steps.iter().map(|step| step.name.clone()).collect();
    let inputs: BTreeSet<String> = workflow.inputs.iter().map(|input| input.name.clone()).collect();
    let undo = workflow.compensations.iter_mut();
    for (step, undone) in workflow.steps.iter_mut().map(|step| (step, None)).chain(undo.map(|(of, step)| (step, Some(of.clone())))) {
        let line = Some(step.line);
        if let Some(of) = undone.filter(|of| !names.contains(of)) {
            reading.error(line, format!("undoes the step {}, which is not there", quote(&of)));
        }
        for name in step.depends_on.iter().filter(|name| !names.contains(*name)) {
            reading.error(line, format!("the step {} depends on {}, which is not there", quote(&step.name), quote(name)));
        }
        let values = step.inputs.iter().map(|(_, value)| value.as_str()).chain(step.condition.as_deref());
        let references: Vec<Reference> = values.flat_map(references).collect();
        for reference in references {
            match reference {
                Reference::Input(name) if inputs.contains(&name) => {}
                Reference::Input(name) => {
                    reading.error(line, format!("the step {} refers to the input {}, which is not there", quote(&step.name), quote(&name)));
                }
                Reference::Result(name) if !names.contains(&name) => {
                    reading.error(
                        line,
                        format!("the step {} refers to the result of {}, which is not there", quote(&step.name), quote(&name)),
                    );
                }
                Reference::Result(name) if !step.depends_on.contains(&name) => step.depends_on.push(name),
                Reference::Result(_) => {}
            }
        }
    }
    for reference in workflow.return_value.iter().flat_map(|value| references(value)) {
        match reference {
            Reference::Result(name) if !names.contains(&name) => {
                reading.error(None, format!("returns the result of {}, which is not there", quote(&name)));
            }
            Reference::Input(name) if !inputs.contains(&name) => {
                reading.error(None, format!("returns the input {}, which is not there", quote(&name)));
            }
            Reference::Result(_) | Reference::Input(_) => {}
        }
    }
    if let Some((cycle, line)) = cycle(&workflow.steps) {
        reading.error(Some(line), format!("the steps {cycle} depend on each other"));
    }
}

/// What a value refers to.
enum Reference {
    Input(String),
    Result(String),
}

/// The references `input:x` and `result:step.path` of a value.
fn references(value: &str) -> Vec<Reference> {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mut found = vec![];
    for (sign, make) in [("input:", Reference::Input as fn(String) -> Reference), ("result:", Reference::Result)] {
        for (at, _) in value.match_indices(sign) {
            let name: String = value[at + sign.len()..].chars().take_while(|letter| is_letter(*letter)).collect();
            // `my_input:` is another word.
            if !value[..at].ends_with(is_letter) && !name.is_empty() {
                found.push(make(name));
            }
        }
    }
    found
}

/// The steps of a cycle as `a -> b -> a`, and the line of the first.
fn cycle(steps: &[Step]) -> Option<(String, u32)> {
    let mut left: BTreeMap<&str, &Step> = steps.iter().map(|step| (step.name.as_str(), step)).collect();
    // Takes away, again and again, what waits for nothing that is left.
    loop {
        let ready: Vec<&str> = left
            .iter()
            .filter(|(_, step)| step.depends_on.iter().all(|name| !left.contains_key(name.as_str())))
            .map(|(name, _)| *name)
            .collect();
        if ready.is_empty() {
            break;
        }
        for name in ready {
            left.remove(name);
        }
    }
    // Each of what is left waits for another of it, so that the way along them comes back.
    let mut way: Vec<&Step> = vec![*left.values().next()?];
    loop {
        let last = way.last()?;
        let next = last.depends_on.iter().find_map(|name| left.get(name.as_str()))?;
        if let Some(from) = way.iter().position(|step| step.name == next.name) {
            let names: Vec<&str> = way.iter().skip(from).chain([next]).map(|step| step.name.as_str()).collect();
            let shown = names.len().min(12);
            let rest = if shown < names.len() { " -> ..." } else { "" };
            return Some((format!("{}{rest}", names[..shown].join(" -> ")), next.line));
        }
        way.push(next);
    }
}
