//! The text of a command or skill, cut into its pieces once. A value is put between pieces, and nothing that was put in is looked at again.

use serde::Serialize;

use super::arguments::words;
use crate::RenderError;

/// The longest text that a command may become.
pub(super) const MAX_RENDERED_BYTES: usize = 1 << 20;

/// What has a meaning in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Nothing.
    Plain,
    /// `$ARGUMENTS`, `$ARGUMENTS[0]`, `$1`, `` !`command` ``.
    Claude,
    /// `$ARGUMENTS`, `$ARGUMENTS[0]`, `$1`, `{{parameter}}`.
    Jido,
    /// `{{args}}`, `!{command}`, `@{path}`.
    Gemini,
}

/// A text, cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Template {
    pieces: Vec<Piece>,
    /// Whether `$0` is the first word, as Claude Code has it in texts that use it. Else `$1` is.
    from_zero: bool,
}

/// One piece of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Text(String),
    /// All that stands after the name.
    Arguments,
    /// `$ARGUMENTS[n]`, from 0.
    Indexed(usize),
    /// `$n`.
    Word(usize),
    /// `{{name}}`.
    Named(String),
    /// What a shell is asked, with what stood around it.
    Shell {
        open: &'static str,
        command: Vec<Piece>,
        close: &'static str,
    },
    /// A file that is asked for.
    File(Vec<Piece>),
}

/// The text of a command with its values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rendered {
    /// In order.
    pub parts: Vec<Part>,
}

/// A part of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Part {
    /// For the model, as it is.
    Text(String),
    /// The output of a command belongs here. It holds no value of a parameter. It is a call like any: whoever renders asks the policy, or refuses it.
    Shell {
        /// As the file has it.
        command: String,
    },
    /// The content of a file belongs here. The path may hold a value: whoever renders checks it as that of any call.
    File {
        /// As the file has it, with its values.
        path: String,
    },
}

impl Template {
    pub(crate) fn parse(text: &str, dialect: Dialect) -> Self {
        let pieces = match dialect {
            Dialect::Plain => vec![Piece::Text(text.to_owned())],
            Dialect::Claude | Dialect::Jido | Dialect::Gemini => cut(text, dialect, Depth::Outer),
        };
        let from_zero = pieces.iter().any(|piece| match piece {
            Piece::Shell { command, .. } => command.contains(&Piece::Word(0)),
            piece => *piece == Piece::Word(0),
        });
        Self { pieces, from_zero }
    }

    /// The names of `{{name}}`, each once, in order, and no more than so many.
    pub(crate) fn names(&self, most: usize) -> Vec<String> {
        let mut names = vec![];
        for piece in &self.pieces {
            if let Piece::Named(name) = piece
                && !names.contains(name)
            {
                names.push(name.clone());
                if names.len() >= most {
                    break;
                }
            }
        }
        names
    }

    /// Makes each `{{name}}` text again that is none of these.
    pub(crate) fn keep_names(&mut self, is_kept: impl Fn(&str) -> bool) {
        for piece in &mut self.pieces {
            if let Piece::Named(name) = piece
                && !is_kept(name)
            {
                *piece = Piece::Text(format!("{{{{{name}}}}}"));
            }
        }
    }

    /// Whether a shell is asked something that a parameter is put into.
    pub(crate) fn has_parameter_in_shell(&self) -> bool {
        self.pieces
            .iter()
            .any(|piece| matches!(piece, Piece::Shell { command, .. } if command.iter().any(|piece| !matches!(piece, Piece::Text(_)))))
    }

