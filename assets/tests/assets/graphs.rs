use yoi_assets::{AssetFile, AssetState, Direction, Graph, Level, Strictness, load};

use crate::{assert_message, file, lenient, messages, skill};

fn node(path: &str, text: &str) -> AssetFile {
    file(&format!(".jido/skill_graph/{path}"), text)
}

fn edges(graph: &Graph) -> Vec<String> {
    graph.edges.iter().map(|edge| format!("{} -{}-> {}", edge.from, edge.relation, edge.to)).collect()
}

#[test]
fn nodes_and_links_come_from_front_matter_and_text() {
    let snapshot = lenient(&[
        node("graph.yml", "graph_id: team\nmetadata:\n  owner: infra\n"),
        node(
            "Data Base/Post_Gres.md",
            "---\ntags: [sql, store]\nprereq: linux\nlinks:\n  - backup\n  - {to: linux, rel: Extends, label: why}\n---\n# Postgres\n\nSee [[contains:backup|the backup]], [[backup]], [[backup]] and `[[code]]`.\n\n```sh\n[[ -f x ]]\n```\n",
        ),
        node("linux.md", "---\nid: Linux\ntitle: The kernel\n---\n"),
        node("ops/backup.md", "No heading, [[postgres#tables]]."),
        node("ops/post-gres.md", "[[https://example.org/x]] [[ops/backup.md|x]] [[../ops/backup/skill]]"),
        file(".jido/skills/deploy/SKILL.md", "---\nname: deploy\ndescription: Deploys.\n---\nAfter [[prereq:backup]].\n"),
        file(".claude/skills/other/SKILL.md", skill("other", "Of another program.")),
    ]);
    let graph = &snapshot.graph;
    assert_eq!(graph.nodes.keys().collect::<Vec<_>>(), ["data-base/post-gres", "deploy", "linux", "ops/backup", "ops/post-gres"]);
    assert_eq!((graph.id.as_deref(), graph.metadata.len()), (Some("team"), 1));
    assert_eq!((graph.nodes["linux"].title.as_str(), graph.nodes["data-base/post-gres"].title.as_str()), ("The kernel", "Postgres"));
    assert_eq!(graph.nodes["data-base/post-gres"].tags, ["sql", "store"]);
    assert_eq!(
        edges(graph),
        [
            "data-base/post-gres -related-> ops/backup",
            "data-base/post-gres -extends-> linux",
            "data-base/post-gres -prereq-> linux",
            "data-base/post-gres -contains-> ops/backup",
            "ops/post-gres -related-> ops/backup",
            "ops/post-gres -related-> ops/backup",
            "deploy -prereq-> ops/backup",
        ]
    );
    assert_eq!(graph.edges[1].label.as_deref(), Some("why"));
    assert_eq!(messages(&snapshot, Level::Warning), [".jido/skill_graph/ops/backup.md:1: links to \"postgres#tables\", which is no node"]);
}

#[test]
fn a_name_that_could_mean_several_nodes_is_never_guessed() {
    let snapshot = lenient(&[node("a/x.md", ""), node("b/x.md", ""), node("b/c/x.md", ""), node("y.md", "[[x]] [[a/x]] [[c/x]]")]);
    assert_eq!(edges(&snapshot.graph), ["y -related-> a/x", "y -related-> b/c/x"]);
    assert_eq!(snapshot.graph.open_links[0].candidates, ["a/x", "b/c/x", "b/x"]);
    assert_message(&snapshot, Level::Warning, "y.md:1: links to \"x\", which could be a/x, b/c/x, b/x: the link is left out");
    assert_eq!(snapshot.graph.node("x").unwrap_err().len(), 3);
    assert_eq!(snapshot.graph.node("C/X.md").unwrap().id, "b/c/x");
    assert_eq!(snapshot.graph.node("none").unwrap_err(), Vec::<String>::new());
}

