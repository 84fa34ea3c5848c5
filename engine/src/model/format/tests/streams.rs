use super::*;

fn usage(input: u64, output: u64, cached: u64, reasoning: u64) -> TokenUsage {
    TokenUsage { input_tokens: input, output_tokens: output, cached_tokens: cached, cache_write_tokens: 0, reasoning_tokens: reasoning }
}

fn shown(deltas: &[ModelDelta]) -> (String, String, Vec<String>) {
    let (mut text, mut reasoning, mut calls) = (String::new(), String::new(), Vec::<String>::new());
    for delta in deltas {
        match delta {
            ModelDelta::Text(more) => text += more,
            ModelDelta::Reasoning(more) => reasoning += more,
            ModelDelta::ToolCall { index, tool, args, .. } => {
                if calls.len() == *index {
                    calls.push(format!("{tool} "));
                }
                calls[*index] += args;
            }
        }
    }
    (text, reasoning, calls)
}

const ANTHROPIC: &str = r#"event: message_start
data: {"type":"message_start","message":{"id":"msg_1","role":"assistant","content":[],"usage":{"input_tokens":10,"cache_creation_input_tokens":20,"cache_read_input_tokens":70,"output_tokens":1}}}

event: ping
data: {"type": "ping"}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Größe"}}

data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"Eq"}}

data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"=="}}

data: {"type":"content_block_stop","index":0}

