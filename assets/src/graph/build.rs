//! Makes the graph of the files that it is given.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::links::RawLink;
use super::node::{self, RawNode, slug, without_ending};
use super::settings::{self, Settings, Unresolved};
use super::{Edge, Graph, Node, OpenLink};
use crate::diagnostic::{Diagnostics, quote};
use crate::reading::Reading;
use crate::{AssetState, Level};

/// How many links all nodes together may have.
const MAX_LINKS: usize = 100_000;
/// How many links that lead to no node, or to several, are kept.
const MAX_OPEN_LINKS: usize = 2_000;
/// How many nodes a link that could mean several names.
const MAX_CANDIDATES: usize = 10;

/// A file of the graph as it was read, with the folder that it is of.
#[derive(Clone, Debug)]
pub(crate) enum GraphFile {
    /// `graph.yml`.
    Settings(String, Arc<Settings>),
    /// A node.
    Node(String, Arc<RawNode>),
}

/// Reads a file; `below` is its path within the folder of the graph. `None`: it is not as its format has it.
pub(crate) fn read<'file>(
    mut reading: Reading<'file>,
    below: &str,
    content: Result<&'file str, (String, Option<u32>)>,
) -> Option<GraphFile> {
    let text = match content {
        Ok(text) => text,
        Err((reason, line)) => {
            reading.error(line, reason);
            return None;
        }
    };
    let folder = reading.path.strip_suffix(below).unwrap_or_default().to_owned();
    if matches!(below, "graph.yml" | "graph.yaml") {
        settings::read(&mut reading, text).map(|settings| GraphFile::Settings(folder, Arc::new(settings)))
    } else {
        node::read(&mut reading, below, text).map(|node| GraphFile::Node(folder, Arc::new(node)))
    }
}

/// Files of the graph, in order of precedence.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    /// With the folder that each is of.
    settings: Vec<(String, Arc<Settings>)>,
    nodes: Vec<(String, Arc<RawNode>)>,
}

impl Builder {
    /// Adds a file. What is said about it joins its own diagnostics, which are the last ones.
    pub(crate) fn extend(&mut self, file: Option<GraphFile>, diagnostics: &mut Diagnostics) {
        match file {
            Some(GraphFile::Settings(folder, settings)) => match self.settings.first() {
                Some((of, first)) if *of == folder => {
                    diagnostics.push(&settings.path, None, Level::Warning, format!("is not read: {} is", first.path));
                }
                _ => self.settings.push((folder, settings)),
            },
            Some(GraphFile::Node(folder, node)) => self.nodes.push((folder, node)),
            None => {}
        }
    }

    /// Adds a skill that is in effect. A file of the graph with its id stands before it.
    pub(crate) fn add_skill(&mut self, node: Arc<RawNode>) {
        self.nodes.push((String::new(), node));
    }

    pub(crate) fn finish(self, diagnostics: &mut Diagnostics) -> Graph {
        let mut graph = Graph::default();
        // Skills are the nodes of a graph, and make none.
        if self.settings.is_empty() && self.nodes.iter().all(|(_, node)| node.below.is_none()) {
            return graph;
        }
        let is_node = |(folder, node): &&(String, Arc<RawNode>)| {
            let settings = self.settings.iter().find(|(of, _)| of == folder).map(|(_, settings)| settings);
            node.below.as_ref().is_none_or(|below| settings.is_none_or(|settings| settings.has(below)))
        };
        let mut kept: Vec<&RawNode> = vec![];
        for (_, raw) in self.nodes.iter().filter(is_node) {
            diagnostics.begin_file();
            if let Some(first) = graph.nodes.get(&raw.id) {
                if raw.below.is_some() {
                    diagnostics.push(
                        &raw.path,
                        None,
                        Level::Warning,
                        format!("is not in effect: the node {} is {}", quote(&raw.id), first.path),
                    );
                }
                continue;
            }
            kept.push(raw);
            let RawNode { id, title, tags, path, below: _, body, links: _ } = &**raw;
            let (title, tags, path) = (title.clone(), tags.clone(), path.clone());
            graph.nodes.insert(id.clone(), Node { id: id.clone(), title, tags, path, body: body.clone(), placeholder: false });
        }
        let mut unresolved = Unresolved::default();
        if let Some((_, settings)) = self.settings.first() {
            unresolved = settings.unresolved;
            graph.id = settings.id.clone();
            graph.path = Some(settings.path.clone());
            graph.metadata = settings.metadata.clone();
        }
        resolve(&mut graph, &kept, unresolved, diagnostics);
        if let AssetState::Invalid { .. } = graph.state {
            (graph.nodes, graph.edges) = (BTreeMap::new(), vec![]);
        }
        graph
    }
}

