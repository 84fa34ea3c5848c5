//! The body of a workflow: headings for its steps, and a bullet for each of their fields.

use crate::diagnostic::quote;
use crate::reading::Reading;
use crate::workflow::{Step, StepKind, Workflow};

use super::read::{is_name, name_fault};

const MAX_STEPS: usize = 500;
/// How many fields, and how many entries of one, a step may have.
const MAX_FIELDS: usize = 64;

/// A field of a step: `- **key**: value`, with the bullets below it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    key: String,
    value: String,
    below: Vec<String>,
    line: u32,
}

/// A heading of the third level, or the fields before the first.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Block {
    section: Section,
    name: String,
    line: u32,
    fields: Vec<Field>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Section {
    Steps,
    Errors,
    Return,
    Other,
}

/// Reads the steps, what undoes them, and what is returned.
pub(super) fn read(reading: &mut Reading<'_>, workflow: &mut Workflow, body: &str, first_line: u32) {
    let blocks = blocks(body, first_line);
    if blocks.len() > MAX_STEPS {
        return reading.error(Some(first_line), format!("has more than {MAX_STEPS} steps"));
    }
    for block in blocks {
        match block.section {
            Section::Steps if block.name.is_empty() => {}
            Section::Steps => {
                if !is_name(&block.name) {
                    reading.error(Some(block.line), name_fault("step", &block.name));
                }
                if workflow.steps.iter().any(|step| step.name == block.name) {
                    reading.error(Some(block.line), format!("has the step {} twice", quote(&block.name)));
                }
                workflow.steps.extend(read_step(reading, block));
            }
            Section::Errors => {
                if let Some(step) = block.name.strip_prefix("compensate:").map(|step| step.trim().to_owned()) {
                    let undo = read_step(reading, block);
                    workflow.compensations.extend(undo.map(|undo| (step, undo)));
                } else if !block.name.is_empty() {
                    reading.error(Some(block.line), format!("has {} below Error Handling: write compensate:STEP", quote(&block.name)));
                }
            }
            Section::Return => {
                for field in block.fields {
                    match field.key.as_str() {
                        "value" => workflow.return_value = Some(plain(&field.value).to_owned()),
                        "transform" => {
                            workflow.return_transform = Some(plain(&field.value).to_owned());
                            reading.warning(Some(field.line), "transform is a program's text, which is never run");
                        }
                        key => reading.error(Some(field.line), format!("the key {} of Return is not known", quote(key))),
                    }
                }
            }
            Section::Other => {}
        }
    }
    if workflow.steps.is_empty() && reading.is_valid() {
        reading.error(Some(first_line), "has no steps: write ### NAME below ## Steps");
    }
}

fn blocks(body: &str, first_line: u32) -> Vec<Block> {
    let mut blocks: Vec<Block> = vec![];
    let (mut section, mut in_code) = (Section::Other, false);
    for (text, line) in body.lines().zip(first_line..) {
        let start = text.trim_start();
        if start.starts_with("```") || start.starts_with("~~~") {
            in_code = !in_code;
        } else if in_code {
            // Code may look like anything.
        } else if let Some(heading) = text.strip_prefix("## ") {
            section = match heading.trim().to_lowercase().as_str() {
                "steps" => Section::Steps,
                "error handling" => Section::Errors,
                "return" => Section::Return,
                _ => Section::Other,
            };
            blocks.push(Block { section, name: String::new(), line, fields: vec![] });
        } else if let Some(heading) = text.strip_prefix("### ") {
            blocks.push(Block { section, name: plain(heading).to_owned(), line, fields: vec![] });
        } else if let Some(bullet) = start.strip_prefix("- ").or_else(|| start.strip_prefix("* "))
            && let Some(block) = blocks.last_mut()
        {
            if start.len() == text.len() {
                block.fields.extend(field(bullet, line));
            } else if let Some(last) = block.fields.last_mut() {
                last.below.push(bullet.trim().to_owned());
            }
        }
        // Far more than any workflow has: the rest would only be counted.
        if blocks.len() > MAX_STEPS {
            break;
        }
    }
    blocks
}

/// `**key**: value`.
fn field(bullet: &str, line: u32) -> Option<Field> {
    let (key, value) = bullet.trim().strip_prefix("**")?.split_once("**")?;
    let key = key.trim().trim_end_matches(':');
    let value = value.trim_start().trim_start_matches(':').trim();
    Some(Field { key: key.to_lowercase(), value: value.to_owned(), below: vec![], line })
}

/// Without the backticks or quotes around it.
fn plain(text: &str) -> &str {
    let text = text.trim();
    let inner = |sign: char| text.strip_prefix(sign)?.strip_suffix(sign).filter(|inner| !inner.contains(sign));
    inner('`').or_else(|| inner('"')).unwrap_or(text)
}

