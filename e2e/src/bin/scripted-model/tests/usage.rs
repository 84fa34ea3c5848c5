//! Usage, and the cache of prompts.

use super::streams::request;
use super::*;

/// Words that make a prompt of more than the least that is cached.
fn long(words: &str) -> String {
    format!("{words} {}", "and again ".repeat(1000))
}

#[tokio::test]
async fn an_answer_counts_what_the_cache_had() {
    let endpoint = Endpoint::start().await;
    let counted = [
        (Format::Chat, "/usage/prompt_tokens_details/cached_tokens", "/usage/prompt_tokens"),
        (Format::Responses, "/usage/input_tokens_details/cached_tokens", "/usage/input_tokens"),
        (Format::Gemini, "/usageMetadata/cachedContentTokenCount", "/usageMetadata/promptTokenCount"),
    ];
    for (format, cached, input) in counted {
        let request = request(format, &long("work"));
        let first = endpoint.ask(format, &request).await.json();
        let again = endpoint.ask(format, &request).await.json();
        let number = |body: &Value, at: &str| body.pointer(at).and_then(Value::as_u64).unwrap();
        assert_eq!(number(&first, cached), 0, "{format:?}");
        let (cached, input) = (number(&again, cached), number(&again, input));
        assert!(cached > 2000 && input - cached < 128, "{format:?}: {cached} of {input}");
        let recorded = endpoint.lines("/requests").await.pop().unwrap();
        assert_eq!((recorded["cachedTokens"].as_u64(), recorded["inputTokens"].as_u64()), (Some(cached), Some(input)), "{format:?}");
    }
}

#[tokio::test]
async fn deepseek_counts_hits_and_misses() {
    let endpoint = Endpoint::start().await;
    let request = json!({"model": "deepseek-reasoner", "messages": [{"role": "user", "content": long("work")}]});
    endpoint.ask(Format::Chat, &request).await;
    let usage = endpoint.ask(Format::Chat, &request).await.json()["usage"].clone();
    let number = |name: &str| usage[name].as_u64().unwrap();
    assert_eq!(number("prompt_cache_hit_tokens") + number("prompt_cache_miss_tokens"), number("prompt_tokens"));
    assert!(number("prompt_cache_hit_tokens") > 2000);
}

#[tokio::test]
async fn anthropic_caches_what_the_request_marks() {
    let endpoint = Endpoint::start().await;
    let mut request = json!({
        "model": "scripted", "max_tokens": 100, "system": [{"type": "text", "text": long("system")}],
        "messages": [{"role": "user", "content": "work"}],
    });
    let unmarked = |usage: &Value| usage["cache_read_input_tokens"] == 0 && usage["cache_creation_input_tokens"] == 0;
    for _ in 0..2 {
        let usage = endpoint.ask(Format::Messages, &request).await.json()["usage"].clone();
        assert!(unmarked(&usage), "{usage}");
    }
    request["system"][0]["cache_control"] = json!({"type": "ephemeral"});
    let written = endpoint.ask(Format::Messages, &request).await.json()["usage"].clone();
    let read = endpoint.ask(Format::Messages, &request).await.json()["usage"].clone();
    assert!(written["cache_creation_input_tokens"].as_u64().unwrap() > 2000);
    assert_eq!(read["cache_read_input_tokens"], written["cache_creation_input_tokens"]);
    assert_eq!(read["input_tokens"], written["input_tokens"]);
    assert!(read["input_tokens"].as_u64().unwrap() < 50);
}

#[tokio::test]
async fn an_image_counts_the_same_whatever_its_size() {
    let endpoint = Endpoint::start().await;
    let mut counts = BTreeSet::new();
    for size in [100, 100_000] {
        let image = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A".repeat(size)}});
        let content = json!([{"type": "text", "text": "work"}, image]);
        let request = json!({"model": "scripted", "max_tokens": 100, "messages": [{"role": "user", "content": content}]});
        counts.insert(endpoint.ask(Format::Messages, &request).await.json()["usage"]["input_tokens"].as_u64().unwrap());
    }
    assert!(counts.len() == 1 && *counts.first().unwrap() > 1600, "{counts:?}");
}

#[tokio::test]
async fn openai_caches_nothing_where_the_request_wants_only_its_own_breakpoints_and_sets_none() {
    let endpoint = Endpoint::start().await;
    let mut request = request(Format::Responses, &long("work"));
    request["prompt_cache_options"] = json!({"mode": "explicit"});
    for _ in 0..2 {
        let usage = endpoint.ask(Format::Responses, &request).await.json()["usage"].clone();
        assert_eq!(usage["input_tokens_details"]["cached_tokens"], 0);
    }
    request["input"][0]["content"] = json!([{"type": "input_text", "text": long("work"), "prompt_cache_breakpoint": {"mode": "explicit"}}]);
    let details = async || endpoint.ask(Format::Responses, &request).await.json()["usage"]["input_tokens_details"].clone();
    let (first, second) = (details().await, details().await);
    assert!(first["cache_write_tokens"].as_u64().unwrap() > 2000);
    assert_eq!(second["cached_tokens"], first["cache_write_tokens"]);
}
