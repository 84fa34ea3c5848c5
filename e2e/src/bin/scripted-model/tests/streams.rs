//! Streams of all formats.

use super::*;

/// A first request of each format, for these words.
pub fn request(format: Format, words: &str) -> Value {
    let user = json!({"role": "user", "content": words});
    match format {
        Format::Chat => json!({"model": "strict-server", "messages": [user], "stream_options": {"include_usage": true}}),
        Format::Responses => json!({"model": "scripted", "input": [user], "store": false, "include": ["reasoning.encrypted_content"]}),
        Format::Messages => json!({
            "model": "scripted", "max_tokens": 4096, "thinking": {"type": "enabled", "budget_tokens": 1024}, "messages": [user],
        }),
        Format::Gemini => json!({
            "model": "scripted", "contents": [{"role": "user", "parts": [{"text": words}]}],
            "generationConfig": {"thinkingConfig": {"includeThoughts": true}},
        }),
    }
}

async fn stream(endpoint: &Endpoint, format: Format, words: &str) -> Reply {
    let mut request = request(format, words);
    request["stream"] = json!(true);
    let reply = endpoint.ask(format, &request).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply
}

/// Joins the texts at `pointer` in all events.
fn joined(events: &[Value], pointer: &str) -> String {
    events.iter().filter_map(|event| event.pointer(pointer)?.as_str()).collect()
}

const ALL: [Format; 4] = [Format::Chat, Format::Responses, Format::Messages, Format::Gemini];

#[tokio::test]
async fn a_stream_is_cut_within_events_and_within_characters() {
    let endpoint = Endpoint::start().await;
    for format in ALL {
        let reply = stream(&endpoint, format, "work").await;
        assert!(reply.chunks.iter().any(|chunk| std::str::from_utf8(chunk).is_err()), "{format:?}: no character is cut");
        assert!(reply.chunks.iter().any(|chunk| !chunk.ends_with(b"\n\n")), "{format:?}: no event is cut");
        assert!(reply.events().len() > 4);
    }
}

#[tokio::test]
async fn chat_completions_stream_reasoning_text_calls_and_usage() {
    let endpoint = Endpoint::start().await;
    let reply = stream(&endpoint, Format::Chat, "work").await;
    let events = reply.events();
    assert_eq!(joined(&events, "/choices/0/delta/reasoning_content"), "Hm, a Größe of 3 €.");
    assert_eq!(joined(&events, "/choices/0/delta/content"), "I look into two: ä, 漢字.");
    assert_eq!(joined(&events, "/choices/0/delta/tool_calls/0/function/name"), "ReadRead");
    assert_eq!(joined(&events, "/choices/0/delta/tool_calls/0/function/arguments"), r#"{"path":"größe"}{"path":"b"}"#);
    assert_eq!(joined(&events, "/choices/0/finish_reason"), "tool_calls");
    assert!(events.last().unwrap()["usage"]["total_tokens"].as_u64().unwrap() > 0);
    assert!(reply.text().ends_with("data: [DONE]\n\n"));
    let mut without = request(Format::Chat, "work");
    without["stream"] = json!(true);
    without.as_object_mut().unwrap().remove("stream_options");
    let events = endpoint.ask(Format::Chat, &without).await.events();
    assert!(events.iter().all(|event| event.get("usage").is_none()), "usage is sent only to whom asks for it");
}

#[tokio::test]
async fn several_calls_may_come_in_one_delta() {
    let endpoint = Endpoint::start().await;
    let events = stream(&endpoint, Format::Chat, "all at once").await.events();
    let calls: Vec<&Value> =
        events.iter().map(|event| &event["choices"][0]["delta"]["tool_calls"]).filter(|calls| calls.is_array()).collect();
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].as_array().unwrap().len(), 2);
    let events = stream(&endpoint, Format::Gemini, "all at once").await.events();
    let parts = events.last().unwrap()["candidates"][0]["content"]["parts"].as_array().unwrap();
    assert_eq!(parts.len(), 2);
    assert!(parts[0]["thoughtSignature"].is_string() && parts[1].get("thoughtSignature").is_none());
}

#[tokio::test]
async fn the_responses_stream_ends_with_what_a_whole_answer_would_be() {
    let endpoint = Endpoint::start().await;
    let events = stream(&endpoint, Format::Responses, "work").await.events();
    let last = events.last().unwrap();
    assert_eq!(last["type"], "response.completed");
    let whole = endpoint.ask(Format::Responses, &request(Format::Responses, "work")).await.json();
    assert_eq!(last["response"]["output"], whole["output"]);
    let done: Vec<&Value> =
        events.iter().filter(|event| event["type"] == "response.output_item.done").map(|event| &event["item"]).collect();
    assert_eq!(json!(done), whole["output"]);
    let of = |kind: &str| joined(&events.iter().filter(|event| event["type"] == kind).cloned().collect::<Vec<_>>(), "/delta");
    assert_eq!(of("response.reasoning_summary_text.delta"), "Hm, a Größe of 3 €.");
    assert_eq!(of("response.output_text.delta"), "I look into two: ä, 漢字.");
    assert_eq!(of("response.function_call_arguments.delta"), r#"{"path":"größe"}{"path":"b"}"#);
    let numbers: Vec<u64> = events.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>());
}

