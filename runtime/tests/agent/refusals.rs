//! What endpoints refuse, and agents sent before: the run ends well, and the endpoint refuses nothing but what is too long for it.
//!
//! The runtime before the crate `engine` failed in each of these; docs/models.md has what it did.

use serde_json::{Value, json};
use yoi_test_support::eventually;
use yoi_wire::entry::RunOutcome;

use crate::degraded::planted::http_client;
use crate::gateway::person;
use crate::harness::{Harness, kinds, outcomes, texts};

/// Answers the request for a summary, and goes on after it.
const COMPACTS: &str = "- when: {lastUserContains: about to be replaced by your summary}\n  steps: [{text: All was read.}]\n\
    - when: {lastUserContains: '[Summary of the conversation'}\n  repeat: true\n  steps: [{text: done}]\n";

/// The rules of the model that refused a request.
async fn refused_by(harness: &Harness) -> Vec<String> {
    let url = harness.model_url.replace("/v1", "/requests");
    let lines = http_client().get(url).send().await.unwrap().text().await.unwrap();
    let requests = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    requests.filter_map(|request| request["rule"].as_str().map(str::to_owned)).collect()
}

async fn finishes(harness: &Harness, runs: usize, may_refuse: Option<&str>) {
    let refused = async || refused_by(harness).await.into_iter().filter(|rule| Some(rule.as_str()) != may_refuse).collect::<Vec<_>>();
    // A run whose request is refused may have no end.
    let is_over = async || outcomes(&harness.entries()).len() >= runs || !refused().await.is_empty();
    eventually("the end, or a refusal", async || is_over().await.then_some(())).await;
    let (entries, refused) = (harness.entries(), refused().await);
    assert!(refused.is_empty(), "refused: {refused:?}");
    let all_finished = outcomes(&entries).iter().all(|outcome| *outcome == RunOutcome::Finished);
    assert!(all_finished && texts(&entries).last().is_some_and(|text| text == "done"), "{}", kinds(&entries));
}

async fn one_run(provider: &'static str, model: &'static str, settings: Value, script: &str) {
    let harness = Harness { provider, model, model_settings: settings, ..Harness::new(script).await };
    let _runtime = harness.start(1, Some("go"));
    finishes(&harness, 1, None).await;
}

const CALL: &str = "toolCalls: [{tool: Shell, args: {command: echo ran}}]";

#[tokio::test(flavor = "multi_thread")]
async fn blank_text_of_the_model_is_not_sent_back() {
    let script = format!("rules:\n- steps:\n  - {{text: \"\\n \\n\", {CALL}}}\n  - text: done\n");
    one_run("Anthropic", "claude-scripted", json!({}), &script).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reasoning_is_given_back_where_the_endpoint_demands_it() {
    let script = format!(
        "models: [{{profile: deepseek, reasons: true}}]\nrules:\n- steps:\n  - {{reasoning: 'Hm, a call.', {CALL}}}\n  - text: done\n"
    );
    one_run("OpenAI", "deepseek-reasoner", json!({}), &script).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn thought_signatures_are_given_back() {
    let script = format!(
        "models: [{{profile: gemini, reasons: true}}]\nrules:\n- steps:\n  - {{reasoning: 'Hm, a call.', {CALL}}}\n  - text: done\n"
    );
    for provider in ["OpenAI", "Gemini"] {
        one_run(provider, "gemini-3-pro", json!({}), &script).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_refuses_tools_with_an_effort_over_chat_completions_is_asked_over_responses() {
    let script = format!("rules:\n- steps:\n  - {{reasoning: 'Hm, a call.', {CALL}}}\n  - text: done\n");
    one_run("OpenAI", "gpt-5.6", json!({"api": "Responses"}), &script).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_name_that_no_endpoint_takes_is_not_sent_back() {
    let script = "rules:\n- steps:\n  - toolCalls: [{tool: 'files: read!', args: {}}]\n  - text: done\n";
    for provider in ["OpenAI", "Anthropic", "Gemini"] {
        one_run(provider, "scripted", json!({}), script).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn thirty_large_files_that_overflow_the_window_are_summed_up() {
    let reads: Vec<String> = (0..30).map(|n| format!("{{tool: Read, args: {{path: f{n}}}}}")).collect();
    let script =
        format!("models: [{{windowTokens: 20000}}]\nrules:\n{COMPACTS}- steps:\n  - toolCalls: [{}]\n  - text: done\n", reads.join(", "));
    let limits = json!({"turnsPerRun": 20, "toolSeconds": 30, "toolOutputBytes": 8192});
    let harness = Harness { limits, ..Harness::new(&script).await };
    for n in 0..30 {
        std::fs::write(harness.tree().join(format!("f{n}")), "a line of a file\n".repeat(600)).unwrap();
    }
    let _runtime = harness.start(1, Some("go"));
    finishes(&harness, 1, Some("the prompt fits the window")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fifteen_messages_of_64_kib_that_overflow_the_window_are_summed_up() {
    let script = format!("models: [{{windowTokens: 200000}}]\nrules:\n{COMPACTS}- steps: [{{text: done, delayMs: 2000}}]\n");
    let harness = Harness::new(&script).await;
    let _runtime = harness.start(1, None);
    harness.gateway.wait_for_report(|report| report.ready).await;
    for n in 0..15 {
        let text = format!("{n} {}", "word ".repeat(13_100));
        let (status, body) = harness.gateway.deliver(&format!("m{n}"), person(), &text).await;
        assert!(status.is_success(), "{body:?}");
    }
    finishes(&harness, 2, Some("the prompt fits the window")).await;
}
