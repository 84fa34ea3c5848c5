//! `explain` and `crds`, which need no cluster.

use yoi_crds::reason::{ALL, Reason};
use yoi_wire::hub::Activity;

use crate::args::OutputFormat;
use crate::error::Error;
use crate::show;

/// What the column ACTIVITY of agents says, its meaning, and the command that goes on from there.
const ACTIVITIES: [(Activity, &str, &str); 4] = [
    (Activity::Idle, "The agent waits for a message.", "kubectl yoi send NAME TEXT"),
    (Activity::Running, "A run of the agent is under way.", "kubectl yoi log -f NAME"),
    (Activity::Paused, "A person has paused the agent's run.", "kubectl yoi resume NAME"),
    (
        Activity::NeedsInput,
        "A call that the agent's policy asks about waits until a person says yes or no, or until spec.policy.approval.timeout is over.",
        "kubectl yoi approvals NAME",
    ),
];

/// Prints what an activity means.
fn explain_activity(output: Option<OutputFormat>, (activity, meaning, command): (Activity, &str, &str)) -> Result<(), Error> {
    let name = activity.as_str();
    let value = serde_json::json!({ "activity": name, "meaning": meaning, "command": command });
    show::object(output, &value, name, &format!("{name}: {meaning}\n  $ {command}"))
}

/// Prints what a reason, or an activity, means and what to do about it.
pub fn explain(output: Option<OutputFormat>, word: &str) -> Result<(), Error> {
    if let Some(activity) = ACTIVITIES.into_iter().find(|(activity, ..)| activity.as_str().eq_ignore_ascii_case(word)) {
        return explain_activity(output, activity);
    }
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