#[tokio::test]
async fn reasoning_is_sealed_only_for_who_asks() {
    let endpoint = Endpoint::start().await;
    let mut plain = request(Format::Responses, "work");
    plain["include"] = json!([]);
    assert!(endpoint.ask(Format::Responses, &plain).await.json()["output"][0].get("encrypted_content").is_none());
    let mut plain = request(Format::Messages, "work");
    plain.as_object_mut().unwrap().remove("thinking");
    assert_eq!(endpoint.ask(Format::Messages, &plain).await.json()["content"][0]["type"], "text");
}

#[tokio::test]
async fn anthropic_streams_thinking_its_signature_text_and_calls() {
    let endpoint = Endpoint::start().await;
    let events = stream(&endpoint, Format::Messages, "work").await.events();
    let whole = endpoint.ask(Format::Messages, &request(Format::Messages, "work")).await.json();
    assert_eq!(joined(&events, "/delta/thinking"), whole["content"][0]["thinking"].as_str().unwrap());
    assert_eq!(joined(&events, "/delta/signature"), whole["content"][0]["signature"].as_str().unwrap());
    assert_eq!(joined(&events, "/delta/text"), "I look into two: ä, 漢字.");
    assert_eq!(joined(&events, "/delta/partial_json"), r#"{"path":"größe"}{"path":"b"}"#);
    assert_eq!(joined(&events, "/delta/stop_reason"), "tool_use");
    let starts = events.iter().filter(|event| event["type"] == "content_block_start").map(|event| event["index"].as_u64().unwrap());
    assert_eq!(starts.collect::<Vec<_>>(), [0, 1, 2, 3]);
}

#[tokio::test]
async fn gemini_streams_thoughts_and_signs_the_first_call() {
    let endpoint = Endpoint::start().await;
    let events = stream(&endpoint, Format::Gemini, "work").await.events();
    let parts: Vec<Value> =
        events.iter().flat_map(|event| event["candidates"][0]["content"]["parts"].as_array().cloned().unwrap_or_default()).collect();
    let texts = |thought: bool| -> String {
        let texts = parts.iter().filter(|part| part["thought"].as_bool().unwrap_or_default() == thought);
        texts.filter_map(|part| part["text"].as_str()).collect()
    };
    assert_eq!((texts(true).as_str(), texts(false).as_str()), ("Hm, a Größe of 3 €.", "I look into two: ä, 漢字."));
    let calls: Vec<&Value> = parts.iter().filter(|part| !part["functionCall"].is_null()).collect();
    assert_eq!((calls.len(), calls[0]["thoughtSignature"].is_string()), (2, true));
    let list = endpoint
        .send("POST", "/v1beta/models/m:streamGenerateContent", &[], r#"{"contents":[{"parts":[{"text":"work"}]}]}"#.to_owned())
        .await;
    assert!(list.json().as_array().unwrap().len() > 2, "without alt=sse the stream is one list");
}

#[tokio::test]
async fn every_format_says_why_an_answer_ends() {
    let endpoint = Endpoint::start().await;
    let expected = [
        ("length", ["length", "max_output_tokens", "max_tokens", "MAX_TOKENS"]),
        ("refusal", ["stop", "", "refusal", "SAFETY"]),
        ("filter", ["content_filter", "content_filter", "refusal", "PROHIBITED_CONTENT"]),
    ];
    let pointers = ["/choices/0/finish_reason", "/incomplete_details/reason", "/stop_reason", "/candidates/0/finishReason"];
    let in_stream = ["/choices/0/finish_reason", "/response/incomplete_details/reason", "/delta/stop_reason", "/candidates/0/finishReason"];
    for (words, reasons) in expected {
        for (n, format) in ALL.into_iter().enumerate() {
            let whole = endpoint.ask(format, &request(format, words)).await.json();
            assert_eq!(whole.pointer(pointers[n]).and_then(Value::as_str).unwrap_or_default(), reasons[n], "{format:?} {words}: {whole}");
            assert_eq!(joined(&stream(&endpoint, format, words).await.events(), in_stream[n]), reasons[n], "{format:?} {words}, streamed");
        }
    }
    let refused = endpoint.ask(Format::Responses, &request(Format::Responses, "refusal")).await.json();
    assert_eq!(refused["output"][0]["content"][0], json!({"type": "refusal", "refusal": "I will not."}));
    let refused = endpoint.ask(Format::Chat, &request(Format::Chat, "refusal")).await.json();
    assert_eq!(refused["choices"][0]["message"]["refusal"], "I will not.");
}
