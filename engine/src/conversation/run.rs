//! A run: model call, tool calls, and how it ends.

use std::sync::Arc;

use serde_json::{Value, json};
use yoi_wire::entry::{
    Assistant, Body, CallDecision, CallFrom, CompactionReason, RefusalClass, RunOutcome, StopReason, SystemItem, ToolCall, ToolEnded,
    ToolOutcome, ToolStarted,
};

use super::written_call::written_call;
use super::{CallEnd, ConversationState, Effect, Intent, ModelCall, ModelFailed, ModelFailureKind, PromptRequest, facts, questions};
use crate::decision::{Decision, Refusal};

/// How often in a row an answer that was cut off at the output limit is gone on with.
const MAX_CONTINUATIONS: u32 = 3;
const GO_ON: &str = "[Your answer was cut off at the output limit. Go on exactly where it ends.]";
/// How often in a row an answer with neither a word nor a call is asked to go on.
const MAX_EMPTY: u32 = 2;
const EMPTY: &str =
    "[Your answer had neither a word nor a call of a tool. If there is work left, go on with it by a call. If it is done, say so.]";
const CUT_CALL: &str = "The arguments of this call were cut off at the output limit. It did not run. Make the call smaller, or split it.";
const NOT_RUN: &str = "The run ended before this tool began. It did not run.";
const ENDED_BY_PERSON: &str = "A person ended this tool while it ran. It may have taken effect in part.";

/// The result of a call that did not run or whose end says nothing of its own.
pub(super) fn tool_ended(call_id: &str, outcome: ToolOutcome, output: &str) -> Body {
    Body::ToolEnded(ToolEnded {
        call_id: call_id.to_owned(),
        outcome,
        output: output.to_owned(),
        images: Vec::new(),
        millis: None,
        decision: None,
        read: None,
    })
}

/// The entry that follows from a decision: the start of the call, its refusal, or the question.
pub(super) fn decided(call_id: &str, tool: &str, from: CallFrom, decision: &Decision) -> Body {
    let record = Some(decision.record(from));
    match decision {
        Decision::Allow => Body::ToolStarted(ToolStarted { call_id: call_id.to_owned(), tool: tool.to_owned(), decision: record }),
        Decision::Ask(question) => questions::asked(call_id, tool, from, question),
        Decision::Refuse(refusal) => Body::ToolEnded(ToolEnded {
            call_id: call_id.to_owned(),
            outcome: ToolOutcome::Refused,
            output: refusal.message.clone(),
            images: Vec::new(),
            millis: None,
            decision: record,
            read: None,
        }),
    }
}

impl ConversationState {
    pub(super) fn go_on_running(&mut self, intents: &mut Vec<Intent>) {
        let at_model = self
            .effects
            .values()
            .any(|effect| matches!(effect, Effect::Model(_) | Effect::Check | Effect::Preparation | Effect::Background));
        if at_model {
            return;
        }
        if !self.log.open_calls.is_empty() {
            self.go_on_with_calls(intents);
            return;
        }
        if self.is_complete() {
            return self.end_run(RunOutcome::Finished, None, None, intents);
        }
        if let Some(message) = self.steps_used_up() {
            return self.end_run(RunOutcome::LimitReached, Some("LimitReached"), Some(message), intents);
        }
        if let Some(message) = self.token_limit_reached() {
            return self.end_run(RunOutcome::LimitReached, Some("LimitReached"), Some(message), intents);
        }
        if !self.inbox_read {
            intents.push(Intent::ReadInbox);
            return;
        }
        if self.prepare(intents) {
            return;
        }
        if self.too_long {
            return self.shorten(intents);
        }
        if let Some(start) = self.due_compaction() {
            return self.append(vec![start], intents);
        }
        self.call_model(intents);
    }

    /// Why no model may be called any more.
    pub(super) fn token_limit_reached(&self) -> Option<String> {
        let (used, limit) = (self.log.tokens, self.settings.tokens?);
        let sum = used.input_tokens.saturating_add(used.output_tokens);
        (sum >= limit).then(|| format!("this conversation has used {sum} tokens, and spec.limits.tokens leaves it {limit}"))
    }

    pub(super) fn call_model(&mut self, intents: &mut Vec<Intent>) {
        let request = PromptRequest { config: self.config_of_mode(), items: self.prompt.items().clone(), offer_tools: true };
        let effect = self.new_effect(Effect::Model(ModelCall::default()));
        intents.push(Intent::CallModel { effect, request, summary: false });
    }