    /// The text with its values. `values` are those of the names; `arguments` is what stands after the command's name.
    ///
    /// Arguments for a text that has no place for them follow it.
    pub(crate) fn render(&self, name: &str, arguments: &str, values: &[(String, String)]) -> Result<Rendered, RenderError> {
        let words: Vec<String> = match words(arguments) {
            Ok(words) => words.into_iter().map(|word| word.text).collect(),
            // The text is for a person or a model, so an apostrophe is one.
            Err(_) => arguments.split_whitespace().map(str::to_owned).collect(),
        };
        let given = Given { arguments: arguments.trim(), words: &words, from_zero: self.from_zero, values };
        let mut output = Output { parts: vec![], left: MAX_RENDERED_BYTES };
        let mut has_place = false;
        for piece in &self.pieces {
            let done = match piece {
                Piece::Shell { open, command, close } => match only_text(command) {
                    Some(command) => output.part(command.len(), Part::Shell { command: command.trim().to_owned() }),
                    // Values never reach a shell with the command around them: the model reads the line as it stands.
                    None => {
                        has_place = true;
                        output.text(open).and_then(|()| given.insert(command, &mut output)).and_then(|()| output.text(close))
                    }
                },
                Piece::File(path) => {
                    has_place |= path.iter().any(|piece| !matches!(piece, Piece::Text(_)));
                    let mut inner = Output { parts: vec![], left: output.left };
                    given.insert(path, &mut inner).and_then(|()| {
                        let path = inner
                            .parts
                            .into_iter()
                            .map(|part| if let Part::Text(text) = part { text } else { String::new() })
                            .collect::<String>();
                        output.part(path.len(), Part::File { path: path.trim().to_owned() })
                    })
                }
                piece => {
                    has_place |= !matches!(piece, Piece::Text(_));
                    given.insert(std::slice::from_ref(piece), &mut output)
                }
            };
            done.map_err(|TooLong| RenderError::TooLong { name: name.to_owned() })?;
        }
        if !has_place && !given.arguments.is_empty() {
            let told = output.text("\n\nARGUMENTS: ").and_then(|()| output.text(given.arguments));
            told.map_err(|TooLong| RenderError::TooLong { name: name.to_owned() })?;
        }
        Ok(Rendered { parts: output.parts })
    }
}

/// The text would be too long.
struct TooLong;

struct Output {
    parts: Vec<Part>,
    left: usize,
}

impl Output {
    fn text(&mut self, text: &str) -> Result<(), TooLong> {
        self.left = self.left.checked_sub(text.len()).ok_or(TooLong)?;
        if let Some(Part::Text(last)) = self.parts.last_mut() {
            last.push_str(text);
        } else if !text.is_empty() {
            self.parts.push(Part::Text(text.to_owned()));
        }
        Ok(())
    }

    fn part(&mut self, bytes: usize, part: Part) -> Result<(), TooLong> {
        self.left = self.left.checked_sub(bytes).ok_or(TooLong)?;
        self.parts.push(part);
        Ok(())
    }
}

/// What the caller gave.
struct Given<'given> {
    arguments: &'given str,
    words: &'given [String],
    from_zero: bool,
    values: &'given [(String, String)],
}

impl Given<'_> {
    /// Puts out pieces that are neither of a shell nor a file.
    fn insert(&self, pieces: &[Piece], output: &mut Output) -> Result<(), TooLong> {
        let word = |at: Option<usize>| at.and_then(|at| self.words.get(at)).map_or("", String::as_str);
        for piece in pieces {
            output.text(match piece {
                Piece::Text(text) => text,
                Piece::Arguments => self.arguments,
                Piece::Indexed(at) => word(Some(*at)),
                Piece::Word(at) if self.from_zero => word(Some(*at)),
                Piece::Word(at) => word(at.checked_sub(1)),
                Piece::Named(name) => self.values.iter().find(|(other, _)| other == name).map_or("", |(_, value)| value),
                Piece::Shell { .. } | Piece::File(_) => "",
            })?;
        }
        Ok(())
    }
}

fn only_text(pieces: &[Piece]) -> Option<String> {
    pieces.iter().map(|piece| if let Piece::Text(text) = piece { Some(text.as_str()) } else { None }).collect()
}

/// Whether pieces of a shell and of files are looked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    Outer,
    Inner,
}

/// Cuts a text from left to right; no piece is cut again but what stands within a shell's or a file's.
fn cut(text: &str, dialect: Dialect, depth: Depth) -> Vec<Piece> {
    let (mut pieces, mut plain, mut at) = (vec![], 0, 0);
    // Where no end was found, none is looked for again: the time stays that of one pass.
    let mut no_end_from = usize::MAX;
    while let Some(found) = text[at..].find(['$', '{', '!', '@']) {
        let begin = at + found;
        let rest = &text[begin..];
        match piece_at(text, begin, dialect, depth, &mut no_end_from) {
            Some((piece, length)) => {
                if plain < begin {
                    pieces.push(Piece::Text(text[plain..begin].to_owned()));
                }
                pieces.push(piece);
                at = begin + length;
                plain = at;
            }
            None => at = begin + rest.chars().next().map_or(1, char::len_utf8),
        }
    }
    if plain < text.len() {
        pieces.push(Piece::Text(text[plain..].to_owned()));
    }
    pieces
}