fn read_step(reading: &mut Reading<'_>, block: Block) -> Option<Step> {
    let mut step = Step {
        name: block.name,
        line: block.line,
        kind: StepKind::Action(String::new()),
        inputs: vec![],
        outputs: vec![],
        depends_on: vec![],
        is_async: false,
        optional: false,
        condition: None,
        parallel: false,
        timeout_ms: None,
        max_retries: None,
        callback_signal: None,
        pre_actions: vec![],
        post_actions: vec![],
    };
    let (mut kind, mut target) = (None, None);
    if block.fields.len() > MAX_FIELDS {
        reading.error(Some(step.line), format!("the step {} has more than {MAX_FIELDS} fields", quote(&step.name)));
    }
    for field in block.fields.into_iter().take(MAX_FIELDS) {
        let line = Some(field.line);
        if field.below.len() > MAX_FIELDS {
            reading.error(line, format!("{} has more than {MAX_FIELDS} entries", field.key));
        }
        let text = plain(&field.value).to_owned();
        match field.key.as_str() {
            "type" => kind = Some(text),
            "module" | "agent" | "workflow" => target = Some((field.key, text)),
            "inputs" => step.inputs = pairs(reading, &field),
            "outputs" => step.outputs = items(&field),
            "depends_on" => step.depends_on = items(&field),
            "pre_actions" => step.pre_actions = items(&field),
            "post_actions" => step.post_actions = items(&field),
            "condition" => step.condition = Some(text),
            "callback_signal" => step.callback_signal = Some(text),
            "async" => step.is_async = boolean(reading, &field),
            "optional" => step.optional = boolean(reading, &field),
            "parallel" => step.parallel = boolean(reading, &field),
            "mode" if matches!(text.as_str(), "sync" | "async") => step.is_async = text == "async",
            "mode" => reading.error(line, format!("mode is {}: there are sync and async", quote(&text))),
            "timeout_ms" => step.timeout_ms = number(reading, &field),
            "max_retries" => step.max_retries = number(reading, &field),
            key => reading.error(line, format!("the key {} of the step {} is not known", quote(key), quote(&step.name))),
        }
    }
    step.kind = kind_of(reading, &step, kind.as_deref(), target)?;
    Some(step)
}

fn kind_of(reading: &mut Reading<'_>, step: &Step, kind: Option<&str>, target: Option<(String, String)>) -> Option<StepKind> {
    let key = match kind {
        Some("action" | "skill") => "module",
        Some("agent") => "agent",
        Some("sub_workflow") => "workflow",
        Some(other) => {
            let kinds = "there are action, agent, skill and sub_workflow";
            reading.error(Some(step.line), format!("the step {} has the type {}: {kinds}", quote(&step.name), quote(other)));
            return None;
        }
        None => {
            reading.error(Some(step.line), format!("the step {} has no type", quote(&step.name)));
            return None;
        }
    };
    let Some((_, target)) = target.filter(|(found, target)| found == key && !target.is_empty()) else {
        reading.error(Some(step.line), format!("the step {} has no {key}", quote(&step.name)));
        return None;
    };
    match kind {
        Some("agent") => Some(StepKind::Agent(target)),
        Some("skill") => Some(StepKind::Skill(target)),
        Some("sub_workflow") => Some(StepKind::SubWorkflow(target)),
        _ if crate::tools::is_tool(&target) => Some(StepKind::Action(target)),
        _ => {
            reading.error(Some(step.line), format!("the step {} names {}, which is no tool of Yoi's", quote(&step.name), quote(&target)));
            None
        }
    }
}

/// The bullets below a field, or what stands behind it: `[a, b]`, or with commas.
fn items(field: &Field) -> Vec<String> {
    let value = field.value.trim();
    let inner = value.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(value);
    let behind = inner.split(',').map(str::to_owned);
    let all = if value.is_empty() { field.below.clone() } else { behind.collect() };
    all.iter().map(|item| plain(item).to_owned()).filter(|item| !item.is_empty()).take(MAX_FIELDS).collect()
}

/// The bullets `name: value` below a field.
fn pairs(reading: &mut Reading<'_>, field: &Field) -> Vec<(String, String)> {
    let mut pairs = vec![];
    for item in field.below.iter().take(MAX_FIELDS) {
        match item.split_once(':') {
            Some((name, value)) => {
                pairs.push((plain(name.trim().trim_matches('*')).to_owned(), plain(value.trim_start_matches("**")).to_owned()))
            }
            None => reading.error(Some(field.line), format!("{} has {}, which is not NAME: VALUE", field.key, quote(item))),
        }
    }
    pairs
}

fn boolean(reading: &mut Reading<'_>, field: &Field) -> bool {
    match plain(&field.value) {
        "true" => return true,
        "false" => {}
        other => reading.error(Some(field.line), format!("{} is {}, not true or false", field.key, quote(other))),
    }
    false
}

fn number(reading: &mut Reading<'_>, field: &Field) -> Option<u64> {
    let number = plain(&field.value).parse().ok();
    if number.is_none() {
        reading.error(Some(field.line), format!("{} is no whole number", field.key));
    }
    number
}
