//! Requests of one run.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use uuid::Uuid;
use yoi_engine::program::calls::{ProgramCalls, args_digest};
use yoi_wire::entry::ToolCall;

use super::{Answer, HookCall, Method, refused};

/// Open calls without an id of the program's. The log has fewer.
const MAX_OPEN_CALLS: usize = 256;

/// Answers the requests of one run.
pub struct RunCalls {
    calls: Arc<dyn ProgramCalls>,
    /// Calls for which the program has no id, the oldest first.
    open: Mutex<VecDeque<OpenCall>>,
}

/// A call without its arguments, which may be long.
#[derive(Debug)]
struct OpenCall {
    call_id: String,
    tool: String,
    args: [u8; 32],
}

impl fmt::Debug for RunCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunCalls").field("open", &self.open).finish_non_exhaustive()
    }
}

impl RunCalls {
    pub(super) fn new(calls: Arc<dyn ProgramCalls>) -> Self {
        Self { calls, open: Mutex::default() }
    }

    pub(super) async fn answer(&self, method: Method) -> Answer {
        match method {
            Method::HookBefore { call: HookCall { call_id, tool, args }, wait_seconds } => {
                let unnamed = call_id.is_none();
                let call = ToolCall { call_id: call_id.unwrap_or_else(|| new_id("hook")), tool, args };
                let open = OpenCall { call_id: call.call_id.clone(), tool: call.tool.clone(), args: args_digest(&call.args) };
                match self.calls.call_starts(call, wait_seconds).await {
                    Ok(()) => {
                        if unnamed {
                            self.open_call(open);
                        }
                        Answer::Done
                    }
                    Err(message) => refused(message),
                }
            }
            Method::HookAfter { call: HookCall { call_id, tool, args }, outcome, output } => {
                let Some(call_id) = call_id.or_else(|| self.close_call(&tool, args_digest(&args))) else {
                    return refused(format!("the end of a call of {tool:?} was told, and no begin of it with the same arguments"));
                };
                self.calls.call_ended(call_id, outcome, output).await;
                Answer::Done
            }
            Method::ListTools => Answer::Tools { tools: self.calls.offered() },
            Method::CallTool { tool, args } => {
                let end = self.calls.run_tool(ToolCall { call_id: new_id("mcp"), tool, args }).await;
                Answer::Ended { outcome: end.outcome, output: end.output }
            }
        }
    }

    fn open_call(&self, call: OpenCall) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() == MAX_OPEN_CALLS {
            open.pop_front();
        }
        open.push_back(call);
    }

    /// Of equal calls, the oldest one ends first.
    fn close_call(&self, tool: &str, args: [u8; 32]) -> Option<String> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let at = open.iter().position(|call| call.tool == tool && call.args == args)?;
        open.remove(at).map(|call| call.call_id)
    }
}

fn new_id(kind: &str) -> String {
    format!("{kind}-{}", Uuid::new_v4())
}
