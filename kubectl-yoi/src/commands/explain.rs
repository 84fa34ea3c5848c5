//! `explain` and `crds`, which need no cluster.

use yoi_crds::reason::{ALL, Reason};

use crate::args::OutputFormat;
use crate::error::Error;
use crate::show;

/// Prints what a reason means and what to do about it.
pub fn explain(output: Option<OutputFormat>, word: &str) -> Result<(), Error> {
    let Some(reason) = Reason::from_name(word).or_else(|| ALL.iter().copied().find(|r| r.eq_ignore_ascii_case(word))) else {
        let near: Vec<_> = ALL.iter().filter(|r| r.to_lowercase().contains(&word.to_lowercase())).map(|r| r.as_str()).collect();
        let next = if near.is_empty() { "see docs/reasons.md".to_owned() } else { format!("did you mean {}?", near.join(" or ")) };
        return Err(Error::Missing { what: format!("a reason {word}"), next });
    };
    let value = serde_json::json!({ "reason": reason.as_str(), "meaning": reason.meaning(), "advice": reason.advice(), "command": reason.command() });
    let mut text = format!("{reason}: {}", reason.meaning());
    if let Some(advice) = reason.advice() {
        text.push_str(&format!("\n  {advice}"));
    }
    if let Some(command) = reason.command() {
        text.push_str(&format!("\n  $ {command}"));
    }
    show::object(output, &value, reason.as_str(), &text)
}

/// Prints the CRDs of this version as YAML documents.
pub fn crds() -> Result<(), Error> {
    for crd in yoi_crds::all() {
        show::print_as(OutputFormat::Yaml, &crd)?;
    }
    Ok(())
}
