//! Assets that chance has changed: nothing panics, nothing is lost, and what stands beside them loads.

use yoi_assets::{AssetFile, AssetSnapshot, ParsedFiles, Strictness, load, load_again};
use yoi_test_support::thorough;

use crate::{file, lenient, skill};

/// Numbers as if by chance, the same each time (splitmix64).
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % u64::try_from(end.max(1)).expect("a length")).expect("below a length")
    }
}

const SEEDS: [(&str, &str); 9] = [
    (
        ".claude/skills/x/SKILL.md",
        "---\nname: x\ndescription: \"Does: it\"\nallowed-tools: Read Bash(git *)\nmetadata: {a: &a b, c: *a}\n---\n# X\n$ARGUMENTS !`ls $1`\n",
    ),
    (
        ".jido/skills/y/SKILL.md",
        "---\nname: y\ndescription: >\n  Long\n  text\nversion: 1.0.0\njido:\n  actions: [Read]\n  router: [{a/b: Read}]\n---\n[[rel:n|m]]\n",
    ),
    (
        ".jido/commands/d.md",
        "---\nname: d\ndescription: y\njido:\n  schema:\n    env: {type: atom, required: true}\n    n: {type: integer, default: 3}\n---\n{{env}} {{n}} $1 $ARGUMENTS[2]\n",
    ),
    (".claude/commands/c.md", "---\nargument-hint: [a]\n---\n$1 $2 $ARGUMENTS !`git status` `x`\n"),
    (".gemini/commands/g/h.toml", "description = \"x\"\nprompt = \"\"\"\n{{args}} !{ls {a}} @{docs/{{args}}}\n\"\"\"\n"),
    (
        ".jido/workflows/w.md",
        "---\nname: w\nversion: 1.0.0\ninputs: [{name: a, type: string}]\ntriggers: [{type: git_hook, events: [push]}]\n---\n## Steps\n### a\n- **type**: action\n- **module**: Shell\n- **inputs**:\n  - x: `input:a`\n### b\n- **type**: skill\n- **module**: x\n- **depends_on**: [a]\n## Return\n- **value**: `result:b`\n",
    ),
    (
        ".jido/workflows/triggers.json",
        "{\"global_settings\": {\"default_debounce_ms\": 5},\n\"triggers\": [{\"id\": \"t\", \"workflow_id\": \"w\", \"type\": \"signal\", \"config\": {\"patterns\": [\"a.**\"]}}]}",
    ),
    (".jido/skill_graph/n.md", "---\ntitle: N\ntags: [a]\nlinks: [{to: m, rel: x}]\nprereq: [m]\n---\n# N\n[[rel:m#x|label]] [[n]]\n"),
    (".jido/skill_graph/graph.yml", "graph_id: g\nroot: .\nincludes: ['**/*.md']\nunresolved: placeholder\n"),
];
/// What breaks parsers.
const PIECES: [&str; 34] = [
    "---\n",
    "\n---\n",
    "\t",
    ": ",
    "- ",
    "[",
    "{",
    "]]",
    "[[",
    "{{",
    "}}",
    "&a ",
    "*a",
    "<<: *a\n",
    "!!binary ",
    "|\n",
    ">-\n",
    "\"",
    "'",
    "`",
    "!`",
    "$1",
    "$ARGUMENTS",
    "\u{feff}",
    "\0",
    "\r\n",
    "é",
    "\u{202e}",
    "# ",
    "## Steps\n",
    "### a\n",
    "- **depends_on**: [b]\n",
    "? ",
    "%YAML 1.2\n",
];

fn mutated(chance: &mut Chance, text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..=chance.below(6) {
        let at = chance.below(bytes.len() + 1);
        let end = (at + chance.below(24)).min(bytes.len());
        match chance.below(6) {
            0 => drop(bytes.drain(at..end)),
            1 => {
                let piece = PIECES[chance.below(PIECES.len())];
                drop(bytes.splice(at..at, piece.bytes()));
            }
            2 => {
                let byte = u8::try_from(chance.below(256)).expect("a byte");
                if let Some(place) = bytes.get_mut(at) {
                    *place = byte;
                }
            }
            3 => {
                let copy = bytes[at..end].to_vec();
                let most = if chance.below(20) == 0 { 2_000 } else { 4 };
                let times = 1 + chance.below(most);
                drop(bytes.splice(at..at, copy.repeat(times)));
            }
            4 => {
                let other = SEEDS[chance.below(SEEDS.len())].1.as_bytes();
                let from = chance.below(other.len());
                drop(bytes.splice(at..end, other[from..].iter().copied()));
            }
            _ => bytes.truncate(at),
        }
    }
    bytes
}

