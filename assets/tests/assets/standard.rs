//! The standard's own validator and strict reading, side by side: `standard.py` writes what the first says.

use std::collections::BTreeSet;

use serde::Deserialize;
use yoi_assets::{Strictness, load};

use crate::file;

/// A skill, and what skills-ref says of it.
#[derive(Deserialize)]
struct Case {
    kind: String,
    folder: String,
    text: String,
    valid: bool,
    says: String,
}

/// Kinds of skills in which the two differ, whether skills-ref takes them, and why we do not agree.
const DIFFERENCES: [(&str, bool, &str); 8] = [
    ("name that YAML takes for something else", true, "skills-ref reads each value as text; to YAML, null is nothing and 1e3 a number"),
    ("description that YAML takes for nothing", true, "skills-ref reads each value as text; to YAML, null is nothing"),
    ("unicode", true, "skills-ref compares names after a normalisation (NFKC) of which we have no tables"),
    ("cut within a line", false, "skills-ref ends front matter at the first three hyphens, wherever they stand"),
    ("tab before a value", false, "YAML has tabs between a key and its value, and only there"),
    ("a mark at the beginning", false, "editors write the byte order mark, and it says nothing"),
    ("value of another type", true, "the standard says text and a map of texts; skills-ref does not look"),
    ("YAML that strictyaml has not", false, "lists and maps on one line, anchors and tags are YAML; a tag we refuse, too"),
];

#[test]
fn strict_reading_and_the_standards_validator_agree_but_where_a_reason_is_given() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("standard.json")).expect("the table");
    assert!(cases.len() >= 200);
    let (mut unexplained, mut explained) = (vec![], BTreeSet::new());
    for case in &cases {
        let files = [file(&format!(".agents/skills/{}/SKILL.md", case.folder), &case.text)];
        let ours = load(&files, 1, Strictness::Strict);
        if ours.is_ok() == case.valid {
            continue;
        }
        if let Some((kind, ..)) = DIFFERENCES.iter().find(|(kind, theirs, _)| case.kind == *kind && case.valid == *theirs) {
            explained.insert(*kind);
        } else {
            let ours = ours.err().map_or_else(|| "valid".to_owned(), |error| error.to_string());
            unexplained.push(format!("{}: {:?}\n  skills-ref: {} {}\n  ours: {ours}", case.kind, case.text, case.valid, case.says));
        }
    }
    assert!(unexplained.is_empty(), "{} of {}:\n{}", unexplained.len(), cases.len(), unexplained.join("\n"));
    assert_eq!(explained.len(), DIFFERENCES.len(), "each reason is needed: {explained:?}");
}
