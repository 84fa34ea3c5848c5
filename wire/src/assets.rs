//! What of an agent's tree counts as skills, commands and workflows, as `yoipods/assets` answers it.

use serde::{Deserialize, Serialize};

use crate::bundle::query_value;
use crate::zero::is_zero;

/// The longest text that is looked for, in bytes.
pub const MAX_SEARCH_BYTES: usize = 256;

/// How an agent reads its assets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AssetSettings {
    /// The folders of the tree that are read, such as `.claude`; absent: all that are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dirs: Option<Vec<String>>,
    /// A file that is not as its format has it refuses all: what was loaded before counts on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
    /// What changes counts soon, and not only when a run begins.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub watch: bool,
    /// Sets that are not of the tree, and come after it, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sets: Vec<AssetSet>,
}

impl AssetSettings {
    /// Whether nobody has said anything.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Whether somebody has said something of this project, and not of all.
    #[must_use]
    pub fn is_of_project(&self) -> bool {
        let Self { dirs, strict, watch, sets } = self;
        dirs.is_some() || *strict || *watch || sets.iter().any(|set| !set.optional)
    }
}

/// A team's set, mounted into the Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AssetSet {
    /// Kind and name of what it is made of, as `configmap/NAME`.
    pub name: String,
    /// Where it is mounted. Empty: it is fetched only when the agent starts, and this is no start.
    pub folder: String,
    /// It was fetched at the start. In its folder [`FILES`](crate::identity::ASSET_FILES) are the folders `skills` and `commands`, and beside them the
    /// [revision](crate::identity::ASSET_REVISION) or why there is [none](crate::identity::ASSET_FAILURE). Else each file is an asset.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fetched: bool,
    /// Nobody misses it where it is not there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

/// The most errors of an [`AssetsReport`] that are told one by one.
pub const MAX_REPORTED_ERRORS: usize = 5;
/// The longest of them, in characters.
pub const MAX_ERROR_CHARS: usize = 300;

/// What an agent's runtime reports of its assets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AssetsReport {
    /// How many count.
    #[serde(flatten)]
    pub counts: ReloadedAssets,
    /// Strict, and the files as they are now are refused: what counts is what was loaded before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
    /// The first errors as `FILE:LINE: sentence`, at most [`MAX_REPORTED_ERRORS`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub first_errors: Vec<String>,
}

/// Query of `GET yoipods/assets`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssetsQuery {
    /// Only what has this text in its name, path, description or text, in any case: the answer has it in `found`, and lists nothing. At most
    /// [`MAX_SEARCH_BYTES`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<String>,
}

impl AssetsQuery {
    /// The query as it stands in a URL, without `?`.
    #[must_use]
    pub fn to_url(&self) -> String {
        self.search.as_deref().map(|text| format!("search={}", query_value(text))).unwrap_or_default()
    }
}

/// Body of `POST yoipods/assets`: the agent's process reads them again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReloadAssets {
    /// One that is not as its format has it refuses the whole: what was loaded before counts on.
    #[serde(default)]
    pub strict: bool,
}

/// Answer to [`ReloadAssets`]: how many count now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReloadedAssets {
    /// How often the agent's process has read them.
    pub generation: u64,
    /// Equal where nothing has changed.
    pub digest: String,
    /// Skills that count.
    pub skills: u32,
    /// Commands that count.
    pub commands: u32,
    /// Workflows that are as their format has it.
    pub workflows: u32,
    /// Nodes of the skill graph.
    pub nodes: u32,
    /// Errors in files.
    pub errors: u32,
}

/// A team's set, as it was fetched when the agent started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FetchedSet {
    /// Kind and name, as `git/NAME`.
    pub name: String,
    /// Of git: the commit that it is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Why it is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// What a search has found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FoundAsset {
    /// `Skill`, `Command`, `Workflow` or `Node`.
    pub kind: String,
    /// By which it is called; of a node of the skill graph, its id.
    pub name: String,
    /// Its file, relative to the root.
    pub path: String,
    /// The first line that has the text.
    pub excerpt: String,
}

/// Answer of `yoipods/assets`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AssetsResponse {
    /// How often the agent's process has read them; 1 where they were read for this answer, as of an agent that has stopped.
    pub generation: u64,
    /// Equal where nothing has changed.
    pub digest: String,
    /// In the order in which the first of a name wins, those that do not count among them.
    pub assets: Vec<Asset>,
    /// The team's sets that are fetched when the agent starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sets: Vec<FetchedSet>,
    /// What was found wrong or was taken leniently.
    pub diagnostics: Vec<AssetDiagnostic>,
    /// Strict, and the files as they are now were refused for these errors: all else in this answer is as before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<AssetDiagnostic>,
    /// What [`AssetsQuery::search`] has found, 200 at most; absent: nothing was looked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<Vec<FoundAsset>>,
    /// Assets and diagnostics that are not here, because there are too many.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u32,
}

/// One of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Asset {
    /// `Skill`, `Command`, `Workflow` or `Trigger`.
    pub kind: String,
    /// By which it is called.
    pub name: String,
    /// As its file has it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Its file, relative to the root; that of a set begins with the set.
    pub path: String,
    /// Whose folder it is in, such as `.claude`, or which set of the team's it is of, such as `configmap/NAME`.
    pub source: String,
    /// `Valid`, `Invalid`, `Shadowed` or `Disabled`.
    pub state: String,
    /// Why it does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The line of its file that is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// What a command takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argument_hint: Option<String>,
    /// Its `allowed-tools`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_tools: Vec<String>,
    /// Whether the model may use it by itself.
    pub for_model: bool,
    /// Whether people may use it by `/name`.
    pub for_people: bool,
}

/// What was found about a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AssetDiagnostic {
    /// The file, relative to the root.
    pub path: String,
    /// Its line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// `Error`, `Warning` or `Note`.
    pub level: String,
    /// A sentence.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::AssetsQuery;

    #[test]
    fn a_text_that_is_looked_for_is_escaped_for_a_url() {
        assert_eq!(AssetsQuery { search: Some("a b&c=ü/1".to_owned()) }.to_url(), "search=a%20b%26c%3D%C3%BC/1");
        assert_eq!(AssetsQuery::default().to_url(), "");
    }
}
