//! Calls of a program as this process was told of them in the run under way, and how much of them is kept.
//!
//! Any process of the Pod can tell of calls, as many and as long as it likes. So all that is remembered or logged here is bounded.

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Value, json};
use yoi_wire::entry::ToolCall;

use crate::program::calls::args_digest;

/// Calls that have begun or were asked for, and have not ended. The oldest one beyond it counts as lost.
pub(super) const MAX_OPEN_CALLS: usize = 64;
/// Calls of one run. Further ones are refused.
pub(super) const MAX_CALLS: u64 = 100_000;
/// Bytes of a call's arguments in the log.
const MAX_ARGS_BYTES: usize = 64 << 10;
/// Bytes of arguments and of results in one run of which the log keeps what they say.
const MAX_KEPT_BYTES: usize = 64 << 20;
/// Bytes of a call's id and of a tool's name.
const MAX_NAME_BYTES: usize = 256;
/// Ids, and calls of hooks, that are remembered.
const MAX_REMEMBERED: usize = 4096;

/// A call without its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ToldCall {
    pub call_id: String,
    pub tool: String,
    digest: [u8; 32],
}

impl ToldCall {
    pub fn new(call: &ToolCall) -> Self {
        Self { call_id: call.call_id.clone(), tool: call.tool.clone(), digest: args_digest(&call.args) }
    }

    pub fn has_args_of(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

/// Calls in the order in which they were told, the latest of them.
#[derive(Clone, Debug, Default)]
pub(super) struct ToldCalls(VecDeque<ToldCall>);

impl ToldCalls {
    pub fn push(&mut self, call: ToldCall) {
        self.0.push_back(call);
        if self.0.len() > MAX_REMEMBERED {
            self.0.pop_front();
        }
    }

    /// Removes the first call of this kind, and returns it.
    pub fn take(&mut self, is_wanted: impl FnMut(&ToldCall) -> bool) -> Option<ToldCall> {
        let at = self.0.iter().position(is_wanted)?;
        self.0.remove(at)
    }

    pub fn find(&self, mut is_wanted: impl FnMut(&ToldCall) -> bool) -> Option<&ToldCall> {
        self.0.iter().find(|call| is_wanted(call))
    }
}

/// Values by id. Beyond a number the one that was added first is forgotten.
#[derive(Clone, Debug, Default)]
pub(super) struct Latest<T> {
    by_id: BTreeMap<String, T>,
    order: VecDeque<String>,
}

impl<T> Latest<T> {
    pub fn insert(&mut self, id: String, value: T) {
        if self.by_id.insert(id.clone(), value).is_none() {
            self.order.push_back(id);
        }
        if self.order.len() > MAX_REMEMBERED
            && let Some(first) = self.order.pop_front()
        {
            self.by_id.remove(&first);
        }
    }

    pub fn get(&self, id: &str) -> Option<&T> {
        self.by_id.get(id)
    }

    pub fn remove(&mut self, id: &str) {
        if self.by_id.remove(id).is_some() {
            self.order.retain(|other| other != id);
        }
    }
}

/// How much of the calls of one run the log has.
#[derive(Clone, Debug, Default)]
pub(super) struct CallBudget {
    calls: u64,
    bytes: usize,
}

impl CallBudget {
    /// Counts one more call, or one more result of an unknown call. False: there were too many.
    pub fn count(&mut self) -> bool {
        self.calls += 1;
        self.calls <= MAX_CALLS
    }

    /// The arguments as the log keeps them.
    pub fn kept_args(&mut self, args: Value) -> Value {
        let text = args.to_string();
        let room = MAX_ARGS_BYTES.min(MAX_KEPT_BYTES.saturating_sub(self.bytes));
        self.bytes += text.len().min(room);
        if text.len() <= room {
            return args;
        }
        let head = &text[..text.floor_char_boundary(room)];
        json!({ "cut": head, "note": format!("cut: the arguments have {} bytes", text.len()) })
    }

    /// The result as the log keeps it.
    pub fn kept_output(&mut self, output: String) -> String {
        let room = MAX_KEPT_BYTES.saturating_sub(self.bytes);
        self.bytes += output.len().min(room);
        if output.len() <= room {
            return output;
        }
        format!("{} [cut: the output has {} bytes]", &output[..output.floor_char_boundary(room)], output.len())
    }
}

/// An id or a name as it is kept. Equal ones stay equal, and others stay others.
pub(super) fn bounded_name(name: String) -> String {
    if name.len() <= MAX_NAME_BYTES {
        return name;
    }
    let head = &name[..name.floor_char_boundary(MAX_NAME_BYTES - 66)];
    format!("{head}..{}", hex::encode(args_digest(&Value::String(name.clone()))))
}
