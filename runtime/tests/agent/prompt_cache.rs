//! How much of what is sent again the endpoint can serve from its cache. The scripted model caches as the endpoints document it, and counts
//! 4 bytes as a token.

use serde_json::json;
use yoi_wire::entry::{Body, RunOutcome, TokenUsage};

use crate::gateway::person;
use crate::harness::{Harness, outcomes};

const RUNS: usize = 5;
const TURNS_PER_RUN: usize = 8;
/// Of the tokens that were sent before, at most this share may miss the cache.
pub const MOST_MISSED: f64 = 0.1;

/// A wire format with a cache of prompts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachedFormat {
    /// Caches up to the marks of the request.
    Anthropic,
    /// Caches by itself whatever begins as an earlier request did.
    Responses,
}

/// Tokens of all requests of a conversation but the first.
#[derive(Clone, Copy, Debug, Default)]
pub struct SentAgain {
    /// Those that were sent before.
    pub all: u64,
    /// Those of them that the cache did not serve.
    pub missed: u64,
}

impl SentAgain {
    pub fn missed_share(self) -> f64 {
        self.missed as f64 / self.all as f64
    }
}

/// A conversation of 40 turns that reasons, calls one to four tools at a time, and is spoken to five times.
pub async fn tokens_sent_again(format: CachedFormat) -> SentAgain {
    let (provider, settings) = match format {
        CachedFormat::Anthropic => ("Anthropic", json!({"effort": "high"})),
        CachedFormat::Responses => ("OpenAI", json!({"api": "Responses", "effort": "high"})),
    };
    let limits = json!({"turnsPerRun": TURNS_PER_RUN, "toolSeconds": 30, "toolOutputBytes": 32768});
    let harness = Harness { provider, model_settings: settings, limits, ..Harness::new(&script()).await };
    for n in 0..4 {
        std::fs::write(harness.tree().join(format!("file{n}")), format!("A line of the file {n}.\n").repeat(10 << (2 * n))).unwrap();
    }
    let _runtime = harness.start(1, None);
    harness.gateway.wait_for_report(|report| report.ready).await;
    let mut entries = Vec::new();
    for run in 0..RUNS {
        harness.gateway.deliver(&format!("m{run}"), person(), &format!("Now do part {run}.")).await;
        entries = harness.wait_for_runs(run + 1).await;
    }
    assert_eq!(outcomes(&entries), [RunOutcome::Finished; RUNS], "{}", harness.stderr());
    let usages: Vec<TokenUsage> = entries
        .iter()
        .filter_map(|entry| match &entry.body {
            Body::Assistant(answer) => answer.usage,
            _ => None,
        })
        .collect();
    assert_eq!(usages.len(), RUNS * TURNS_PER_RUN);
    usages.windows(2).fold(SentAgain::default(), |sent, requests| {
        // A conversation only grows, so all that the request before held is sent again.
        let (before, now) = (requests[0].input_tokens, requests[1]);
        assert!(now.input_tokens > before, "{usages:?}");
        SentAgain { all: sent.all + before, missed: sent.missed + before.saturating_sub(now.cached_tokens) }
    })
}

fn script() -> String {
    let mut script = "rules:\n- steps:\n".to_owned();
    for turn in 0..TURNS_PER_RUN - 1 {
        script += "  - text: I look at it.\n    reasoning: It must be in one of these files.\n    toolCalls:\n";
        for n in 0..=turn % 4 {
            script += &format!("    - {{tool: Read, args: {{path: file{n}}}}}\n");
        }
    }
    script + "  - text: This part is done.\n"
}

async fn is_served_from_the_cache(format: CachedFormat) {
    let sent = tokens_sent_again(format).await;
    println!("{format:?}: {} of {} tokens that were sent before missed the cache", sent.missed, sent.all);
    assert!(sent.all > 100_000 && sent.missed_share() <= MOST_MISSED, "{sent:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn anthropic_serves_nine_tenths_of_what_is_sent_again_from_its_cache() {
    is_served_from_the_cache(CachedFormat::Anthropic).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn openai_serves_nine_tenths_of_what_is_sent_again_from_its_cache() {
    is_served_from_the_cache(CachedFormat::Responses).await;
}
