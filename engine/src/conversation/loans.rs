//! Which paths of the tree are lent, as the log and so the model have it.
//!
//! The gateway is asked before a run's first turn, and before each turn while something is out. What is new stands in the log as an item that the model reads, so a
//! process that goes on from the log knows what the one before has lent.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use yoi_wire::children::{LentPaths, LoansRequest, LoansResponse};
use yoi_wire::entry::{Body, CompactionOutcome, Entry, SystemItem};

/// The topic of the items.
const LOAN: &str = "Loan";
/// The tool by which paths are lent.
const LENDS: &str = "SpawnPod";
/// The most paths that the model reads of one loan.
const MAX_PATHS: usize = 16;

/// How far the log knows of loans.
#[derive(Clone, Debug, Default)]
pub(super) struct Loans {
    /// The agent may lend.
    is_on: bool,
    /// To be asked before the next turn.
    is_due: bool,
    /// What is out, by its id: who holds it, and its paths.
    out: BTreeMap<String, (String, String)>,
    /// What is back, and may not be forgotten yet by the gateway.
    back: BTreeSet<String>,
}

impl Loans {
    pub fn turn_on(&mut self) {
        self.is_on = true;
    }

    pub fn record(&mut self, entry: &Entry) {
        if let Body::RunStarted(_) = &entry.body {
            self.is_due = true;
        } else if let Body::Assistant(answer) = &entry.body {
            self.is_due |= !self.out.is_empty() || answer.tool_calls.iter().any(|call| call.tool == LENDS);
        } else if is_forgotten(&entry.body) {
            // The model is told of what is out once more.
            self.out.clear();
            self.is_due = true;
        } else if let Body::SystemItem(item) = &entry.body
            && item.topic == LOAN
        {
            let text = |field: &str| item.data.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
            let (loan, is_back) = (text("loan"), item.data.get("back").and_then(Value::as_bool).unwrap_or_default());
            if is_back {
                self.out.remove(&loan);
                self.back.insert(loan);
            } else {
                self.out.insert(loan, (text("holder"), text("paths")));
            }
        }
    }

    /// What is to be asked now; `None`: nothing.
    pub fn due(&self) -> Option<LoansRequest> {
        (self.is_on && self.is_due).then(|| LoansRequest { returned: self.back.iter().cloned().collect() })
    }

    /// What the answer has that the log does not. Without an answer it is asked again before a later turn.
    pub fn take(&mut self, answer: Option<LoansResponse>) -> Vec<Body> {
        self.is_due = false;
        let Some(LoansResponse { loans }) = answer else { return Vec::new() };
        self.back.retain(|back| loans.iter().any(|loan| loan.loan == *back));
        let known: BTreeSet<&str> = loans.iter().map(|loan| loan.loan.as_str()).collect();
        // The gateway has forgotten it, and so it is back.
        let gone = self.out.iter().filter(|(loan, _)| !known.contains(loan.as_str()));
        let mut items: Vec<Body> = gone.map(|(loan, (holder, paths))| back(loan, holder, paths, None)).collect();
        for LentPaths { loan, holder, paths, back: is_back, message } in &loans {
            let named = named(paths);
            if *is_back && !self.back.contains(loan) && !named.is_empty() {
                items.push(back(loan, holder, &named, message.as_deref()));
            } else if !is_back && !self.out.contains_key(loan) && !named.is_empty() {
                items.push(lent(loan, holder, &named));
            }
        }
        items
    }
}

/// Whether the model may not read any more what it was told.
fn is_forgotten(body: &Body) -> bool {
    match body {
        Body::CompactionEnded(end) => end.outcome == CompactionOutcome::Used,
        other => matches!(other, Body::Rewound(_) | Body::RolledBack(_)),
    }
}

fn named(paths: &[String]) -> String {
    let more = paths.len().saturating_sub(MAX_PATHS);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let first: Vec<&str> = paths.iter().take(MAX_PATHS).map(String::as_str).collect();
    format!("{}{more}", first.join(", "))
}