#[test]
fn p11_a_link_to_a_missing_node_makes_a_node_or_a_warning_or_fails_as_the_graph_says() {
    let files = |unresolved: &str| {
        vec![node("graph.yml", &format!("unresolved: {unresolved}\n")), node("a.md", "[[b]]\n\n[[prereq:X Y|label]]"), node("b.md", "")]
    };
    let warned = lenient(&files("warn_and_skip"));
    assert_eq!(edges(&warned.graph), ["a -related-> b"]);
    assert_message(&warned, Level::Warning, "a.md:3: links to \"X Y\", which is no node");
    assert_eq!(
        warned.graph,
        lenient(&[node("graph.yml", ""), files("")[1].clone(), files("")[2].clone()]).graph,
        "it is what holds without a word"
    );
    let made = lenient(&files("placeholder"));
    assert_eq!(edges(&made.graph), ["a -related-> b", "a -prereq-> x-y"]);
    assert!(made.graph.nodes["x-y"].placeholder && made.diagnostics.is_empty());
    let failed = lenient(&files("error"));
    assert!(
        matches!(&failed.graph.state, AssetState::Invalid { reason, line: Some(3) } if reason.contains("X Y")),
        "{:?}",
        failed.graph.state
    );
    assert!(failed.graph.is_empty() && failed.graph.edges.is_empty());
    assert!(load(&files("error"), 1, Strictness::Strict).is_err() && load(&files("warn"), 1, Strictness::Strict).is_ok());
    assert_message(&lenient(&files("never")), Level::Error, "graph.yml:1: unresolved is \"never\"");
}

#[test]
fn the_graph_says_which_files_are_its_nodes() {
    let files = |settings: &str| {
        let mut files: Vec<_> = ["a.md", "sub/b.md", "sub/deep/c.md", "sub/deep/SKILL.md"].iter().map(|path| node(path, "")).collect();
        files.push(node("graph.yml", settings));
        files
    };
    let ids = |settings: &str| lenient(&files(settings)).graph.nodes.into_keys().collect::<Vec<_>>();
    assert_eq!(ids(""), ["a", "sub/b", "sub/deep", "sub/deep/c"]);
    assert_eq!(ids("root: ./sub/"), ["sub/b", "sub/deep", "sub/deep/c"]);
    assert_eq!(ids("includes: ['*.md']"), ["a"]);
    assert_eq!(ids("root: sub\nincludes: ['**/SKILL.md']"), ["sub/deep"]);
    assert_message(&lenient(&files("root: ../..")), Level::Error, "graph.yml:1: the root \"../..\" leads out");
    assert_message(&lenient(&files("includes: ['[']")), Level::Error, "which is no pattern");
    assert_eq!(lenient(&[file(".jido/skills/a/SKILL.md", skill("a", "b"))]).graph, Graph::default(), "skills alone make no graph");
}

#[test]
fn p62_neighbours_links_search_and_topology_answer_from_one_generation() {
    let snapshot = lenient(&[
        node("a.md", "[[b]] [[prereq:c]]"),
        node("b.md", "[[d]]"),
        node("c.md", "# Third\nabout Zebras"),
        node("d.md", "[[a]] [[d]]"),
        node("e.md", "---\ntags: zoo\n---\n[[nowhere]]"),
    ]);
    let graph = &snapshot.graph;
    let near = |id: &str, hops, direction| {
        graph.neighbours(id, hops, direction).iter().map(|near| format!("{}{}", near.hops, near.node.id)).collect::<Vec<_>>()
    };
    assert_eq!(near("a", 1, Direction::Out), ["1b", "1c"]);
    assert_eq!(near("a", 9, Direction::Out), ["1b", "1c", "2d"]);
    assert_eq!(near("c", 2, Direction::In), ["1a", "2d"]);
    assert_eq!(near("c", usize::MAX, Direction::Both), ["1a", "2b", "2d"]);
    assert_eq!(near("nowhere", 3, Direction::Both), Vec::<String>::new());
    assert_eq!(graph.links("d", Direction::Both).len(), 3);
    assert_eq!(graph.search("ZEBRA")[0].id, "c");
    assert_eq!((graph.search("zoo").len(), graph.search(" ").len()), (1, 0));
    let topology = graph.topology();
    assert_eq!((topology.nodes, topology.edges, topology.open_links, topology.parts), (5, 5, 1, 2));
    assert_eq!((topology.isolated, topology.relations["prereq"]), (vec!["e".to_owned()], 1));
    assert_eq!(snapshot.search("zebras")[0].name, "c");
}

#[test]
fn a_graph_of_a_million_links_stays_bounded() {
    let many: String = (0..5_000).map(|at| format!("[[m{at}]] ")).collect();
    let files: Vec<_> =
        (0..60).map(|at| node(&format!("d{at}/x.md"), &many)).chain([node("graph.yml", "unresolved: placeholder")]).collect();
    let snapshot = lenient(&files);
    assert!(snapshot.graph.edges.len() <= 100_000);
    assert_message(&snapshot, Level::Warning, "has 5000 links, of which the first 2000 count");
    assert_message(&snapshot, Level::Warning, "of which 100000 count");
}
