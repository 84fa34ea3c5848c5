//! Calls over HTTP and HTTPS.

use serde_json::json;
use tokio::net::TcpListener;
use yoi_wire::entry::{AnswerPart, Image, PromptToolResult, ToolCall};
use yoi_wire::manifest::ModelHeader;

use super::*;
use crate::model::test_server::{PING, Seen, respond, serve, status, stream_head};

const ANSWER: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Hello.\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":7}}\n\ndata: [DONE]\n\n";

fn hello() -> Vec<Option<String>> {
    vec![Some(stream_head() + ANSWER)]
}

fn endpoint(fields: serde_json::Value) -> ModelEndpoint {
    let mut all = json!({"provider": "OpenAI", "name": "m"});
    all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    serde_json::from_value(all).unwrap()
}

async fn call(client: &ModelClient, sink: DeltaSink) -> Result<Assistant, ModelFailure> {
    let config = AgentConfig { model: client.config(), ..AgentConfig::default() };
    let items = vec![PromptItem::User("hi".to_owned())];
    client.call(ModelRequest { config: Arc::new(config), items: Arc::new(items), offer_tools: true }, sink).await
}

async fn call_endpoint(fields: serde_json::Value) -> Result<Assistant, ModelFailure> {
    let client = ModelClient::new(&endpoint(fields), &ModelSecrets::default(), ModelTimeouts::default()).unwrap();
    call(&client, DeltaSink::none()).await
}

#[tokio::test]
async fn an_answer_comes_with_headers_and_key_and_shows_neither() {
    let (url, seen) = serve(vec![hello(), status("500 Oops", "", "sk-1 and tenant-secret")]).await;
    let mut endpoint = endpoint(json!({"baseUrl": url}));
    let header = |name: &str, value: Option<&str>, env: Option<&str>| ModelHeader {
        name: name.to_owned(),
        value: value.map(str::to_owned),
        value_env: env.map(str::to_owned),
    };
    endpoint.headers = vec![header("x-team", Some("blue"), None), header("x-tenant", None, Some("TENANT"))];
    let mut secrets = ModelSecrets::from(Some(ApiKey::new("sk-1".to_owned())));
    assert!(ModelClient::new(&endpoint, &secrets, ModelTimeouts::default()).is_err());
    secrets.headers.insert("TENANT".to_owned(), ApiKey::new("tenant-secret".to_owned()));
    let client = ModelClient::new(&endpoint, &secrets, ModelTimeouts::default()).unwrap();
    let sink = DeltaSink::none();
    let answer = call(&client, sink.clone()).await.unwrap();
    assert_eq!((answer.text.as_str(), answer.model.as_str(), answer.api.as_str()), ("Hello.", "m", "chatCompletions"));
    assert_eq!(sink.usage().unwrap().input_tokens, 7);
    let request = seen.lock().unwrap()[0].clone();
    assert!(request.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{request}");
    for header in ["authorization: Bearer sk-1\r\n", "x-team: blue\r\n", "x-tenant: tenant-secret\r\n"] {
        assert!(request.contains(header), "{request}");
    }
    let failure = call(&client, DeltaSink::none()).await.unwrap_err();
    assert!(failure.detail.ends_with("[key] and [header]"), "{failure:?}");
    assert!(!format!("{client:?}{secrets:?}").contains("sk-1"));
}

#[tokio::test]
async fn silence_ends_a_call_and_a_ping_is_a_sign_of_life() {
    let pings = (0..8).map(|_| Some(PING.to_owned()));
    let lively = std::iter::once(Some(stream_head())).chain(pings).chain([Some(ANSWER.to_owned())]).collect();
    let (url, _) = serve(vec![lively, vec![Some(stream_head() + ": ping\n\n"), None], vec![None]]).await;
    let endpoint = endpoint(json!({"baseUrl": url, "timeoutSeconds": 3}));
    let client = ModelClient::new(&endpoint, &ModelSecrets::default(), ModelTimeouts::default()).unwrap();
    assert_eq!(call(&client, DeltaSink::none()).await.unwrap().text, "Hello.");
    let failure = call(&client, DeltaSink::none()).await.unwrap_err();
    assert!(failure.summary.ends_with("nothing came for 3 s"), "{failure:?}");
    let failure = call(&client, DeltaSink::none()).await.unwrap_err();
    assert!(failure.summary.ends_with("did not begin to answer within 3 s"), "{failure:?}");
    assert_eq!(failure.class, ModelFailureClass::TryAgain { tries: None });
}

#[tokio::test]
async fn dropping_the_call_closes_the_connection_and_the_counted_tokens_stay_known() {
    let usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7}}\n\n";
    let (url, _) = serve(vec![vec![Some(stream_head() + usage), None], hello()]).await;
    let client = ModelClient::new(&endpoint(json!({"baseUrl": url})), &ModelSecrets::default(), ModelTimeouts::default()).unwrap();
    let sink = DeltaSink::none();
    let counted = async {
        while sink.usage().is_none() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        _ = call(&client, sink.clone()) => panic!("it has no end"),
        () = counted => {}
    }
    // The server takes the next connection only when this one is closed.
    assert_eq!(call(&client, DeltaSink::none()).await.unwrap().text, "Hello.");
    assert_eq!(sink.usage().unwrap().input_tokens, 7);
}