data: {"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"xyz"}}

data: {"type":"content_block_stop","index":1}

data: {"type":"content_block_start","index":2,"content_block":{"type":"text","text":""}}

data: {"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"I look 👀."}}

data: {"type":"content_block_stop","index":2}

data: {"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"toolu_1","name":"Read","input":{}}}

data: {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":""}}

data: {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{\"path\": \"a"}}

data: {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":".rs\"}"}}

data: {"type":"content_block_stop","index":3}

data: {"type":"content_block_start","index":4,"content_block":{"type":"tool_use","id":"toolu_2","name":"Read","input":{"path":"b.rs"}}}

data: {"type":"content_block_stop","index":4}

data: {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":89}}

data: {"type":"message_stop"}

"#;

#[test]
fn an_anthropic_stream_keeps_thinking_with_its_signature() {
    let (answer, deltas) = read(WireFormat::Anthropic, ANTHROPIC);
    assert_eq!(answer.text, "I look 👀.");
    assert_eq!(answer.tool_calls, [call("toolu_1", "Read", json!({"path": "a.rs"})), call("toolu_2", "Read", json!({"path": "b.rs"}))]);
    assert_eq!((answer.stop, answer.api.as_str(), answer.model.as_str()), (Some(StopReason::ToolCalls), "anthropic", "m"));
    assert_eq!(answer.usage, Some(TokenUsage { cache_write_tokens: 20, ..usage(100, 89, 70, 0) }));
    let opaque = |value| AnswerPart::Opaque { value };
    assert_eq!(
        answer.parts,
        [
            opaque(json!({"type": "thinking", "thinking": "Größe", "signature": "Eq=="})),
            opaque(json!({"type": "redacted_thinking", "data": "xyz"})),
            AnswerPart::Text { bytes: answer.text.len(), extra: None },
            AnswerPart::Call { extra: None },
            AnswerPart::Call { extra: None },
        ]
    );
    let (text, reasoning, calls) = shown(&deltas);
    assert_eq!((text.as_str(), reasoning.as_str()), ("I look 👀.", "Größe"));
    assert_eq!(calls, ["Read {\"path\": \"a.rs\"}", "Read {\"path\":\"b.rs\"}"]);
}

const RESPONSES: &str = r#"event: response.created
data: {"type":"response.created","response":{"id":"resp_1","status":"in_progress","output":[]}}

data: {"type":"response.output_item.done","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[],"content":null,"encrypted_content":"gAAA","status":null}}

data: {"type":"response.output_item.added","output_index":1,"item":{"id":"msg_1","type":"message","role":"assistant","content":[]}}

data: {"type":"response.output_text.delta","output_index":1,"content_index":0,"delta":"I look"}

data: {"type":"response.output_text.delta","output_index":1,"content_index":0,"delta":" 👀."}

data: {"type":"response.output_item.done","output_index":1,"item":{"id":"msg_1","type":"message","role":"assistant","phase":"commentary","content":[{"type":"output_text","text":"I look 👀.","annotations":[]}]}}

data: {"type":"response.output_item.added","output_index":2,"item":{"id":"fc_1","type":"function_call","call_id":"call_1","name":"Read","arguments":""}}

data: {"type":"response.output_item.added","output_index":3,"item":{"id":"fc_2","type":"function_call","call_id":"call_2","name":"Shell","arguments":""}}

data: {"type":"response.function_call_arguments.delta","output_index":2,"delta":"{\"path\":"}

data: {"type":"response.function_call_arguments.delta","output_index":3,"delta":"{}"}

data: {"type":"response.function_call_arguments.delta","output_index":2,"delta":"\"a.rs\"}"}

data: {"type":"response.output_item.done","output_index":2,"item":{"id":"fc_1","type":"function_call","call_id":"call_1","name":"Read","arguments":"{\"path\":\"a.rs\"}","status":"completed"}}

data: {"type":"response.output_item.done","output_index":3,"item":{"id":"fc_2","type":"function_call","call_id":"call_2","name":"Shell","arguments":"{}","status":"completed"}}

data: {"type":"response.completed","response":{"id":"resp_1","status":"completed","output":[],"usage":{"input_tokens":100,"input_tokens_details":{"cached_tokens":70},"output_tokens":89,"output_tokens_details":{"reasoning_tokens":64},"total_tokens":189}}}

"#;

#[test]
fn a_responses_stream_keeps_encrypted_reasoning_without_its_id() {
    let (answer, deltas) = read(WireFormat::Responses, RESPONSES);
    assert_eq!(answer.text, "I look 👀.");
    assert_eq!(answer.tool_calls, [call("call_1", "Read", json!({"path": "a.rs"})), call("call_2", "Shell", json!({}))]);
    assert_eq!((answer.stop, answer.usage), (Some(StopReason::ToolCalls), Some(usage(100, 89, 70, 64))));
    assert_eq!(
        answer.parts,
        [
            AnswerPart::Opaque { value: json!({"type": "reasoning", "summary": [], "encrypted_content": "gAAA"}) },
            AnswerPart::Text { bytes: answer.text.len(), extra: Some(json!({"phase": "commentary"})) },
            AnswerPart::Call { extra: None },
            AnswerPart::Call { extra: None },
        ]
    );
    assert_eq!(
        shown(&deltas),
        ("I look 👀.".to_owned(), String::new(), vec!["Read {\"path\":\"a.rs\"}".to_owned(), "Shell {}".to_owned()])
    );
}

#[test]
fn a_chat_stream_keeps_reasoning_and_signatures_and_takes_several_calls_in_one_delta() {
    let stream = r#"data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning_content":"Hm"},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{"content":null,"reasoning_content":"m."},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{"content":"ä👀"},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"Read","arguments":"{\"path\":"},"extra_content":{"google":{"thought_signature":"s1"}}},{"index":1,"id":"c2","type":"function","function":{"name":"Shell","arguments":"{}"}}]},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"a\"}"}}]},"finish_reason":"tool_calls"}]}

data: {"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":89,"prompt_tokens_details":{"cached_tokens":70},"completion_tokens_details":{"reasoning_tokens":64}}}

data: [DONE]

"#;
    let (answer, deltas) = read(WireFormat::ChatCompletions, stream);
    assert_eq!((answer.text.as_str(), answer.stop), ("ä👀", Some(StopReason::ToolCalls)));
    assert_eq!(answer.tool_calls, [call("c1", "Read", json!({"path": "a"})), call("c2", "Shell", json!({}))]);
    assert_eq!(answer.usage, Some(usage(100, 89, 70, 64)));
    assert_eq!(
        answer.parts,
        [
            AnswerPart::Opaque { value: json!({"reasoning_content": "Hmm."}) },
            AnswerPart::Text { bytes: 6, extra: None },
            AnswerPart::Call { extra: Some(json!({"extra_content": {"google": {"thought_signature": "s1"}}})) },
            AnswerPart::Call { extra: None },
        ]
    );
    assert_eq!(shown(&deltas).1, "Hmm.");
}

#[test]
fn servers_that_count_no_calls_or_send_them_whole_are_understood() {
    let chunk = |calls: Value, reason: Value| {
        format!("data: {}\n\n", json!({"choices": [{"delta": {"tool_calls": calls}, "finish_reason": reason}]}))
    };
    let function = |name: &str, args: Value| json!({"name": name, "arguments": args});
    let streams = [
        // All calls are the first, with ids of their own.
        chunk(json!([{"index": 0, "id": "a", "function": function("Read", json!("{}"))}]), Value::Null)
            + &chunk(json!([{"index": 0, "id": "b", "function": function("Read", json!("{}"))}]), json!("stop")),
        // No index; the rest of the arguments without an id.
        chunk(json!([{"id": "a", "function": function("Read", json!("{"))}]), Value::Null)
            + &chunk(json!([{"function": {"arguments": "}"}}]), Value::Null)
            + &chunk(json!([{"id": "b", "function": function("Read", json!({}))}]), json!("tool_calls")),
        // The id and the name are in every chunk.
        chunk(json!([{"index": 0, "id": "a", "function": function("Read", json!("{"))}]), Value::Null)
            + &chunk(json!([{"index": 0, "id": "a", "function": function("Read", json!("}"))}]), Value::Null)
            + &chunk(json!([{"index": 1, "id": "b", "function": function("Read", json!(""))}]), json!("tool_calls")),
        // A name comes in pieces.
        chunk(json!([{"index": 0, "id": "a", "function": function("Re", json!(""))}]), Value::Null)
            + &chunk(json!([{"index": 0, "function": function("ad", json!(""))}]), Value::Null)
            + &chunk(json!([{"index": 0, "function": {"arguments": "{}"}}]), Value::Null)
            + &chunk(json!([{"index": 1, "id": "b", "function": function("R", json!(""))}]), Value::Null)
            + &chunk(json!([{"index": 1, "id": "b", "function": function("ead", json!("{}"))}]), json!("tool_calls")),
    ];
    for stream in streams {
        let (answer, _) = read(WireFormat::ChatCompletions, &stream);
        assert_eq!(answer.tool_calls, [call("a", "Read", json!({})), call("b", "Read", json!({}))], "{stream}");
        assert_eq!(answer.stop, Some(StopReason::ToolCalls));
    }
}

#[test]
fn blocks_of_reasoning_details_are_joined_as_they_came() {
    let chunk = |detail: Value| format!("data: {}\n\n", json!({"choices": [{"delta": {"reasoning_details": [detail]}}]}));
    let stream = chunk(json!({"type": "reasoning.text", "index": 0, "text": "a", "signature": null}))
        + &chunk(json!({"type": "reasoning.text", "index": 0, "text": "b", "signature": "s"}))
        + &chunk(json!({"type": "reasoning.encrypted", "index": 1, "data": "x"}))
        + "data: {\"choices\":[{\"delta\":{\"content\":\"t\"},\"finish_reason\":\"stop\"}]}\n\n";
    let (answer, _) = read(WireFormat::ChatCompletions, &stream);
    let details = json!([{"type": "reasoning.text", "index": 0, "text": "ab", "signature": "s"}, {"type": "reasoning.encrypted", "index": 1, "data": "x"}]);
    assert_eq!(answer.parts[0], AnswerPart::Opaque { value: json!({"reasoning_details": details}) });
}

#[test]
fn a_gemini_stream_keeps_the_signature_of_each_part() {
    let stream = r#"data: {"candidates":[{"content":{"role":"model","parts":[{"text":"I plan.","thought":true}]}}],"usageMetadata":{"promptTokenCount":100}}

data: {"candidates":[{"content":{"parts":[{"text":"I "}]}}]}

data: {"candidates":[{"content":{"parts":[{"text":"look 👀."},{"functionCall":{"name":"Read","args":{"path":"a"}},"thoughtSignature":"s1"},{"functionCall":{"name":"Shell","args":{},"id":"f2"}}]}}]}

data: {"candidates":[{"content":{"parts":[{"text":"","thoughtSignature":"s2"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":100,"candidatesTokenCount":25,"thoughtsTokenCount":64,"cachedContentTokenCount":70}}

"#;
    let (answer, deltas) = read(WireFormat::Gemini, stream);
    assert_eq!((answer.text.as_str(), answer.stop), ("I look 👀.", Some(StopReason::ToolCalls)));
    assert_eq!(answer.tool_calls, [call("call__0", "Read", json!({"path": "a"})), call("f2", "Shell", json!({}))]);
    assert_eq!(answer.usage, Some(usage(100, 89, 70, 64)));
    assert_eq!(
        answer.parts,
        [
            AnswerPart::Text { bytes: answer.text.len(), extra: None },
            AnswerPart::Call { extra: Some(json!({"thoughtSignature": "s1"})) },
            AnswerPart::Call { extra: Some(json!({"id": "f2"})) },
            AnswerPart::Text { bytes: 0, extra: Some(json!({"thoughtSignature": "s2"})) },
        ]
    );
    assert_eq!(shown(&deltas).1, "I plan.");
}

#[test]
fn every_reason_to_stop_is_told() {
    let anthropic = |reason: &str| {
        format!(
            "data: {}\n\ndata: {{\"type\":\"message_stop\"}}\n\n",
            json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {}})
        )
    };
    let chat =
        |reason: &str| format!("data: {}\n\ndata: [DONE]\n\n", json!({"choices": [{"delta": {"content": "t"}, "finish_reason": reason}]}));
    let gemini = |reason: &str| format!("data: {}\n\n", json!({"candidates": [{"finishReason": reason}]}));
    let responses = |kind: &str, response: Value| format!("data: {}\n\n", json!({"type": kind, "response": response}));
    let incomplete =
        |reason: &str| responses("response.incomplete", json!({"status": "incomplete", "incomplete_details": {"reason": reason}}));
    let refusal = json!({"status": "completed", "output": [{"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}]});
    use StopReason::{ContentFilter, End, Length, Pause, Refusal};
    use WireFormat::{Anthropic, ChatCompletions, Gemini, Responses};
    for (format, stream, stop) in [
        (Anthropic, anthropic("end_turn"), End),
        (Anthropic, anthropic("max_tokens"), Length),
        (Anthropic, anthropic("model_context_window_exceeded"), Length),
        (Anthropic, anthropic("refusal"), Refusal),
        (Anthropic, anthropic("pause_turn"), Pause),
        (ChatCompletions, chat("stop"), End),
        (ChatCompletions, chat("length"), Length),
        (ChatCompletions, chat("content_filter"), ContentFilter),
        (ChatCompletions, "data: {\"choices\":[{\"delta\":{\"refusal\":\"No.\"},\"finish_reason\":\"stop\"}]}\n\n".to_owned(), Refusal),
        (Gemini, gemini("STOP"), End),
        (Gemini, gemini("MAX_TOKENS"), Length),
        (Gemini, gemini("SAFETY"), ContentFilter),
        (Gemini, "data: {\"promptFeedback\":{\"blockReason\":\"SAFETY\"}}\n\n".to_owned(), ContentFilter),
        (Responses, responses("response.completed", json!({"status": "completed"})), End),
        (Responses, responses("response.completed", refusal), Refusal),
        (Responses, incomplete("max_output_tokens"), Length),
        (Responses, incomplete("content_filter"), ContentFilter),
    ] {
        assert_eq!(read(format, &stream).0.stop, Some(stop), "{format:?} {stream}");
    }
}

#[test]
fn an_error_in_a_stream_is_reported_with_its_body() {
    for (format, event) in [
        (WireFormat::Anthropic, json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})),
        (WireFormat::ChatCompletions, json!({"error": {"code": 429, "message": "slow down"}})),
        (WireFormat::Gemini, json!({"error": {"code": 503, "status": "UNAVAILABLE"}})),
        (WireFormat::Responses, json!({"type": "error", "code": "server_error", "message": "sorry"})),
    ] {
        let stream = format!("data: {event}\n\n");
        let error = read_pieces(format, std::iter::once(stream.as_bytes())).unwrap_err();
        assert_eq!(error, StreamError::Reported(event), "{format:?}");
    }
    let failed =
        json!({"type": "response.failed", "response": {"status": "failed", "error": {"code": "rate_limit_exceeded", "message": "later"}}});
    let stream = format!("data: {failed}\n\n");
    let error = read_pieces(WireFormat::Responses, std::iter::once(stream.as_bytes())).unwrap_err();
    assert_eq!(error, StreamError::Reported(failed["response"].clone()));
    let malformed = "data: {\"candidates\":[{\"finishReason\":\"MALFORMED_FUNCTION_CALL\"}]}\n\n";
    let error = read_pieces(WireFormat::Gemini, std::iter::once(malformed.as_bytes())).unwrap_err();
    assert_eq!(error, StreamError::Useless("MALFORMED_FUNCTION_CALL".to_owned()));
}

#[test]
fn what_an_answer_carried_is_in_the_next_request() {
    for (format, stream, pointer, kept) in [
        (WireFormat::Anthropic, ANTHROPIC, "/messages/1/content/0/signature", "Eq=="),
        (WireFormat::Responses, RESPONSES, "/input/1/encrypted_content", "gAAA"),
        (WireFormat::Responses, RESPONSES, "/input/2/phase", "commentary"),
    ] {
        let (answer, _) = read(format, stream);
        let model = ModelConfig { api: format.name().to_owned(), name: "m".to_owned(), ..ModelConfig::default() };
        let (config, items) = (AgentConfig { model, ..AgentConfig::default() }, [PromptItem::Assistant(Box::new(answer))]);
        let body = format.body(RequestParts { config: &config, items: &items, offer_tools: true, own_from: 0 }, server(ServerKind::Other));
        assert_eq!(body.pointer(pointer), Some(&json!(kept)), "{body:#}");
    }
}
