use super::*;

/// A conversation with reasoning, several calls in one answer, a failed result, pictures, and an answer of another model.
fn items(format: WireFormat) -> Vec<PromptItem> {
    let (reasoning, extra) = match format {
        WireFormat::Responses => (json!({"type": "reasoning", "summary": [], "encrypted_content": "e1"}), None),
        WireFormat::ChatCompletions => {
            (json!({"reasoning_content": "thoughts"}), Some(json!({"extra_content": {"google": {"thought_signature": "s1"}}})))
        }
        WireFormat::Anthropic => (json!({"type": "thinking", "thinking": "thoughts", "signature": "s1"}), None),
        WireFormat::Gemini => {
            (json!({"text": "thoughts", "thought": true, "thoughtSignature": "s0"}), Some(json!({"thoughtSignature": "s1", "id": "f1"})))
        }
    };
    let own = Assistant {
        text: "I look.".to_owned(),
        tool_calls: vec![call("c1", "Read", json!({"path": "a.png"})), call("c2", "Shell", json!({"command": "make"}))],
        api: format.name().to_owned(),
        model: "m-1".to_owned(),
        parts: vec![
            AnswerPart::Opaque { value: reasoning },
            AnswerPart::Text { bytes: 7, extra: None },
            AnswerPart::Call { extra },
            AnswerPart::Call { extra: None },
        ],
        ..Assistant::default()
    };
    let foreign = Assistant {
        text: "Not mine.".to_owned(),
        tool_calls: vec![call("toolu.9", "Gone!", json!("{\"cut"))],
        api: format.name().to_owned(),
        model: "another".to_owned(),
        parts: vec![AnswerPart::Opaque { value: json!({"type": "secret of another model"}) }],
        ..Assistant::default()
    };
    let result = |id: &str, output: &str, failed: bool, images: Vec<Image>| PromptToolResult {
        call_id: id.to_owned(),
        tool: "Read".to_owned(),
        output: output.to_owned(),
        failed,
        images,
    };
    let image = Image { media_type: "image/png".to_owned(), data: "iVBORw0=".to_owned() };
    vec![
        PromptItem::User("Make it build.".to_owned()),
        PromptItem::User("  ".to_owned()),
        PromptItem::Assistant(Box::new(own)),
        PromptItem::Results(vec![result("c1", "a picture", false, vec![image]), result("c2", "exit code 2", true, Vec::new())]),
        PromptItem::User("[message from agent b]\nhurry".to_owned()),
        PromptItem::Assistant(Box::new(foreign)),
        PromptItem::Results(vec![result("toolu.9", "", true, Vec::new())]),
    ]
}

fn config(format: WireFormat) -> AgentConfig {
    let model = ModelConfig {
        api: format.name().to_owned(),
        name: "m-1".to_owned(),
        max_output_tokens: Some(4096),
        effort: Some("high".to_owned()),
    };
    let schema = |field: &str| json!({"type": "object", "properties": {field: {"type": "string"}}, "required": [field]});
    let tool = |name: &str, field: &str| OfferedTool { name: name.to_owned(), description: format!("{name}s"), schema: schema(field) };
    AgentConfig {
        system: vec!["You are an agent.".to_owned(), " ".to_owned(), "The tree says: be brief.".to_owned()],
        tools: vec![tool("Read", "path"), tool("Shell", "command")],
        model,
        manifest_digest: "d".to_owned(),
    }
}

fn body(format: WireFormat, server: Server) -> Value {
    let (config, items) = (config(format), items(format));
    format.body(RequestParts { config: &config, items: &items, offer_tools: true, own_from: 0 }, server)
}

