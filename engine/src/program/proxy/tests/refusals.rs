use super::*;

/// The fields of an error that the clients of a format look at: its kind and its message.
fn error_of(format: WireFormat, text: &str) -> (String, String) {
    let body: Value = serde_json::from_str(text).unwrap();
    let error = &body["error"];
    let kind = match format {
        WireFormat::Anthropic => {
            assert_eq!(body["type"], "error");
            &error["type"]
        }
        WireFormat::Responses | WireFormat::ChatCompletions => &error["code"],
        WireFormat::Gemini => &error["status"],
    };
    (kind.as_str().unwrap().to_owned(), error["message"].as_str().unwrap().to_owned())
}

async fn never_asked(format: WireFormat) -> Setup {
    Setup::start(format, |_, request| async move { panic!("the endpoint was asked: {request}") }).await
}

#[tokio::test]
async fn without_the_runs_token_nothing_is_passed_on() {
    for format in FORMATS {
        let setup = never_asked(format).await;
        let url = setup.proxy.base_url() + setup.path();
        let post = || client().post(&url).body("{}");
        let other = setup.proxy.allow("token-of-another-run", setup.usage.clone());
        drop(other);
        let requests = [
            post(),
            post().bearer_auth("wrong"),
            post().bearer_auth(""),
            post().header("x-api-key", KEY),
            post().header("authorization", format!("Basic {TOKEN}")),
            post().header("cookie", TOKEN),
            post().bearer_auth("token-of-another-run"),
            client().get(format!("{}/anything?key=wrong", setup.proxy.base_url())),
        ];
        for request in requests {
            let response = request.send().await.unwrap();
            assert_eq!(response.status(), 401);
            let kind = if format == WireFormat::Gemini { "UNAUTHENTICATED" } else { "authentication_error" };
            assert_eq!(error_of(format, &response.text().await.unwrap()).0, kind);
        }
    }
}

#[tokio::test]
async fn the_token_is_taken_from_every_place_where_a_program_puts_its_key() {
    let (setup, seen) = Setup::writing(WireFormat::Gemini, whole("200 OK", "", "{}")).await;
    let url = format!("{}/v1beta/models/g:generateContent", setup.proxy.base_url());
    let requests = [
        client().post(&url).bearer_auth(TOKEN),
        client().post(&url).header("authorization", format!("bearer {TOKEN}")),
        client().post(&url).header("x-api-key", TOKEN),
        client().post(&url).header("x-goog-api-key", TOKEN),
        client().post(format!("{url}?key={TOKEN}")),
    ];
    let all = requests.len();
    for request in requests {
        assert_eq!(request.body("{}").send().await.unwrap().status(), 200);
    }
    assert_eq!(seen.lock().unwrap().len(), all);
}

#[tokio::test]
async fn what_is_not_of_the_endpoints_format_is_not_there() {
    for format in FORMATS {
        let setup = never_asked(format).await;
        let others = FORMATS.into_iter().filter(|other| *other != format).map(|other| match other {
            WireFormat::Anthropic => "/v1/messages",
            WireFormat::Responses => "/v1/responses",
            WireFormat::ChatCompletions => "/v1/chat/completions",
            WireFormat::Gemini => "/v1beta/models/g:generateContent",
        });
        for path in others.chain(["/", "/v1/files", "/v1/organizations", "/metrics"]) {
            let response = client().post(setup.proxy.base_url() + path).bearer_auth(TOKEN).body("{}").send().await.unwrap();
            assert_eq!(response.status(), 404, "{format:?} {path}");
            let (kind, message) = error_of(format, &response.text().await.unwrap());
            assert!(kind.eq_ignore_ascii_case("not_found") || kind == "not_found_error");
            assert!(message.contains(path) && message.contains(format.name()), "{message}");
        }
    }
}

