//! What can be asked of the graph. Each answer is of one whole generation.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{Edge, Graph, Node};

/// How many nodes a search finds at most.
const MAX_FOUND: usize = 200;
/// How far neighbours are looked for at most.
const MAX_HOPS: usize = 16;

/// Which way links are followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// From the node to those that it names.
    Out,
    /// To the node from those that name it.
    In,
    /// Both.
    #[default]
    Both,
}

/// A node near another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Near<'graph> {
    /// How many links lie between them, at least 1.
    pub hops: usize,
    /// The node.
    pub node: &'graph Node,
}

/// The form of the graph as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Topology {
    /// How many nodes there are, placeholders included.
    pub nodes: usize,
    /// How many links lead from node to node.
    pub edges: usize,
    /// How many nodes have no file.
    pub placeholders: usize,
    /// How many links lead to no node, or to several.
    pub open_links: usize,
    /// How many links of each relation there are.
    pub relations: BTreeMap<String, usize>,
    /// Nodes that nothing leads to and that lead nowhere.
    pub isolated: Vec<String>,
    /// Nodes that nothing leads to and that lead somewhere.
    pub beginnings: Vec<String>,
    /// How many parts there are with no link between them.
    pub parts: usize,
}

impl Graph {
    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The node of an id, or the only one whose id ends with the text.
    ///
    /// # Errors
    /// The ids that it could mean; none where there is no such node.
    pub fn node(&self, text: &str) -> Result<&Node, Vec<String>> {
        super::build::Index::of(&self.nodes).find(text).map_or_else(Err, |id| self.nodes.get(&id).ok_or_else(Vec::new))
    }

    /// The links of a node, in their order.
    #[must_use]
    pub fn links(&self, id: &str, direction: Direction) -> Vec<&Edge> {
        let is_of = |edge: &&Edge| match direction {
            Direction::Out => edge.from == id,
            Direction::In => edge.to == id,
            Direction::Both => edge.from == id || edge.to == id,
        };
        self.edges.iter().filter(is_of).collect()
    }

    /// The nodes within so many links of a node, the nearest first, without itself. 16 links are the most that are followed.
    #[must_use]
    pub fn neighbours(&self, id: &str, hops: usize, direction: Direction) -> Vec<Near<'_>> {
        let beside = self.beside(direction);
        let (mut seen, mut near, mut here) = (BTreeSet::from([id]), vec![], vec![id]);
        for hops in 1..=hops.min(MAX_HOPS) {
            let next: BTreeSet<&str> =
                here.iter().filter_map(|id| beside.get(id)).flatten().copied().filter(|id| !seen.contains(id)).collect();
            seen.extend(&next);
            near.extend(next.iter().filter_map(|id| self.nodes.get(*id)).map(|node| Near { hops, node }));
            here = next.into_iter().collect();
        }
        near
    }

    /// The nodes whose id, title, tags or text has this text, in any case; 200 at most. An empty text finds nothing.
    #[must_use]
    pub fn search(&self, text: &str) -> Vec<&Node> {
        let text = text.trim().to_lowercase();
        if text.is_empty() {
            return vec![];
        }
        let has = |field: &str| field.to_lowercase().contains(&text);
        let found =
            self.nodes.values().filter(|node| has(&node.id) || has(&node.title) || node.tags.iter().any(|tag| has(tag)) || has(&node.body));
        found.take(MAX_FOUND).collect()
    }

    /// The form of the graph as a whole.
    #[must_use]
    pub fn topology(&self) -> Topology {
        let (out, into, both) = (self.beside(Direction::Out), self.beside(Direction::In), self.beside(Direction::Both));
        let mut topology = Topology {
            nodes: self.nodes.len(),
            edges: self.edges.len(),
            placeholders: self.nodes.values().filter(|node| node.placeholder).count(),
            open_links: self.open_links.len(),
            ..Topology::default()
        };
        for edge in &self.edges {
            *topology.relations.entry(edge.relation.clone()).or_default() += 1;
        }
        let mut seen = BTreeSet::new();
        for id in self.nodes.keys().map(String::as_str) {
            match (into.contains_key(id), out.contains_key(id)) {
                (false, false) => topology.isolated.push(id.to_owned()),
                (false, true) => topology.beginnings.push(id.to_owned()),
                (true, _) => {}
            }
            if seen.insert(id) {
                topology.parts += 1;
                let mut open = vec![id];
                while let Some(id) = open.pop() {
                    open.extend(both.get(id).into_iter().flatten().copied().filter(|id| seen.insert(id)));
                }
            }
        }
        topology
    }

    /// The nodes beside each node that has any, in the order of the links. A link to itself is none.
    fn beside(&self, direction: Direction) -> BTreeMap<&str, Vec<&str>> {
        let mut beside: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for edge in self.edges.iter().filter(|edge| edge.from != edge.to) {
            if direction != Direction::In {
                beside.entry(&edge.from).or_default().push(&edge.to);
            }
            if direction != Direction::Out {
                beside.entry(&edge.to).or_default().push(&edge.from);
            }
        }
        beside
    }
}
