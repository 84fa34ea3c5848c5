//! What a run of the built-in agent needs before its model is called: the assets as the tree has them now, and what a person's commands stand for.
//!
//! The log keeps the person's words in the input, and the text that they stand for in an item of its own behind it. So a replay reads no tree.

use std::collections::BTreeMap;

use serde_json::json;
use yoi_wire::children::{LoansRequest, LoansResponse};
use yoi_wire::entry::{AgentConfig, Body, CallFrom, CompactionOutcome, ConfigChanged, Entry, PromptItem, RunOutcome, SystemItem, ToolCall};

use super::{ConversationState, Effect, EffectId, Intent};
use crate::assets::{AssetOffer, Expansion, looks_like_command};

/// The topic of the item with the text that a command stands for.
const COMMAND: &str = "Command";
/// The topic of the item with the instructions of a folder.
const INSTRUCTIONS: &str = "Instructions";
/// Folders of one run whose instructions are looked for.
const MAX_FOLDERS: usize = 1_000;
/// Tools whose path is a folder, or may be one. That of others is a file.
const OF_FOLDERS: [&str; 3] = ["List", "Glob", "Grep"];

/// A person's text that looks like a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandInput {
    /// Sequence number of its entry.
    pub seq: u64,
    /// As the person wrote it.
    pub text: String,
}

/// What is asked of the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToPrepare {
    /// Texts that may be commands.
    pub inputs: Vec<CommandInput>,
    /// Folders that calls of the run have worked in, as the calls name them.
    pub folders: Vec<String>,
    /// The run begins: what the tree has now counts.
    pub begins: bool,
    /// What is asked of the gateway about loans.
    pub loans: Option<LoansRequest>,
}

/// A file of instructions of a folder below the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderInstructions {
    /// Its path.
    pub path: String,
    /// What the model is told of it.
    pub text: String,
}

/// What was found in the tree.
#[derive(Clone, Debug, PartialEq)]
pub struct Prepared {
    /// What the model is offered of the assets as they are now.
    pub offer: AssetOffer,
    /// Generation of the assets.
    pub generation: u64,
    /// For each input that was asked about.
    pub expansions: Vec<(CommandInput, Expansion)>,
    /// Of the folders that were asked about, also those that the model has read.
    pub instructions: Vec<FolderInstructions>,
    /// The loans; absent when nothing was asked, or nobody has answered.
    pub loans: Option<LoansResponse>,
}

/// How far the open run is prepared.
#[derive(Clone, Debug, Default)]
pub(super) struct Preparation {
    /// There is a tree to look at.
    is_on: bool,
    /// The tree was looked at since the run began.
    is_done: bool,
    /// Texts that look like commands, which no answer has followed.
    inputs: Vec<CommandInput>,
    /// Items with what commands of the open run stand for.
    items: Vec<u64>,
    /// Folders that calls of the last answer work in, by the call's id.
    of_calls: Vec<(String, String)>,
    /// Folders that calls of the open run have worked in, and whether their instructions were looked for.
    folders: BTreeMap<String, bool>,
}

impl Preparation {
    pub fn record(&mut self, entry: &Entry) {
        match &entry.body {
            Body::Input(input) if looks_like_command(&input.text) => {
                self.inputs.push(CommandInput { seq: entry.seq, text: input.text.clone() });
            }
            Body::SystemItem(item) if item.topic == COMMAND => {
                self.inputs.retain(|input| item.data.get("input").and_then(serde_json::Value::as_u64) != Some(input.seq));
                self.items.push(entry.seq);
            }
            Body::RunStarted(_) => {
                self.is_done = false;
                self.items.clear();
                self.folders.clear();
            }
            Body::Assistant(answer) => {
                self.inputs.clear();
                let of_call = |call: &ToolCall| Some((call.call_id.clone(), folder_of(call)?));
                self.of_calls = answer.tool_calls.iter().filter_map(of_call).collect();
            }
            Body::ToolStarted(start) if start.decision.as_ref().is_some_and(|decision| decision.from == CallFrom::Engine) => {}
            Body::ToolStarted(start) => {
                let folder = self.of_calls.iter().find(|(id, _)| *id == start.call_id).map(|(_, folder)| folder);
                if let Some(folder) = folder.filter(|_| self.folders.len() < MAX_FOLDERS) {
                    self.folders.entry(folder.clone()).or_default();
                }
            }
            // A summary need not say what they were.
            Body::CompactionEnded(end) if end.outcome == CompactionOutcome::Used => self.folders.clear(),
            // An interrupted run goes on after the restart.
            Body::RunEnded(end) if end.outcome != RunOutcome::Interrupted => self.inputs.clear(),
            Body::RolledBack(back) => self.inputs.retain(|input| !back.hidden.contains(&input.seq)),
            Body::Rewound(rewound) => self.inputs.retain(|input| input.seq < rewound.from_seq),
            Body::Input(_)
            | Body::SystemItem(_)
            | Body::RunEnded(_)
            | Body::SessionStarted(_)
            | Body::RuntimeStarted(_)
            | Body::PeerMessage(_)
            | Body::ToolRequested(_)
            | Body::ToolAsked(_)
            | Body::ToolAnswered(_)
            | Body::ToolEnded(_)
            | Body::Notice(_)
            | Body::SegmentStarted(_)
            | Body::Carried(_)
            | Body::ConfigChanged(_)
            | Body::Paused(_)
            | Body::Resumed(_)
            | Body::Abandoned(_)
            | Body::Usage(_)
            | Body::ModeSwitched(_)
            | Body::CompactionStarted(_)
            | Body::CompactionEnded(_)
            | Body::Extension(_)
            | Body::Unknown { .. } => {}
        }
    }
}

