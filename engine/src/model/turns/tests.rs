use yoi_wire::entry::{AgentConfig, ModelConfig};

use super::*;

fn model() -> ModelConfig {
    ModelConfig { api: "anthropic".to_owned(), name: "m".to_owned(), ..ModelConfig::default() }
}

fn answer(text: &str, calls: &[(&str, &str, Value)], parts: Vec<AnswerPart>) -> PromptItem {
    let tool_calls =
        calls.iter().map(|(id, tool, args)| ToolCall { call_id: (*id).to_owned(), tool: (*tool).to_owned(), args: args.clone() }).collect();
    let (api, model) = ("anthropic".to_owned(), "m".to_owned());
    PromptItem::Assistant(Box::new(Assistant { text: text.to_owned(), tool_calls, api, model, parts, ..Assistant::default() }))
}

fn results(ids: &[&str]) -> PromptItem {
    let result = |id: &&str| PromptToolResult {
        call_id: (*id).to_owned(),
        tool: "Read".to_owned(),
        output: format!("output of {id}"),
        failed: false,
        images: Vec::new(),
    };
    PromptItem::Results(ids.iter().map(result).collect())
}

fn user(text: &str) -> PromptItem {
    PromptItem::User(text.to_owned())
}

/// What stands before an answer that nothing precedes, and after one that nothing follows.
const GO_ON_LINE: &str = r#"user ["[Go on.]"]"#;

/// Each turn in one line, but for those.
fn lines(items: &[PromptItem], model: &ModelConfig) -> Vec<String> {
    let line = |turn: &Turn<'_>| match turn {
        Turn::User(user) => {
            let results = user.results.iter().map(|result| format!("{}={}", result.call_id, result.output));
            format!("user {:?}", results.chain(user.texts.iter().map(|text| (*text).to_owned())).collect::<Vec<_>>())
        }
        Turn::Assistant(answer) => {
            let part = |part: &TurnPart<'_>| match part {
                TurnPart::Text { text, extra } => format!("{text}{}", extra.map(|extra| extra.to_string()).unwrap_or_default()),
                TurnPart::Call { call_id, tool, args, extra } => {
                    format!("{tool}({call_id}, {args}){}", extra.map(|extra| extra.to_string()).unwrap_or_default())
                }
                TurnPart::Opaque(value) => value.to_string(),
            };
            format!("model {:?}", answer.parts.iter().map(part).collect::<Vec<_>>())
        }
    };
    let config = AgentConfig { model: model.clone(), ..AgentConfig::default() };
    turns(RequestParts { config: &config, items, offer_tools: true, own_from: 0 })
        .iter()
        .map(line)
        .filter(|line| line != GO_ON_LINE)
        .collect()
}

#[test]
fn blank_texts_and_empty_answers_are_never_sent() {
    let reasoning = AnswerPart::Opaque { value: json!({"type": "thinking"}) };
    let items = [user("a"), user(" \n"), answer("", &[], vec![reasoning]), answer(" \t", &[], Vec::new()), user("b"), user("")];
    assert_eq!(lines(&items, &model()), [r#"user ["a", "b"]"#]);
}

#[test]
fn results_stand_before_texts_in_the_order_of_their_calls() {
    let calls = [("1", "Read", json!({})), ("2", "Read", json!({}))];
    let items = [user("a"), answer("", &calls, Vec::new()), results(&["2"]), user("b"), results(&["1", "2", "stray"])];
    let model_line = r#"model ["Read(1, {})", "Read(2, {})"]"#;
    assert_eq!(lines(&items, &model()), [r#"user ["a"]"#, model_line, r#"user ["1=output of 1", "2=output of 2", "b"]"#]);
}

#[test]
fn only_the_same_format_and_model_get_opaque_parts_back() {
    let parts = vec![
        AnswerPart::Opaque { value: json!("r") },
        AnswerPart::Text { bytes: 3, extra: Some(json!(1)) },
        AnswerPart::Call { extra: Some(json!(2)) },
        AnswerPart::Text { bytes: 2, extra: None },
    ];
    let items = [answer("oneü", &[("1", "Read", json!({}))], parts)];
    assert_eq!(lines(&items, &model()), [r#"model ["\"r\"", "one1", "Read(1, {})2", "ü"]"#]);
    for other in [ModelConfig { api: "gemini".to_owned(), ..model() }, ModelConfig { name: "n".to_owned(), ..model() }] {
        assert_eq!(lines(&items, &other), [r#"model ["one", "Read(1, {})", "ü"]"#]);
    }
}

#[test]
fn parts_that_do_not_fit_the_answer_lose_nothing_of_it() {
    let parts = vec![AnswerPart::Call { extra: None }, AnswerPart::Text { bytes: 1, extra: None }, AnswerPart::Call { extra: None }];
    let items = [answer("üb", &[("1", "Read", json!({})), ("2", "Read", json!({})), ("3", "Read", json!({}))], parts)];
    assert_eq!(lines(&items, &model()), [r#"model ["Read(1, {})", "üb", "Read(2, {})", "Read(3, {})"]"#]);
}

#[test]
fn names_ids_and_arguments_that_an_endpoint_refuses_are_rewritten() {
    let long = "x".repeat(100);
    let calls =
        [("a.b", "mcp.tool/ü", json!("{\"cut")), ("1", "", json!(null)), ("1", "9lives", json!([1])), (&long, &long, json!({"k": 1}))];
    let items =
        [answer("", &calls, Vec::new()), results(&["a.b", "1"]), answer("", &[("1", "Read", json!({}))], Vec::new()), results(&["1"])];
    let long = "x".repeat(64);
    assert_eq!(
        lines(&items, &model()),
        [
            format!(
                "model {:?}",
                [
                    r#"mcp_tool__(yoi_call_0, {"unreadable":"{\"cut"})"#.to_owned(),
                    "_(1, {})".to_owned(),
                    r#"_9lives(yoi_call_2, {"unreadable":[1]})"#.to_owned(),
                    format!(r#"{long}(yoi_call_3, {{"k":1}})"#),
                ]
            ),
            r#"user ["yoi_call_0=output of a.b", "1=output of 1"]"#.to_owned(),
            r#"model ["Read(yoi_call_4, {})"]"#.to_owned(),
            r#"user ["yoi_call_4=output of 1"]"#.to_owned(),
        ]
    );
}
