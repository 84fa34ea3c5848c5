//! What a program's output means.

use serde::Serialize;
use yoi_wire::entry::{Assistant, TokenUsage, ToolOutcome};

/// What a program said or did. Everything of it is the program's own word.
#[derive(Clone, Debug, PartialEq)]
pub enum ProgramEvent {
    /// The program's own id of its session: a later run goes on by it.
    Session {
        /// As the program wrote it.
        id: String,
    },
    /// A piece of text that comes before its [`ProgramEvent::Answer`]. It is shown to people who are attached, and is not logged.
    Delta {
        /// The next characters.
        text: String,
    },
    /// An answer of its model, with the calls that it asks for.
    Answer(Assistant),
    /// A call begins.
    CallStarted {
        /// As in the answer.
        call_id: String,
        /// Name of the program's tool.
        tool: String,
    },
    /// A call has ended.
    CallEnded {
        /// As in the answer.
        call_id: String,
        /// How.
        outcome: ToolOutcome,
        /// What the program's model reads.
        output: String,
    },
    /// Tokens that no answer carries. They are added to those of the run.
    Usage(TokenUsage),
    /// Lines of a program whose output is no lines of JSON.
    Output {
        /// Where it wrote them.
        stream: OutputStream,
        /// The lines, each with its newline.
        text: String,
    },
    /// A line that the parser does not know. It is kept in the log as it came.
    Other {
        /// The line, bounded.
        line: String,
    },
    /// The program says something that people should know.
    Notice {
        /// In CamelCase, of the vocabulary of condition reasons.
        reason: &'static str,
        /// For people.
        message: String,
    },
    /// The program says how the run ended. Without it the exit code says so.
    Result {
        /// Whether it has done what it was asked.
        succeeded: bool,
        /// For people, when it has not.
        message: Option<String>,
    },
}

/// One of the two streams that a program writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Reads a program's output, line by line. It never fails: what it does not know becomes [`ProgramEvent::Other`].
pub trait OutputParser: Send {
    /// The next line, without its newline. The caller bounds its length.
    fn push_line(&mut self, line: &[u8]) -> Vec<ProgramEvent>;
    /// The output has ended.
    fn finish(&mut self) -> Vec<ProgramEvent>;
}
