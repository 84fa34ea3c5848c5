use super::*;

#[tokio::test]
async fn a_stream_of_each_format_passes_as_it_came_and_is_counted_once() {
    for format in FORMATS {
        let (stream, usage) = sample(format);
        let written = stream.clone();
        let setup = Setup::start(format, move |mut socket, _| {
            let stream = written.clone();
            async move {
                socket.write_all(stream_head().as_bytes()).await.unwrap();
                // Byte by byte, so that events, lines and characters are split everywhere.
                for byte in stream.as_bytes().chunks(1) {
                    socket.write_all(&chunk(byte)).await.unwrap();
                    socket.flush().await.unwrap();
                }
                socket.write_all(b"0\r\n\r\n").await.unwrap();
            }
        })
        .await;
        let response = setup.request("{}").send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert_eq!(response.text().await.unwrap(), stream, "{format:?}");
        assert_eq!(setup.used(), [usage], "{format:?}");
    }
}

#[test]
fn tokens_are_the_same_wherever_a_stream_is_split() {
    for format in FORMATS {
        let (stream, usage) = sample(format);
        for at in 0..stream.len() {
            let (left, right) = stream.as_bytes().split_at(at);
            let mut reader = usage::UsageReader::new(format);
            reader.push(left);
            reader.push(right);
            assert_eq!(reader.finish(), Some(usage), "{format:?} {at}");
        }
    }
}

