//! Reads a file as a node with its links.

use std::sync::Arc;

use super::links::{RELATED, RawLink, link, links_of};
use crate::front_matter;
use crate::reading::{Reading, take};
use crate::yaml::{Map, Node as Value};
use crate::{Skill, diagnostic::quote};

/// How many links one file may have.
const MAX_LINKS: usize = 2_000;
const MAX_ID: usize = 512;
/// Keys of front matter whose values are links of that relation.
const RELATIONS: [&str; 5] = [RELATED, "prereq", "extends", "contains", "references"];

/// A file of the graph.
#[derive(Debug)]
pub(crate) struct RawNode {
    pub(super) id: String,
    pub(super) title: String,
    pub(super) tags: Vec<String>,
    pub(super) path: String,
    /// Its path below the graph's folder; `None`: it is a skill.
    pub(super) below: Option<String>,
    pub(super) body: Arc<str>,
    pub(super) links: Vec<RawLink>,
}

/// A path as an id: each segment in lower case, with `-` for other characters than letters and digits.
pub(super) fn slug(path: &str) -> String {
    let mut segments = vec![];
    for segment in path.split('/') {
        let words: Vec<&str> = segment.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
        if !words.is_empty() {
            segments.push(words.join("-").to_lowercase());
        }
    }
    segments.join("/")
}

/// A path or a target without what does not count: what follows `#` or `?`, the ending, the name `SKILL`.
pub(super) fn without_ending(target: &str) -> &str {
    let target = target.split(['#', '?']).next().unwrap_or(target).trim_end_matches('/');
    let target = target.strip_suffix(".md").unwrap_or(target);
    match target.rsplit_once('/') {
        Some((folder, name)) if name.eq_ignore_ascii_case("skill") => folder,
        _ => target,
    }
}

/// Reads a file of the graph; `None`: it is invalid, as was told.
pub(super) fn read<'file>(reading: &mut Reading<'file>, below: &str, text: &'file str) -> Option<RawNode> {
    let parts = front_matter::split(text).map_err(|error| reading.yaml_error(error)).ok()?;
    let mut map = vec![];
    if let Some(header) = parts.header {
        (reading.header, reading.first_line) = (header, front_matter::FIRST_LINE);
        let fields = front_matter::parse(header, front_matter::FIRST_LINE).map_err(|error| reading.yaml_error(error)).ok()?;
        if let Some(line) = fields.unquoted {
            reading.leniency(Some(line), front_matter::NEEDS_QUOTES);
        }
        map = fields.map;
    }
    let slug_of = reading.text(&mut map, "slug").or(reading.text(&mut map, "id")).map(|id| slug(&id)).filter(|id| !id.is_empty());
    let id = slug_of.unwrap_or_else(|| slug(without_ending(below)));
    if id.len() > MAX_ID {
        reading.error(None, format!("has an id that is longer than {MAX_ID} bytes"));
        return None;
    }
    if id.is_empty() {
        reading.error(None, "has a name without letters and digits: give it an id");
        return None;
    }
    let title = reading.text(&mut map, "title").or_else(|| heading(parts.body)).unwrap_or_else(|| id.clone());
    let tags = match take(&mut map, "tags") {
        Some(Value::Text(text)) => text.split(',').map(|tag| tag.trim().to_owned()).filter(|tag| !tag.is_empty()).collect(),
        Some(node) => {
            let line = reading.line_of(&["tags"]);
            reading.texts(node, "tags", line)
        }
        None => vec![],
    };
    let mut links = links_of_fields(reading, &mut map);
    links.extend(links_of(parts.body, parts.body_line));
    if links.len() > MAX_LINKS {
        reading.warning(None, format!("has {} links, of which the first {MAX_LINKS} count", links.len()));
        links.truncate(MAX_LINKS);
    }
    let node = RawNode { id, title, tags, path: reading.path.to_owned(), below: Some(below.to_owned()), body: parts.body.into(), links };
    reading.is_valid().then_some(node)
}

/// A skill is a node, too: of its name.
pub(crate) fn of_skill(skill: &Skill) -> RawNode {
    let mut links = links_of(&skill.body, 1);
    links.truncate(MAX_LINKS);
    for link in &mut links {
        link.line = None;
    }
    RawNode {
        id: slug(&skill.name),
        title: heading(&skill.body).unwrap_or_else(|| skill.name.clone()),
        tags: vec![],
        path: skill.path.clone(),
        below: None,
        body: skill.body.clone(),
        links,
    }
}

/// The first heading of the first level.
fn heading(body: &str) -> Option<String> {
    body.lines().find_map(|line| line.strip_prefix("# ")).map(|heading| heading.trim().to_owned()).filter(|heading| !heading.is_empty())
}

fn links_of_fields(reading: &mut Reading<'_>, map: &mut Map) -> Vec<RawLink> {
    let mut links = vec![];
    let line = reading.line_of(&["links"]);
    let entries = match take(map, "links") {
        None | Some(Value::Null) => vec![],
        Some(Value::List(entries)) => entries,
        Some(entry) => vec![entry],
    };
    for entry in entries {
        let found = match entry {
            Value::Map(mut fields) => link_of_map(&mut fields, line),
            text => text.scalar().and_then(|text| link(bare(&text), line)),
        };
        if found.is_none() {
            reading.leniency(line, "has a link without a target, which is left out");
        }
        links.extend(found);
    }
    for relation in RELATIONS {
        let line = reading.line_of(&[relation]);
        let Some(node) = take(map, relation) else { continue };
        for target in reading.texts(node, relation, line) {
            match link(bare(&target), line) {
                Some(found) => links.push(RawLink { relation: relation.to_owned(), ..found }),
                None => reading.leniency(line, format!("{relation} has {}, which is no link and is left out", quote(&target))),
            }
        }
    }
    links
}

/// Without the brackets that a link has in the text.
fn bare(text: &str) -> &str {
    let text = text.trim();
    text.strip_prefix("[[").and_then(|inner| inner.strip_suffix("]]")).unwrap_or(text)
}

fn link_of_map(fields: &mut Map, line: Option<u32>) -> Option<RawLink> {
    let mut first = |keys: &[&str]| keys.iter().find_map(|key| take(fields, key)).and_then(|value| value.scalar());
    let target = first(&["target", "to", "id", "ref"]).map(|target| target.trim().to_owned()).filter(|target| !target.is_empty())?;
    let relation = first(&["rel", "relation"]).map_or_else(|| RELATED.to_owned(), |relation| relation.trim().to_lowercase());
    Some(RawLink { target, relation, label: first(&["label"]), line })
}
