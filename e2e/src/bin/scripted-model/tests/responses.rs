//! What the Responses API refuses.

use super::*;

/// The request after the two tools have answered: user, reasoning, message, two calls, two outputs.
pub async fn second_request(endpoint: &Endpoint) -> Value {
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"], "additionalProperties": false});
    let mut request = json!({
        "model": "scripted", "instructions": "s", "store": false, "include": ["reasoning.encrypted_content"],
        "tools": [{"type": "function", "name": "Read", "parameters": schema, "strict": true}],
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "work"}]}],
    });
    let output = endpoint.ask(Format::Responses, &request).await.json()["output"].clone();
    let output = output.as_array().unwrap();
    assert_eq!(output.len(), 4);
    let results = output.iter().filter(|item| item["type"] == "function_call");
    let results = results.map(|call| json!({"type": "function_call_output", "call_id": call["call_id"], "output": "content"}));
    request["input"].as_array_mut().unwrap().extend(output.iter().cloned().chain(results));
    request
}

fn input(request: &mut Value) -> &mut Vec<Value> {
    request["input"].as_array_mut().unwrap()
}

#[tokio::test]
async fn the_responses_api_refuses_what_breaks_a_rule() {
    let endpoint = Endpoint::start().await;
    let good = second_request(&endpoint).await;
    let cases = [
        case("model and input are given", "Missing required parameter: 'input'", |r| r["input"] = Value::Null),
        case("a request has only fields of the API", "Unknown parameter: 'messages'", |r| r["messages"] = json!([])),
        case("a function tool has its name at the top, of letters, digits, _ and -", "'tools[0].name'", |r| {
            r["tools"] = json!([{"type": "function", "function": {"name": "Read"}}]);
        }),
        case("a strict function closes its schema", "'additionalProperties' is required", |r| {
            r["tools"][0]["parameters"].as_object_mut().unwrap().remove("additionalProperties");
        }),
        case("max_output_tokens is at least 16", "Expected a value >= 16", |r| r["max_output_tokens"] = json!(1)),
        case("only a reasoning model gives sealed reasoning", "Encrypted content is not supported", |r| r["model"] = json!("gpt-4o")),
        case("only a reasoning model has an effort", "'reasoning.effort' is not supported", |r| {
            r["model"] = json!("gpt-4o");
            r["include"] = json!([]);
            r["reasoning"] = json!({"effort": "low"});
        }),
        case("an item has only fields of the API", "Unknown parameter: 'input[1].status'", |r| {
            r["input"][1]["status"] = json!("completed")
        }),
        case("an item's id begins as its type demands", "Expected an ID that begins with 'fc'", |r| r["input"][3]["id"] = json!("call_1")),
        case("an item's id begins as its type demands", "contains letters, numbers", |r| r["input"][3]["id"] = json!("")),
        case("no two items have one id", "Duplicate item found with id msg_", |r| {
            let again = r["input"][2].clone();
            input(r).insert(3, again);
        }),
        case("an assistant's text is output_text, a user's input_text", "'output_text' and 'refusal'", |r| {
            r["input"][2]["content"][0]["type"] = json!("input_text");
        }),
        case("a call has a plain name and an id of at most 64 characters", "'input[3].name'", |r| r["input"][3]["name"] = json!("a b")),
        case("a call has a plain name and an id of at most 64 characters", "with length 65", |r| {
            r["input"][3]["call_id"] = json!("x".repeat(65));
        }),
        case_of(404, "what is not stored is given back whole, not by its id", "Items are not persisted", |r| {
            r["input"][1].as_object_mut().unwrap().remove("encrypted_content");
        }),
        case("sealed reasoning is given back unaltered", "could not be verified", |r| {
            let sealed = r["input"][1]["encrypted_content"].as_str().unwrap().replace("gAAAAA", "gAAAAA0");
            r["input"][1]["encrypted_content"] = json!(sealed);
        }),
        case("an item comes with the reasoning that led to it", "without its required 'reasoning' item: 'rs_", |r| {
            input(r).remove(1);
        }),
        case("reasoning comes with the item that it led to", "without its required following item", |r| input(r).truncate(2)),
        case("an output follows its call", "No tool call found for function call output with call_id", |r| {
            r["input"][5]["call_id"] = json!("call_other");
        }),
        case("each call has an output", "No tool output found for function call", |r| {
            input(r).pop();
        }),
        case("the prompt fits the window", "exceeds the context window", |r| r["model"] = json!("small")),
    ];
    let broken = check_refusals(&endpoint, Format::Responses, &good, "/error/message", &cases).await;
    check_all_rules(&endpoint, "Responses", "OpenAI", &broken).await;
}

#[tokio::test]
async fn items_of_one_answer_are_one_turn_and_the_next_answer_is_another() {
    let endpoint = Endpoint::start().await;
    let good = second_request(&endpoint).await;
    let done = endpoint.ask(Format::Responses, &good).await.json();
    assert_eq!(done["output"][1]["content"][0]["text"], "Done.");
}
