//! What a program says and does, as entries of the log.

use std::collections::VecDeque;

use serde_json::json;
use yoi_wire::entry::{Assistant, Body, Extension, Notice, ToolCall, ToolEnded, ToolOutcome, ToolStarted};

use super::program::{LINE_EXTENSION, OUTPUT_EXTENSION, RESULT_EXTENSION, SESSION_EXTENSION};
use super::run::tool_ended;
use super::told_calls::{MAX_OPEN_CALLS, ToldCall, bounded_name};
use super::{AskId, ConversationState, Effect, EffectId, Intent};
use crate::program::event::ProgramEvent;

const LOST_CALL: &str =
    "So many calls of the program had begun after this one that it counts as lost. It may or may not have taken effect.";
pub(super) const RUN_OVER: &str = "the run has ended, so nothing more of it begins";

impl ConversationState {
    pub(super) fn is_running_program(&self, effect: EffectId) -> bool {
        matches!(self.effects.get(&effect), Some(Effect::Program))
    }

    /// Logs what the program said. `ask` is answered when that is durable.
    pub(super) fn take_words(&mut self, effect: EffectId, ask: AskId, said: Vec<ProgramEvent>, intents: &mut Vec<Intent>) {
        if !self.is_running_program(effect) {
            intents.push(Intent::Acknowledge { ask, result: Err(RUN_OVER.to_owned()) });
            return;
        }
        let mut bodies = Vec::new();
        for event in said {
            self.take_word(event, &mut bodies);
        }
        self.append_and_acknowledge(ask, Ok(String::new()), bodies, intents);
    }

    pub(super) fn append_and_acknowledge(
        &mut self,
        ask: AskId,
        result: Result<String, String>,
        bodies: Vec<Body>,
        intents: &mut Vec<Intent>,
    ) {
        match &mut self.program {
            Some(program) if !bodies.is_empty() => {
                program.unacknowledged.push((ask, result));
                self.append(bodies, intents);
            }
            _ => intents.push(Intent::Acknowledge { ask, result }),
        }
    }

    /// All that was appended is durable.
    pub(super) fn acknowledge(&mut self, intents: &mut Vec<Intent>) {
        let Some(program) = &mut self.program else { return };
        intents.extend(program.unacknowledged.drain(..).map(|(ask, result)| Intent::Acknowledge { ask, result }));
    }

    /// Ends the oldest calls, so that `new` more have room among those that are open.
    pub(super) fn end_lost_calls(&mut self, new: usize, bodies: &mut Vec<Body>) {
        let mut open: VecDeque<&str> = self.log.open_calls.iter().map(|call| call.call_id.as_str()).collect();
        for body in &*bodies {
            match body {
                Body::Assistant(answer) => open.extend(answer.tool_calls.iter().map(|call| call.call_id.as_str())),
                Body::ToolStarted(start) if !open.contains(&start.call_id.as_str()) => open.push_back(&start.call_id),
                Body::ToolEnded(end) => {
                    if let Some(at) = open.iter().position(|id| *id == end.call_id) {
                        open.remove(at);
                    }
                }
                _ => {}
            }
        }
        let surplus = (open.len() + new).saturating_sub(MAX_OPEN_CALLS).min(open.len());
        let lost: Vec<String> = open.into_iter().take(surplus).map(str::to_owned).collect();
        for call_id in lost {
            bodies.push(tool_ended(&call_id, ToolOutcome::Unknown, LOST_CALL));
            if let Some(program) = &mut self.program {
                program.run.ended.insert(call_id, ());
            }
        }
    }