#[tokio::test]
async fn a_certificate_of_an_own_ca_is_trusted_only_when_it_is_named() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}/v1", listener.local_addr().unwrap().port());
    tokio::spawn(async move {
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(tls));
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            if let Ok(stream) = acceptor.accept(stream).await {
                respond(stream, hello(), &Seen::default()).await;
            }
        }
    });
    let failure = call_endpoint(json!({"baseUrl": url})).await.unwrap_err();
    assert!(failure.summary.contains("its certificate is not signed by a public CA"), "{failure:?}");
    let answer = call_endpoint(json!({"baseUrl": url, "ca": made.cert.pem()})).await;
    assert_eq!(answer.unwrap().text, "Hello.");
    let nonsense = endpoint(json!({"baseUrl": url, "ca": "no certificate"}));
    assert!(ModelClient::new(&nonsense, &ModelSecrets::default(), ModelTimeouts::default()).is_err());
}

#[tokio::test]
async fn requests_go_through_the_proxy_and_its_absence_is_told() {
    let (proxy, seen) = serve(vec![hello()]).await;
    let proxy = proxy.trim_end_matches("/v1").replace("//", "//user:hunter2@");
    let fields = json!({"baseUrl": "http://model.invalid/v1", "proxyUrl": proxy});
    assert_eq!(call_endpoint(fields).await.unwrap().text, "Hello.");
    let request = seen.lock().unwrap()[0].clone();
    assert!(request.starts_with("POST http://model.invalid/v1/chat/completions HTTP/1.1\r\n"), "{request}");
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let place = socket.local_addr().unwrap();
    let fields = json!({"baseUrl": "http://model.invalid/v1", "proxyUrl": format!("http://user:hunter2@{place}")});
    let failure = call_endpoint(fields).await.unwrap_err();
    assert!(failure.summary.starts_with(&format!("nobody listens at the proxy {place} of the model (connection refused)")), "{failure:?}");
    assert!(!failure.detail.contains("hunter2"));
}

