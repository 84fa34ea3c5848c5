//! The tool Graph.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::Deserialize;
use yoi_assets::{Direction, Graph as SkillGraph, Near, Node, OpenLink, Topology};
use yoi_wire::manifest::RunLimits;

use crate::assets::GRAPH;
use crate::decision::Refusal;
use crate::tools::arguments::{invalid, not_null, some_not_empty};
use crate::tools::result::{CallResult, LiveOutput};
use crate::tools::tool::{ToolContext, TypedTool};

/// Lines of one list in an answer.
const MAX_LINES: usize = 200;
/// Letters of one line.
const MAX_LINE_CHARS: usize = 300;
const MAX_HOPS: u32 = 16;

/// Answers from the skill graph of the tree.
pub struct Graph;

// No doc comment: it would be in the schema.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Args {
    /// `node`: the text and the links of one; `links`: its links alone; `neighbours`: what lies within some links of it; `search`: nodes whose id, title, tags or text have a text; `topology`: the form of the whole.
    query: Query,
    /// Id of the node, or the end of it. For `node`, `links` and `neighbours`.
    #[serde(default, deserialize_with = "some_not_empty")]
    node: Option<String>,
    /// What to look for. For `search`.
    #[serde(default, deserialize_with = "some_not_empty")]
    text: Option<String>,
    /// How many links away a neighbour may be, 1 by default.
    #[serde(default, deserialize_with = "not_null")]
    #[schemars(range(min = 1, max = 16))]
    hops: Option<u32>,
    /// Which links count for `links` and `neighbours`: those that the node has, those that lead to it, or both, which is the default.
    #[serde(default)]
    direction: Way,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum Query {
    Node,
    Links,
    Neighbours,
    Search,
    Topology,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum Way {
    Out,
    In,
    #[default]
    Both,
}

impl TypedTool for Graph {
    type Args = Args;
    const NAME: &'static str = GRAPH;
    const READS_ONLY: bool = true;

    fn description(&self, _limits: &RunLimits) -> String {
        "Ask the repository's graph of knowledge: pieces of text (nodes) and the links between them. Begin with `topology` or `search`."
            .to_owned()
    }

    fn check(&self, context: &ToolContext, args: &Args) -> Result<(), Refusal> {
        args.check(&context.assets.current().graph)
    }

    async fn run(&self, context: &ToolContext, args: Args, _live: &LiveOutput) -> CallResult {
        // One generation answers, whatever is read meanwhile.
        let snapshot = context.assets.current();
        let answer = move || match args.check(&snapshot.graph).and_then(|()| args.answer(&snapshot.graph)) {
            Ok(text) => CallResult::succeeded(text),
            Err(refusal) => CallResult::refused(refusal),
        };
        context.run_on_tree(move |_| answer()).await
    }
}

impl Args {
    fn check(&self, graph: &SkillGraph) -> Result<(), Refusal> {
        if !(1..=MAX_HOPS).contains(&self.hops()) {
            return Err(invalid(format_args!("/hops: must be from 1 to {MAX_HOPS}")));
        }
        match self.query {
            Query::Node | Query::Links | Query::Neighbours => self.node(graph).map(|_| ()),
            Query::Search => self.text().map(|_| ()),
            Query::Topology => Ok(()),
        }
    }

    fn hops(&self) -> u32 {
        self.hops.unwrap_or(1)
    }

    fn direction(&self) -> Direction {
        match self.direction {
            Way::Out => Direction::Out,
            Way::In => Direction::In,
            Way::Both => Direction::Both,
        }
    }

    fn text(&self) -> Result<&str, Refusal> {
        let text = self.text.as_deref().filter(|text| !text.trim().is_empty());
        text.ok_or_else(|| invalid("/text: this query needs the text to look for"))
    }

    fn node<'graph>(&self, graph: &'graph SkillGraph) -> Result<&'graph Node, Refusal> {
        let id = self.node.as_deref().ok_or_else(|| invalid("/node: this query needs the id of a node"))?;
        graph.node(id).map_err(|candidates| match candidates[..] {
            [] => invalid(format_args!("/node: there is no node {id:?}; find one by the query `search`")),
            _ => invalid(format_args!("/node: {id:?} could be {}; write the whole id", candidates.join(", "))),
        })
    }

    fn answer(&self, graph: &SkillGraph) -> Result<String, Refusal> {
        Ok(match self.query {
            Query::Node => node_text(graph, self.node(graph)?),
            Query::Links => {
                let node = self.node(graph)?;
                list(&format!("Links of {}:", node.id), "It has none.", &link_lines(graph, node, self.direction()))
            }
            Query::Neighbours => {
                let node = self.node(graph)?;
                let near = graph.neighbours(&node.id, self.hops() as usize, self.direction());
                let lines: Vec<String> = near.iter().map(|Near { hops, node }| format!("{hops} {}", node_line(node))).collect();
                list(&format!("Neighbours of {}, each with the number of links between:", node.id), "It has none.", &lines)
            }
            Query::Search => {
                let text = self.text()?;
                let lines: Vec<String> = graph.search(text).into_iter().map(node_line).collect();
                list(&format!("Nodes with {text:?}:"), "There are none.", &lines)
            }
            Query::Topology => topology_text(graph),
        })
    }
}

