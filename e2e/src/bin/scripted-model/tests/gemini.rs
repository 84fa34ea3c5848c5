//! What Gemini refuses.

use super::*;

/// The request after the two tools have answered.
pub async fn second_request(endpoint: &Endpoint) -> Value {
    let parameters = json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
    let mut request = json!({
        "model": "scripted", "generationConfig": {"thinkingConfig": {"includeThoughts": true}},
        "systemInstruction": {"parts": [{"text": "s"}]},
        "tools": [{"functionDeclarations": [{"name": "Read", "description": "d", "parameters": parameters}]}],
        "contents": [{"role": "user", "parts": [{"text": "work"}]}],
    });
    let content = endpoint.ask(Format::Gemini, &request).await.json()["candidates"][0]["content"].clone();
    let calls = content["parts"].as_array().unwrap().iter().filter(|part| !part["functionCall"].is_null());
    let results = calls.map(|call| json!({"functionResponse": {"name": call["functionCall"]["name"], "response": {"output": "x"}}}));
    let results: Vec<Value> = results.collect();
    assert_eq!(results.len(), 2);
    request["contents"].as_array_mut().unwrap().extend([content, json!({"role": "user", "parts": results})]);
    request
}

fn contents(request: &mut Value) -> &mut Vec<Value> {
    request["contents"].as_array_mut().unwrap()
}

fn declaration(request: &mut Value) -> &mut Value {
    &mut request["tools"][0]["functionDeclarations"][0]
}

#[tokio::test]
async fn gemini_refuses_what_breaks_a_rule() {
    let endpoint = Endpoint::start().await;
    let good = second_request(&endpoint).await;
    let cases = [
        case("a request has only fields of the API", "Unknown name \"messages\": Cannot find field", |r| r["messages"] = json!([])),
        case("a request has only fields of the API", "Unknown name \"type\" at 'contents[0].parts[0]'", |r| {
            r["contents"][0]["parts"][0]["type"] = json!("text");
        }),
        case("contents are given", "contents is not specified", |r| r["contents"] = json!([])),
        case("a content's role is user or model", "valid role: user, model", |r| r["contents"][1]["role"] = json!("assistant")),
        case("a content has parts", "contents[0].parts: contents.parts must not be empty", |r| r["contents"][0]["parts"] = json!([])),
        case("a part has data", "contents[0].parts[0].data: required oneof field", |r| r["contents"][0]["parts"] = json!([{}])),
        case("the prompt fits the window", "exceeds the maximum number of tokens allowed (50)", |r| r["model"] = json!("small")),
        case("a function's name begins with a letter or an underscore, and is short", "Invalid function name", |r| {
            declaration(r)["name"] = json!("1st");
        }),
        case("no two functions have one name", "Duplicate function declaration found: Read", |r| {
            let again = declaration(r).clone();
            r["tools"][0]["functionDeclarations"].as_array_mut().unwrap().push(again);
        }),
        case("parameters and parametersJsonSchema exclude each other", "only one of", |r| {
            declaration(r)["parametersJsonSchema"] = json!({"type": "object"});
        }),
        case("parameters have only fields of the API's schema", "Unknown name \"additionalProperties\" at 'tools[0].function_decl", |r| {
            declaration(r)["parameters"]["additionalProperties"] = json!(false);
        }),
        case("parameters have only fields of the API's schema", "parameters.properties[0].value': Proto field is not repeating", |r| {
            declaration(r)["parameters"]["properties"]["path"]["type"] = json!(["string", "null"]);
        }),
        case("calls come after a user's turn or after responses", "function call turn comes immediately after a user turn", |r| {
            contents(r).remove(0);
        }),
        case("responses come after their calls", "function response turn comes immediately after", |r| {
            let again = contents(r)[2].clone();
            contents(r).push(again);
        }),
        case("there are as many responses as calls", "number of function response parts is equal", |r| {
            r["contents"][2]["parts"].as_array_mut().unwrap().pop();
        }),
        case("the last turn is the user's", "end with a user role", |r| {
            contents(r).push(json!({"role": "model", "parts": [{"text": "So"}]}));
        }),
        case("a response names its function and is an object", "function_response.name: Name cannot be empty", |r| {
            r["contents"][2]["parts"][0]["functionResponse"]["name"] = json!("");
        }),
        case("a response names its function and is an object", "google.protobuf.Struct", |r| {
            r["contents"][2]["parts"][0]["functionResponse"]["response"] = json!("x");
        }),
        case("the first call of each step of the current turn has its thought signature", "`default_api:Read` , position 2", |r| {
            r["contents"][1]["parts"][2].as_object_mut().unwrap().remove("thoughtSignature");
        }),
        case("a thought signature is given back unaltered", "Invalid thought signature", |r| {
            r["contents"][1]["parts"][2]["thoughtSignature"] = json!("c2ln");
        }),
    ];
    let broken = check_refusals(&endpoint, Format::Gemini, &good, "/error/message", &cases).await;
    check_all_rules(&endpoint, "Gemini", "Gemini", &broken).await;
    let mut with_schema = good;
    let parameters = declaration(&mut with_schema)["parameters"].take();
    declaration(&mut with_schema).as_object_mut().unwrap().remove("parameters");
    declaration(&mut with_schema)["parametersJsonSchema"] = parameters;
    declaration(&mut with_schema)["parametersJsonSchema"]["additionalProperties"] = json!(false);
    assert_eq!(endpoint.ask(Format::Gemini, &with_schema).await.status, 200, "JSON Schema has its own field");
}

#[tokio::test]
async fn signatures_of_earlier_turns_may_be_left_out() {
    let endpoint = Endpoint::start().await;
    let mut request = second_request(&endpoint).await;
    request["contents"][1]["parts"][2].as_object_mut().unwrap().remove("thoughtSignature");
    contents(&mut request)
        .extend([json!({"role": "model", "parts": [{"text": "Done."}]}), json!({"role": "user", "parts": [{"text": "more work"}]})]);
    assert_eq!(endpoint.ask(Format::Gemini, &request).await.status, 200);
}
