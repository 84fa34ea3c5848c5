//! Starts the effects of a conversation.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::timeout;
use yoi_wire::children::{LoansRequest, LoansResponse};
use yoi_wire::control::DeltaKind;
use yoi_wire::entry::{CallFrom, TokenUsage, ToolCall};

use super::model_call::{ModelCallTask, TokenAccount};
use super::{Agent, EffectHandle, EffectKind, Running};
use crate::assets::{AssetOffer, asset_offer, expand};
use crate::conversation::{
    CallEnd, CommandInput, ConversationEvent, EffectId, ModelFailed, ModelFailureKind, Prepared, PromptRequest, ToPrepare,
};
use crate::decision::Decision;
use crate::tools::{CallResult, LiveOutput};

/// How long a turn waits to know which paths are lent.
const LOANS_WITHIN: Duration = Duration::from_secs(10);

impl Running<'_> {
    fn spawn(
        &mut self,
        effect: EffectId,
        kind: EffectKind,
        retry: Arc<Notify>,
        end: impl Future<Output = ConversationEvent> + Send + 'static,
    ) {
        let events = self.events.clone();
        let abort = self.tasks.spawn(async move {
            let event = end.await;
            // The conversation may have ended.
            let _ = events.send(event);
        });
        self.by_task.insert(abort.id(), effect);
        self.effects.insert(effect, EffectHandle { abort, retry, kind });
    }

    pub(super) fn spawn_program(&mut self, effect: EffectId, end: impl Future<Output = ConversationEvent> + Send + 'static) {
        self.spawn(effect, EffectKind::Program, Arc::default(), end);
    }

    pub(super) fn call_model(&mut self, effect: EffectId, request: PromptRequest, summary: bool, tokens: TokenUsage) {
        let Agent::Builtin(model) = &self.driver.agent else {
            let failure = ModelFailed::new(ModelFailureKind::Unreachable, "the model cannot be used");
            let _ = self.events.send(ConversationEvent::ModelFailed { effect, failure });
            return;
        };
        let retry = Arc::new(Notify::new());
        let task = ModelCallTask {
            effect,
            summary,
            model: model.clone(),
            retries: self.driver.retries,
            patience: self.driver.patience,
            random: self.driver.random,
            observer: self.driver.observer.clone(),
            events: self.events.clone(),
            retry: retry.clone(),
            session: self.driver.session.clone(),
            secrets: self.driver.secrets.clone(),
            account: TokenAccount {
                used: tokens.input_tokens.saturating_add(tokens.output_tokens),
                limit: self.driver.token_limit.clone(),
            },
        };
        self.spawn(effect, EffectKind::Model, retry, task.run(request));
    }

    /// Asks the tool gate about each.
    pub(super) fn decide(&self, calls: &[ToolCall], from: CallFrom) -> Vec<Decision> {
        let tools = &self.driver.tools;
        // No run has looked at the tree for it.
        if from == CallFrom::Engine && calls.iter().any(|call| AssetOffer::is_tool(&call.tool)) {
            tools.runner().assets().look();
        }
        calls.iter().map(|call| tools.begin(call, from)).collect()
    }

    /// Looks at the tree's assets, which count from this run on, and at the instructions of folders.
    pub(super) fn prepare(&self, wanted: ToPrepare) -> Prepared {
        let tools = &self.driver.tools;
        let ToPrepare { inputs, folders, begins, loans: _ } = wanted;
        let assets = tools.runner().assets();
        // A command that comes in the middle of a run is as the tree has it then.
        let generation = if begins || !inputs.is_empty() { assets.look() } else { assets.current() }.generation;
        let with_expansion = |input: CommandInput| {
            let expansion = expand(tools, &input.text);
            (input, expansion)
        };
        let expansions = inputs.into_iter().map(with_expansion).collect();
        let instructions = tools.runner().instructions(&folders);
        Prepared { offer: asset_offer(tools, self.driver.settings.window_tokens), generation, expansions, instructions, loans: None }
    }

    /// Asks the gateway which paths are lent, beside what the tree has.
    pub(super) fn ask_loans(&mut self, effect: EffectId, request: LoansRequest, prepared: Prepared) {
        let peers = self.driver.tools.runner().peers();
        let end = async move {
            let answer = match peers.children() {
                Some(children) => timeout(LOANS_WITHIN, children.loans(&request)).await,
                None => Ok(Ok(LoansResponse::default())),
            };
            let loans = match answer {
                Ok(Ok(loans)) => Some(loans),
                Ok(Err(error)) => {
                    tracing::warn!(%error, "it is not known which paths are lent");
                    None
                }
                Err(_) => {
                    tracing::warn!(within = ?LOANS_WITHIN, "it is not known which paths are lent: no answer");
                    None
                }
            };
            ConversationEvent::Prepared { effect, prepared: Prepared { loans, ..prepared } }
        };
        self.spawn(effect, EffectKind::Loans, Arc::default(), end);
    }

    pub(super) fn run_tool(&mut self, effect: EffectId, call: ToolCall, from: CallFrom) {
        let (tools, session) = (self.driver.tools.clone(), self.driver.session.clone());
        let events = self.events.clone();
        let end = async move {
            for used in tools.runner().exceptions_of(&call) {
                // The conversation may have ended.
                let _ = events.send(ConversationEvent::ProjectNews(Box::new(used)));
            }
            let started = Instant::now();
            let (id, tool) = (call.call_id.clone(), call.tool.clone());
            let live = match from {
                // It is none of the run that people watch.
                CallFrom::Engine => LiveOutput::discard(),
                CallFrom::Model | CallFrom::Hook | CallFrom::Mcp | CallFrom::Unknown => {
                    LiveOutput::new(move |text| session.feed.add(DeltaKind::ToolOutput, Some((&id, &tool)), text))
                }
            };
            let CallResult { outcome, output, images, refused, read } = tools.run(&call, from, &live).await;
            let millis = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
            tracing::info!(tool = call.tool, call = call.call_id, ?outcome, millis, "tool ended");
            ConversationEvent::Ended { effect, end: CallEnd { outcome, output, images, refused, read, millis } }
        };
        self.spawn(effect, EffectKind::Tool, Arc::default(), end);
    }

    pub(super) fn end_background(&mut self, effect: EffectId) {
        let tools = self.driver.tools.clone();
        let end = async move {
            tools.runner().stop_all().await;
            ConversationEvent::Gone { effect }
        };
        self.spawn(effect, EffectKind::Tool, Arc::default(), end);
    }
}
