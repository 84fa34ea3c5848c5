//! What a program says and does, as entries of the log.

use std::collections::VecDeque;

use serde_json::json;
use yoi_wire::entry::{Assistant, Body, Extension, Notice, RefusalClass, ToolCall, ToolEnded, ToolOutcome, ToolStarted};

use super::program::{LINE_EXTENSION, OUTPUT_EXTENSION, RESULT_EXTENSION, SESSION_EXTENSION};
use super::run::{decided, tool_ended};
use super::told_calls::{MAX_OPEN_CALLS, ToldCall, bounded_name};
use super::{AskId, ConversationState, DecidedCall, Effect, EffectId, Intent};
use crate::decision::{Decision, Question, Refusal};
use crate::program::event::ProgramEvent;

const LOST_CALL: &str =
    "So many calls of the program had begun after this one that it counts as lost. It may or may not have taken effect.";
const TOO_MANY_CALLS: &str = "the program has made as many calls as one run may have, so nothing more of it begins in this run";
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
        self.append_and_acknowledge(ask, Ok(String::new()), bodies, intents);
    }

    fn append_and_acknowledge(&mut self, ask: AskId, result: Result<String, String>, bodies: Vec<Body>, intents: &mut Vec<Intent>) {
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

    /// A hook tells that a call is about to begin, or asks for a tool of Yoi's.
    pub(super) fn take_program_call(&mut self, effect: EffectId, ask: AskId, decided_call: DecidedCall, intents: &mut Vec<Intent>) {
        let DecidedCall { call, from, decision } = decided_call;
        let decision = match decision {
            Decision::Ask(question) => Decision::Refuse(cannot_wait(&question)),
            Decision::Allow | Decision::Refuse(_) => decision,
        };
        let over = self.ending.is_some() || !self.is_running_program(effect);
        let api = self.api();
        let Some(program) = self.program.as_mut().filter(|_| !over) else {
            intents.push(Intent::Acknowledge { ask, result: Err(RUN_OVER.to_owned()) });
            return;
        };
        let run = &mut program.run;
        if !run.budget.count() {
            intents.push(Intent::Acknowledge { ask, result: Err(TOO_MANY_CALLS.to_owned()) });
            return;
        }
        let call = ToolCall { call_id: bounded_name(call.call_id), tool: bounded_name(call.tool), args: call.args };
        let told = ToldCall::new(&call);
        // A hook may not know the id that the output has, and the name of a tool of Yoi's has the program's prefix there.
        let is_same = |other: &ToldCall| other.has_args_of(&told) && (other.tool == told.tool || has_suffix(&other.tool, &told.tool));
        let open_calls = &self.log.open_calls;
        let open = |id: &str| open_calls.iter().find(|open| open.call_id == id);
        let by_content = || run.told.find(|other| is_same(other) && open(&other.call_id).is_some());
        let known = open(&told.call_id).or_else(|| by_content().and_then(|other| open(&other.call_id))).cloned();
        let mut bodies = Vec::new();
        let call_id = match known {
            Some(known) => {
                if known.call_id != told.call_id {
                    run.aliases.insert(told.call_id, known.call_id.clone());
                }
                // One that its own output has told of is not begun a second time. It ends when it is refused now.
                if known.started.is_none() || decision != Decision::Allow {
                    bodies.push(decided(&known.call_id, &known.tool, from, &decision));
                }
                known.call_id
            }
            None => {
                let (call_id, tool) = (call.call_id, call.tool);
                let args = run.budget.kept_args(call.args);
                run.told.push(told.clone());
                run.hooked.push(told);
                run.answered = true;
                self.end_lost_calls(1, &mut bodies);
                let call = ToolCall { call_id: call_id.clone(), tool: tool.clone(), args };
                bodies.push(Body::Assistant(Assistant { tool_calls: vec![call], api, ..Assistant::default() }));
                bodies.push(decided(&call_id, &tool, from, &decision));
                call_id
            }
        };
        let result = match decision {
            Decision::Allow => Ok(call_id.clone()),
            Decision::Refuse(refusal) => Err(refusal.message),
            // It was made a refusal above.
            Decision::Ask(question) => Err(cannot_wait(&question).message),
        };
        if let Some(program) = &mut self.program {
            match &result {
                Ok(_) => program.run.ended.remove(&call_id),
                Err(_) => {
                    program.run.ended.insert(call_id.clone(), ());
                    program.run.told.take(|other| other.call_id == call_id);
                }
            }
        }
        self.append_and_acknowledge(ask, result, bodies, intents);
    }

    /// Ends the oldest calls, so that `new` more have room among those that are open.
    fn end_lost_calls(&mut self, new: usize, bodies: &mut Vec<Body>) {
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
                let is_new = !self.is_started(&call_id, bodies) && !self.has_ended(&call_id);
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

/// A program's hook and its MCP client do not wait as long as a person may take, and the program does not outlive the runtime.
fn cannot_wait(question: &Question) -> Refusal {
    let rule = question.rules.first().cloned();
    let why = format_args!(
        "the policy of this agent has a person asked about it by the rule {}, and a program cannot wait for one. Do without it, or say what a person has to do",
        rule.as_deref().unwrap_or_default()
    );
    let refusal = Refusal::new(RefusalClass::NotApproved, why);
    Refusal { rule, ..refusal }
}

/// Whether a program's name for a tool is that of Yoi's with a prefix, such as `mcp__yoi__ListPods`.
fn has_suffix(long: &str, name: &str) -> bool {
    long.strip_suffix(name).is_some_and(|prefix| prefix.ends_with(|last: char| !last.is_alphanumeric()))
}

fn extension(name: &str, data: serde_json::Value) -> Body {
    Body::Extension(Extension { name: name.to_owned(), data })
}
