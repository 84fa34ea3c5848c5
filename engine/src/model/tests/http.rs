//! A server over HTTP and HTTPS, of which each test says what it writes.

use std::sync::Mutex;

use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use yoi_wire::manifest::ModelHeader;

use super::*;

const ANSWER: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Hello.\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":7}}\n\ndata: [DONE]\n\n";

const PING: &str = ": ping\n\n";
/// Time that a server lets pass before a ping. All pings of a test together take longer than the client waits in silence.
const PING_INTERVAL: Duration = Duration::from_millis(500);

type Seen = Arc<Mutex<Vec<String>>>;

fn stream_head() -> String {
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n".to_owned()
}

fn status(status: &str, headers: &str, body: &str) -> Vec<Option<String>> {
    vec![Some(format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len()))]
}

fn hello() -> Vec<Option<String>> {
    vec![Some(stream_head() + ANSWER)]
}

/// Writes what is given, then closes. `None` writes nothing more until the client goes.
async fn respond(mut stream: impl AsyncRead + AsyncWrite + Unpin, pieces: Vec<Option<String>>, seen: &Seen) {
    let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let Ok(count @ 1..) = stream.read(&mut buffer).await else { return };
        request.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&request).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok()).unwrap_or_default();
        if body.len() >= length {
            seen.lock().unwrap().push(text);
            break;
        }
    }
    for piece in pieces {
        match piece {
            Some(piece) => {
                if piece == PING {
                    tokio::time::sleep(PING_INTERVAL).await;
                }
                let _ = stream.write_all(piece.as_bytes()).await;
                let _ = stream.flush().await;
            }
            // The client closes the connection, which ends the read.
            None => while matches!(stream.read(&mut buffer).await, Ok(1..)) {},
        }
    }
    let _ = stream.shutdown().await;
}

/// Serves one connection after another, each with the next of these answers.
async fn serve(answers: Vec<Vec<Option<String>>>) -> (String, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = listener.local_addr().unwrap();
    let seen = Seen::default();
    let requests = seen.clone();
    tokio::spawn(async move {
        for pieces in answers {
            let (stream, _) = listener.accept().await.unwrap();
            respond(stream, pieces, &requests).await;
        }
    });
    (format!("http://{place}/v1"), seen)
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
    assert!(failure.summary.ends_with("answered 307 Temporary Redirect; check spec.model.baseUrl"), "{failure:?}");
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

#[tokio::test]
async fn an_answer_that_is_cut_empty_or_no_stream_is_a_failure() {
    let cut = vec![Some(stream_head() + "data: {\"choices\":[{\"delta\":{\"content\":\"Hel\"}}]}\n\n")];
    let empty = vec![Some(stream_head() + "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n")];
    let noise = vec![Some(stream_head() + "data: <noise>\n\n")];
    for (pieces, words) in [
        (cut, "broke its answer off"),
        (empty, "neither a word nor a tool call"),
        (noise, "sent a stream that cannot be read"),
        (status("200 OK", "", "<html>"), "no stream of a chat; check spec.model.baseUrl and provider"),
        (status("429 Too Many Requests", "retry-after: 7\r\n", "{}"), "answered 429 Too Many Requests; the agent waits and asks again"),
    ] {
        let (url, _) = serve(vec![pieces]).await;
        let failure = call_endpoint(json!({"baseUrl": url})).await.unwrap_err();
        assert!(failure.summary.contains(words), "{failure:?}");
        assert_eq!(failure.retry_after, words.contains("429").then_some(Duration::from_secs(7)));
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
        assert_eq!(models.call(request.clone(), DeltaSink::none()).await.unwrap().model, "second");
    }
    let sent = seen.lock().unwrap().join("\n");
    assert!(sent.contains("\"model\":\"second\"") && sent.contains("\"reasoning_effort\":\"low\"") && !sent.contains("first"), "{sent}");
}
