//! Search over all assets.

use serde::Serialize;

use crate::AssetSnapshot;

/// How many assets a search finds at most.
const MAX_FOUND: usize = 200;
/// The longest line that is shown of what was found.
const MAX_EXCERPT: usize = 200;

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names say it")]
pub enum FoundKind {
    Skill,
    Command,
    Workflow,
    Node,
}

/// An asset in which a text was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    /// What it is.
    pub kind: FoundKind,
    /// Its name; of a node, its id.
    pub name: String,
    /// Of its file, relative to the root.
    pub path: String,
    /// The first line that has the text; where only the name, the description or the path has it, that.
    pub excerpt: String,
}

impl AssetSnapshot {
    /// The assets in effect whose name, path, description or text has this text, in any case: skills, commands, workflows, nodes, each in order of
    /// precedence, 200 at most. An empty text finds nothing.
    #[must_use]
    pub fn search(&self, text: &str) -> Vec<Found> {
        let text = text.trim().to_lowercase();
        if text.is_empty() {
            return vec![];
        }
        let found = |kind, name: &str, path: &str, description: &str, body: &str| {
            let excerpt = [name, description, path].into_iter().chain(body.lines()).find(|line| line.to_lowercase().contains(&text))?;
            Some(Found { kind, name: name.to_owned(), path: path.to_owned(), excerpt: excerpt_of(excerpt) })
        };
        let skills = self.skills.iter().filter(|skill| skill.state.is_valid());
        let commands = self.commands.iter().filter(|command| command.state.is_valid());
        let workflows = self.workflows.iter().filter(|workflow| workflow.state.is_valid());
        skills
            .filter_map(|skill| found(FoundKind::Skill, &skill.name, &skill.path, &skill.description, &skill.body))
            .chain(
                commands.filter_map(|command| found(FoundKind::Command, &command.name, &command.path, &command.description, &command.body)),
            )
            .chain(workflows.filter_map(|workflow| found(FoundKind::Workflow, &workflow.name, &workflow.path, &workflow.description, "")))
            .chain(self.graph.nodes.values().filter_map(|node| found(FoundKind::Node, &node.id, &node.path, &node.title, &node.body)))
            .take(MAX_FOUND)
            .collect()
    }
}

fn excerpt_of(line: &str) -> String {
    line.trim().chars().take(MAX_EXCERPT).collect()
}
