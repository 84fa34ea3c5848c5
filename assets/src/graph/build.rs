//! Makes the graph of the files that it is given.

use std::collections::{BTreeMap, BTreeSet};

use super::links::RawLink;
use super::node::{self, RawNode, slug, without_ending};
use super::settings::{self, Settings, Unresolved};
use super::{Edge, Graph, Node, OpenLink};
use crate::diagnostic::{Diagnostics, quote};
use crate::reading::Reading;
use crate::{AssetState, Level, Skill};

/// How many links all nodes together may have.
const MAX_LINKS: usize = 100_000;
/// How many links that lead to no node, or to several, are kept.
const MAX_OPEN_LINKS: usize = 2_000;
/// How many nodes a link that could mean several names.
const MAX_CANDIDATES: usize = 10;

/// Files of the graph, in order of precedence.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    /// With the folder that each is of.
    settings: Vec<(String, Settings)>,
    nodes: Vec<(String, RawNode)>,
}

impl Builder {
    /// Adds a file; `below` is its path within the folder of the graph.
    pub(crate) fn add<'file>(&mut self, mut reading: Reading<'file>, below: &str, content: Result<&'file str, (String, Option<u32>)>) {
        let text = match content {
            Ok(text) => text,
            Err((reason, line)) => return reading.error(line, reason),
        };
        let folder = reading.path.strip_suffix(below).unwrap_or_default().to_owned();
        if matches!(below, "graph.yml" | "graph.yaml") {
            let Some(settings) = settings::read(&mut reading, text) else { return };
            match self.settings.first() {
                Some((of, first)) if *of == folder => reading.warning(None, format!("is not read: {} is", first.path)),
                _ => self.settings.push((folder, settings)),
            }
        } else {
            self.nodes.extend(node::read(&mut reading, below, text).map(|node| (folder, node)));
        }
    }

    /// Adds a skill that is in effect. A file of the graph with its id stands before it.
    pub(crate) fn add_skill(&mut self, skill: &Skill) {
        self.nodes.push((String::new(), node::of_skill(skill)));
    }

    pub(crate) fn finish(self, diagnostics: &mut Diagnostics) -> Graph {
        let mut graph = Graph::default();
        // Skills are the nodes of a graph, and make none.
        if self.settings.is_empty() && self.nodes.iter().all(|(_, node)| node.below.is_none()) {
            return graph;
        }
        let is_node = |(folder, node): &(String, RawNode)| {
            let settings = self.settings.iter().find(|(of, _)| of == folder).map(|(_, settings)| settings);
            node.below.as_ref().is_none_or(|below| settings.is_none_or(|settings| settings.has(below)))
        };
        let mut links: Vec<(String, String, Vec<RawLink>)> = vec![];
        let (kept, _): (Vec<_>, Vec<_>) = self.nodes.into_iter().partition(is_node);
        for (_, raw) in kept {
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
            links.push((raw.id.clone(), raw.path.clone(), raw.links));
            let node = Node { id: raw.id.clone(), title: raw.title, tags: raw.tags, path: raw.path, body: raw.body, placeholder: false };
            graph.nodes.insert(raw.id, node);
        }
        let mut unresolved = Unresolved::default();
        if let Some((_, settings)) = self.settings.into_iter().next() {
            unresolved = settings.unresolved;
            graph.id = settings.id;
            graph.path = Some(settings.path);
            graph.metadata = settings.metadata;
        }
        resolve(&mut graph, links, unresolved, diagnostics);
        if let AssetState::Invalid { .. } = graph.state {
            (graph.nodes, graph.edges) = (BTreeMap::new(), vec![]);
        }
        graph
    }
}

/// Makes edges of links.
fn resolve(graph: &mut Graph, links: Vec<(String, String, Vec<RawLink>)>, unresolved: Unresolved, diagnostics: &mut Diagnostics) {
    let (mut seen, mut edges, mut placeholders, mut count) = (BTreeSet::new(), vec![], BTreeMap::new(), 0_usize);
    let index = Index::of(&graph.nodes);
    for (from, path, links) in links {
        diagnostics.begin_file();
        for RawLink { target, relation, label, line } in links {
            count += 1;
            if count > MAX_LINKS {
                continue;
            }
            let to = match (index.find(&target), unresolved) {
                (Ok(id), _) => Some(id),
                (Err(candidates), Unresolved::Placeholder) if candidates.is_empty() => {
                    let id = slug(without_ending(&target));
                    placeholders.entry(id.clone()).or_insert_with(|| target.clone());
                    (!id.is_empty()).then_some(id)
                }
                (Err(candidates), _) => {
                    let fails = candidates.is_empty() && unresolved == Unresolved::Error;
                    let level = if fails { Level::Error } else { Level::Warning };
                    let reason = match candidates.as_slice() {
                        [] => format!("links to {}, which is no node", quote(&target)),
                        several => format!("links to {}, which could be {}: the link is left out", quote(&target), several.join(", ")),
                    };
                    if fails && graph.state.is_valid() {
                        graph.state = AssetState::invalid(format!("{path}: {reason}"), line);
                    }
                    diagnostics.push(&path, line, level, reason);
                    if graph.open_links.len() < MAX_OPEN_LINKS {
                        graph.open_links.push(OpenLink { from: from.clone(), target, relation: relation.clone(), candidates });
                    }
                    None
                }
            };
            let edge = to.map(|to| Edge { from: from.clone(), to, relation, label });
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
        let node = Node { id: id.clone(), title, tags: vec![], path: String::new(), body: String::new(), placeholder: true };
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
