//! The mode of a conversation: what its model is offered, and how many steps a run has.
//!
//! The log has the mode, so a replay brings it back. A switch happens between runs only; the gate learns it with the entry.

use std::collections::BTreeSet;
use std::sync::Arc;

use yoi_wire::control::{ControlDone, ControlReason};
use yoi_wire::entry::{AgentConfig, Requester};
use yoi_wire::mode::Mode;

use super::ending::Ending;
use super::mode_switch::switched;
use super::requests::{Refused, refuse};
use super::{ConversationState, Intent, RunPhase};
use crate::assets::COMMAND;

const RUNNING: &str =
    "a run is under way, and a mode counts from the next one: wait until it ends, or have it cancelled for the switch (--force)";
const PAUSED: &str = "a run is paused, and a mode counts from the next one: let it go on, or have it cancelled for the switch (--force)";

/// Whether a mode lets a tool run. `read_only` has the names of the tools that change nothing. A command of the repository is an order to act, so in
/// planning only people give one.
#[must_use]
pub fn is_open(mode: Option<Mode>, tool: &str, read_only: &BTreeSet<String>) -> bool {
    !mode.is_some_and(Mode::only_reads) || (read_only.contains(tool) && tool != COMMAND)
}

impl ConversationState {
    /// Calls of the model that a run may have.
    pub(super) fn steps_per_run(&self) -> u32 {
        let limit = self.settings.turns_per_run;
        self.mode().map_or(limit, |mode| limit.min(mode.steps()))
    }

    /// Why the model is called no more in this run.
    pub(super) fn steps_used_up(&self) -> Option<String> {
        let steps = self.steps_per_run();
        let of_mode = self.mode().filter(|_| steps < self.settings.turns_per_run);
        (self.turns() >= steps).then(|| match of_mode {
            Some(mode) => format!("the limit of {steps} model calls in one run of mode {mode} was reached"),
            None => format!("the limit of {steps} model calls in one run was reached"),
        })
    }

    /// What the log has, with the tools of the mode.
    pub(super) fn config_of_mode(&self) -> Arc<AgentConfig> {
        let config = self.config_or_default();
        let is_open = |name: &str| is_open(self.mode(), name, &self.read_only_tools);
        if config.tools.iter().all(|tool| is_open(&tool.name)) {
            return config;
        }
        let mut config = (*config).clone();
        config.tools.retain(|tool| is_open(&tool.name));
        Arc::new(config)
    }

    pub(super) fn set_mode(
        &mut self,
        mode: Mode,
        force: bool,
        by: Requester,
        intents: &mut Vec<Intent>,
    ) -> Result<Option<ControlDone>, Refused> {
        if self.program.is_some() {
            return refuse(ControlReason::NotSupported, "the agent is a program, and its modes are its own");
        }
        if self.mode() == Some(mode) {
            return Ok(Some(ControlDone { message: format!("the mode is {mode} already"), ..ControlDone::default() }));
        }
        match (self.phase(), force) {
            (RunPhase::Running, false) => return refuse(ControlReason::AlreadyRunning, RUNNING),
            (RunPhase::Paused, false) => return refuse(ControlReason::Paused, PAUSED),
            (RunPhase::Idle, _) => self.append(switched(mode, by).into(), intents),
            (RunPhase::Running | RunPhase::Paused, true) => {
                self.end_effects(intents);
                if self.log.open_run.is_some() {
                    self.ending = Some(Ending { cancel: true, roll_back: false, background_ended: false, mode: Some(mode), by });
                } else {
                    // A compaction without a run.
                    let ended = [super::compaction_failed("a person set another mode")];
                    self.append(ended.into_iter().chain(switched(mode, by)).collect(), intents);
                }
            }
        }
        Ok(None)
    }
}
