//! Every order of items that a log can hold, in each format, against what the strictest servers demand.

use yoi_wire::entry::PromptToolResult;

use super::*;

/// What follows another in a log. A message may come before the results of the calls before it, and an answer may pause.
#[derive(Clone, Copy, Debug)]
enum Step {
    Message,
    Answer,
    Calls,
    CallsAndMessage,
}

const STEPS: [Step; 4] = [Step::Message, Step::Answer, Step::Calls, Step::CallsAndMessage];

fn items(steps: &[Step], api: &str) -> Vec<PromptItem> {
    let mut items = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        let answer = |text: &str, tool_calls: Vec<ToolCall>| {
            let (api, model, text) = (api.to_owned(), "m".to_owned(), text.to_owned());
            PromptItem::Assistant(Box::new(Assistant { text, tool_calls, api, model, ..Assistant::default() }))
        };
        let ids = [format!("a{at}"), format!("b{at}")];
        let calls = || ids.iter().map(|id| call(id, "Read", json!({}))).collect();
        let result = |id: &String| PromptToolResult {
            call_id: id.clone(),
            tool: "Read".to_owned(),
            output: "out".to_owned(),
            failed: false,
            images: if at % 2 == 0 { Vec::new() } else { vec![Image { media_type: "image/png".to_owned(), data: "AA==".to_owned() }] },
        };
        let message = PromptItem::User(format!("message {at}"));
        match step {
            Step::Message => items.push(message),
            Step::Answer => items.push(answer("text", Vec::new())),
            Step::Calls => items.extend([answer("", calls()), PromptItem::Results(ids.iter().map(result).collect())]),
            Step::CallsAndMessage => {
                items.extend([answer("text", calls()), PromptItem::Results(vec![result(&ids[1])])]);
                items.extend([message, PromptItem::Results(vec![result(&ids[0])])]);
            }
        }
    }
    items
}

/// What is wrong with the messages of a chat. `strict` is the rule of many templates: without the tools' messages and the calls, roles alternate.
fn fault_of_chat(body: &Value, strict: bool) -> Option<&'static str> {
    let messages: Vec<&Value> = body["messages"].as_array().unwrap().iter().filter(|message| message["role"] != "system").collect();
    let role = |at: usize| messages.get(at).map_or("", |message| message["role"].as_str().unwrap());
    let calls = |message: &Value| message.get("tool_calls").and_then(Value::as_array).map_or(0, Vec::len);
    let mut open = 0;
    for (at, message) in messages.iter().enumerate() {
        match (role(at), at.checked_sub(1).map_or("", role)) {
            ("user", "user") | ("assistant", "assistant") => return Some("two messages of one role in a row"),
            ("user", "tool") if strict => return Some("unexpected role 'user' after role 'tool'"),
            ("tool", _) if open == 0 => return Some("a result of no call"),
            ("tool", _) => open -= 1,
            _ if open > 0 => return Some("a call without its result"),
            ("assistant", "") => return Some("the first message is not the user's"),
            ("assistant", _) => open = calls(message),
            _ => {}
        }
    }
    let alternating: Vec<&str> = messages
        .iter()
        .filter(|message| message["role"] == "user" || (message["role"] == "assistant" && calls(message) == 0))
        .map(|message| message["role"].as_str().unwrap())
        .collect();
    let expected = ["user", "assistant"].iter().cycle();
    match role(messages.len() - 1) {
        _ if open > 0 => Some("a call without its result"),
        "assistant" => Some("the last message is an answer"),
        _ if strict && !alternating.iter().zip(expected).all(|(role, expected)| role == expected) => Some("roles must alternate"),
        _ => None,
    }
}

/// What is wrong with turns of user and model, each with these parts, of which some call and some answer calls.
fn fault_of_turns(turns: &[(bool, usize, usize)], may_end_with_answer: bool) -> Option<&'static str> {
    let mut open = 0;
    for (at, (user, calls, results)) in turns.iter().enumerate() {
        if *user != (at % 2 == 0) {
            return Some("roles must alternate, and begin with the user");
        }
        if *results != open {
            return Some("not each call has one result in the next turn");
        }
        open = *calls;
    }
    match turns.last() {
        Some((false, ..)) if !may_end_with_answer => Some("the last turn is the model's"),
        _ if open > 0 => Some("a call without its result"),
        _ => None,
    }
}

fn fault(format: WireFormat, body: &Value, strict: bool, paused: bool) -> Option<&'static str> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let count = |parts: &[Value], is: &dyn Fn(&Value) -> bool| parts.iter().filter(|part| is(part)).count();
    match format {
        WireFormat::ChatCompletions => fault_of_chat(body, strict),
        WireFormat::Anthropic => {
            let turn = |message: &Value| {
                let parts = list(&message["content"]);
                let of = |kind: &str| count(&parts, &|part| part["type"] == kind);
                (message["role"] == "user", of("tool_use"), of("tool_result"))
            };
            fault_of_turns(&list(&body["messages"]).iter().map(turn).collect::<Vec<_>>(), paused)
        }
        WireFormat::Gemini => {
            let turn = |content: &Value| {
                let parts = list(&content["parts"]);
                let of = |field: &str| count(&parts, &|part| part.get(field).is_some());
                (content["role"] == "user", of("functionCall"), of("functionResponse"))
            };
            fault_of_turns(&list(&body["contents"]).iter().map(turn).collect::<Vec<_>>(), false)
        }
        WireFormat::Responses => {
            let input = list(&body["input"]);
            let of_user = |item: &Value| item["type"] == "message" && item["role"] == "user";
            let of = |kind: &str| count(&input, &|item| item["type"] == kind);
            if input.windows(2).any(|pair| of_user(&pair[0]) && of_user(&pair[1])) {
                return Some("two messages of the user in a row");
            }
            (of("function_call") != of("function_call_output")).then_some("a call without its result")
        }
    }
}

#[test]
fn every_order_of_a_log_is_taken_by_the_strictest_servers() {
    let mut orders: Vec<Vec<Step>> = vec![Vec::new()];
    for _ in 0..5 {
        let longer = orders.iter().flat_map(|order| STEPS.map(|step| order.iter().copied().chain([step]).collect()));
        orders = std::iter::once(Vec::new()).chain(longer.collect::<Vec<_>>()).collect();
    }
    let mut faults = Vec::new();
    for order in orders.iter().filter(|order| !order.is_empty()) {
        for (format, api) in FORMATS.into_iter().flat_map(|format| [(format, format.name()), (format, "other")]) {
            let model = ModelConfig { api: format.name().to_owned(), name: "m".to_owned(), ..ModelConfig::default() };
            let config = AgentConfig { model, system: vec!["system".to_owned()], ..AgentConfig::default() };
            let items = items(order, api);
            let parts = RequestParts { config: &config, items: &items, offer_tools: true, own_from: 0 };
            for strict_order in [false, true] {
                let body = format.body(parts, Server { strict_order, ..server(ServerKind::Other) });
                // Only Anthropic goes on with an answer of its own that paused.
                let paused = format == WireFormat::Anthropic && api == format.name() && matches!(order.last(), Some(Step::Answer));
                faults.extend(fault(format, &body, strict_order, paused).map(|fault| format!("{format:?} {order:?} {fault}")));
            }
        }
    }
    let some: Vec<&String> = faults.iter().take(5).collect();
    assert!(faults.is_empty(), "{} orders are refused: {some:#?}", faults.len());
}
