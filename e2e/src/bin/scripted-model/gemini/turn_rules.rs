//! What Gemini demands of the turns of calls and responses.

use serde_json::Value;

use super::{call_of, field, response_of};
use crate::endpoint::chat::missing_signature;
use crate::endpoint::digest::Digest;
use crate::endpoint::json::{list, text};
use crate::endpoint::rule::{Refusal, Request, Rule, demand};

pub const RULES: &[Rule] = &[
    Rule {
        name: "calls come after a user's turn or after responses",
        source: "https://github.com/google-gemini/gemini-cli/issues/11814 and https://github.com/lobehub/lobehub/issues/10049",
        check: |request| {
            let contents = list(&request.body["contents"]);
            let misplaced = |at: usize| count(&contents[at], call_of) > 0 && (at == 0 || contents[at - 1]["role"] == "model");
            demand(!(0..contents.len()).any(misplaced), || {
                Refusal::invalid(
                    "Please ensure that function call turn comes immediately after a user turn or after a function response turn.",
                )
            })
        },
    },
    Rule {
        name: "responses come after their calls",
        source: "https://github.com/GoogleCloudPlatform/generative-ai/pull/368 and https://github.com/langchain-ai/langchain/issues/27799",
        check: |request| {
            let contents = list(&request.body["contents"]);
            let misplaced = |at: usize| count(&contents[at], response_of) > 0 && (at == 0 || count(&contents[at - 1], call_of) == 0);
            demand(!(0..contents.len()).any(misplaced), || {
                Refusal::invalid("Please ensure that function response turn comes immediately after a function call turn.")
            })
        },
    },
    Rule {
        name: "there are as many responses as calls",
        source: "https://github.com/google-gemini/gemini-cli/issues/17208",
        check: |request| {
            let contents = list(&request.body["contents"]);
            let unequal = |at: usize| {
                let calls = count(&contents[at], call_of);
                calls > 0 && contents.get(at + 1).map_or(0, |next| count(next, response_of)) != calls
            };
            demand(!(0..contents.len()).any(unequal), || {
                Refusal::invalid(
                    "Please ensure that the number of function response parts is equal to the number of function call parts of the function \
                     call turn.",
                )
            })
        },
    },
    Rule {
        name: "the last turn is the user's",
        // The thread tells of the refusal, and not of its words.
        source: "https://github.com/crewAIInc/crewAI/pull/6973",
        check: |request| {
            let last = list(&request.body["contents"]).last();
            demand(last.is_none_or(|last| last["role"] != "model"), || {
                Refusal::invalid("Please ensure that multiturn requests end with a user role or a function response.")
            })
        },
    },
    Rule {
        name: "a response names its function and is an object",
        source: "https://ai.google.dev/api/caching#FunctionResponse (name: Required, response: Struct)",
        check: |request| {
            each_part(request, |path, part| {
                let response = response_of(part);
                demand(response.is_null() || !text(&response["name"]).is_empty(), || {
                    Refusal::invalid(format!("* GenerateContentRequest.{path}.function_response.name: Name cannot be empty.\n"))
                })?;
                demand(response.is_null() || response["response"].is_object(), || {
                    let path = format!("{path}.function_response.response");
                    Refusal::invalid(format!("Invalid value at '{path}' (type.googleapis.com/google.protobuf.Struct)")).param(&path)
                })
            })
        },
    },
    Rule {
        name: "the first call of each step of the current turn has its thought signature",
        source: "https://ai.google.dev/gemini-api/docs/thought-signatures and https://github.com/nanbingxyz/5ire/issues/405",
        check: signatures,
    },
    Rule {
        name: "a thought signature is given back unaltered",
        source: "https://github.com/lbjlaq/Antigravity-Manager/pull/3337 (Invalid thought signature)",
        check: |request| {
            each_part(request, |_, part| {
                let signature = field(part, "thoughtSignature", "thought_signature");
                demand(signature.is_null() || is_signature(text(signature)), || Refusal::invalid("Invalid thought signature."))
            })
        },
    },
];

fn count(content: &Value, of: fn(&Value) -> &Value) -> usize {
    list(&content["parts"]).iter().filter(|part| !of(part).is_null()).count()
}

/// Recognises what [`crate::endpoint::digest::signature`] makes, for whatever answer, and what Google documents for calls of other models.
fn is_signature(signature: &str) -> bool {
    let digits = signature.strip_prefix("c2ln").unwrap_or_default();
    let ours = digits.len() == Digest::EMPTY.hex().len() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    // https://ai.google.dev/gemini-api/docs/thought-signatures (FAQ: how to transfer a trace from another model)
    ours || ["context_engineering_is_the_way_to_go", "skip_thought_signature_validator"].contains(&signature)
}

fn each_part(request: &Request, mut check: impl FnMut(&str, &Value) -> Result<(), Refusal>) -> Result<(), Refusal> {
    list(&request.body["contents"]).iter().enumerate().try_for_each(|(at, content)| {
        list(&content["parts"]).iter().enumerate().try_for_each(|(n, part)| check(&format!("contents[{at}].parts[{n}]"), part))
    })
}

fn signatures(request: &Request) -> Result<(), Refusal> {
    if !request.model.reasons(true) {
        return Ok(());
    }
    let contents = list(&request.body["contents"]);
    // The current turn is all since the user last said something.
    let is_person = |content: &Value| content["role"] != "model" && count(content, response_of) == 0;
    let from = contents.iter().rposition(is_person).map_or(0, |at| at + 1);
    let steps = contents[from..].iter().enumerate().filter_map(|(at, content)| {
        let first = list(&content["parts"]).iter().find(|part| !call_of(part).is_null())?;
        Some((from + at, first))
    });
    let mut unsigned = steps.filter(|(_, call)| text(field(call, "thoughtSignature", "thought_signature")).is_empty());
    match unsigned.next() {
        Some((at, call)) => Err(missing_signature(text(&call_of(call)["name"]), at + 1)),
        None => Ok(()),
    }
}
