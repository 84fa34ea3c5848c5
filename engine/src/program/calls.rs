//! Calls that a program tells its runtime of, and calls that it asks the runtime to run.

use futures::future::BoxFuture;
use serde_json::Value;
use sha2::{Digest, Sha256};
use yoi_wire::entry::{OfferedTool, ToolCall, ToolOutcome};

use crate::conversation::CallEnd;

/// The run of a program, as the runtime's socket sees it. Everything that comes this way is the program's own word: any process of the Pod
/// that knows the run's token can say it.
pub trait ProgramCalls: Send + Sync {
    /// A tool of the program's own is about to run. Returns when the begin of the call is durable in the log. A call that the policy has a person asked about
    /// waits for the answer for at most `wait_seconds`, which is how long the program waits for its hook; 0: it is refused at once. Dropping the future ends the
    /// wait, and the call with it.
    ///
    /// # Errors
    /// Why the call must not run, as a sentence for the program's model.
    fn call_starts(&self, call: ToolCall, wait_seconds: u64) -> BoxFuture<'_, Result<(), String>>;

    /// A tool of the program's own has ended. `output` is what the program's model reads.
    fn call_ended(&self, call_id: String, outcome: ToolOutcome, output: String) -> BoxFuture<'_, ()>;

    /// Runs one of the tools in [`Self::offered`], with the limits and the log of a built-in agent's calls.
    fn run_tool(&self, call: ToolCall) -> BoxFuture<'_, CallEnd>;

    /// The tools that the runtime runs for the program.
    fn offered(&self) -> Vec<OfferedTool>;
}

/// SHA-256 of a call's arguments. Equal arguments have the same, whatever the order of their members.
#[must_use]
pub fn args_digest(args: &Value) -> [u8; 32] {
    let mut hash = Sha256::new();
    add_value(args, &mut hash);
    hash.finalize().into()
}

/// Each value begins with its kind and its length, so that no two values give the same bytes.
fn add_value(value: &Value, hash: &mut Sha256) {
    match value {
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_unstable_by_key(|(name, _)| *name);
            hash.update(format!("object {} ", sorted.len()));
            for (name, value) in sorted {
                hash.update(format!("{} {name}", name.len()));
                add_value(value, hash);
            }
        }
        Value::Array(values) => {
            hash.update(format!("array {} ", values.len()));
            values.iter().for_each(|value| add_value(value, hash));
        }
        Value::String(text) => {
            hash.update(format!("text {} ", text.len()));
            hash.update(text);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => hash.update(format!("{value} ")),
    }
}
