use super::*;

fn context() -> CallContext {
    CallContext { endpoint: "m:1".to_owned(), proxy: None, has_secret: true, timeouts: ModelTimeouts::default() }
}

#[test]
fn the_summary_has_nothing_of_the_endpoints_message_and_the_key_is_never_shown() {
    let redaction = Redaction::new(Some("sk-1"), [], None);
    for code in [400, 401, 402, 403, 404, 413, 422, 429, 500, 503, 302] {
        let status = StatusCode::from_u16(code).unwrap();
        let failure =
            ModelFailure::from_status(status, &HeaderMap::new(), "words of the conversation, sk-1", &context()).failure.redact(&redaction);
        assert!(failure.summary.starts_with(&format!("the model endpoint m:1 answered {code}")), "{failure:?}");
        assert!(!failure.summary.contains("words of"), "{failure:?}");
        assert!(failure.detail.ends_with("words of the conversation, [key]"), "{failure:?}");
    }
    let body = serde_json::json!({"error": {"message": "words of the conversation, sk-1", "type": "overloaded_error"}});
    let failure = ModelFailure::from_stream(StreamError::Reported(body), &context()).failure.redact(&redaction);
    assert!(failure.class == TRY_AGAIN && !failure.summary.contains("words of") && !failure.detail.contains("sk-1"), "{failure:?}");
}
