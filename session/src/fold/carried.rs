//! The state of a session as the head of a segment carries it.

use serde_json::Value;
use yoi_wire::entry::{CarriedCall, CarriedRun, CarriedState, ToolCall};

use super::{LogState, OpenCall, OpenRun};

impl LogState {
    /// Returns what the next segment has to carry, so that its entries alone give this state again. The caller adds the requests of people
    /// and where a program stands.
    #[must_use]
    pub fn carried(&self) -> CarriedState {
        // Both numbers come from the entries of the next segment themselves.
        let Self { last_seq: _, run_generation: _, delivered, tasks, unanswered, open_run, open_calls, interrupted, tokens } = self;
        CarriedState {
            delivered: delivered.clone(),
            tasks: tasks.clone(),
            unanswered: unanswered.clone(),
            open_run: open_run.as_ref().map(carried_run),
            open_calls: open_calls.iter().map(carried_call).collect(),
            interrupted: interrupted.clone(),
            requests: Vec::new(),
            tokens: *tokens,
            program: None,
        }
    }

    pub(super) fn restore(&mut self, carried: &CarriedState) {
        // The conversation keeps the requests of people and the program.
        let CarriedState { delivered, tasks, unanswered, open_run, open_calls, interrupted, requests: _, tokens, program: _ } = carried;
        *self = Self {
            last_seq: self.last_seq,
            run_generation: self.run_generation,
            delivered: delivered.clone(),
            tasks: tasks.clone(),
            unanswered: unanswered.clone(),
            open_run: open_run.as_ref().map(restored_run),
            open_calls: open_calls.iter().map(restored_call).collect(),
            interrupted: interrupted.clone(),
            tokens: *tokens,
        };
    }
}

fn carried_run(run: &OpenRun) -> CarriedRun {
    let OpenRun { run_id, cause, seq, turns, paused, tokens, ending } = run.clone();
    CarriedRun { run_id, cause, seq, turns, paused, tokens, ending }
}

fn restored_run(run: &CarriedRun) -> OpenRun {
    let CarriedRun { run_id, cause, seq, turns, paused, tokens, ending } = run.clone();
    OpenRun { run_id, cause, seq, turns, paused, tokens, ending }
}

fn carried_call(call: &OpenCall) -> CarriedCall {
    let OpenCall { call_id, tool, request, started } = call.clone();
    let only_started = request.is_none();
    CarriedCall { call: request.unwrap_or(ToolCall { call_id, tool, args: Value::Null }), started, only_started }
}

fn restored_call(carried: &CarriedCall) -> OpenCall {
    let CarriedCall { call, started, only_started } = carried.clone();
    OpenCall { call_id: call.call_id.clone(), tool: call.tool.clone(), request: (!only_started).then_some(call), started }
}
