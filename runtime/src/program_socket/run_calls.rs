//! Requests of one run.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use uuid::Uuid;
use yoi_engine::program::calls::ProgramCalls;
use yoi_wire::entry::ToolCall;

use super::{Answer, HookCall, Method, refused};

/// Open calls without an id of the program's.
const MAX_OPEN_CALLS: usize = 256;

/// Answers the requests of one run.
pub struct RunCalls {
    calls: Arc<dyn ProgramCalls>,
    /// Calls for which the program has no id, the oldest first.
    open: Mutex<Vec<ToolCall>>,
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
            Method::HookBefore(HookCall { call_id, tool, args }) => {
                let unnamed = call_id.is_none();
                let call = ToolCall { call_id: call_id.unwrap_or_else(|| new_id("hook")), tool, args };
                match self.calls.call_starts(call.clone()).await {
                    Ok(()) => {
                        if unnamed {
                            self.open_call(call);
                        }
                        Answer::Done
                    }
                    Err(message) => refused(message),
                }
            }
            Method::HookAfter { call: HookCall { call_id, tool, args }, outcome, output } => {
                let Some(call_id) = call_id.or_else(|| self.close_call(&tool, &args)) else {
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

    fn open_call(&self, call: ToolCall) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() == MAX_OPEN_CALLS {
            open.remove(0);
        }
        open.push(call);
    }

    /// Of equal calls, the oldest one ends first.
    fn close_call(&self, tool: &str, args: &Value) -> Option<String> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let at = open.iter().position(|call| call.tool == tool && call.args == *args)?;
        Some(open.remove(at).call_id)
    }
}

fn new_id(kind: &str) -> String {
    format!("{kind}-{}", Uuid::new_v4())
}