    fn take_word(&mut self, event: ProgramEvent, bodies: &mut Vec<Body>) {
        let api = self.api();
        let Some(program) = &mut self.program else { return };
        let run = &mut program.run;
        match event {
            ProgramEvent::Session { id } => {
                run.named_session = true;
                if program.seen_session.as_ref() != Some(&id) {
                    program.seen_session = Some(id.clone());
                    bodies.push(extension(SESSION_EXTENSION, json!({ "id": id })));
                }
            }
            ProgramEvent::Delta { .. } => {}
            ProgramEvent::Answer(mut answer) => {
                let had_calls = !answer.tool_calls.is_empty();
                let mut calls = Vec::new();
                for call in std::mem::take(&mut answer.tool_calls) {
                    let call = ToolCall { call_id: bounded_name(call.call_id), tool: bounded_name(call.tool), args: call.args };
                    let told = ToldCall::new(&call);
                    let same =
                        |hooked: &ToldCall| hooked.call_id == told.call_id || (hooked.tool == told.tool && hooked.has_args_of(&told));
                    match run.hooked.take(same) {
                        Some(hooked) => run.aliases.insert(call.call_id, hooked.call_id),
                        None => {
                            run.ended.remove(&call.call_id);
                            run.told.push(told);
                            calls.push(ToolCall { args: run.budget.kept_args(call.args), ..call });
                        }
                    }
                }
                run.answered = true;
                let kept = calls.len().saturating_sub(MAX_OPEN_CALLS);
                // The first of too many are left out, as if they had been lost before they were told.
                answer.tool_calls = calls.split_off(kept);
                self.end_lost_calls(answer.tool_calls.len(), bodies);
                // The hook's entry stands for an answer that has nothing beside the call.
                let nothing_left = had_calls && answer.tool_calls.is_empty() && answer.text.is_empty() && answer.usage.is_none();
                if !nothing_left {
                    bodies.push(Body::Assistant(Assistant { api, ..answer }));
                }
            }
            ProgramEvent::CallStarted { call_id, tool } => {
                let (call_id, tool) = (bounded_name(call_id), bounded_name(tool));
                let call_id = run.aliases.get(&call_id).cloned().unwrap_or(call_id);
                // One that a person is asked about has not begun, whatever the program tells.
                let is_new = !self.is_started(&call_id, bodies) && !self.has_ended(&call_id) && !self.is_asked_about(&call_id);
                if is_new {
                    if self.tool_of(&call_id, bodies).is_none() {
                        self.end_lost_calls(1, bodies);
                    }
                    bodies.push(Body::ToolStarted(ToolStarted { call_id, tool, decision: None }));
                }
            }
            ProgramEvent::CallEnded { call_id, outcome, output } => {
                let call_id = bounded_name(call_id);
                let call_id = run.aliases.get(&call_id).cloned().unwrap_or(call_id);
                if self.has_ended(&call_id) {
                    return;
                }
                let is_started = self.is_started(&call_id, bodies);
                let tool = self.tool_of(&call_id, bodies);
                let Some(run) = self.program.as_mut().map(|program| &mut program.run) else { return };
                let output = run.budget.kept_output(output);
                if !is_started {
                    let Some(tool) = tool else {
                        if !run.budget.count() {
                            return;
                        }
                        bodies.push(extension(RESULT_EXTENSION, json!({ "callId": call_id, "outcome": outcome, "output": output })));
                        return;
                    };
                    // A call that the program refused did not begin.
                    if outcome != ToolOutcome::Refused {
                        bodies.push(Body::ToolStarted(ToolStarted { call_id: call_id.clone(), tool, decision: None }));
                    }
                }
                run.ended.insert(call_id.clone(), ());
                run.told.take(|other| other.call_id == call_id);
                bodies.push(Body::ToolEnded(ToolEnded {
                    call_id,
                    outcome,
                    output,
                    images: Vec::new(),
                    millis: None,
                    decision: None,
                    read: None,
                }));
            }
            ProgramEvent::Usage(usage) => {
                bodies.push(Body::Usage(yoi_wire::entry::UsageWithoutAnswer { usage, reason: "Program".to_owned() }));
            }
            ProgramEvent::Output { stream, text } => bodies.push(extension(OUTPUT_EXTENSION, json!({ "stream": stream, "text": text }))),
            ProgramEvent::Other { line } => bodies.push(extension(LINE_EXTENSION, json!({ "line": line }))),
            ProgramEvent::Notice { reason, message } => bodies.push(Body::Notice(Notice { reason: reason.to_owned(), message })),
            ProgramEvent::Result { succeeded, message } => run.result = Some((succeeded, message)),
        }
    }

    /// Whether the call has begun and not ended, by the log and what is about to be appended.
    fn is_started(&self, call_id: &str, bodies: &[Body]) -> bool {
        let in_log = self.log.open_calls.iter().any(|call| call.call_id == call_id && call.started.is_some());
        let in_bodies = |body: &Body| matches!(body, Body::ToolStarted(start) if start.call_id == call_id);
        in_log || bodies.iter().any(in_bodies)
    }

    fn has_ended(&self, call_id: &str) -> bool {
        self.program.as_ref().is_some_and(|program| program.run.ended.get(call_id).is_some())
    }

    fn tool_of(&self, call_id: &str, bodies: &[Body]) -> Option<String> {
        let in_log = self.log.open_calls.iter().find(|call| call.call_id == call_id).map(|call| call.tool.clone());
        let in_bodies = || {
            let answers = bodies.iter().filter_map(|body| match body {
                Body::Assistant(answer) => Some(&answer.tool_calls),
                _ => None,
            });
            answers.flatten().find(|call| call.call_id == call_id).map(|call| call.tool.clone())
        };
        in_log.or_else(in_bodies)
    }
}

fn extension(name: &str, data: serde_json::Value) -> Body {
    Body::Extension(Extension { name: name.to_owned(), data })
}
