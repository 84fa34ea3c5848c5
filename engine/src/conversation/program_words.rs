//! What a program says and does, as entries of the log.

use serde_json::json;
use yoi_wire::entry::{Assistant, Body, Extension, ToolCall, ToolEnded, ToolOutcome, ToolStarted};

use super::program::{LINE_EXTENSION, RESULT_EXTENSION, SESSION_EXTENSION};
use super::{AskId, ConversationState, Effect, EffectId, Intent};
use crate::program::event::ProgramEvent;

const RUN_OVER: &str = "the run has ended, so nothing more of it begins";

impl ConversationState {
    fn is_running_program(&self, effect: EffectId) -> bool {
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
        self.append_and_acknowledge(ask, String::new(), bodies, intents);
    }

    fn append_and_acknowledge(&mut self, ask: AskId, call_id: String, bodies: Vec<Body>, intents: &mut Vec<Intent>) {
        match &mut self.program {
            Some(program) if !bodies.is_empty() => {
                program.unacknowledged.push((ask, call_id));
                self.append(bodies, intents);
            }
            _ => intents.push(Intent::Acknowledge { ask, result: Ok(call_id) }),
        }
    }

    /// All that was appended is durable.
    pub(super) fn acknowledge(&mut self, intents: &mut Vec<Intent>) {
        let Some(program) = &mut self.program else { return };
        intents.extend(program.unacknowledged.drain(..).map(|(ask, call_id)| Intent::Acknowledge { ask, result: Ok(call_id) }));
    }

    /// A hook tells that a call is about to begin, or asks for a tool of Yoi's.
    pub(super) fn take_program_call(&mut self, effect: EffectId, ask: AskId, call: ToolCall, intents: &mut Vec<Intent>) {
        let over = self.ending.is_some() || !self.is_running_program(effect);
        let api = self.api();
        let Some(program) = self.program.as_mut().filter(|_| !over) else {
            intents.push(Intent::Acknowledge { ask, result: Err(RUN_OVER.to_owned()) });
            return;
        };
        let by_id = self.log.open_calls.iter().find(|open| open.call_id == call.call_id);
        // A hook may not know the id that the output has, and the name of a tool of Yoi's has the program's prefix there.
        let is_same = |other: &ToolCall| other.args == call.args && (other.tool == call.tool || has_suffix(&other.tool, &call.tool));
        let by_content = || self.log.open_calls.iter().find(|open| open.request.as_ref().is_some_and(is_same));
        let mut bodies = Vec::new();
        let call_id = match by_id.or_else(by_content) {
            Some(open) => {
                if open.call_id != call.call_id {
                    program.run.aliases.insert(call.call_id.clone(), open.call_id.clone());
                }
                if open.started.is_none() {
                    bodies.push(Body::ToolStarted(ToolStarted { call_id: open.call_id.clone(), tool: open.tool.clone() }));
                }
                open.call_id.clone()
            }
            None => {
                let (call_id, tool) = (call.call_id.clone(), call.tool.clone());
                program.run.hooked.push(call.clone());
                program.run.answered = true;
                bodies.push(Body::Assistant(Assistant { tool_calls: vec![call], api, ..Assistant::default() }));
                bodies.push(Body::ToolStarted(ToolStarted { call_id: call_id.clone(), tool }));
                call_id
            }
        };
        program.run.ended.remove(&call_id);
        self.append_and_acknowledge(ask, call_id, bodies, intents);
    }

    fn take_word(&mut self, event: ProgramEvent, bodies: &mut Vec<Body>) {
        let api = self.api();
        let Some(program) = &mut self.program else { return };
        let run = &mut program.run;
        match event {
            ProgramEvent::Session { id } => {
                if program.seen_session.as_ref() != Some(&id) {
                    program.seen_session = Some(id.clone());
                    bodies.push(extension(SESSION_EXTENSION, json!({ "id": id })));
                }
            }
            ProgramEvent::Delta { .. } => {}
            ProgramEvent::Answer(mut answer) => {
                let had_calls = !answer.tool_calls.is_empty();
                answer.tool_calls.retain(|call| {
                    let same = |hooked: &ToolCall| hooked.call_id == call.call_id || (hooked.tool == call.tool && hooked.args == call.args);
                    match run.hooked.iter().position(same) {
                        Some(at) => {
                            let hooked = run.hooked.remove(at);
                            run.aliases.insert(call.call_id.clone(), hooked.call_id);
                            false
                        }
                        None => {
                            run.ended.remove(&call.call_id);
                            true
                        }
                    }
                });
                run.answered = true;
                // The hook's entry stands for an answer that has nothing beside the call.
                let nothing_left = had_calls && answer.tool_calls.is_empty() && answer.text.is_empty() && answer.usage.is_none();
                if !nothing_left {
                    bodies.push(Body::Assistant(Assistant { api, ..answer }));
                }
            }
            ProgramEvent::CallStarted { call_id, tool } => {
                let call_id = run.aliases.get(&call_id).cloned().unwrap_or(call_id);
                let is_new = !self.is_started(&call_id, bodies) && !self.has_ended(&call_id);
                if is_new {
                    bodies.push(Body::ToolStarted(ToolStarted { call_id, tool }));
                }
            }
            ProgramEvent::CallEnded { call_id, outcome, output } => {
                let call_id = run.aliases.get(&call_id).cloned().unwrap_or(call_id);
                if self.has_ended(&call_id) {
                    return;
                }
                if !self.is_started(&call_id, bodies) {
                    let Some(tool) = self.tool_of(&call_id, bodies) else {
                        bodies.push(extension(RESULT_EXTENSION, json!({ "callId": call_id, "outcome": outcome, "output": output })));
                        return;
                    };
                    // A call that the program refused did not begin.
                    if outcome != ToolOutcome::Refused {
                        bodies.push(Body::ToolStarted(ToolStarted { call_id: call_id.clone(), tool }));
                    }
                }
                if let Some(program) = &mut self.program {
                    program.run.ended.insert(call_id.clone());
                }
                bodies.push(Body::ToolEnded(ToolEnded { call_id, outcome, output, images: Vec::new(), millis: None }));
            }
            ProgramEvent::Usage(usage) => {
                bodies.push(Body::Usage(yoi_wire::entry::UsageWithoutAnswer { usage, reason: "Program".to_owned() }));
            }
            ProgramEvent::Other { line } => bodies.push(extension(LINE_EXTENSION, json!({ "line": line }))),
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
        self.program.as_ref().is_some_and(|program| program.run.ended.contains(call_id))
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

/// Whether a program's name for a tool is that of Yoi's with a prefix, such as `mcp__yoi__ListPods`.
fn has_suffix(long: &str, name: &str) -> bool {
    long.strip_suffix(name).is_some_and(|prefix| prefix.ends_with(|last: char| !last.is_alphanumeric()))
}

fn extension(name: &str, data: serde_json::Value) -> Body {
    Body::Extension(Extension { name: name.to_owned(), data })
}