#[tokio::test]
async fn a_proxys_form_of_request_reaches_no_other_host() {
    let setup = never_asked(WireFormat::Responses).await;
    let address = setup.proxy.base_url().replace("http://", "");
    for line in ["CONNECT elsewhere.invalid:443 HTTP/1.1", "GET http://elsewhere.invalid/v1/files HTTP/1.1"] {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        let request = format!("{line}\r\nhost: elsewhere.invalid\r\nauthorization: Bearer {TOKEN}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        assert!(text.starts_with("HTTP/1.1 404"), "{text}");
    }
}

#[tokio::test]
async fn a_request_that_is_too_large_is_refused_whether_its_length_is_told_or_not() {
    for format in FORMATS {
        let setup = never_asked(format).await;
        let piece = bytes::Bytes::from(vec![b'x'; 1 << 20]);
        let pieces = futures::stream::iter((0..33).map(move |_| Ok::<_, std::io::Error>(piece.clone())));
        let told = setup.request(vec![b'x'; (32 << 20) + 1]);
        let untold = setup.request(reqwest::Body::wrap_stream(pieces));
        for request in [told, untold] {
            let response = request.send().await.unwrap();
            assert_eq!(response.status(), 413);
            assert!(error_of(format, &response.text().await.unwrap()).1.contains("32 MiB"));
        }
    }
}

#[tokio::test]
async fn without_tokens_left_the_model_is_not_asked_and_what_is_free_still_is() {
    for format in FORMATS {
        let setup = never_asked(format).await;
        setup.usage.used_up.store(true, Ordering::SeqCst);
        let response = setup.request("{}").send().await.unwrap();
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers()["x-should-retry"], "false");
        let (kind, message) = error_of(format, &response.text().await.unwrap());
        assert!(["rate_limit_error", "insufficient_quota", "RESOURCE_EXHAUSTED"].contains(&kind.as_str()));
        assert!(message.contains("limits.tokens"), "{message}");
    }
    let (setup, _) = Setup::writing(WireFormat::Anthropic, whole("200 OK", "", "{\"input_tokens\":3}")).await;
    setup.usage.used_up.store(true, Ordering::SeqCst);
    let url = setup.proxy.base_url() + "/v1/messages/count_tokens";
    assert_eq!(client().post(url).bearer_auth(TOKEN).body("{}").send().await.unwrap().status(), 200);
    assert_eq!(setup.used(), []);
}

#[tokio::test]
async fn an_error_of_the_endpoint_passes_as_it_came_and_counts_nothing() {
    let body = "{\"error\":{\"message\":\"slow down\"},\"usage\":{\"input_tokens\":7}}";
    let (setup, _) = Setup::writing(WireFormat::Responses, whole("529 Overloaded", "retry-after: 9\r\n", body)).await;
    let response = setup.request("{}").send().await.unwrap();
    assert_eq!((response.status().as_u16(), &response.headers()["retry-after"] == "9"), (529, true));
    assert_eq!(response.text().await.unwrap(), body);
    assert_eq!(setup.used(), []);
}

#[tokio::test]
async fn an_endpoint_that_is_not_there_is_told_in_the_programs_format() {
    for format in FORMATS {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_addr().unwrap();
        let setup = Setup::before(format, &format!("http://{address}"));
        let response = setup.request("{}").send().await.unwrap();
        assert_eq!(response.status(), 502);
        let (_, message) = error_of(format, &response.text().await.unwrap());
        assert!(message.starts_with(&format!("nobody listens at the model endpoint {address}")), "{message}");
    }
}

#[tokio::test]
async fn requests_in_flight_are_bounded_and_the_next_one_is_told_to_come_again() {
    let asked = Arc::new(AtomicUsize::new(0));
    let seen = asked.clone();
    let setup = Setup::start(WireFormat::Anthropic, move |mut socket, _| {
        let seen = seen.clone();
        async move {
            seen.fetch_add(1, Ordering::SeqCst);
            let _ = socket.read(&mut [0; 16]).await;
        }
    })
    .await;
    let running: Vec<_> = (0..MAX_REQUESTS).map(|_| tokio::spawn(setup.request("{}").send())).collect();
    until(|| asked.load(Ordering::SeqCst) == MAX_REQUESTS).await;
    let response = setup.request("{}").send().await.unwrap();
    assert_eq!((response.status().as_u16(), &response.headers()["retry-after"] == "1"), (503, true));
    assert_eq!(error_of(WireFormat::Anthropic, &response.text().await.unwrap()).0, "overloaded_error");
    running.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_dropped_proxy_is_not_there_any_more() {
    let setup = never_asked(WireFormat::Anthropic).await;
    let url = setup.proxy.base_url();
    drop(setup);
    eventually("the proxy closes its port", async || client().get(&url).send().await.err()).await;
}
