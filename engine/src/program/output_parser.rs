//! Which parser reads which program's output.

use yoi_wire::preset::ParserName;

use super::event::OutputParser;
use super::parser::parser_of;
use super::text::TextParser;

/// A new parser for one run.
#[must_use]
pub fn parser(name: ParserName) -> Box<dyn OutputParser> {
    parser_of(name).unwrap_or_else(|| Box::new(TextParser::default()))
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

/// Files of the tree that end each run of the program when they are not what it expects, so that only a person can let it go on.
#[must_use]
pub fn settings_that_end_a_run(name: ParserName) -> &'static [&'static str] {
    match name {
        // It reads the file before it knows whether the folder is trusted.
        ParserName::Gemini => &[".gemini/settings.json"],
        ParserName::Claude | ParserName::Codex | ParserName::Copilot | ParserName::Opencode | ParserName::Goose | ParserName::Text => &[],
    }
}
