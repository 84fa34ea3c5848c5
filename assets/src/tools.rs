//! `allowed-tools`: rules that only narrow.

use yoi_wire::policy::{Rule, ToolName};

use crate::diagnostic::quote;
use crate::reading::Reading;
use crate::yaml::Node;

/// How many rules one asset may have.
const MAX_RULES: usize = 200;

/// Reads rules in any of the forms that programs take: with commas, with spaces, as a list. What is no rule of Yoi's allows nothing, and is told.
/// `None`: they narrow nothing.
pub(crate) fn rules(reading: &mut Reading<'_>, node: Node, key: &str) -> Option<Vec<String>> {
    let line = reading.line_of(&[key]);
    let words: Vec<String> = match node {
        Node::Null => vec![],
        Node::List(_) => reading.texts(node, key, line),
        Node::Map(_) => {
            reading.error(line, format!("{key} is a map, not text or a list"));
            return Some(vec![]);
        }
        text => words(&text.scalar().unwrap_or_default()),
    };
    if words.iter().any(|word| word.trim() == "*") {
        return None;
    }
    if words.len() > MAX_RULES {
        reading.error(line, format!("{key} has more than {MAX_RULES} rules"));
    }
    let mut rules: Vec<String> = vec![];
    for word in words.iter().take(MAX_RULES) {
        for text in in_our_form(word.trim()) {
            match Rule::parse(&text) {
                Ok(rule) if !rules.contains(&rule.text) => rules.push(rule.text),
                Ok(_) => {}
                // The list of known tools is long, and says nothing to who wrote this for another program.
                Err(yoi_wire::policy::RuleError::UnknownTool(tool)) => {
                    reading.warning(line, format!("{key} names the tool {}, which is none of Yoi's: it allows nothing", quote(&tool)));
                }
                Err(error) => reading.warning(line, format!("{key} has {} that {error}: it allows nothing", quote(&text))),
            }
        }
    }
    if rules.is_empty() && reading.is_valid() {
        reading.warning(line, format!("{key} allows no tool"));
    }
    Some(rules)
}

/// Whether a name is a tool that an agent of Yoi can have.
pub(crate) fn is_tool(name: &str) -> bool {
    ToolName::of_rule(name).is_some()
}

/// Cuts at commas and spaces outside of brackets.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut open) = (vec![], String::new(), 0_usize);
    for letter in text.chars() {
        match letter {
            '(' => open += 1,
            ')' => open = open.saturating_sub(1),
            _ => {}
        }
        if open == 0 && (letter == ',' || letter.is_whitespace()) {
            if !word.is_empty() {
                words.push(std::mem::take(&mut word));
            }
        } else {
            word.push(letter);
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// `Bash(git add:*)` of Claude Code is the command alone, or with arguments.
fn in_our_form(rule: &str) -> Vec<String> {
    match rule.strip_suffix(":*)") {
        Some(prefix) => vec![format!("{prefix})"), format!("{prefix} *)")],
        None => vec![rule.to_owned()],
    }
}