    /// Runs what has begun; else begins the next call, or all calls in a row that only read.
    fn go_on_with_calls(&mut self, intents: &mut Vec<Intent>) {
        let runs =
            |started: u64| self.effects.values().any(|effect| matches!(effect, Effect::Tool { started: other, .. } if *other == started));
        let begun: Vec<(u64, ToolCall)> = self
            .log
            .open_calls
            .iter()
            .filter_map(|call| Some((call.started?, asked(call))))
            .filter(|(started, _)| !runs(*started))
            .collect();
        for (started, call) in begun {
            let effect = self.new_effect(Effect::Tool { call_id: call.call_id.clone(), started });
            intents.push(Intent::Run { effect, call, from: CallFrom::Model });
        }
        if self.end_denied_calls(intents) || !self.effects.is_empty() {
            return;
        }
        let mut calls: Vec<ToolCall> = Vec::new();
        for call in self.log.open_calls.iter().filter(|call| call.started.is_none()) {
            let fits = calls.is_empty() || (self.reads_only(&calls[0].tool) && self.reads_only(&call.tool));
            // Those after a call that waits for a person wait, too.
            if call.waiting().is_some() || !fits || calls.iter().any(|other| other.call_id == call.call_id) {
                break;
            }
            calls.push(asked(call));
        }
        if calls.is_empty() {
            intents.push(Intent::Wait);
            return;
        }
        let effect = self.new_effect(Effect::Check);
        intents.push(Intent::Check { effect, calls, from: CallFrom::Model });
    }

    fn reads_only(&self, tool: &str) -> bool {
        self.read_only_tools.contains(tool)
    }

    /// Logs what was decided about the calls in one append.
    pub(super) fn take_decisions(&mut self, decisions: Vec<Decision>, intents: &mut Vec<Intent>) {
        let cut = self.facts.last_stop == Some(StopReason::Length);
        let waiting: Vec<_> = self.log.open_calls.iter().filter(|call| call.started.is_none()).collect();
        let mut bodies = Vec::new();
        for (call, decision) in waiting.into_iter().zip(decisions) {
            let whole = !cut || call.request.as_ref().is_some_and(|request| request.args.is_object());
            let cut_call = || Decision::Refuse(Refusal::with_message(RefusalClass::InvalidArgs, CUT_CALL.to_owned()));
            let decision = if whole { decision } else { cut_call() };
            bodies.push(match &decision {
                Decision::Ask(question) if self.is_approved(call, question) => {
                    let record = Some(decision.record(CallFrom::Model));
                    Body::ToolStarted(ToolStarted { call_id: call.call_id.clone(), tool: call.tool.clone(), decision: record })
                }
                Decision::Allow | Decision::Refuse(_) | Decision::Ask(_) => decided(&call.call_id, &call.tool, CallFrom::Model, &decision),
            });
        }
        if !bodies.is_empty() {
            self.append(bodies, intents);
        }
    }

    /// Logs the end of a running call; without `end`, a person ended it.
    pub(super) fn end_call(&mut self, call_id: String, end: Option<CallEnd>, intents: &mut Vec<Intent>) {
        let body = match end {
            Some(CallEnd { outcome, output, images, refused, read, millis }) => {
                let decision = refused.map(|class| CallDecision { from: CallFrom::Model, refused: Some(class), rule: None });
                Body::ToolEnded(ToolEnded { call_id, outcome, output, images, millis: Some(millis), decision, read })
            }
            None => tool_ended(&call_id, ToolOutcome::Failed, ENDED_BY_PERSON),
        };
        self.append(vec![body], intents);
    }