/// What a caller does with a snapshot.
fn use_all(snapshot: &AssetSnapshot) {
    for command in &snapshot.commands {
        for arguments in ["", "a b c", "env=1 'x", "{\"env\": \"a\"}", "{{env}} $1 `x`"] {
            drop(command.render(arguments));
        }
        drop((command.input_schema(), command.usage()));
    }
    for skill in &snapshot.skills {
        drop(skill.render("a {{b}} $1"));
    }
    assert!(snapshot.catalogue(200).text.len() <= 200);
    assert_eq!(snapshot.graph.topology().nodes, snapshot.graph.nodes.len());
    for id in snapshot.graph.nodes.keys().take(5) {
        assert!(snapshot.graph.neighbours(id, 3, yoi_assets::Direction::Both).len() < snapshot.graph.nodes.len());
    }
    assert!(snapshot.search("a").len() <= 200);
    serde_json::to_string(snapshot).expect("a snapshot is JSON");
}

#[test]
fn mutated_assets_never_panic_and_hide_nothing_that_stands_beside_them() {
    let rounds = if thorough() { 10_000 } else { 2_000 };
    let good = file(".agents/skills/good/SKILL.md", skill("good", "Is good."));
    for round in 0..rounds {
        let mut chance = Chance(round);
        let (path, text) = SEEDS[chance.below(SEEDS.len())];
        let bad = file(path, mutated(&mut chance, text));
        let (length, is_text) =
            (bad.content.as_ref().map_or(0, Vec::len), bad.content.as_ref().is_ok_and(|bytes| std::str::from_utf8(bytes).is_ok()));
        let files: Vec<AssetFile> = vec![bad, good.clone()];
        let snapshot = lenient(&files);
        use_all(&snapshot);
        assert!(snapshot.skill("good").is_some_and(|skill| skill.state.is_valid()), "round {round}: the good one is there");
        let listed = snapshot.skills.len() + snapshot.commands.len() + snapshot.workflows.len();
        let is_of_several = path.contains("skill_graph") || path.ends_with(".json");
        assert_eq!(listed, if is_of_several { 1 } else { 2 }, "round {round}: each asset is listed, of {length} bytes");
        let is_told = snapshot.diagnostics.iter().any(|diagnostic| diagnostic.path == path);
        assert!(is_text || is_told, "round {round}: what is no text is told");
        assert!(
            snapshot.diagnostics.len() <= 100 && snapshot.diagnostics.iter().all(|diagnostic| diagnostic.message.len() < 4_000),
            "round {round}"
        );
        let invalid = snapshot.skills.iter().map(|skill| &skill.state).chain(snapshot.commands.iter().map(|command| &command.state));
        let strict = load(&files, 1, Strictness::Strict);
        let is_invalid = invalid.clone().any(|state| matches!(state, yoi_assets::AssetState::Invalid { .. }));
        assert!(!is_invalid || strict.is_err(), "round {round}: strict reading takes no invalid asset");
    }
}

/// The files of the next generation: some are new, some changed, some gone, and most as they were.
fn next_generation(chance: &mut Chance, files: &mut Vec<AssetFile>) {
    for _ in 0..=chance.below(3) {
        let (path, text) = SEEDS[chance.below(SEEDS.len())];
        let content = if chance.below(3) == 0 { text.as_bytes().to_vec() } else { mutated(chance, text) };
        match files.iter_mut().find(|file| file.path == path) {
            Some(known) if chance.below(4) == 0 => known.content = Err("it is gone".to_owned()),
            Some(known) => known.content = Ok(content),
            None => files.push(file(path, content)),
        }
    }
    if !files.is_empty() && chance.below(3) == 0 {
        files.swap_remove(chance.below(files.len()));
    }
}

#[test]
fn what_is_parsed_only_where_it_changed_is_what_all_the_files_say() {
    let rounds = if thorough() { 1_000 } else { 100 };
    let mut skipped = 0;
    for round in 0..rounds {
        let (mut chance, mut parsed, mut files, mut before) = (Chance(round), ParsedFiles::default(), vec![], vec![]);
        for generation in 1..=12 {
            next_generation(&mut chance, &mut files);
            let strictness = if chance.below(4) == 0 { Strictness::Strict } else { Strictness::Lenient };
            // Of what is known and as it was, chance leaves some unread.
            let is_unread = |file: &AssetFile| before.contains(file) && parsed.knows(&(file.set, file.path.clone()), strictness);
            let unread: Vec<AssetFile> = files.iter().filter(|file| is_unread(file) && chance.below(3) > 0).cloned().collect();
            let read: Vec<AssetFile> = files.iter().filter(|file| !unread.contains(file)).cloned().collect();
            let same: Vec<_> = unread.into_iter().map(|file| (file.set, file.path)).collect();
            skipped += same.len();
            let again = load_again(&mut parsed, &read, &same, generation, strictness);
            before.clone_from(&files);
            assert_eq!(again, load(&files, generation, strictness), "round {round}, generation {generation}");
        }
    }
    assert!(skipped > 1_000, "hardly a file was left unread: {skipped}");
}
