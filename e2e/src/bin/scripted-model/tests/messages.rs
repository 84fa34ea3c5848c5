//! What Anthropic refuses.

use super::*;

/// The request after the two tools have answered.
async fn second_request(endpoint: &Endpoint) -> Value {
    let marked = json!({"type": "ephemeral"});
    let mut request = json!({
        "model": "scripted", "max_tokens": 4096, "thinking": {"type": "enabled", "budget_tokens": 1024},
        "system": [{"type": "text", "text": "s", "cache_control": marked}],
        "tools": [{"name": "Read", "input_schema": {"type": "object"}, "cache_control": marked}],
        "messages": [{"role": "user", "content": "work"}],
    });
    let content = endpoint.ask(Format::Messages, &request).await.json()["content"].clone();
    let results = content.as_array().unwrap().iter().filter(|block| block["type"] == "tool_use");
    let results = results.map(|call| json!({"type": "tool_result", "tool_use_id": call["id"], "content": "", "is_error": true}));
    let results: Vec<Value> = results.chain([json!({"type": "text", "text": "and go on", "cache_control": marked})]).collect();
    let messages = request["messages"].as_array_mut().unwrap();
    messages.extend([json!({"role": "assistant", "content": content}), json!({"role": "user", "content": results})]);
    request
}

fn content(request: &mut Value, at: usize) -> &mut Vec<Value> {
    request["messages"][at]["content"].as_array_mut().unwrap()
}

fn of_the_request() -> Vec<Case> {
    vec![
        case("the version of the API is named", "anthropic-version", |r| r["noVersion"] = json!(true)),
        case("model, max_tokens and messages are given", "max_tokens: Field required", |r| r["max_tokens"] = Value::Null),
        case("a request has only fields of the API", "reasoning: Extra inputs", |r| r["reasoning"] = json!({})),
        case("a message's role is user or assistant", "Unexpected role \"system\"", |r| r["messages"][0]["role"] = json!("system")),
        case("a tool's name is made of letters, digits, _ and -", "tools.0.custom.name", |r| r["tools"][0]["name"] = json!("a b")),
        case("no two tools have one name", "must be unique", |r| r["tools"] = json!([r["tools"][0], r["tools"][0]])),
        case("a tool has a schema of an object", "input_schema.type", |r| r["tools"][0]["input_schema"] = json!({})),
        case("max_tokens exceeds the thinking budget, which is at least 1024", "greater than or equal to 1024", |r| {
            r["thinking"]["budget_tokens"] = json!(1023);
        }),
        case("max_tokens exceeds the thinking budget, which is at least 1024", "must be greater than", |r| {
            r["thinking"]["budget_tokens"] = json!(4096);
        }),
        case("thinking goes with temperature 1 and no forced tool", "may only be set to 1", |r| r["temperature"] = json!(0.5)),
        case("max_tokens is within the model's", "4096 > 100", |r| r["model"] = json!("limited")),
        case("prompt and max_tokens fit the window", "prompt is too long", |r| r["model"] = json!("small")),
        case("there are at most 4 marks for the cache", "Found 5", |r| {
            let marked = json!({"type": "ephemeral"});
            let blocks = content(r, 2);
            blocks[0]["cache_control"] = marked.clone();
            blocks[1]["cache_control"] = marked;
        }),
    ]
}