#[test]
fn a_conversation_becomes_the_body_that_each_format_demands() {
    let kinds = [(WireFormat::ChatCompletions, ServerKind::Google, "chat-google")];
    let own = FORMATS.map(|format| (format, ServerKind::Other, format.name()));
    for (format, kind, name) in own.into_iter().chain(kinds) {
        let body = body(format, server(kind));
        let path = format!("{}/src/model/format/golden/{name}.json", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("YOI_WRITE_GOLDENS").is_some() {
            std::fs::write(&path, serde_json::to_string_pretty(&body).unwrap() + "\n").unwrap();
        }
        let golden: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(body, golden, "{name}:\n{body:#}");
    }
}

#[test]
fn equal_items_give_equal_bytes_also_after_the_log_has_kept_them() {
    for format in FORMATS {
        let (config, items) = (config(format), items(format));
        let bytes = |items: &[PromptItem]| {
            format.body(RequestParts { config: &config, items, offer_tools: true, own_from: 0 }, server(ServerKind::Other)).to_string()
        };
        let kept: Vec<PromptItem> = serde_json::from_str(&serde_json::to_string(&items).unwrap()).unwrap();
        assert_eq!(bytes(&items), bytes(&kept), "{format:?}");
        // What was sent before stays a prefix, so that the endpoint's cache serves it.
        let longer: Vec<PromptItem> = items.iter().cloned().chain([PromptItem::User("more".to_owned())]).collect();
        if format == WireFormat::Responses {
            let input = |items: &[PromptItem]| serde_json::from_str::<Value>(&bytes(items)).unwrap()["input"].as_array().unwrap().clone();
            assert!(input(&longer).starts_with(&input(&items)), "{format:?}");
        }
    }
}

#[test]
fn a_plain_request_has_no_field_that_a_plain_server_would_refuse() {
    let plain = AgentConfig { model: ModelConfig { name: "m".to_owned(), ..ModelConfig::default() }, ..AgentConfig::default() };
    let items = [PromptItem::User("hi".to_owned())];
    let parts = RequestParts { config: &plain, items: &items, offer_tools: false, own_from: 0 };
    assert_eq!(
        WireFormat::ChatCompletions.body(parts, server(ServerKind::Other)),
        json!({"model": "m", "stream": true, "stream_options": {"include_usage": true}, "messages": [{"role": "user", "content": "hi"}]})
    );
    assert_eq!(
        WireFormat::Gemini.body(parts, server(ServerKind::Other)),
        json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]})
    );
    let cached = json!([{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]);
    assert_eq!(
        WireFormat::Anthropic.body(parts, server(ServerKind::Other)),
        json!({"model": "m", "max_tokens": 32000, "stream": true, "messages": [{"role": "user", "content": cached}]})
    );
    let unreasoning = Server { takes_encrypted_reasoning: false, ..server(ServerKind::OpenAi) };
    let body = WireFormat::Responses.body(parts, unreasoning);
    let mut fields: Vec<&str> = body.as_object().unwrap().keys().map(String::as_str).collect();
    fields.sort_unstable();
    assert_eq!(fields, ["input", "model", "prompt_cache_key", "store", "stream"]);
}

#[test]
fn a_summary_is_asked_with_the_same_tools_and_none_may_be_called() {
    for (format, field, value) in [
        (WireFormat::Responses, "tool_choice", json!("none")),
        (WireFormat::ChatCompletions, "tool_choice", json!("none")),
        (WireFormat::Anthropic, "tool_choice", json!({"type": "none"})),
        (WireFormat::Gemini, "toolConfig", json!({"functionCallingConfig": {"mode": "NONE"}})),
    ] {
        let (config, items) = (config(format), items(format));
        let body =
            |offer_tools| format.body(RequestParts { config: &config, items: &items, offer_tools, own_from: 0 }, server(ServerKind::Other));
        let (mut without, with) = (body(false), body(true));
        assert_eq!(without.as_object_mut().unwrap().remove(field), Some(value), "{format:?}");
        assert_eq!(without, with, "{format:?}");
    }
}

#[test]
fn an_effort_that_is_a_number_is_a_budget() {
    let thinking = |format: WireFormat, pointer: &str| {
        let config = AgentConfig { model: ModelConfig { effort: Some("8000".to_owned()), ..config(format).model }, ..config(format) };
        let body = format.body(RequestParts { config: &config, items: &[], offer_tools: true, own_from: 0 }, server(ServerKind::Other));
        body.pointer(pointer).cloned()
    };
    assert_eq!(thinking(WireFormat::Anthropic, "/thinking"), Some(json!({"type": "enabled", "budget_tokens": 8000})));
    // The last answer is another model's, without thinking: with a budget, Anthropic refuses that.
    let config = AgentConfig {
        model: ModelConfig { effort: Some("8000".to_owned()), ..config(WireFormat::Anthropic).model },
        ..AgentConfig::default()
    };
    let thinking_after = |count: usize| {
        let items = &items(WireFormat::Anthropic)[..count];
        let parts = RequestParts { config: &config, items, offer_tools: true, own_from: 0 };
        WireFormat::Anthropic.body(parts, server(ServerKind::Other)).get("thinking").is_some()
    };
    assert_eq!([4, 5, 7].map(thinking_after), [true, true, false]);
    assert_eq!(thinking(WireFormat::Gemini, "/generationConfig/thinkingConfig"), Some(json!({"thinkingBudget": 8000})));
}

#[test]
fn names_reach_the_endpoint_as_written() {
    let base = Url::parse("http://m.example/v1beta?version=2").unwrap();
    let url = |format: WireFormat, model: &str| format.url(&base, model).to_string();
    assert_eq!(url(WireFormat::Responses, "a::b-max"), "http://m.example/v1beta/responses?version=2");
    assert_eq!(url(WireFormat::Gemini, "gemini-3"), "http://m.example/v1beta/models/gemini-3:streamGenerateContent?version=2&alt=sse");
    assert_eq!(url(WireFormat::Gemini, "tunedModels/x"), "http://m.example/v1beta/tunedModels/x:streamGenerateContent?version=2&alt=sse");
}