/// The piece that begins at a place, and its length.
fn piece_at(text: &str, begin: usize, dialect: Dialect, depth: Depth, no_end_from: &mut usize) -> Option<(Piece, usize)> {
    let rest = &text[begin..];
    match (dialect, rest.as_bytes().first()?) {
        (Dialect::Claude | Dialect::Jido, b'$') => dollar(rest),
        (Dialect::Jido, b'{') => {
            let (name, length) = braces(rest)?;
            Some((Piece::Named(name.to_owned()), length))
        }
        (Dialect::Gemini, b'{') => {
            let (name, length) = braces(rest)?;
            (name == "args").then_some((Piece::Arguments, length))
        }
        (Dialect::Claude, b'!') if depth == Depth::Outer => {
            // In the middle of a word it is an exclamation mark before code.
            let is_apart = text[..begin].chars().next_back().is_none_or(char::is_whitespace);
            let command = rest.strip_prefix("!`").filter(|_| is_apart)?.split(['`', '\n']).next()?;
            let is_closed = rest[2 + command.len()..].starts_with('`') && !command.trim().is_empty();
            let piece = Piece::Shell { open: "!`", command: cut(command, dialect, Depth::Inner), close: "`" };
            is_closed.then_some((piece, command.len() + 3))
        }
        (Dialect::Gemini, sign @ (b'!' | b'@')) if depth == Depth::Outer && begin < *no_end_from => {
            let inner = rest.get(1..)?.strip_prefix('{')?;
            let Some(length) = balanced(inner) else {
                *no_end_from = begin;
                return None;
            };
            let pieces = cut(&inner[..length], dialect, Depth::Inner);
            let piece = if *sign == b'!' { Piece::Shell { open: "!{", command: pieces, close: "}" } } else { Piece::File(pieces) };
            Some((piece, length + 3))
        }
        _ => None,
    }
}

/// `$ARGUMENTS`, `$ARGUMENTS[0]` or `$1`.
fn dollar(rest: &str) -> Option<(Piece, usize)> {
    let is_end = |after: &str| after.chars().next().is_none_or(|letter| !letter.is_alphanumeric() && letter != '_');
    if let Some(after) = rest.strip_prefix("$ARGUMENTS") {
        if let Some((number, length)) = after.strip_prefix('[').and_then(index) {
            return Some((Piece::Indexed(number), "$ARGUMENTS[".len() + length));
        }
        return is_end(after).then_some((Piece::Arguments, "$ARGUMENTS".len()));
    }
    let digit = rest.as_bytes().get(1).filter(|digit| digit.is_ascii_digit())?;
    // `$100` and `$1.50` are prices.
    let after = &rest[2..];
    let is_price = after.strip_prefix(['.', ',']).is_some_and(|after| after.starts_with(|letter: char| letter.is_ascii_digit()));
    (is_end(after) && !is_price).then_some((Piece::Word(usize::from(digit - b'0')), 2))
}

/// The number before a `]`, and the length with it.
fn index(rest: &str) -> Option<(usize, usize)> {
    let end = rest.bytes().take(4).position(|letter| !letter.is_ascii_digit())?;
    let number = rest[..end].parse().ok()?;
    rest[end..].starts_with(']').then_some((number, end + 1))
}

/// The name in `{{name}}`, and the length with the braces.
fn braces(rest: &str) -> Option<(&str, usize)> {
    const MAX_NAME: usize = 128;
    let inner = rest.strip_prefix("{{")?;
    let is_of_name = |letter: u8| letter.is_ascii_alphanumeric() || matches!(letter, b'_' | b'-' | b'.' | b' ');
    let end = inner.bytes().take(MAX_NAME).position(|letter| !is_of_name(letter))?;
    let name = inner[..end].trim();
    (inner[end..].starts_with("}}") && !name.contains(' ') && name.starts_with(|letter: char| letter.is_ascii_alphabetic()))
        .then_some((name, end + 4))
}

/// The length up to the brace that closes one that stands before the text.
fn balanced(text: &str) -> Option<usize> {
    let mut open = 1_usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => open += 1,
            b'}' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return Some(at);
        }
    }
    None
}
