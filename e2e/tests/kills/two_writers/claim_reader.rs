//! Reads the claims of the lender's tree again and again, and remembers when each was surely held.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use yoi_crds::AgentWorkspace;
use yoi_crds::workspace::{Claim, ClaimState};
use yoi_e2e::test_namespace::TestNamespace;

use super::evidence::{Held, LENDER, Stamp};

const PAUSE: Duration = Duration::from_millis(50);

/// What the reader has seen, by the holder's name.
type Seen = Arc<Mutex<BTreeMap<String, (ClaimState, Held)>>>;

/// Reads until it is dropped.
pub struct ClaimReader {
    seen: Seen,
    reading: JoinHandle<()>,
}

impl Drop for ClaimReader {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

impl ClaimReader {
    pub fn start(ns: &TestNamespace) -> ClaimReader {
        let (api, seen) = (ns.api::<AgentWorkspace>(), Seen::default());
        let into = seen.clone();
        let reading = tokio::spawn(async move {
            loop {
                let before = now();
                if let Ok(tree) = api.get(LENDER).await {
                    let claims = tree.status.map(|status| status.claims).unwrap_or_default();
                    note(&into, &claims, before.unwrap_or(0), now().unwrap_or(Stamp::MAX));
                }
                sleep(PAUSE).await;
            }
        });
        ClaimReader { seen, reading }
    }

    /// The state of the last claim of this holder.
    pub fn state(&self, holder: &str) -> Option<ClaimState> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).get(holder).map(|(state, _)| *state)
    }

    pub fn held(&self) -> BTreeMap<String, Held> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().map(|(holder, (_, held))| (holder.clone(), held.clone())).collect()
    }
}

/// `before` and `after` the read. One that is gone was Released before.
fn note(seen: &Seen, claims: &[Claim], before: Stamp, after: Stamp) {
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    for claim in claims {
        seen.entry(claim.holder.name.clone()).or_insert_with(|| (claim.state, Held::default()));
    }
    for (holder, (state, held)) in seen.iter_mut() {
        *state = claims.iter().rfind(|claim| claim.holder.name == *holder).map_or(ClaimState::Released, |claim| claim.state);
        match state {
            ClaimState::Reserved | ClaimState::Unknown => {}
            ClaimState::Fenced | ClaimState::Active => {
                held.from.get_or_insert(after);
                held.until = Some(before);
            }
            // One that is given up before it is Fenced comes here, too, and has closed nothing.
            ClaimState::Reclaiming => held.until = held.from.map(|_| before),
            ClaimState::Released => {
                held.released.get_or_insert(after);
            }
        }
    }
}

/// By the clock of the witnesses, rounded down to 10 ms.
///
/// # Errors
/// When there is no `/proc`.
pub fn now() -> Result<Stamp> {
    let uptime = std::fs::read_to_string("/proc/uptime")?;
    let (seconds, hundredths) = uptime.split_whitespace().next().and_then(|word| word.split_once('.')).context("no uptime")?;
    Ok((seconds.parse::<Stamp>()? * 100 + hundredths.parse::<Stamp>()?) * 10_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_surely_held_from_the_end_of_one_read_to_the_begin_of_another() {
        let claim = |state: &str| -> Claim {
            serde_json::from_value(
                serde_json::json!({ "loan": "l", "lender": { "name": LENDER, "uid": "u" }, "holder": { "name": "child-1" },
                "rules": { "allow": [] }, "state": state, "reservedAt": "" }),
            )
            .unwrap()
        };
        let seen = Seen::default();
        for (state, before) in [("Reserved", 10), ("Fenced", 20), ("Active", 30), ("Reclaiming", 40), ("Released", 50)] {
            note(&seen, &[claim(state)], before, before + 5);
        }
        note(&seen, &[], 60, 65);
        let expected = Held { from: Some(25), until: Some(40), released: Some(55) };
        assert_eq!(seen.lock().unwrap()["child-1"], (ClaimState::Released, expected));
        let given_up = Seen::default();
        for (state, before) in [("Reserved", 10), ("Reclaiming", 20), ("Released", 30)] {
            note(&given_up, &[claim(state)], before, before + 5);
        }
        assert_eq!(given_up.lock().unwrap()["child-1"].1, Held { released: Some(35), ..Held::default() });
    }
}