fn lent(loan: &str, holder: &str, paths: &str) -> Body {
    let text = format!(
        "[Lent to {holder}: {paths}. {holder} writes there; you read there, and your writes fail with \"Read-only file system\" until it is back. StopPod ends {holder} \
         and brings it back.]"
    );
    item(json!({ "loan": loan, "holder": holder, "paths": paths, "back": false }), text)
}

fn back(loan: &str, holder: &str, paths: &str, why: Option<&str>) -> Body {
    let why = why.map(|why| format!(" {holder} did not end by itself: {why}")).unwrap_or_default();
    let text = format!(
        "[Back from {holder}: {paths}. You may write there again; a shell that stands in a folder there has to enter it anew, by cd, before it can.{why}]"
    );
    item(json!({ "loan": loan, "holder": holder, "paths": paths, "back": true }), text)
}

fn item(data: Value, text: String) -> Body {
    Body::SystemItem(SystemItem { topic: LOAN.to_owned(), data, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(body: Body) -> Entry {
        Entry { id: "i".into(), seq: 1, run: 1, at: "2026-01-01T00:00:00.000Z".into(), body }
    }

    fn loan(id: &str, back: bool, message: Option<&str>) -> LentPaths {
        LentPaths { loan: id.into(), holder: "child".into(), paths: vec!["docs".into()], back, message: message.map(str::to_owned) }
    }

    fn texts(items: &[Body]) -> Vec<&str> {
        items.iter().map(|item| if let Body::SystemItem(item) = item { item.text.as_str() } else { panic!("{item:?}") }).collect()
    }

    /// Takes an answer as a conversation does: what comes of it is logged.
    fn answer(loans: &mut Loans, answer: Vec<LentPaths>) -> Vec<Body> {
        let items = loans.take(Some(LoansResponse { loans: answer }));
        items.iter().for_each(|item| loans.record(&entry(item.clone())));
        items
    }

    fn lending() -> Loans {
        Loans { is_on: true, is_due: true, ..Loans::default() }
    }

    #[test]
    fn c17_what_is_lent_and_what_is_back_is_told_once() {
        let mut loans = lending();
        assert_eq!(loans.due(), Some(LoansRequest::default()));
        let items = answer(&mut loans, vec![loan("l", false, None)]);
        assert!(texts(&items)[0].starts_with("[Lent to child: docs."), "{items:?}");
        assert_eq!(loans.due(), None, "once for a turn");
        assert!(answer(&mut loans, vec![loan("l", false, None)]).is_empty());
        let items = answer(&mut loans, vec![loan("l", true, None)]);
        assert!(texts(&items)[0].starts_with("[Back from child: docs."), "{items:?}");
        assert!(answer(&mut loans, vec![loan("l", true, None)]).is_empty());
        loans.is_due = true;
        assert_eq!(loans.due(), Some(LoansRequest { returned: vec!["l".into()] }));
        assert!(answer(&mut loans, vec![]).is_empty());
        loans.is_due = true;
        assert_eq!(loans.due(), Some(LoansRequest::default()), "the gateway has forgotten it");
    }

    #[test]
    fn c8_a_child_that_never_came_up_is_told_with_its_last_words() {
        let items = answer(&mut lending(), vec![loan("l", true, Some("it was not up. Its last words: no such image"))]);
        assert!(texts(&items)[0].contains("no such image"), "{items:?}");
    }

    #[test]
    fn c17_another_process_goes_on_from_the_log_and_what_nobody_knows_any_more_is_back() {
        let mut before = lending();
        let log = answer(&mut before, vec![loan("l", false, None), loan("m", false, None)]);
        let mut after = lending();
        log.into_iter().for_each(|item| after.record(&entry(item)));
        let items = answer(&mut after, vec![loan("m", false, None)]);
        assert_eq!(items.len(), 1);
        assert!(texts(&items)[0].starts_with("[Back from child: docs."), "{items:?}");
    }

    #[test]
    fn without_an_answer_nothing_is_told_and_an_agent_that_lends_nothing_asks_nothing() {
        let mut loans = lending();
        assert!(loans.take(None).is_empty() && loans.due().is_none());
        assert_eq!(Loans { is_due: true, ..Loans::default() }.due(), None);
    }
}
