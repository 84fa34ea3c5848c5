//! What chat completions refuse.

use super::*;

/// The request after the two tools have answered.
async fn second_request(endpoint: &Endpoint, model: &str) -> Value {
    let tool = json!({"type": "function", "function": {"name": "Read", "description": "d", "parameters": {"type": "object"}}});
    let mut request =
        json!({"model": model, "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "work"}], "tools": [tool]});
    let message = endpoint.ask(Format::Chat, &request).await.json()["choices"][0]["message"].clone();
    let mut assistant = json!({"role": "assistant", "content": message["content"], "tool_calls": message["tool_calls"]});
    if model == "deepseek-reasoner" {
        assistant["reasoning_content"] = message["reasoning_content"].clone();
    }
    let messages = request["messages"].as_array_mut().unwrap();
    let results = message["tool_calls"].as_array().unwrap().iter();
    let results: Vec<Value> = results.map(|call| json!({"role": "tool", "tool_call_id": call["id"], "content": ""})).collect();
    messages.push(assistant);
    messages.extend(results);
    request
}

const ORDER: &str = "roles alternate, where the model's template demands it";
const PICTURE: &str = "a model of text is shown no picture";

fn common() -> Vec<Case> {
    vec![
        case("a request names its model", "you must provide a model parameter", |r| r["model"] = json!("")),
        case("a request has messages", "empty array", |r| r["messages"] = json!([])),
        case("content is null only beside calls", "expected a string, got null", |r| r["messages"][1]["content"] = Value::Null),
        case("the prompt fits the window", "maximum context length is 50 tokens", |r| r["model"] = json!("small")),
        case("a list of calls is not empty", "Invalid 'messages[2].tool_calls': empty array", |r| {
            r["messages"][2]["tool_calls"] = json!([]);
        }),
        case("a result follows its call", "must be a response to a preceeding message", |r| {
            r["messages"][3]["tool_call_id"] = json!("other");
        }),
        case("each call has a result before the next message", "did not have response messages: call-", |r| {
            r["messages"].as_array_mut().unwrap().pop();
        }),
        case("a tool's name is made of letters, digits, _ and -", "Invalid 'tools[0].function.name': string does not match", |r| {
            r["tools"][0]["function"]["name"] = json!("a.b");
        }),
        case("a tool's name is made of letters, digits, _ and -", "messages[2].tool_calls[1].function.name", |r| {
            r["messages"][2]["tool_calls"][1]["function"]["name"] = json!("no such tool");
        }),
        case("a call's id has at most 40 characters", "maximum length 40, but got a string with length 41", |r| {
            r["messages"][2]["tool_calls"][0]["id"] = json!("x".repeat(41));
            r["messages"][3]["tool_call_id"] = json!("x".repeat(41));
        }),
        case("there are at most 128 tools", "array too long", |r| r["tools"] = json!(vec![r["tools"][0].clone(); 129])),
        case_of(500, ORDER, "Unexpected role 'user' after role 'tool'", |r| {
            r["model"] = json!("ordered");
            r["messages"].as_array_mut().unwrap().push(json!({"role": "user", "content": "more"}));
        }),
        case(PICTURE, "this model does not support image input", |r| {
            r["model"] = json!("blind");
            let picture = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}});
            r["messages"][1]["content"] = json!([{"type": "text", "text": "work"}, picture]);
        }),
    ]
}