#[tokio::test]
async fn a_redirect_elsewhere_does_not_take_the_key_with_it() {
    let (elsewhere, seen) = serve(vec![hello()]).await;
    let (url, _) = serve(vec![status("307 Temporary Redirect", &format!("location: {elsewhere}\r\n"), "")]).await;
    let failure = call_endpoint(json!({"baseUrl": url})).await.unwrap_err();
    assert!(failure.summary.ends_with("answered 307 Temporary Redirect; check the model's baseUrl"), "{failure:?}");
    assert!(seen.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_model_that_does_not_reason_is_asked_again_without_encrypted_reasoning() {
    let refusal = json!({"error": {"message": "Encrypted content is not supported with this model.", "type": "invalid_request_error", "param": "include"}});
    let completed = json!({"type": "response.completed", "response": {"status": "completed", "output": [{"type": "message", "content": [{"type": "output_text", "text": "Hello."}]}]}});
    let answer = || vec![Some(format!("{}data: {completed}\n\n", stream_head()))];
    let (url, seen) = serve(vec![status("400 Bad Request", "", &refusal.to_string()), answer(), answer()]).await;
    let client =
        ModelClient::new(&endpoint(json!({"baseUrl": url, "api": "Responses"})), &ModelSecrets::default(), ModelTimeouts::default())
            .unwrap();
    for _ in 0..2 {
        assert_eq!(call(&client, DeltaSink::none()).await.unwrap().text, "Hello.");
    }
    let asked: Vec<bool> = seen.lock().unwrap().iter().map(|request| request.contains("reasoning.encrypted_content")).collect();
    assert_eq!(asked, [true, false, false]);
}

fn chunked(body: &str) -> Vec<Option<String>> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    vec![Some(format!("{head}{:x}\r\n{body}\r\n0\r\n\r\n", body.len()))]
}

#[tokio::test]
async fn what_is_no_answer_is_a_failure_with_the_servers_own_words() {
    let cut = vec![Some(stream_head() + "data: {\"choices\":[{\"delta\":{\"content\":\"Hel\"}}]}\n\n")];
    let noise = vec![Some(stream_head() + "data: <noise>\n\n")];
    let too_long =
        "data: {\"choices\":null,\"error_type\":\"BadRequestError\",\"error_message\":\"maximum context length is 8192 tokens\"}\n\n";
    let unusable = ModelFailureClass::Unusable;
    for (pieces, class, summary, words) in [
        (cut, unusable, "broke its answer off: a finish_reason did not come", ""),
        (noise, unusable, "sent a stream that cannot be read", ""),
        (chunked("data: [DONE]\n\n"), unusable, "ended its answer without anything in it", ""),
        (status("200 OK", "", "<html>Log in</html>"), unusable, "no stream of a chat; check the model's baseUrl and provider", "Log in"),
        (status("200 OK", "", "{\"detail\":\"Not here\"}"), unusable, "no stream of a chat", "Not here"),
        (
            status("200 OK", "content-type: application/json\r\n", "{\"error\":{\"message\":\"out of order\",\"code\":503}}"),
            ModelFailureClass::TryAgain { tries: None },
            "reported an error in its answer",
            "out of order",
        ),
        (
            chunked(&(too_long.to_owned() + "data: [DONE]\n\n")),
            ModelFailureClass::History(HistoryFault::TooLong),
            "reported an error in its answer",
            "8192",
        ),
        (
            status("429 Too Many Requests", "retry-after: 7\r\n", "{}"),
            ModelFailureClass::TryAgain { tries: None },
            "answered 429 Too Many Requests; the agent waits and asks again",
            "",
        ),
    ] {
        let (url, _) = serve(vec![pieces]).await;
        let failure = call_endpoint(json!({"baseUrl": url})).await.unwrap_err();
        assert!(failure.summary.contains(summary) && failure.detail.contains(words) && failure.class == class, "{failure:?}");
        assert_eq!(failure.retry_after, summary.contains("429").then_some(Duration::from_secs(7)));
    }
}

#[tokio::test]
async fn an_answer_that_is_whole_is_taken_although_its_end_is_written_in_another_way() {
    let chat = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hello.\"}}]}\n\n";
    let anthropic = "data: {\"type\":\"content_block_start\",\"content_block\":{\"type\":\"text\",\"text\":\"Hello.\"}}\n\n\
                     data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":7}}";
    let message = json!({"type": "message", "stop_reason": "end_turn", "usage": {"input_tokens": 7},
        "content": [{"type": "text", "text": "Hello."}, {"type": "tool_use", "id": "a", "name": "Read", "input": {"x": 1}}]});
    let response = json!({"object": "response", "status": "completed", "error": null, "usage": {"input_tokens": 7}, "output": [
        {"type": "message", "content": [{"type": "output_text", "text": "Hello."}]},
        {"type": "function_call", "call_id": "a", "name": "Read", "arguments": "{\"x\":1}"}]});
    let completion = json!({"object": "chat.completion", "usage": {"prompt_tokens": 7}, "choices": [{"finish_reason": "tool_calls", "message": {
        "content": "Hello.", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "Read", "arguments": "{\"x\":1}"}}]}}]});
    let gemini = json!({"usageMetadata": {"promptTokenCount": 7}, "candidates": [{"finishReason": "STOP", "content": {"parts": [
        {"text": "Hello."}, {"functionCall": {"name": "Read", "args": {"x": 1}}}]}}]});
    let whole = |body: &serde_json::Value| status("200 OK", "content-type: application/json\r\n", &format!("\n{body}"));
    let (openai, responses) = (json!({}), json!({"api": "Responses"}));
    let (claude, google) = (json!({"provider": "Anthropic"}), json!({"provider": "Gemini"}));
    for (fields, pieces, calls) in [
        (&openai, chunked(&format!("{chat}data: [DONE]\n\n")), 0),
        (&openai, chunked(&format!("{chat}data:[DONE]")), 0),
        (&openai, vec![Some(stream_head() + chat + "data: [DONE]\n\n")], 0),
        (&openai, chunked("data: {\"choices\":[{\"delta\":{\"content\":\"Hello.\"},\"finish_reason\":\"stop\"}]}"), 0),
        (&claude, vec![Some(stream_head() + anthropic)], 0),
        (&openai, whole(&completion), 1),
        (&claude, whole(&message), 1),
        (&responses, whole(&response), 1),
        (&google, whole(&gemini), 1),
        (&google, whole(&json!([gemini])), 1),
    ] {
        let (url, _) = serve(vec![pieces.clone()]).await;
        let mut fields = fields.clone();
        fields["baseUrl"] = json!(url);
        let answer = call_endpoint(fields.clone()).await.unwrap_or_else(|failure| panic!("{fields}: {failure:?}"));
        assert_eq!((answer.text.as_str(), answer.tool_calls.len()), ("Hello.", calls), "{fields}");
        if let Some(call) = answer.tool_calls.first() {
            assert_eq!(
                (call.tool.as_str(), call.args.clone(), answer.usage.unwrap().input_tokens),
                ("Read", json!({"x": 1}), 7),
                "{fields}"
            );
        }
    }
}

