//! The list of skills for the prompt of a model, within a budget.

use crate::AssetSnapshot;

/// The shortest piece of a description that is worth its place.
const MIN_DESCRIPTION: usize = 16;
const CUT: &str = "…";

/// Names and descriptions of the skills that the model may load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalogue {
    /// A line for each: `- name: description`. Empty where there are none.
    pub text: String,
    /// How many skills found no place.
    pub left_out: usize,
}

impl AssetSnapshot {
    /// Names and descriptions of the skills that the model may load, in at most `max_bytes`. What does not fit is cut, the longest descriptions first. When
    /// not even the names fit, the last in precedence are left out and counted.
    #[must_use]
    pub fn catalogue(&self, max_bytes: usize) -> Catalogue {
        let skills: Vec<(&str, String)> = self
            .skills
            .iter()
            .filter(|skill| skill.for_model && skill.state.is_valid())
            .map(|skill| (skill.name.as_str(), one_line(&skill.description)))
            .collect();
        // A line without its description: `- name` and the end of the line.
        let name_bytes = |name: &str| name.len() + 3;
        let mut left = max_bytes;
        let fit = skills
            .iter()
            .take_while(|(name, _)| {
                let rest = left.checked_sub(name_bytes(name));
                left = rest.unwrap_or(left);
                rest.is_some()
            })
            .count();
        let shown = &skills[..fit];
        let longest = longest_description(shown.iter().map(|(_, description)| description.len()), left);
        let mut text = String::with_capacity(max_bytes.min(1 << 16));
        for (name, description) in shown {
            let description = cut(description, longest);
            let colon = if description.is_empty() { "" } else { ": " };
            text.extend(["- ", *name, colon, &description, "\n"]);
        }
        Catalogue { text, left_out: skills.len() - fit }
    }
}

/// How long a description may be, so that all together have room.
fn longest_description(lengths: impl Iterator<Item = usize> + Clone, room: usize) -> usize {
    // `: ` before each.
    let needed = |longest: usize| lengths.clone().map(|length| if length == 0 { 0 } else { 2 + length.min(longest) }).sum::<usize>();
    let (mut fits, mut too_long) = (0, lengths.clone().max().unwrap_or(0) + 1);
    while fits + 1 < too_long {
        let middle = fits.midpoint(too_long);
        if needed(middle) <= room { fits = middle } else { too_long = middle }
    }
    if fits < MIN_DESCRIPTION && lengths.max().unwrap_or(0) > fits { 0 } else { fits }
}

/// At most `longest` bytes, the sign that something is cut included.
fn cut(text: &str, longest: usize) -> String {
    if text.len() <= longest {
        return text.to_owned();
    }
    let Some(room) = longest.checked_sub(CUT.len()).filter(|room| *room > 0) else { return String::new() };
    let mut end = room;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{CUT}", text[..end].trim_end())
}

/// A description that cannot look like the next line of the list.
fn one_line(text: &str) -> String {
    let words: Vec<&str> =
        text.split(|letter: char| letter.is_whitespace() || letter.is_control()).filter(|word| !word.is_empty()).collect();
    words.join(" ")
}
