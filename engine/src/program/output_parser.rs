//! Which parser reads which program's output.

use yoi_wire::preset::ParserName;

use super::event::OutputParser;
use super::text::TextParser;

/// The preset names a parser that this version does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the parser {0:?} is not in this version")]
pub struct UnknownParser(pub ParserName);

/// A new parser for one run.
///
/// # Errors
/// This version has none of that name.
pub fn parser(name: ParserName) -> Result<Box<dyn OutputParser>, UnknownParser> {
    match name {
        ParserName::Text => Ok(Box::new(TextParser::default())),
        ParserName::Claude | ParserName::Codex | ParserName::Gemini | ParserName::Copilot | ParserName::Opencode | ParserName::Goose => {
            Err(UnknownParser(name))
        }
    }
}

/// Whether the program itself says how a run ended. Then an end without that is a failure.
#[must_use]
pub fn reports_result(name: ParserName) -> bool {
    match name {
        ParserName::Text => false,
        ParserName::Claude | ParserName::Codex | ParserName::Gemini | ParserName::Copilot | ParserName::Opencode | ParserName::Goose => {
            true
        }
    }
}
