//! Endpoints that cannot serve.

use super::streams::request;
use super::*;

async fn failed(endpoint: &Endpoint, format: Format, words: &str) -> Reply {
    endpoint.ask(format, &request(format, words)).await
}

#[tokio::test]
async fn a_rate_limit_says_when_to_come_back_and_then_it_is_over() {
    let endpoint = Endpoint::start().await;
    let chat = failed(&endpoint, Format::Chat, "rate").await;
    assert_eq!((chat.status, chat.headers["retry-after"].to_str().unwrap()), (429, "7"));
    assert_eq!(chat.json()["error"]["code"], "rate_limit_exceeded");
    assert_eq!(failed(&endpoint, Format::Chat, "rate").await.status, 200);
    let anthropic = failed(&Endpoint::start().await, Format::Messages, "rate").await;
    assert_eq!((anthropic.status, &anthropic.json()["error"]["type"]), (429, &json!("rate_limit_error")));
    let gemini = failed(&Endpoint::start().await, Format::Gemini, "rate").await;
    assert!(!gemini.headers.contains_key("retry-after"), "Gemini says it in the body");
    assert_eq!(gemini.json()["error"]["details"][0]["retryDelay"], "7s");
    assert_eq!(gemini.json()["error"]["status"], "RESOURCE_EXHAUSTED");
}

#[tokio::test]
async fn an_empty_account_is_told_in_the_makers_words() {
    let endpoint = Endpoint::start().await;
    let chat = failed(&endpoint, Format::Responses, "quota").await;
    assert_eq!((chat.status, &chat.json()["error"]["code"]), (429, &json!("insufficient_quota")));
    let endpoint = Endpoint::start().await;
    let anthropic = failed(&endpoint, Format::Messages, "quota").await;
    assert_eq!((anthropic.status, &anthropic.json()["error"]["type"]), (400, &json!("invalid_request_error")));
    assert!(anthropic.text().contains("Your credit balance is too low"));
    let deepseek = json!({"model": "deepseek-reasoner", "messages": [{"role": "user", "content": "quota"}]});
    let deepseek = Endpoint::start().await.ask(Format::Chat, &deepseek).await;
    assert_eq!((deepseek.status, &deepseek.json()["error"]["message"]), (402, &json!("Insufficient Balance")));
}

#[tokio::test]
async fn an_overloaded_endpoint_has_its_own_status() {
    for (format, status) in [(Format::Chat, 503), (Format::Responses, 503), (Format::Messages, 529), (Format::Gemini, 503)] {
        assert_eq!(failed(&Endpoint::start().await, format, "overload").await.status, status, "{format:?}");
    }
}

#[tokio::test]
async fn an_endpoint_may_fail_within_a_stream() {
    for format in [Format::Chat, Format::Responses, Format::Messages, Format::Gemini] {
        let mut request = request(format, "fail within");
        request["stream"] = json!(true);
        let events = Endpoint::start().await.ask(format, &request).await.events();
        let last = events.last().unwrap().to_string();
        assert!(events.len() > 1 && last.to_lowercase().contains("overloaded"), "{format:?}: {last}");
    }
}

#[tokio::test]
async fn a_slow_answer_gives_signs_of_life() {
    let endpoint = Endpoint::start().await;
    for (format, sign) in [(Format::Messages, "event: ping"), (Format::Chat, ": keep-alive")] {
        let mut request = request(format, "slow");
        request["stream"] = json!(true);
        let reply = endpoint.ask(format, &request).await;
        assert!(reply.text().matches(sign).count() >= 5, "{format:?}");
        assert!(reply.text().replace('"', "").contains("At last."), "{format:?}");
    }
}

#[tokio::test]
async fn a_model_that_the_script_does_not_name_is_not_found() {
    let script = "models: [{name: only}]\nrules: [{steps: [{text: x}]}]";
    for (format, kind) in [(Format::Chat, "/error/code"), (Format::Messages, "/error/type"), (Format::Gemini, "/error/status")] {
        let endpoint = Endpoint::with(script, None).await;
        let mut request = request(format, "x");
        request["model"] = json!("other");
        let reply = endpoint.ask(format, &request).await;
        let body = reply.json();
        assert_eq!(reply.status, 404);
        assert!(body.pointer(kind).unwrap().as_str().unwrap().to_lowercase().contains("not_found"), "{body}");
    }
}

#[tokio::test]
async fn a_request_that_the_script_does_not_cover_is_refused_with_a_sentence() {
    let endpoint = Endpoint::start().await;
    let reply = failed(&endpoint, Format::Responses, "something else").await;
    assert_eq!(reply.status, 400);
    assert!(reply.text().contains("no rule of the script matches"));
}

#[tokio::test]
async fn a_response_may_be_written_down_as_it_is() {
    let endpoint = Endpoint::start().await;
    let reply = failed(&endpoint, Format::Chat, "as it is").await;
    assert_eq!((reply.status, reply.text().as_str()), (418, r#"{"error":"teapot"}"#));
    let reply = failed(&endpoint, Format::Chat, "these events").await;
    assert_eq!((reply.status, reply.text().as_str()), (200, "data: {\"choices\":null}\n\ndata: [DONE]\n\n"));
    assert_eq!(failed(&endpoint, Format::Chat, "as it is").await.status, 200);
}

#[tokio::test]
async fn a_model_may_refuse_an_order_of_roles_or_pictures() {
    let endpoint = Endpoint::start().await;
    let ask = async |model: &str, messages: Value| endpoint.ask(Format::Chat, &json!({"model": model, "messages": messages})).await;
    let user = |text: &str| json!({"role": "user", "content": text});
    let call = json!({"role": "assistant", "content": "", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "Read", "arguments": "{}"}}]});
    let result = json!({"role": "tool", "tool_call_id": "a", "content": "out"});
    for messages in [json!([user("work"), user("work")]), json!([user("work"), call, result, user("work")])] {
        let reply = ask("ordered", messages.clone()).await;
        assert!(reply.status == 500 && reply.text().contains("role"), "{}", reply.text());
        assert_eq!(ask("gpt-4", messages).await.status, 200);
    }
    let noted = json!({"role": "assistant", "content": "Noted."});
    assert_eq!(ask("ordered", json!([user("work"), call, result, noted, user("work")])).await.status, 200);
    let picture = json!([{"role": "user", "content": [{"type": "text", "text": "work"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}]);
    assert_eq!((ask("blind", picture.clone()).await.status, ask("gpt-4", picture).await.status), (400, 200));
}
