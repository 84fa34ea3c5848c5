//! The state of a session as the first lines of a segment carry it.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use yoi_wire::entry::{Carried, CarriedCall, CarriedMore, CarriedRun, CarriedState, ToolCall};

use super::{DeliveredIds, LogState, OpenCall, OpenRun, RequestedCall};

/// Bytes of ids, of tasks, and of calls in one line, unless one alone is longer. Together they stay far below the longest line of a log.
const MAX_PART_BYTES: usize = 2 << 20;

impl LogState {
    /// Returns what the next segment has to carry, so that its entries alone give this state again. The first has the state; the others add
    /// to it. The caller adds the requests of people and where a program stands to the first, and the items after all of them.
    #[must_use]
    pub fn carried(&self) -> Vec<Carried> {
        // Both numbers come from the entries of the next segment themselves.
        let Self {
            last_seq: _,
            run_generation: _,
            delivered,
            tasks,
            unanswered,
            open_run,
            open_calls,
            requested,
            past_requested,
            interrupted,
            always_approved,
            past_questions,
            mode,
            read,
            tokens,
        } = self;
        let delivered = parts(delivered.latest_first().map(|(id, seq)| (id.to_owned(), seq)));
        let tasks = parts(tasks.iter().map(|(id, task)| (id.clone(), task.clone())));
        let open_calls = parts(open_calls.iter().map(carried_call));
        let lines = delivered.len().max(tasks.len()).max(open_calls.len());
        let (mut delivered, mut tasks, mut open_calls) = (delivered.into_iter(), tasks.into_iter(), open_calls.into_iter());
        let state = CarriedState {
            delivered: delivered.next().into_iter().flatten().collect(),
            tasks: tasks.next().into_iter().flatten().collect(),
            unanswered: unanswered.clone(),
            open_run: open_run.as_ref().map(carried_run),
            open_calls: open_calls.next().unwrap_or_default(),
            requested: requested.iter().map(RequestedCall::carried).collect(),
            past_requested: past_requested.iter().cloned().collect(),
            interrupted: interrupted.clone(),
            requests: Vec::new(),
            always_approved: always_approved.iter().cloned().collect(),
            past_questions: past_questions.iter().cloned().collect(),
            mode: mode.clone(),
            read: read.values().cloned().collect(),
            tokens: *tokens,
            program: None,
        };
        let first = Carried { state: Some(Box::new(state)), ..Carried::default() };
        let more = (1..lines).map(|_| {
            let more = CarriedMore {
                delivered: delivered.next().into_iter().flatten().collect(),
                tasks: tasks.next().into_iter().flatten().collect(),
                open_calls: open_calls.next().unwrap_or_default(),
            };
            Carried { more: Some(Box::new(more)), ..Carried::default() }
        });
        std::iter::once(first).chain(more).collect()
    }

    pub(super) fn restore(&mut self, carried: &CarriedState) {
        // The conversation keeps the requests of people and the program.
        let CarriedState { delivered, tasks, unanswered, open_run, open_calls, interrupted, .. } = carried;
        let CarriedState {
            requested, past_requested, requests: _, always_approved, past_questions, mode, read, tokens, program: _, ..
        } = carried;
        *self = Self {
            last_seq: self.last_seq,
            run_generation: self.run_generation,
            delivered: DeliveredIds::default(),
            tasks: BTreeMap::new(),
            unanswered: unanswered.clone(),
            open_run: open_run.as_ref().map(restored_run),
            open_calls: Vec::new(),
            requested: requested.iter().map(RequestedCall::restored).collect(),
            past_requested: past_requested.iter().cloned().collect(),
            interrupted: interrupted.clone(),
            always_approved: always_approved.iter().cloned().collect(),
            past_questions: past_questions.iter().cloned().collect(),
            mode: mode.clone(),
            read: read.iter().map(|read| (read.agent.clone(), read.clone())).collect(),
            tokens: *tokens,
        };
        self.add(delivered, tasks, open_calls);
    }

    pub(super) fn restore_more(&mut self, more: &CarriedMore) {
        let CarriedMore { delivered, tasks, open_calls } = more;
        self.add(delivered, tasks, open_calls);
    }

    fn add(&mut self, delivered: &BTreeMap<String, u64>, tasks: &BTreeMap<String, super::CarriedTask>, open_calls: &[CarriedCall]) {
        delivered.iter().for_each(|(id, seq)| self.delivered.insert(id, *seq));
        self.tasks.extend(tasks.clone());
        self.open_calls.extend(open_calls.iter().map(restored_call));
    }
}

/// Splits what is carried so that each part has room in a line.
fn parts<T: Serialize>(all: impl Iterator<Item = T>) -> Vec<Vec<T>> {
    let (mut parts, mut room): (Vec<Vec<T>>, usize) = (Vec::new(), 0);
    for one in all {
        // What does not serialize is refused by the log.
        let bytes = serde_json::to_string(&one).map_or(MAX_PART_BYTES, |text| text.len());
        match parts.last_mut() {
            Some(last) if bytes <= room => last.push(one),
            _ => {
                parts.push(vec![one]);
                room = MAX_PART_BYTES;
            }
        }
        room = room.saturating_sub(bytes);
    }
    parts
}

fn carried_run(run: &OpenRun) -> CarriedRun {
    let OpenRun { run_id, cause, seq, turns, paused, tokens, ending } = run.clone();
    CarriedRun { run_id, cause, seq, turns, paused, tokens, ending }
}

fn restored_run(run: &CarriedRun) -> OpenRun {
    let CarriedRun { run_id, cause, seq, turns, paused, tokens, ending } = run.clone();
    OpenRun { run_id, cause, seq, turns, paused, tokens, ending }
}

pub(super) fn carried_call(call: &OpenCall) -> CarriedCall {
    let OpenCall { call_id, tool, request, started, question } = call.clone();
    let only_started = request.is_none();
    CarriedCall { call: request.unwrap_or(ToolCall { call_id, tool, args: Value::Null }), started, only_started, question }
}

pub(super) fn restored_call(carried: &CarriedCall) -> OpenCall {
    let CarriedCall { call, started, only_started, question } = carried.clone();
    OpenCall { call_id: call.call_id.clone(), tool: call.tool.clone(), request: (!only_started).then_some(call), started, question }
}