#[tokio::test]
async fn an_endpoint_that_never_says_why_an_answer_ends_is_believed_the_second_time() {
    let text = "data: {\"choices\":[{\"delta\":{\"content\":\"Hello.\"}}]}\n\n";
    let call_cut = "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"Read\",\"arguments\":\"{\\\"x\"}}]}}]}\n\n";
    let (url, _) = serve(vec![chunked(call_cut), chunked(text), chunked(text), hello(), chunked(text), chunked(text)]).await;
    let client = ModelClient::new(&endpoint(json!({"baseUrl": url})), &ModelSecrets::default(), ModelTimeouts::default()).unwrap();
    let mut taken = Vec::new();
    for _ in 0..6 {
        taken.push(call(&client, DeltaSink::none()).await.is_ok());
    }
    // After an answer that says it, one that does not was cut.
    assert_eq!(taken, [false, false, true, true, false, false]);
}

/// A conversation with reasoning, three pictures, and a message after the results.
fn eventful(api: &str) -> Vec<PromptItem> {
    let call = |id: &str| ToolCall { call_id: id.to_owned(), tool: "Read".to_owned(), args: json!({}) };
    let reasoning = match api {
        "anthropic" => json!({"type": "thinking", "thinking": "former-thought", "signature": "s"}),
        _ => json!({"reasoning_content": "former-thought"}),
    };
    let answer = Assistant {
        text: "I look.".to_owned(),
        tool_calls: vec![call("a"), call("b"), call("c")],
        api: api.to_owned(),
        model: "m".to_owned(),
        parts: vec![AnswerPart::Opaque { value: reasoning }],
        ..Assistant::default()
    };
    let result = |id: &str| PromptToolResult {
        call_id: id.to_owned(),
        tool: "Read".to_owned(),
        output: "seen".to_owned(),
        failed: false,
        images: vec![Image { media_type: "image/png".to_owned(), data: format!("picture-{id}") }],
    };
    let results = ["a", "b", "c"].map(result).to_vec();
    let user = |text: &str| PromptItem::User(text.to_owned());
    vec![user("hi"), PromptItem::Assistant(Box::new(answer)), PromptItem::Results(results), user("and that")]
}

