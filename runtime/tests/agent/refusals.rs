//! What endpoints refuse, and agents sent before: the run ends well, and the endpoint refuses nothing but what is too long for it.
//!
//! The runtime before the crate `engine` failed in each of these; docs/models.md has what it did.

use serde_json::{Value, json};
use yoi_test_support::eventually;
use yoi_wire::entry::{Body, RunOutcome};

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

/// The sentences that say how a request was changed.
fn changes(harness: &Harness) -> Vec<String> {
    let notices = harness.entries().into_iter().filter_map(|entry| match entry.body {
        Body::Notice(notice) if notice.reason == "ModelRequestChanged" => Some(notice.message),
        _ => None,
    });
    notices.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_during_a_tool_reaches_a_server_whose_roles_must_alternate() {
    for status in [400, 500] {
        let script = format!(
            "models: [{{orderStatus: {status}}}]\nrules:\n- when: {{lastUserContains: also do that}}\n  steps: [{{text: done}}]\n\
             - steps:\n  - toolCalls: [{{tool: Shell, args: {{command: 'until [ -e told ]; do sleep 0.05; done'}}}}]\n"
        );
        let harness = Harness::new(&script).await;
        let _runtime = harness.start(1, Some("go"));
        harness.wait_until("the tool runs", |entries| entries.iter().any(|entry| matches!(entry.body, Body::ToolStarted(_)))).await;
        let (taken, body) = harness.gateway.deliver("m", person(), "also do that").await;
        assert!(taken.is_success(), "{body:?}");
        std::fs::write(harness.tree().join("told"), "").unwrap();
        finishes(&harness, 1, Some("roles alternate, where the model's template demands it")).await;
        let changes = changes(&harness);
        assert!(changes.len() == 1 && changes[0].contains("roles alternate"), "{changes:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_picture_that_a_model_of_text_refuses_becomes_a_line_of_text() {
    let script = "models: [{textOnly: true}]\nrules:\n- steps:\n  - toolCalls: [{tool: Read, args: {path: p.png}}]\n  - {text: done, expect: ['A picture (image/png) is left out here']}\n";
    let harness = Harness::new(script).await;
    let png = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x01\0\0\0\x01\x08\x02\0\0\0";
    std::fs::write(harness.tree().join("p.png"), png).unwrap();
    let _runtime = harness.start(1, Some("go"));
    finishes(&harness, 1, Some("a model of text is shown no picture")).await;
    assert_eq!(changes(&harness).len(), 1, "{:?}", changes(&harness));
}

#[tokio::test(flavor = "multi_thread")]
async fn reasoning_alone_after_a_tool_is_no_end_of_the_work() {
    for provider in ["OpenAI", "Anthropic", "Gemini"] {
        let script = format!(
            "rules:\n- when: {{lastUserContains: neither a word nor a call}}\n  steps:\n  - {CALL}\n  - text: done\n\
             - steps:\n  - {CALL}\n  - {{text: '', reasoning: I now write the file.}}\n"
        );
        let harness = Harness { provider, ..Harness::new(&script).await };
        let _runtime = harness.start(1, Some("go"));
        finishes(&harness, 1, None).await;
        assert_eq!(kinds(&harness.entries()).matches("ToolEnded").count(), 2, "{provider}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_longer_answer_than_the_window_has_room_for_is_asked_for_again_with_a_lower_limit() {
    let words =
        "'max_tokens' is too large: 32000. This model's maximum context length is 32768 tokens and your request has 900 input tokens.";
    let body = json!({"type": "error", "error": {"type": "invalid_request_error", "message": words}}).to_string().replace('\'', "''");
    let script = format!("rules:\n- steps:\n  - {{text: done, fault: {{status: 400, body: '{body}', times: 1}}}}\n");
    let harness = Harness { provider: "Anthropic", ..Harness::new(&script).await };
    let _runtime = harness.start(1, Some("go"));
    finishes(&harness, 1, None).await;
    assert!(changes(&harness)[0].contains("at most 31740 tokens"), "{:?}", changes(&harness));
}
