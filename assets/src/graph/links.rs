//! Links in the text of a node.

/// A link as its file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RawLink {
    pub(super) target: String,
    pub(super) relation: String,
    pub(super) label: Option<String>,
    /// From 1, where it is known.
    pub(super) line: Option<u32>,
}

/// The relation of a link that names none.
pub(super) const RELATED: &str = "related";

/// The links `[[target]]`, `[[rel:target]]` and `[[rel:target|label]]` of a text whose first line has a number. Code is no text.
pub(super) fn links_of(text: &str, first_line: u32) -> Vec<RawLink> {
    let mut links = vec![];
    let mut fence: Option<&str> = None;
    for (line, number) in text.lines().zip(first_line..) {
        let start = line.trim_start();
        let sign = ["```", "~~~"].into_iter().find(|sign| start.starts_with(sign));
        match (fence, sign) {
            (None, Some(sign)) => fence = Some(sign),
            (Some(open), Some(sign)) if open == sign => fence = None,
            (None, None) => links_of_line(line, number, &mut links),
            (Some(_), _) => {}
        }
    }
    links
}

fn links_of_line(line: &str, number: u32, links: &mut Vec<RawLink>) {
    // Every second piece stands between two backticks.
    let has_end = line.matches('`').count().is_multiple_of(2);
    for (at, piece) in line.split('`').enumerate() {
        if at % 2 == 1 && has_end {
            continue;
        }
        let mut rest = piece;
        while let Some((_, after)) = rest.split_once("[[") {
            let Some((inner, after)) = after.split_once("]]") else { break };
            rest = after;
            // The last opening brackets count.
            let inner = inner.rsplit("[[").next().unwrap_or(inner);
            links.extend(link(inner, Some(number)));
        }
    }
}

/// Reads what stands between the brackets.
pub(super) fn link(inner: &str, line: Option<u32>) -> Option<RawLink> {
    let (target, label) = inner.split_once('|').map_or((inner, None), |(target, label)| (target, Some(label.trim())));
    let is_relation = |name: &str| {
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
        name.starts_with(|letter: char| letter.is_ascii_alphabetic()) && name.chars().all(is_letter)
    };
    let (relation, target) = match target.split_once(':') {
        Some((relation, target)) if is_relation(relation.trim()) => (relation.trim().to_lowercase(), target),
        _ => (RELATED.to_owned(), target),
    };
    let target = target.trim();
    // An address is no node.
    (!target.is_empty() && !target.starts_with("//") && target.len() <= 512).then(|| RawLink {
        target: target.to_owned(),
        relation,
        label: label.filter(|label| !label.is_empty()).map(str::to_owned),
        line,
    })
}
