//! Cutting texts and events as a network and a model cut them.

/// Splits text into pieces of a few characters, as models stream it. Returns at least one piece.
pub fn pieces(text: &str) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    if characters.is_empty() {
        return vec![String::new()];
    }
    characters.chunks(9).map(|piece| piece.iter().collect()).collect()
}

/// Cuts an event in two: within its first character of several bytes if it has one, so that neither half is UTF-8, or else in the middle.
pub fn halves(event: &str) -> [Vec<u8>; 2] {
    let wide = event.char_indices().find(|(_, character)| character.len_utf8() > 1).map(|(at, _)| at + 1);
    let (first, second) = event.as_bytes().split_at(wide.unwrap_or(event.len() / 2));
    [first.to_vec(), second.to_vec()]
}