#[tokio::test]
async fn openais_chat_completions_refuse_what_breaks_a_rule() {
    let endpoint = Endpoint::start().await;
    let good = second_request(&endpoint, "scripted").await;
    let mut cases = common();
    cases.extend([
        case("a request has only fields of the API", "Unrecognized request argument supplied: thinking", |r| r["thinking"] = json!({})),
        case("a message's role is known", "Invalid value: 'person'", |r| r["messages"][1]["role"] = json!("person")),
        case("a content is shorter than 10 MiB", "string too long", |r| r["messages"][1]["content"] = json!("work ".repeat(2_097_153))),
        case("a reasoning model takes no tools unless its effort is none", "To use function tools, use /v1/responses", |r| {
            r["model"] = json!("gpt-5.6");
        }),
        case("a reasoning model takes no tools unless its effort is none", "are not supported for gpt-5.4 in", |r| {
            r["model"] = json!("gpt-5.4");
            r["reasoning_effort"] = json!("low");
        }),
        case("only a reasoning model has an effort", "supplied: reasoning_effort", |r| r["reasoning_effort"] = json!("low")),
        case("a reasoning model is limited by max_completion_tokens", "Use 'max_completion_tokens' instead", |r| {
            r["model"] = json!("gpt-5.4");
            r["max_tokens"] = json!(100);
        }),
    ]);
    let broken = check_refusals(&endpoint, Format::Chat, &good, "/error/message", &cases).await;
    check_all_rules(&endpoint, "Chat", "OpenAI", &broken).await;
    for allowed in [json!({"model": "gpt-5.6", "reasoning_effort": "none"}), json!({"model": "gpt-5.4", "max_completion_tokens": 9})] {
        let mut request = good.clone();
        request.as_object_mut().unwrap().extend(allowed.as_object().unwrap().clone());
        let reply = endpoint.ask(Format::Chat, &request).await;
        assert_eq!(reply.status, 200, "{allowed}: {}", reply.text());
    }
}

#[tokio::test]
async fn deepseek_demands_its_reasoning_back_within_a_turn() {
    let endpoint = Endpoint::start().await;
    let good = second_request(&endpoint, "deepseek-reasoner").await;
    let mut cases = common();
    cases.retain(|case| case.rule != "the prompt fits the window");
    cases.extend([
        case("the prompt fits the window", "However, you requested", |r| r["model"] = json!("small-deepseek")),
        case_of(422, "a message's role is one of four", "unknown variant `developer`", |r| r["messages"][0]["role"] = json!("developer")),
        case("reasoning_content is given back with the calls of the current turn", "at message index 2", |r| {
            r["messages"][2].as_object_mut().unwrap().remove("reasoning_content");
        }),
    ]);
    let broken = check_refusals(&endpoint, Format::Chat, &good, "/error/message", &cases).await;
    check_all_rules(&endpoint, "Chat", "DeepSeek", &broken).await;
    // In a later turn, the earlier reasoning may be left out.
    let mut later = good;
    later["messages"][2].as_object_mut().unwrap().remove("reasoning_content");
    later["messages"].as_array_mut().unwrap().push(json!({"role": "user", "content": "more work"}));
    assert_eq!(endpoint.ask(Format::Chat, &later).await.status, 200);
}

#[tokio::test]
async fn geminis_compatible_endpoint_demands_its_signatures_back() {
    let endpoint = Endpoint::start().await;
    let good = second_request(&endpoint, "gemini-compatible").await;
    let mut cases = common();
    // Another model, another endpoint: whose error is not in a list.
    let of_another = ["the prompt fits the window", "a request names its model", ORDER, PICTURE];
    cases.retain(|case| !of_another.contains(&case.rule));
    cases.push(case("the first call of each step of the current turn has its thought signature", "default_api:Read` , position 2", |r| {
        r["messages"][2]["tool_calls"][0].as_object_mut().unwrap().remove("extra_content");
    }));
    let mut broken = check_refusals(&endpoint, Format::Chat, &good, "/0/error/message", &cases).await;
    broken.extend(of_another.map(str::to_owned));
    check_all_rules(&endpoint, "Chat", "Gemini", &broken).await;
}

#[tokio::test]
async fn a_strict_compatible_server_refuses_what_it_does_not_know() {
    let endpoint = Endpoint::start().await;
    let good = second_request(&endpoint, "strict-server").await;
    let mut cases = common();
    cases.extend([
        case_of(422, "a message's role is one of four", "unknown variant `developer`", |r| r["messages"][0]["role"] = json!("developer")),
        case_of(422, "a request has only fields that every server knows", "\"prompt_cache_key\"", |r| r["prompt_cache_key"] = json!("x")),
        case_of(422, "a message carries no reasoning_content", "extra_forbidden", |r| r["messages"][2]["reasoning_content"] = json!("x")),
        case_of(500, "a call's arguments are JSON", "Failed to parse tool call arguments", |r| {
            r["messages"][2]["tool_calls"][0]["function"]["arguments"] = json!("{\"path\": ");
        }),
    ]);
    let broken = check_refusals(&endpoint, Format::Chat, &good, "/error/message", &cases).await;
    check_all_rules(&endpoint, "Chat", "Plain", &broken).await;
}
