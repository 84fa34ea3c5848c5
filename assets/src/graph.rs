//! The skill graph: nodes of knowledge, and the links between them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::AssetState;

mod build;
mod links;
mod node;
mod query;
mod settings;

pub(crate) use build::{Builder, GraphFile, read};
pub(crate) use node::{RawNode, of_skill as node_of_skill};
pub use query::{Direction, Near, Topology};

/// The skill graph of a tree. Empty where the tree has none.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Graph {
    /// `graph_id` of `graph.yml`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The path of the `graph.yml` that is in effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// `metadata` of `graph.yml`, in the order of the file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub metadata: Vec<(String, String)>,
    /// By id.
    pub nodes: BTreeMap<String, Node>,
    /// Without doubled ones, in the order of their nodes and links.
    pub edges: Vec<Edge>,
    /// Links that lead to no node, or to several.
    pub open_links: Vec<OpenLink>,
    /// Whether it is in effect. An invalid one has no nodes.
    pub state: AssetState,
}

impl Default for Graph {
    fn default() -> Self {
        Self { id: None, path: None, metadata: vec![], nodes: BTreeMap::new(), edges: vec![], open_links: vec![], state: AssetState::Valid }
    }
}

/// One piece of knowledge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// `slug` or `id` of its front matter, else its path: each segment in lower case, with `-` for other characters.
    pub id: String,
    /// `title`, else the first heading, else the id.
    pub title: String,
    /// `tags`.
    pub tags: Vec<String>,
    /// Of its file, relative to the root. Empty in a placeholder.
    pub path: String,
    /// Below the front matter.
    #[serde(skip)]
    pub body: Arc<str>,
    /// Whether it was made because a link leads to it, and has no file.
    pub placeholder: bool,
}

/// A link between two nodes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Edge {
    /// The node whose file has the link.
    pub from: String,
    /// The node that it leads to.
    pub to: String,
    /// `related` unless the link says otherwise.
    pub relation: String,
    /// What the link says beside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// A link that leads to no node, or to several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OpenLink {
    /// The node whose file has the link.
    pub from: String,
    /// As the link has it.
    pub target: String,
    /// The relation that it would have.
    pub relation: String,
    /// The nodes that it could mean; none: it leads nowhere.
    pub candidates: Vec<String>,
}