#[tokio::test]
async fn what_an_endpoint_refuses_is_left_out_once_and_for_later_requests() {
    let anthropic = |message: &str| json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}}).to_string();
    let openai = |message: &str| json!({"error": {"message": message, "type": "BadRequestError", "code": 400}}).to_string();
    let done = "data: {\"type\":\"content_block_start\",\"content_block\":{\"type\":\"text\",\"text\":\"Hello.\"}}\n\ndata: {\"type\":\"message_stop\"}\n\n";
    let pixels = anthropic("messages.2.content.0.image.source.base64.data: image dimensions exceed max allowed size: 8000 pixels");
    let signature = anthropic("messages.1.content.0: Invalid `signature` in `thinking` block");
    let (claude, chat) = (json!({"provider": "Anthropic"}), json!({}));
    for (fields, status_line, refusals, gone, kept, told) in [
        (&claude, "400 Bad Request", vec![pixels.clone(); 2], vec!["picture-c", "picture-b"], "picture-a", "the 2 latest pictures"),
        (
            &chat,
            "400 Bad Request",
            vec![openai("this model does not support image input")],
            vec!["picture-a", "picture-c"],
            "seen",
            "3 latest",
        ),
        // What is left out when the endpoint does not say what it refuses is more, and told in other words.
        (&claude, "400 Bad Request", vec![signature], vec!["former-thought"], "picture-a", "is not given back what it reasoned"),
        (
            &chat,
            "422 Unprocessable Entity",
            vec![openai("messages.1.assistant.reasoning_content: Extra inputs are not permitted")],
            vec!["former-thought"],
            "picture-a",
            "is not given back what it reasoned",
        ),
        (&chat, "500 Internal Server Error", vec![openai("Unexpected role 'user' after role 'tool'")], vec![], "Noted.", "roles alternate"),
        (
            &claude,
            "400 Bad Request",
            vec![anthropic("messages.2: this cannot be read")],
            vec!["former-thought", "picture-a", "picture-b", "picture-c"],
            "I look.",
            "neither the pictures so far",
        ),
    ] {
        let answer = || if *fields == claude { vec![Some(stream_head() + done)] } else { hello() };
        let refused = refusals.len();
        let answers = refusals.iter().map(|body| status(status_line, "", body)).chain([answer(), answer()]).collect();
        let (url, seen) = serve(answers).await;
        let mut fields = fields.clone();
        fields["baseUrl"] = json!(url);
        let client = ModelClient::new(&endpoint(fields), &ModelSecrets::default(), ModelTimeouts::default()).unwrap();
        let config = Arc::new(AgentConfig { model: client.config(), ..AgentConfig::default() });
        let items = Arc::new(eventful(&config.model.api));
        let mut changes = Vec::new();
        for _ in 0..2 {
            let sink = DeltaSink::none();
            let request = ModelRequest { config: config.clone(), items: items.clone(), offer_tools: true };
            assert_eq!(client.call(request, sink.clone()).await.unwrap().text, "Hello.", "{told}");
            changes.extend(sink.take_changes());
        }
        let sent = seen.lock().unwrap().clone();
        assert!(changes.len() == 1 && changes[0].contains(told), "{changes:?}");
        assert_eq!(sent.len(), refused + 2, "{told}");
        for request in &sent[refused..] {
            assert!(request.contains(kept) && gone.iter().all(|gone| !request.contains(gone)), "{request}");
        }
        assert!(gone.iter().all(|gone| sent[0].contains(gone)), "{}", sent[0]);
    }
}

#[tokio::test]
async fn a_fallback_answers_for_an_endpoint_whose_account_is_empty_and_says_so() {
    let (empty, _) = serve(vec![status("402 Payment Required", "", "{}")]).await;
    let (url, seen) = serve(vec![hello(), hello()]).await;
    let mut first = endpoint(json!({"baseUrl": empty, "name": "first"}));
    first.fallbacks = vec![endpoint(json!({"baseUrl": url, "name": "second", "effort": "low"}))];
    let models = FallbackModels::new(&first, &[], ModelTimeouts::default()).unwrap();
    let config = AgentConfig { model: models.config(), ..AgentConfig::default() };
    let items = Arc::new(vec![PromptItem::User("hi".to_owned())]);
    let request = ModelRequest { config: Arc::new(config), items, offer_tools: true };
    for _ in 0..2 {
        let answer = match models.call(request.clone(), DeltaSink::none()).await {
            Err(FailedTry { ask_next: true, .. }) => models.call(request.clone(), DeltaSink::none()).await,
            answer => answer,
        };
        assert_eq!(answer.unwrap().model, "second");
    }
    let sent = seen.lock().unwrap().join("\n");
    assert!(sent.contains("\"model\":\"second\"") && sent.contains("\"reasoning_effort\":\"low\"") && !sent.contains("first"), "{sent}");
}