/// Makes edges of the nodes' links.
fn resolve(graph: &mut Graph, nodes: &[&RawNode], unresolved: Unresolved, diagnostics: &mut Diagnostics) {
    let (mut seen, mut edges, mut placeholders, mut count) = (BTreeSet::new(), vec![], BTreeMap::new(), 0_usize);
    let index = Index::of(&graph.nodes);
    for RawNode { id: from, path, links, .. } in nodes {
        diagnostics.begin_file();
        for RawLink { target, relation, label, line } in links {
            count += 1;
            if count > MAX_LINKS {
                continue;
            }
            let to = match (index.find(target), unresolved) {
                (Ok(id), _) => Some(id),
                (Err(candidates), Unresolved::Placeholder) if candidates.is_empty() => {
                    let id = slug(without_ending(target));
                    placeholders.entry(id.clone()).or_insert_with(|| target.clone());
                    (!id.is_empty()).then_some(id)
                }
                (Err(candidates), _) => {
                    let fails = candidates.is_empty() && unresolved == Unresolved::Error;
                    let level = if fails { Level::Error } else { Level::Warning };
                    let reason = match candidates.as_slice() {
                        [] => format!("links to {}, which is no node", quote(target)),
                        several => format!("links to {}, which could be {}: the link is left out", quote(target), several.join(", ")),
                    };
                    if fails && graph.state.is_valid() {
                        graph.state = AssetState::invalid(format!("{path}: {reason}"), *line);
                    }
                    diagnostics.push(path, *line, level, reason);
                    if graph.open_links.len() < MAX_OPEN_LINKS {
                        let (target, relation) = (target.clone(), relation.clone());
                        graph.open_links.push(OpenLink { from: from.clone(), target, relation, candidates });
                    }
                    None
                }
            };
            let edge = to.map(|to| Edge { from: from.clone(), to, relation: relation.clone(), label: label.clone() });
            edges.extend(edge.filter(|edge| seen.insert(edge.clone())));
        }
    }
    if count > MAX_LINKS {
        diagnostics.push(
            graph.path.as_deref().unwrap_or_default(),
            None,
            Level::Warning,
            format!("the graph has {count} links, of which {MAX_LINKS} count"),
        );
    }
    graph.edges = edges;
    for (id, title) in placeholders.into_iter().filter(|(id, _)| !id.is_empty()) {
        let node = Node { id: id.clone(), title, tags: vec![], path: String::new(), body: Arc::default(), placeholder: true };
        graph.nodes.insert(id, node);
    }
}

/// Finds nodes by what links call them.
pub(super) struct Index<'graph> {
    nodes: &'graph BTreeMap<String, Node>,
    by_last_segment: BTreeMap<&'graph str, Vec<&'graph str>>,
}

impl<'graph> Index<'graph> {
    pub(super) fn of(nodes: &'graph BTreeMap<String, Node>) -> Self {
        let mut by_last_segment: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for id in nodes.keys() {
            by_last_segment.entry(last_segment(id)).or_default().push(id);
        }
        Self { nodes, by_last_segment }
    }

    /// The id that is the target; else the only one that ends with it; else the only one whose last segment it has.
    ///
    /// # Errors
    /// The ids that it could mean, the first ten; none: there is no such node.
    pub(super) fn find(&self, target: &str) -> Result<String, Vec<String>> {
        let target = slug(without_ending(target));
        if self.nodes.contains_key(&target) {
            return Ok(target);
        }
        let named = self.by_last_segment.get(last_segment(&target)).map(Vec::as_slice).unwrap_or_default();
        let end = format!("/{target}");
        let ending: Vec<&str> = named.iter().copied().filter(|id| id.ends_with(&end)).collect();
        let candidates = if ending.is_empty() { named } else { &ending };
        match candidates {
            [only] => Ok((*only).to_owned()),
            several => Err(several.iter().take(MAX_CANDIDATES).map(|id| (*id).to_owned()).collect()),
        }
    }
}

fn last_segment(id: &str) -> &str {
    id.rsplit('/').next().unwrap_or(id)
}