/// A line for a node, without the path where it has no file.
fn node_line(node: &Node) -> String {
    let Node { id, title, path, placeholder, .. } = node;
    if *placeholder { format!("{id}: {title} (no file: links lead to it)") } else { format!("{id}: {title} ({path})") }
}

/// Its links, then those of it that lead to no node, or to several.
fn link_lines(graph: &SkillGraph, node: &Node, direction: Direction) -> Vec<String> {
    let edges = graph.links(&node.id, direction).into_iter().map(|edge| {
        let (sign, other) = if edge.from == node.id { ("->", &edge.to) } else { ("<-", &edge.from) };
        let label = edge.label.as_ref().map(|label| format!(" ({label})")).unwrap_or_default();
        format!("{sign} {} {other}{label}", edge.relation)
    });
    let is_open = |link: &&OpenLink| direction != Direction::In && link.from == node.id;
    let open = graph.open_links.iter().filter(is_open).map(|OpenLink { target, relation, candidates, .. }| {
        let why = if candidates.is_empty() { "no such node".to_owned() } else { format!("could be {}", candidates.join(", ")) };
        format!("-> {relation} {target}: {why}")
    });
    edges.chain(open).collect()
}

fn node_text(graph: &SkillGraph, node: &Node) -> String {
    let mut text = format!("{}\n", one_line(&node_line(node)));
    if !node.tags.is_empty() {
        let _ = writeln!(text, "Tags: {}", one_line(&node.tags.join(", ")));
    }
    let lines = link_lines(graph, node, Direction::Both);
    if !lines.is_empty() {
        let _ = writeln!(text, "{}", list("Links:", "", &lines));
    }
    let body = node.body.trim();
    if !body.is_empty() {
        let _ = write!(text, "\n{body}");
    }
    text
}

fn topology_text(graph: &SkillGraph) -> String {
    let Topology { nodes, edges, placeholders, open_links, relations, isolated, beginnings, parts } = graph.topology();
    let mut text = format!(
        "{nodes} nodes, {placeholders} of them without a file; {edges} links, and {open_links} that lead to no node or to several; {parts} parts without a link between them\n"
    );
    let relations: Vec<String> = relations.iter().map(|(relation, count)| format!("{relation}: {count}")).collect();
    for (head, lines) in
        [("Links by relation:", relations), ("Nodes that nothing leads to:", beginnings), ("Nodes without links:", isolated)]
    {
        if !lines.is_empty() {
            let _ = writeln!(text, "{}", list(head, "", &lines));
        }
    }
    text.trim_end().to_owned()
}

/// A list of bounded length; `none` stands for an empty one.
fn list(head: &str, none: &str, lines: &[String]) -> String {
    let mut text = one_line(head);
    if lines.is_empty() {
        let _ = write!(text, " {none}");
    }
    for line in lines.iter().take(MAX_LINES) {
        let _ = write!(text, "\n{}", one_line(line));
    }
    if let Some(more) = lines.len().checked_sub(MAX_LINES).filter(|more| *more > 0) {
        let _ = write!(text, "\n[{more} more are not shown]");
    }
    text
}

/// Titles and labels are the repository's words.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(MAX_LINE_CHARS).collect()
}
