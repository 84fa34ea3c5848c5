//! What a run of the built-in agent needs before its model is called: the skills as the tree has them now, and what a person's commands stand for.
//!
//! The log keeps the person's words in the input, and the text that they stand for in an item of its own behind it. So a replay reads no tree.

use serde_json::json;
use yoi_wire::entry::{AgentConfig, Body, ConfigChanged, Entry, RunOutcome, SystemItem};

use super::{ConversationState, Effect, EffectId, Intent};
use crate::assets::{Expansion, SKILL, SkillOffer, looks_like_command};

/// The topic of the item with the text that a command stands for.
const COMMAND: &str = "Command";

/// A person's text that looks like a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandInput {
    /// Sequence number of its entry.
    pub seq: u64,
    /// As the person wrote it.
    pub text: String,
}

/// What was found in the tree.
#[derive(Clone, Debug, PartialEq)]
pub struct Prepared {
    /// The skills as they are now; `None`: there are none for the model.
    pub skills: Option<SkillOffer>,
    /// Generation of the assets.
    pub generation: u64,
    /// For each input that was asked about.
    pub expansions: Vec<(CommandInput, Expansion)>,
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
            }
            Body::Assistant(_) => self.inputs.clear(),
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
            | Body::ToolAsked(_)
            | Body::ToolAnswered(_)
            | Body::ToolStarted(_)
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

    /// Items that leave the conversation with the inputs of the open run.
    pub(super) fn items_of_commands(&self) -> &[u64] {
        &self.preparation.items
    }

    /// Asks for what the run needs and does not have. False: it has all.
    pub(super) fn prepare(&mut self, intents: &mut Vec<Intent>) -> bool {
        let Preparation { is_on, is_done, inputs, .. } = &self.preparation;
        if !is_on || (*is_done && inputs.is_empty()) {
            return false;
        }
        let inputs = inputs.clone();
        let effect = self.new_effect(Effect::Preparation);
        intents.push(Intent::Prepare { effect, inputs });
        true
    }

    pub(super) fn take_preparation(&mut self, effect: EffectId, prepared: Prepared, intents: &mut Vec<Intent>) {
        let Some(Effect::Preparation) = self.effects.remove(&effect) else { return };
        let Prepared { skills, generation, expansions } = prepared;
        let mut bodies = Vec::new();
        // What the tree has in the middle of a run counts from the next one.
        if !std::mem::replace(&mut self.preparation.is_done, true) {
            bodies.extend(self.with_skills(skills).map(|config| Body::ConfigChanged(ConfigChanged { config })));
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
        // Work that is under way does not end for a slip: the model reads what was wrong. Nor do other inputs of the same run.
        let is_alone = self.turns() == 0 && self.due().count() <= refused.len();
        if !refused.is_empty() && is_alone {
            bodies.extend(self.run_ended(RunOutcome::Failed, Some("CommandInvalid"), Some(refused.join("; "))));
        }
        if !bodies.is_empty() {
            self.append(bodies, intents);
        }
    }

    /// The configuration with these skills; `None`: it has them already.
    fn with_skills(&self, skills: Option<SkillOffer>) -> Option<AgentConfig> {
        let now = self.config.as_deref()?;
        let mut next = now.clone();
        next.system.retain(|part| !SkillOffer::is_list(part));
        match skills {
            Some(SkillOffer { text, tool }) => {
                next.system.push(text);
                match next.tools.iter_mut().find(|offered| offered.name == SKILL) {
                    Some(offered) => *offered = tool,
                    None => next.tools.push(tool),
                }
            }
            None => next.tools.retain(|offered| offered.name != SKILL),
        }
        (next != *now).then_some(next)
    }
}