#[test]
fn answers_that_are_no_stream_tell_their_tokens_too() {
    let tell = |format, text: String| {
        let mut reader = usage::UsageReader::new(format);
        text.as_bytes().chunks(3).for_each(|bytes| reader.push(bytes));
        reader.finish().map(|usage| (usage.input_tokens, usage.output_tokens))
    };
    let openai = json!({"usage": {"input_tokens": 5, "output_tokens": 2}, "output": []}).to_string();
    assert_eq!(tell(WireFormat::Anthropic, openai.clone()), Some((5, 2)));
    assert_eq!(tell(WireFormat::Responses, format!(" \n{openai}")), Some((5, 2)));
    let chat = json!({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}).to_string();
    assert_eq!(tell(WireFormat::ChatCompletions, chat), Some((5, 2)));
    let gemini = json!({"usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 2}});
    assert_eq!(tell(WireFormat::Gemini, gemini.to_string()), Some((5, 2)));
    assert_eq!(tell(WireFormat::Gemini, format!("[{{}},\n{gemini}]")), Some((5, 2)));
    for nothing in ["", "{}", "null", "[", "{\"usage\": null}", "{\"usage\": 7}", "data: {\"usage\": \n\n"] {
        assert_eq!(tell(WireFormat::Anthropic, nothing.to_owned()), None, "{nothing}");
    }
}

#[test]
fn an_answer_without_end_does_not_fill_the_memory_of_its_reader() {
    for first in ["{", "data: "] {
        let mut reader = usage::UsageReader::new(WireFormat::Anthropic);
        reader.push(first.as_bytes());
        let piece = vec![b'x'; 1 << 20];
        (0..40).for_each(|_| reader.push(&piece));
        assert!(format!("{reader:?}").contains("TooLong"));
        assert_eq!(reader.finish(), None);
    }
}

#[tokio::test]
async fn a_request_gets_the_key_and_loses_the_token() {
    for format in FORMATS {
        let (setup, seen) = Setup::writing(format, whole("200 OK", "set-cookie: a=b\r\nx-request-id: r1\r\n", "{}")).await;
        let path = setup.path().replace('?', "?key=wrong&");
        let request = client().post(setup.proxy.base_url() + &path).body("{\"model\": \"small\"}");
        let request = request.bearer_auth(TOKEN).header("x-api-key", "other").header("x-goog-api-key", "other");
        let request = request.header("cookie", "c=d").header("accept-encoding", "gzip, br").header("x-own", "kept");
        let response = request.header("x-hop", "h").header("connection", "x-hop").send().await.unwrap();
        assert_eq!((response.headers().get("set-cookie"), &response.headers()["x-request-id"] == "r1"), (None, true));
        let request = seen.lock().unwrap()[0].clone();
        let key = match format {
            WireFormat::Anthropic => "x-api-key: ",
            WireFormat::Responses | WireFormat::ChatCompletions => "authorization: Bearer ",
            WireFormat::Gemini => "x-goog-api-key: ",
        };
        assert!(request.starts_with(&format!("POST {} HTTP/1.1\r\n", setup.path())), "{request}");
        for line in [&format!("{key}{KEY}"), "x-team: blue", &format!("x-tenant: {TENANT}"), "accept-encoding: identity", "x-own: kept"] {
            assert_eq!(request.matches(&format!("\r\n{line}\r\n")).count(), 1, "{line} in {request}");
        }
        for gone in [TOKEN, "other", "wrong", "cookie", "gzip", "x-hop"] {
            assert!(!request.contains(gone), "{gone} in {request}");
        }
        assert!(request.ends_with("\r\n\r\n{\"model\":\"small\"}"), "{request}");
    }
}

#[tokio::test]
async fn a_large_request_and_a_large_answer_pass_whole() {
    let answer = format!("{{\"text\": \"{}\"}}", "y".repeat(20 << 20));
    let (setup, seen) = Setup::writing(WireFormat::Responses, whole("200 OK", "", &answer)).await;
    let body = format!("{{\"input\":\"{}\"}}", "x".repeat(30 << 20));
    let response = setup.request(body.clone()).send().await.unwrap();
    assert!(response.text().await.unwrap() == answer);
    assert!(seen.lock().unwrap()[0].ends_with(&body));
}

#[tokio::test]
async fn a_chat_that_streams_is_asked_for_its_tokens() {
    let (setup, seen) = Setup::writing(WireFormat::ChatCompletions, whole("200 OK", "", "{}")).await;
    setup.request(r#"{"stream":true}"#).send().await.unwrap();
    assert!(seen.lock().unwrap()[0].ends_with(r#"{"stream":true,"stream_options":{"include_usage":true}}"#));
}

#[tokio::test]
async fn no_secret_is_in_what_a_program_gets() {
    let echo = format!("data: you sent {KEY} and {TENANT}\n\n");
    for status in ["200 OK", "401 Unauthorized", "302 Found"] {
        let headers = format!("x-echo: Bearer {KEY}\r\nlocation: http://elsewhere.invalid/{TENANT}\r\nx-fine: yes\r\n");
        let (setup, _) = Setup::writing(WireFormat::Anthropic, whole(status, &headers, &echo)).await;
        let response = setup.request("{}").send().await.unwrap();
        assert!(status.starts_with(response.status().as_str()));
        let headers = format!("{:?}", response.headers());
        let text = response.text().await.unwrap();
        assert_eq!(text, format!("data: you sent {} and {}\n\n", "*".repeat(KEY.len()), "*".repeat(TENANT.len())));
        assert!(headers.contains("x-fine") && !headers.contains("canary"), "{headers}");
        assert!(!format!("{:?}", setup.proxy).contains("canary"));
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_breaks_off_for_the_program_too_and_its_tokens_count() {
    let begun = "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":9,\"output_tokens\":1}}}\n\n";
    let setup = Setup::start(WireFormat::Anthropic, move |mut socket, _| async move {
        socket.write_all(stream_head().as_bytes()).await.unwrap();
        socket.write_all(&chunk(begun.as_bytes())).await.unwrap();
    })
    .await;
    let mut response = setup.request("{}").send().await.unwrap();
    assert_eq!(response.chunk().await.unwrap().unwrap(), begun);
    assert!(response.chunk().await.is_err());
    assert_eq!(setup.until_used().await, [TokenUsage { input_tokens: 9, output_tokens: 1, ..TokenUsage::default() }]);
}

/// How a program goes away.
#[derive(Clone, Copy, Debug)]
enum Leaves {
    BeforeTheHead,
    AfterTheFirstPiece,
}

#[tokio::test]
async fn the_tokens_of_an_answer_whose_program_goes_away_count() {
    for (format, leaves) in FORMATS.into_iter().flat_map(|format| [(format, Leaves::BeforeTheHead), (format, Leaves::AfterTheFirstPiece)]) {
        let (stream, usage) = sample(format);
        let asked = Arc::new(AtomicUsize::new(0));
        let (gone, left) = tokio::sync::watch::channel(false);
        let seen = asked.clone();
        let setup = Setup::start(format, move |mut socket, _| {
            let (stream, seen, mut left) = (stream.clone(), seen.clone(), left.clone());
            async move {
                seen.fetch_add(1, Ordering::SeqCst);
                if matches!(leaves, Leaves::BeforeTheHead) {
                    left.wait_for(|gone| *gone).await.unwrap();
                }
                socket.write_all(stream_head().as_bytes()).await.unwrap();
                let (first, rest) = stream.split_at(stream.find("\n").unwrap() + 1);
                socket.write_all(&chunk(first.as_bytes())).await.unwrap();
                left.wait_for(|gone| *gone).await.unwrap();
                socket.write_all(&chunk(rest.as_bytes())).await.unwrap();
                socket.write_all(b"0\r\n\r\n").await.unwrap();
            }
        })
        .await;
        match leaves {
            Leaves::BeforeTheHead => {
                let request = tokio::spawn(setup.request(r#"{"stream":true}"#).send());
                until(|| asked.load(Ordering::SeqCst) == 1).await;
                request.abort();
                assert!(request.await.unwrap_err().is_cancelled());
            }
            Leaves::AfterTheFirstPiece => {
                let mut response = setup.request(r#"{"stream":true}"#).send().await.unwrap();
                response.chunk().await.unwrap().unwrap();
                drop(response);
            }
        }
        // The endpoint goes on when the proxy knows that the program has gone, or a little before: either way the rest is read.
        gone.send_replace(true);
        assert_eq!(setup.until_used().await, [usage], "{format:?} {leaves:?}");
    }
}

#[tokio::test]
async fn an_answer_without_tokens_counts_by_its_size() {
    let text = "data: {\"id\":\"chatcmpl-1\",\"choices\":[{\"delta\":{\"content\":\"word \"}}]}\n\n".repeat(100) + "data: [DONE]\n\n";
    let question = format!("{{\"stream\":true,\"prompt\":\"{}\"}}", "x".repeat(4000));
    for format in FORMATS {
        let (setup, _) = Setup::writing(format, whole("200 OK", "", &text)).await;
        assert_eq!(setup.request(question.clone()).send().await.unwrap().text().await.unwrap(), text);
        let used = setup.until_used().await;
        let [TokenUsage { input_tokens: 1000..1020, output_tokens: 100, .. }] = used[..] else { panic!("{format:?} {used:?}") };
    }
}

#[tokio::test]
async fn a_program_that_reads_slowly_holds_the_endpoint_back() {
    const PIECES: usize = 256;
    let written = Arc::new(AtomicUsize::new(0));
    let pieces = written.clone();
    let setup = Setup::start(WireFormat::Responses, move |mut socket, _| {
        let pieces = pieces.clone();
        async move {
            socket.write_all(stream_head().as_bytes()).await.unwrap();
            let piece = chunk(&[b": ".as_slice(), &vec![b'x'; (1 << 20) - 3], b"\n"].concat());
            for _ in 0..PIECES {
                socket.write_all(&piece).await.unwrap();
                pieces.fetch_add(1, Ordering::SeqCst);
            }
            socket.write_all(b"0\r\n\r\n").await.unwrap();
        }
    })
    .await;
    let mut response = setup.request("{}").send().await.unwrap();
    let mut read = response.chunk().await.unwrap().unwrap().len();
    // The endpoint is held back when it writes no more although it could.
    let mut before = usize::MAX;
    while before != written.load(Ordering::SeqCst) {
        before = written.load(Ordering::SeqCst);
        // Too short a pause finds less than the endpoint can write, never more: a wrong alarm does not come of it.
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    // What the kernel keeps for four ends of two connections.
    assert!(before < 64, "{before} MiB were taken from the endpoint, and {read} bytes were read");
    while let Some(chunk) = response.chunk().await.unwrap() {
        read += chunk.len();
    }
    assert_eq!(read, PIECES << 20);
}