impl ConversationState {
    /// Runs are prepared from a tree. A program reads its tree itself.
    #[must_use]
    pub fn prepared_from_tree(mut self) -> Self {
        self.preparation.is_on = self.program.is_none();
        self
    }

    /// The agent may lend paths of its tree.
    #[must_use]
    pub fn lending(mut self, lends: bool) -> Self {
        if lends {
            self.loans.turn_on();
        }
        self
    }

    /// Items that leave the conversation with the inputs of the open run.
    pub(super) fn items_of_commands(&self) -> &[u64] {
        &self.preparation.items
    }

    /// Asks for what the run needs and does not have. False: it has all.
    pub(super) fn prepare(&mut self, intents: &mut Vec<Intent>) -> bool {
        let Preparation { is_on, is_done, inputs, folders, .. } = &self.preparation;
        let folders: Vec<String> = folders.iter().filter(|(_, is_known)| !**is_known).map(|(folder, _)| folder.clone()).collect();
        let loans = self.loans.due();
        if !is_on || (*is_done && inputs.is_empty() && folders.is_empty() && loans.is_none()) {
            return false;
        }
        let wanted = ToPrepare { inputs: inputs.clone(), folders, begins: !is_done, loans };
        let effect = self.new_effect(Effect::Preparation);
        intents.push(Intent::Prepare { effect, wanted });
        true
    }

    pub(super) fn take_preparation(&mut self, effect: EffectId, prepared: Prepared, intents: &mut Vec<Intent>) {
        let Some(Effect::Preparation) = self.effects.remove(&effect) else { return };
        let Prepared { offer, generation, expansions, instructions, loans } = prepared;
        let mut bodies = self.loans.take(loans);
        // What the tree has in the middle of a run counts from the next one.
        if !std::mem::replace(&mut self.preparation.is_done, true) {
            bodies.extend(self.with_assets(offer).map(|config| Body::ConfigChanged(ConfigChanged { config })));
        }
        let mut refused = Vec::new();
        for (input, expansion) in expansions {
            self.preparation.inputs.retain(|waiting| waiting.seq != input.seq);
            let (text, path) = match expansion {
                Expansion::NoCommand => continue,
                Expansion::Text { text, path } => (text, Some(path)),
                Expansion::Refused { message } => {
                    refused.push(message.clone());
                    (format!("[{message}]"), None)
                }
            };
            let data = json!({ "input": input.seq, "path": path, "generation": generation });
            bodies.push(Body::SystemItem(SystemItem { topic: COMMAND.to_owned(), data, text }));
        }
        // Calls begin only after this, so all that there are were asked about.
        self.preparation.folders.values_mut().for_each(|is_known| *is_known = true);
        for FolderInstructions { path, text } in instructions {
            // As long as the model reads them, they are told once.
            let item = PromptItem::User(text);
            if !self.prompt.items().contains(&item)
                && let PromptItem::User(text) = item
            {
                let data = json!({ "path": path });
                bodies.push(Body::SystemItem(SystemItem { topic: INSTRUCTIONS.to_owned(), data, text }));
            }
        }
        // Work that is under way does not end for a slip: the model reads what was wrong. Nor do other inputs of the same run.
        let is_alone = self.turns() == 0 && self.due().count() <= refused.len();
        if !refused.is_empty() && is_alone {
            bodies.extend(self.run_ended(RunOutcome::Failed, Some("CommandInvalid"), Some(refused.join("; "))));
        }
        if !bodies.is_empty() {
            self.append(bodies, intents);
        }
    }

    /// The configuration with this offer; `None`: it has it already.
    fn with_assets(&self, offer: AssetOffer) -> Option<AgentConfig> {
        let now = self.config.as_deref()?;
        let (mut next, AssetOffer { mut list, mut tools }) = (now.clone(), offer);
        // In its place, so that what is the same is no change.
        next.system.retain_mut(|part| !AssetOffer::is_list(part) || list.take().is_some_and(|list| replace(part, list)));
        next.system.extend(list);
        next.tools.retain_mut(|tool| {
            if !AssetOffer::is_tool(&tool.name) {
                return true;
            }
            let Some(at) = tools.iter().position(|offered| offered.name == tool.name) else { return false };
            replace(tool, tools.remove(at))
        });
        next.tools.extend(tools);
        (next != *now).then_some(next)
    }
}

/// The folder that a call works in, as it names it; `None`: none, or the root, whose instructions the prompt has.
fn folder_of(call: &ToolCall) -> Option<String> {
    let path = call.args.get("path")?.as_str()?.trim_end_matches('/');
    let folder = if OF_FOLDERS.contains(&call.tool.as_str()) { path } else { path.rsplit_once('/')?.0 };
    (!matches!(folder, "" | ".")).then(|| folder.to_owned())
}

fn replace<T>(old: &mut T, new: T) -> bool {
    *old = new;
    true
}