fn of_the_contents() -> Vec<Case> {
    vec![
        case("every message but the last has content", "messages.0: all messages must have non-empty content", |r| {
            r["messages"][0]["content"] = json!("");
        }),
        case("text is not empty", "messages: text content blocks must be non-empty", |r| {
            content(r, 1).insert(1, json!({"type": "text", "text": ""}));
        }),
        case("text is not empty", "cache_control cannot be set for empty text blocks", |r| {
            content(r, 2)[2]["text"] = json!("");
        }),
        case("text is not blank", "must contain non-whitespace text", |r| content(r, 1)[1]["text"] = json!(" \n")),
        case("the conversation ends with a user message", "does not support assistant message prefill", |r| {
            r["messages"].as_array_mut().unwrap().push(json!({"role": "assistant", "content": "So"}));
        }),
        case("the assistant's last text does not end with white space", "cannot end with trailing whitespace", |r| {
            r["model"] = json!("prefilled");
            r["messages"].as_array_mut().unwrap().push(json!({"role": "assistant", "content": "So "}));
        }),
        case("a block has only fields of the API", "messages.1.content.0.thinking.cache_control: Extra inputs", |r| {
            content(r, 1)[0]["cache_control"] = json!({"type": "ephemeral"});
        }),
        case("a call's id is made of letters, digits, _ and -", "'^[a-zA-Z0-9_-]+$'", |r| content(r, 1)[2]["id"] = json!("a.b")),
        case("the name in a call has 1 to 200 characters", "at most 200 characters", |r| {
            content(r, 1)[2]["name"] = json!("x".repeat(201));
        }),
        case("a call's input is an object", "Input should be a valid dictionary", |r| content(r, 1)[2]["input"] = json!("{}")),
        case("no two calls have one id", "ids must be unique", |r| content(r, 1)[3]["id"] = r["messages"][1]["content"][2]["id"].clone()),
        case("a call's results are the first blocks of the next message", "immediately after: call-", |r| {
            content(r, 2).insert(0, json!({"type": "text", "text": "first"}));
        }),
        case("a call's results are the first blocks of the next message", "immediately after: call-", |r| {
            content(r, 2).remove(1);
        }),
        case("a result follows its call in the message before", "unexpected `tool_use_id` found", |r| {
            content(r, 2).push(json!({"type": "tool_result", "tool_use_id": "other", "content": "x"}));
        }),
        case("a call has one result", "each tool_use must have a single result", |r| {
            let again = content(r, 2)[0].clone();
            content(r, 2).push(again);
        }),
        case("a thinking block has a signature", "thinking.signature: Field required", |r| {
            content(r, 1)[0].as_object_mut().unwrap().remove("signature");
        }),
        case("thinking is given back unaltered", "messages.1.content.0: Invalid `signature` in `thinking` block", |r| {
            content(r, 1)[0]["thinking"] = json!("Hm.");
        }),
        case("with thinking on, the turn that calls tools begins with a thinking block", "but found `text`", |r| {
            content(r, 1).remove(0);
        }),
    ]
}

#[tokio::test]
async fn anthropic_refuses_what_breaks_a_rule() {
    let endpoint = Endpoint::start().await;
    let good = second_request(&endpoint).await;
    let cases: Vec<Case> = of_the_request().into_iter().chain(of_the_contents()).collect();
    let broken = check_refusals(&endpoint, Format::Messages, &good, "/error/message", &cases).await;
    check_all_rules(&endpoint, "Messages", "Anthropic", &broken).await;
}

#[tokio::test]
async fn thinking_may_be_left_out_where_the_request_does_not_think() {
    let endpoint = Endpoint::start().await;
    let mut request = second_request(&endpoint).await;
    content(&mut request, 1).remove(0);
    request.as_object_mut().unwrap().remove("thinking");
    assert_eq!(endpoint.ask(Format::Messages, &request).await.status, 200);
}

#[tokio::test]
async fn an_answer_that_paused_is_sent_back_as_it_is() {
    let endpoint = Endpoint::start().await;
    let mut request = json!({"model": "scripted", "max_tokens": 100, "messages": [{"role": "user", "content": "pause"}]});
    let paused = endpoint.ask(Format::Messages, &request).await.json();
    assert_eq!(paused["stop_reason"], "pause_turn");
    request["messages"].as_array_mut().unwrap().push(json!({"role": "assistant", "content": paused["content"]}));
    assert_eq!(endpoint.ask(Format::Messages, &request).await.json()["content"][0]["text"], "Found.");
}

#[tokio::test]
async fn a_request_that_is_too_large_is_refused_as_such() {
    let endpoint = Endpoint::start().await;
    let request = json!({"model": "limited", "max_tokens": 10, "messages": [{"role": "user", "content": "work ".repeat(4000)}]});
    let reply = endpoint.ask(Format::Messages, &request).await;
    assert_eq!((reply.status, &reply.json()["error"]["type"]), (413, &json!("request_too_large")));
}

#[tokio::test]
async fn a_field_of_a_beta_is_taken_with_the_name_of_that_beta_and_refused_without() {
    let endpoint = Endpoint::start().await;
    let mut body = second_request(&endpoint).await;
    body["context_management"] = json!({"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]});
    for (beta, status) in [("claude-code-20250219,context-management-2025-06-27", 200), ("claude-code-20250219", 400)] {
        let headers = [("anthropic-version", "2023-06-01"), ("anthropic-beta", beta)];
        assert_eq!(endpoint.send("POST", "/v1/messages", &headers, body.to_string()).await.status, status, "{beta}");
    }
}