    pub(super) fn take_answer(&mut self, answer: Assistant, intents: &mut Vec<Intent>) {
        let (stop, calls) = (answer.stop, answer.tool_calls.clone());
        let truncated = self.facts.truncated;
        let empty = facts::is_empty(&answer);
        let config = self.config_or_default();
        let written = written_call(&answer.text, &config.tools).filter(|_| calls.is_empty());
        let mut bodies = vec![Body::Assistant(answer)];
        // The end stands in the same append: a restart between them would find a run that looks unfinished.
        let end = match stop {
            Some(StopReason::Refusal) => self.run_ended(RunOutcome::Failed, Some("Refused"), Some("the model refused to go on".to_owned())),
            Some(StopReason::ContentFilter) => {
                let message = "the provider's content filter withheld the model's answer".to_owned();
                self.run_ended(RunOutcome::Failed, Some("ContentFilter"), Some(message))
            }
            Some(StopReason::Length) if calls.is_empty() && truncated < MAX_CONTINUATIONS => {
                let data = json!({ "continuation": truncated + 1 });
                bodies.push(Body::SystemItem(SystemItem { topic: "Truncated".to_owned(), data, text: GO_ON.to_owned() }));
                None
            }
            Some(StopReason::Length) if calls.is_empty() => {
                let message = format!("the model's answer was cut off at its output limit {} times in a row", truncated + 1);
                self.run_ended(RunOutcome::Truncated, Some("Truncated"), Some(message))
            }
            Some(StopReason::Length | StopReason::Pause) => None,
            Some(StopReason::End | StopReason::ToolCalls) | None if empty && self.facts.empty < MAX_EMPTY => {
                let data = json!({ "empty": self.facts.empty + 1 });
                bodies.push(Body::SystemItem(SystemItem { topic: "EmptyAnswer".to_owned(), data, text: EMPTY.to_owned() }));
                None
            }
            Some(StopReason::End | StopReason::ToolCalls) | None if empty => {
                let message =
                    format!("the model answered {} times in a row with neither a word nor a call of a tool", self.facts.empty + 1);
                self.run_ended(RunOutcome::Failed, Some("EmptyAnswer"), Some(message))
            }
            Some(StopReason::End | StopReason::ToolCalls) | None if written.is_some() => {
                let tool = written.unwrap_or_default();
                if self.facts.told_of_written_call {
                    let message = format!(
                        "the model writes its calls of tools as text ({tool}), so none of them runs; its server does not make calls of them"
                    );
                    self.run_ended(RunOutcome::Failed, Some("WrittenCall"), Some(message))
                } else {
                    let text = format!(
                        "[You wrote a call of {tool} as text. Nothing ran. Make the call in the way in which tools are called, or say that the work is done.]"
                    );
                    bodies.push(Body::SystemItem(SystemItem {
                        topic: facts::WRITTEN_CALL.to_owned(),
                        data: json!({ "tool": tool }),
                        text,
                    }));
                    None
                }
            }
            Some(StopReason::End | StopReason::ToolCalls) | None if calls.is_empty() => self.run_ended(RunOutcome::Finished, None, None),
            Some(StopReason::End | StopReason::ToolCalls) | None => None,
        };
        if let Some(end) = end {
            bodies.extend(calls.iter().map(|call| tool_ended(&call.call_id, ToolOutcome::Refused, NOT_RUN)));
            bodies.push(end);
        }
        self.append(bodies, intents);
    }

    pub(super) fn take_failure(&mut self, failure: ModelFailed, intents: &mut Vec<Intent>) {
        let ModelFailed { kind, message, window_tokens } = failure;
        match kind {
            ModelFailureKind::Unreachable => self.end_run(RunOutcome::Failed, None, Some(message), intents),
            ModelFailureKind::LimitReached => {
                let message = self.token_limit_reached().unwrap_or(message);
                self.end_run(RunOutcome::LimitReached, Some("LimitReached"), Some(message), intents);
            }
            ModelFailureKind::TooLong => {
                self.too_long = true;
                self.told_window = window_tokens.or(self.told_window);
            }
            ModelFailureKind::HistoryRefused => {
                let last = self.prompt.with_origins().next_back().map_or(0, |(seq, ..)| seq);
                let message = format!(
                    "the model endpoint refuses the conversation as it stands, up to entry {last}; turn it back to an earlier input with \
                     :rewind (kubectl yoi rewind). {message}"
                );
                self.end_run(RunOutcome::Failed, Some("ModelRefusedHistory"), Some(message), intents);
            }
        }
    }

    /// The endpoint says that the prompt is too long.
    fn shorten(&mut self, intents: &mut Vec<Intent>) {
        let start = if self.facts.just_compacted { None } else { self.start_compaction(CompactionReason::TooLong, None) };
        match start {
            Some(start) => self.append(vec![start], intents),
            None => {
                let message = "the conversation does not fit into the model's window, and could not be made shorter".to_owned();
                self.end_run(RunOutcome::Failed, Some("ContextFull"), Some(message), intents);
            }
        }
    }
}

pub(super) fn asked(call: &yoi_session::fold::OpenCall) -> ToolCall {
    call.request.clone().unwrap_or_else(|| ToolCall { call_id: call.call_id.clone(), tool: call.tool.clone(), args: Value::Null })
}

/// The configuration of a log that has none yet.
impl ConversationState {
    pub(super) fn config_or_default(&self) -> Arc<yoi_wire::entry::AgentConfig> {
        self.config.clone().unwrap_or_default()
    }
}
