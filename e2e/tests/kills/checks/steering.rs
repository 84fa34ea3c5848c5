//! What a person was told and shown, held against the log.

use std::collections::BTreeMap;

use yoi_wire::control::ControlAction;
use yoi_wire::entry::{Body, Entry};
use yoi_wire::people::LogLine;

use crate::person::Answered;

/// What an entry says of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Paused,
    Resumed,
    /// Its run ended, after it was abandoned or rolled back or at once.
    Ended,
    Abandoned,
    RolledBack,
    Rewound,
    ModeSwitched,
}

fn effect(body: &Body) -> Option<(&str, Effect)> {
    let (by, effect) = match body {
        Body::Paused(entry) => (&entry.by, Effect::Paused),
        Body::Resumed(entry) => (&entry.by, Effect::Resumed),
        Body::Abandoned(entry) => (&entry.by, Effect::Abandoned),
        Body::RolledBack(entry) => (&entry.by, Effect::RolledBack),
        Body::Rewound(entry) => (&entry.by, Effect::Rewound),
        Body::ModeSwitched(entry) => (&entry.by, Effect::ModeSwitched),
        Body::RunEnded(entry) => (entry.by.as_ref()?, Effect::Ended),
        _ => return None,
    };
    Some((&by.request_id, effect))
}

/// Returns one sentence for each answer that the log does not bear out, and for each entry that no request asked for.
pub fn answer_violations(agent: &str, log: &[String], answered: &[Answered]) -> Vec<String> {
    let lines: Vec<LogLine> = log.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let mut effects: BTreeMap<&str, Vec<Effect>> = BTreeMap::new();
    for (id, effect) in lines.iter().filter_map(|line| effect(&line.entry.body)) {
        effects.entry(id).or_default().push(effect);
    }
    let mut found = Vec::new();
    let mut is_paused = false;
    for Answered { id, action, response } in answered {
        let logged = effects.remove(id.as_str()).unwrap_or_default();
        let times = |wanted: Effect| logged.iter().filter(|effect| **effect == wanted).count();
        if response.refused.is_some() && !logged.is_empty() {
            found.push(format!("{agent} refused the request {id} ({action:?}), and its log says {logged:?}"));
        }
        let is_borne_out = match action {
            ControlAction::Pause {} => times(Effect::Paused) + times(Effect::RolledBack) == 1,
            // Of a run that waits for the model it is asked to try again, which is in no log.
            ControlAction::Resume {} => times(Effect::Resumed) == 1 || !is_paused && logged.is_empty(),
            ControlAction::Cancel {} => !logged.is_empty(),
            ControlAction::RewindTo { .. } => times(Effect::Rewound) == 1,
            // A mode that the conversation has already is set by no entry.
            ControlAction::SetMode { .. } => times(Effect::ModeSwitched) == 1 || logged.is_empty(),
            ControlAction::RewindTargets {}
            | ControlAction::Run { .. }
            | ControlAction::Compact {}
            | ControlAction::RegisterPeer { .. } => true,
        };
        if response.done.is_some() && !is_borne_out {
            found.push(format!("{agent} said that the request {id} ({action:?}) was done, and its log says {logged:?}"));
        }
        if (1..logged.len()).any(|at| logged[..at].contains(&logged[at])) {
            found.push(format!("{agent} carried out the request {id} ({action:?}) more than once: {logged:?}"));
        }
        is_paused = times(Effect::Paused) == 1;
    }
    found.extend(
        effects.iter().map(|(id, effects)| format!("the log of {agent} says {effects:?} of the request {id}, which has no answer")),
    );
    found
}

/// Returns a sentence for the first entry that somebody who was attached got and that is not in the log as it came.
pub fn attached_violations(agent: &str, log: &[String], attached: &[Entry]) -> Option<String> {
    let lines: Vec<LogLine> = log.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let by_seq: BTreeMap<u64, &Entry> = lines.iter().map(|line| (line.entry.seq, &line.entry)).collect();
    let lost = attached.iter().find(|entry| by_seq.get(&entry.seq) != Some(entry))?;
    Some(format!("who was attached to {agent} got entry {} as {lost:?}, and the log has {:?}", lost.seq, by_seq.get(&lost.seq)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use yoi_wire::control::ControlResponse;

    use super::*;

    fn line(seq: u64, kind: &str, body: serde_json::Value) -> String {
        let entry = json!({ "id": format!("e{seq}"), "seq": seq, "run": 1, "at": "2026-01-01T10:20:30.000Z", "kind": kind, "body": body });
        json!({ "token": format!("g:{seq}"), "entry": entry }).to_string()
    }

    fn answered(id: &str, action: ControlAction, is_done: bool) -> Answered {
        let answer = if is_done {
            json!({ "id": id, "done": { "message": "m" } })
        } else {
            json!({ "id": id, "refused": { "reason": "NotRunning", "message": "m" } })
        };
        let response: ControlResponse = serde_json::from_value(answer).expect("an answer");
        Answered { id: id.to_owned(), action, response }
    }

    #[test]
    fn an_answer_without_its_entry_and_an_entry_without_its_answer_are_found() {
        let by = |id: &str| json!({ "user": "u", "requestId": id });
        let log = [line(1, "Paused", json!({ "runId": "r", "by": by("p") })), line(2, "Resumed", json!({ "runId": "r", "by": by("q") }))];
        let pause = |is_done| answered("p", ControlAction::Pause {}, is_done);
        let resume = answered("q", ControlAction::Resume {}, true);
        assert_eq!(answer_violations("a", &log, &[pause(true), resume.clone()]), Vec::<String>::new());
        let found = |log: &[String], answers: &[Answered]| answer_violations("a", log, answers).join("\n");
        assert!(found(&log[1..], &[pause(true), resume.clone()]).contains("said that the request p"));
        assert!(found(&log, &[pause(false), resume.clone()]).contains("refused the request p"));
        assert!(found(&log, std::slice::from_ref(&resume)).contains("of the request p, which has no answer"));
        let twice = [log.to_vec(), vec![line(3, "Resumed", json!({ "runId": "r", "by": by("q") }))]].concat();
        assert!(found(&twice, &[pause(true), resume]).contains("said that the request q"));
    }

    #[test]
    fn an_entry_that_came_over_a_stream_and_is_another_in_the_log_is_found() {
        let log = [line(1, "Paused", json!({ "runId": "r", "by": { "user": "u", "requestId": "p" } }))];
        let entry = |text: &str| serde_json::from_str::<LogLine>(text).expect("a line").entry;
        assert_eq!(attached_violations("a", &log, &[entry(&log[0])]), None);
        let other = log[0].replace("\"runId\":\"r\"", "\"runId\":\"s\"");
        assert!(attached_violations("a", &log, &[entry(&other)]).is_some());
    }
}
