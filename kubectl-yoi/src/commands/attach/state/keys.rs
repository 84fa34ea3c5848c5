//! What keys do.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use yoi_wire::control::{ControlAction, RewindTargets};
use yoi_wire::hub::{Activity, MAX_MESSAGE_TEXT, MessageTooLong};

use super::{AttachState, Effect, Panel};
use crate::commands::attach::command::{self, Command};

/// Lines that a page key moves.
const PAGE: usize = 10;

impl AttachState {
    pub(super) fn key(&mut self, key: KeyEvent) -> Vec<Effect> {
        // Some terminals report the release of a key too.
        if key.kind == KeyEventKind::Release {
            return Vec::new();
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('d') if control => return vec![Effect::Leave],
            KeyCode::Char('c') if control => return self.pause(),
            KeyCode::Char('x') if control => return self.cancel(),
            _ => {}
        }
        if self.panel.is_some() {
            return self.panel_key(key.code);
        }
        match key.code {
            KeyCode::Enter if key.modifiers.contains(KeyModifiers::ALT) => self.input.insert("\n"),
            KeyCode::Char('j') if control => self.input.insert("\n"),
            KeyCode::Enter => return self.enter(),
            KeyCode::Tab => self.tools_open = !self.tools_open,
            KeyCode::PageUp => self.scroll += PAGE,
            KeyCode::PageDown => self.scroll = self.scroll.saturating_sub(PAGE),
            KeyCode::Up => self.scroll += 1,
            KeyCode::Down => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::Esc => (self.scroll, self.notice) = (0, None),
            KeyCode::Left => self.input.left(),
            KeyCode::Right => self.input.right(),
            KeyCode::Home => self.input.home(),
            KeyCode::End => self.input.end(),
            KeyCode::Backspace => self.input.backspace(),
            KeyCode::Delete => self.input.delete(),
            KeyCode::Char(c) if !control => self.input.insert(c.encode_utf8(&mut [0; 4])),
            // Keys that mean nothing here.
            _ => {}
        }
        Vec::new()
    }

    fn panel_key(&mut self, code: KeyCode) -> Vec<Effect> {
        match (&mut self.panel, code) {
            (Some(Panel::Rewind { chosen, .. }), KeyCode::Up) => *chosen = chosen.saturating_sub(1),
            (Some(Panel::Rewind { targets, chosen }), KeyCode::Down) => *chosen = (*chosen + 1).min(targets.inputs.len().saturating_sub(1)),
            (Some(Panel::Rewind { targets, chosen }), KeyCode::Enter) => {
                let RewindTargets { segment, head, inputs } = std::mem::take(targets);
                let seq = inputs.get(*chosen).map(|input| input.seq);
                self.panel = None;
                return seq.map(|seq| Effect::Control(ControlAction::RewindTo { segment, seq, head })).into_iter().collect();
            }
            // Any other key closes it.
            _ => self.panel = None,
        }
        Vec::new()
    }

    fn enter(&mut self) -> Vec<Effect> {
        let text = self.input.text();
        if text.trim().is_empty() {
            return Vec::new();
        }
        if let Some(answer) = self.typed_answer(text) {
            self.input.take();
            self.scroll = 0;
            return vec![answer];
        }
        if let Some(words) = text.strip_prefix(':').filter(|words| !words.starts_with(':')) {
            return match command::parse(words, &self.agent) {
                Ok(command) => {
                    self.input.take();
                    self.command(command)
                }
                Err(why) => {
                    self.warn(why);
                    Vec::new()
                }
            };
        }
        let text = if text.starts_with("::") { text.get(1..).unwrap_or_default() } else { text };
        if text.len() > MAX_MESSAGE_TEXT {
            self.warn(MessageTooLong { bytes: Some(text.len()) }.to_string());
            return Vec::new();
        }
        let text = text.to_owned();
        let effect = match self.activity {
            None => {
                self.warn("the agent has not answered yet".to_owned());
                return Vec::new();
            }
            Some(Activity::Running | Activity::NeedsInput) => Effect::Send(text),
            Some(Activity::Idle | Activity::Paused) => Effect::Control(ControlAction::Run { text }),
        };
        self.input.take();
        (self.scroll, self.notice) = (0, None);
        vec![effect]
    }

    fn command(&mut self, command: Command) -> Vec<Effect> {
        self.notice = None;
        let action = match command {
            Command::Help => {
                self.panel = Some(Panel::Help);
                return Vec::new();
            }
            Command::Quit => return vec![Effect::Leave],
            Command::Pause => return self.pause(),
            Command::Cancel => return self.cancel(),
            Command::Resume => ControlAction::Resume {},
            Command::Compact => ControlAction::Compact {},
            Command::Rewind(seq) => {
                self.rewind_to = seq;
                ControlAction::RewindTargets {}
            }
            Command::Peer(_) if matches!(self.activity, Some(Activity::Running | Activity::NeedsInput)) => {
                self.warn("a run is under way: a peer is registered while the agent is idle or paused".to_owned());
                return Vec::new();
            }
            Command::Peer(peer) => ControlAction::RegisterPeer { peer },
        };
        vec![Effect::Control(action)]
    }

    fn pause(&mut self) -> Vec<Effect> {
        match self.activity {
            Some(Activity::Idle) => self.warn("no run is under way; Ctrl-D leaves".to_owned()),
            Some(Activity::Paused) => self.warn("the run is paused: :resume lets it go on, Ctrl-X cancels it".to_owned()),
            Some(Activity::Running | Activity::NeedsInput) | None => return vec![Effect::Control(ControlAction::Pause {})],
        }
        Vec::new()
    }

    fn cancel(&mut self) -> Vec<Effect> {
        match self.activity {
            Some(Activity::Idle) => self.warn("no run is under way; Ctrl-D leaves".to_owned()),
            Some(Activity::Running | Activity::Paused | Activity::NeedsInput) | None => {
                return vec![Effect::Control(ControlAction::Cancel {})];
            }
        }
        Vec::new()
    }
}
