//! What stands after a command's name, cut into words as a shell cuts them, with nothing expanded.

/// A word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    /// Without its quotes.
    pub(super) text: String,
    /// Where it begins in the whole.
    pub(super) begin: usize,
}

/// A quote that has no end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpenQuote(pub(super) char);

/// Cuts at spaces. `'` and `"` keep spaces, and `\` takes the next character as it is, but for within `'`.
pub(super) fn words(text: &str) -> Result<Vec<Word>, OpenQuote> {
    let mut words: Vec<Word> = vec![];
    let mut word: Option<Word> = None;
    let mut quote = None;
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        if quote.is_none() && letter.is_whitespace() {
            words.extend(word.take());
            continue;
        }
        let word = word.get_or_insert_with(|| Word { text: String::new(), begin: at });
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (None, '\'' | '"') => quote = Some(letter),
            (None | Some('"'), '\\') => word.text.push(letters.next().map_or('\\', |(_, next)| next)),
            (_, letter) => word.text.push(letter),
        }
    }
    words.extend(word);
    quote.map_or(Ok(words), |quote| Err(OpenQuote(quote)))
}
