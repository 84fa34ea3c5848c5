//! What an agent costs while it waits, and what its requests cost: `cargo bench -p yoi-runtime`.
//!
//! | Measured | Over | Bar |
//! |---|---|---|
//! | tokens that were sent before and that the endpoint's cache does not serve | all tokens that were sent before, in 40 turns | 0.1x |
//! | resident memory of an idle runtime | | 10 MiB |
//! | the same | that of the build that `YOI_RUNTIME_BEFORE` names | 1.15x |
//! | resident memory after 5,000 turns with compaction | that of an idle runtime | 1.3x |
//! | start to the first request of an agent with 200 skills | one with none | 1.05x |
//! | tokens of the list of 200 skills | 2 % of the window | 1x |
//! | decision, schema and slot of a call, with 44 rules | | 0.2 ms |
//! | memory of 100 idle conversations in a process | that of one | 2x |
//! | a turn of two calls with a policy | one without | 1.02x |
//! | the last piece of an answer at who follows events | the model's own stream | 1.1x |
//!
//! All run the runtime's binary (`YOI_RUNTIME_BINARY` names another build) against a scripted model and a fake gateway. Words choose what runs:
//! `cache`, `idle`, `long`, `skills`, `decision`, `conversations`, `policy`, `events`. `YOI_BENCH_TURNS` is the number of turns of the last row: fewer try the bench. With `YOI_BENCH_OUT` (a folder) the
//! figures also go to `runtime.json` there.

// The scripted model is a binary of another crate, and the harness is that of the tests, so both are included by path.
#[path = "../../../e2e/src/bin/scripted-model/endpoint.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod endpoint;
#[path = "../../tests/agent/gateway.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod gateway;
#[path = "../../tests/agent/harness.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod harness;
mod memory;
mod project;
#[path = "../../tests/agent/prompt_cache.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod prompt_cache;
mod skills;

use endpoint::{script, server};
use prompt_cache::{CachedFormat, MOST_MISSED, tokens_sent_again};
use serde_json::{Value, json};

#[tokio::main]
async fn main() {
    if project::child().await {
        return;
    }
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wanted = |word: &str| words.is_empty() || words.iter().any(|given| given == word);
    let mut rows = Vec::new();
    if wanted("cache") {
        rows.push(cache("Anthropic", CachedFormat::Anthropic).await);
        rows.push(cache("OpenAI Responses", CachedFormat::Responses).await);
    }
    if wanted("idle") {
        rows.extend(memory::idle().await);
    }
    if wanted("long") {
        rows.extend(memory::after_many_turns().await);
    }
    if wanted("decision") {
        rows.extend(project::decision().await);
    }
    if wanted("conversations") {
        rows.extend(project::conversations());
    }
    if wanted("policy") {
        rows.extend(project::turns_with_policy().await);
    }
    if wanted("events") {
        rows.extend(project::last_delta().await);
    }
    if wanted("skills") {
        rows.extend(skills::starts().await);
    }
    if let Some(out) = std::env::var_os("YOI_BENCH_OUT") {
        let file = std::path::Path::new(&out).join("runtime.json");
        std::fs::write(file, serde_json::to_vec_pretty(&rows).unwrap()).unwrap();
    }
}

async fn cache(name: &str, format: CachedFormat) -> Value {
    let sent = tokens_sent_again(format).await;
    let ratio = sent.missed_share();
    println!("{name}: {} of {} tokens sent again miss the cache: {ratio:.3}x (bar {MOST_MISSED}x)", sent.missed, sent.all);
    json!({"name": format!("{name}: tokens sent again that miss the cache, over all sent again, in 40 turns"), "unit": "tokens",
        "ratio": ratio, "bar": MOST_MISSED})
}
