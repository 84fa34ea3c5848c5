//! What Gemini demands of declared functions.

use std::collections::HashSet;

use serde_json::Value;

use super::field;
use super::rules::unknown;
use crate::endpoint::json::{list, text, unknown_field};
use crate::endpoint::rule::{Refusal, Request, Rule, demand};

/// Fields of a schema in `parameters`, which is not JSON Schema. Source: https://ai.google.dev/api/caching#Schema
const SCHEMA_FIELDS: &[&str] = &[
    "type",
    "format",
    "title",
    "description",
    "nullable",
    "enum",
    "maxItems",
    "max_items",
    "minItems",
    "min_items",
    "properties",
    "required",
    "minProperties",
    "min_properties",
    "maxProperties",
    "max_properties",
    "minLength",
    "min_length",
    "maxLength",
    "max_length",
    "pattern",
    "example",
    "anyOf",
    "any_of",
    "propertyOrdering",
    "property_ordering",
    "default",
    "items",
    "minimum",
    "maximum",
];

pub const RULES: &[Rule] = &[
    Rule {
        name: "a function's name begins with a letter or an underscore, and is short",
        source: "https://github.com/kaitranntt/ccs/issues/25 and https://github.com/dust-tt/dust/pull/28212",
        check: |request| {
            each(request, |path, declaration| {
                demand(is_function_name(text(&declaration["name"])), || {
                    Refusal::invalid(format!(
                        "The GenerateContentRequest proto is invalid:\n  * {path}.name: [FIELD_INVALID] Invalid function name. Must start with a \
                         letter or an underscore. Must be a-z, A-Z, 0-9, or contain underscores (_), dots (.), colons (:), or dashes (-), with a \
                         maximum length of 64."
                    ))
                })
            })
        },
    },
    Rule {
        name: "no two functions have one name",
        source: "https://github.com/google-gemini/gemini-cli/pull/22207",
        check: |request| {
            let mut names = HashSet::new();
            each(request, |_, declaration| {
                let name = text(&declaration["name"]);
                demand(names.insert(name.to_owned()), || Refusal::invalid(format!("Duplicate function declaration found: {name}")))
            })
        },
    },
    Rule {
        name: "parameters and parametersJsonSchema exclude each other",
        source: "https://ai.google.dev/api/caching#FunctionDeclaration (parametersJsonSchema: mutually exclusive with parameters)",
        check: |request| {
            each(request, |path, declaration| {
                let both =
                    !declaration["parameters"].is_null() && !field(declaration, "parametersJsonSchema", "parameters_json_schema").is_null();
                demand(!both, || {
                    Refusal::invalid(format!(
                        "* GenerateContentRequest.{path}: only one of parameters and parameters_json_schema may be set\n"
                    ))
                })
            })
        },
    },
    Rule {
        name: "parameters have only fields of the API's schema",
        source: "https://github.com/BerriAI/litellm/issues/14330 and https://github.com/openswarm-ai/openswarm/issues/24",
        check: |request| each(request, |path, declaration| schema(&format!("{path}.parameters"), &declaration["parameters"])),
    },
];

fn is_function_name(name: &str) -> bool {
    let begins = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    begins && name.len() <= 64 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte))
}

/// Checks each declared function, with its path.
fn each(request: &Request, mut check: impl FnMut(&str, &Value) -> Result<(), Refusal>) -> Result<(), Refusal> {
    list(&request.body["tools"]).iter().enumerate().try_for_each(|(at, tool)| {
        let declarations = list(field(tool, "functionDeclarations", "function_declarations"));
        declarations.iter().enumerate().try_for_each(|(n, it)| check(&format!("tools[{at}].function_declarations[{n}]"), it))
    })
}

fn schema(path: &str, value: &Value) -> Result<(), Refusal> {
    if let Some(field) = unknown_field(value, SCHEMA_FIELDS) {
        return Err(unknown(field, path));
    }
    // https://github.com/zed-industries/zed/issues/53919
    demand(!value["type"].is_array(), || {
        let sentence = "Unknown name \"type\"";
        Refusal::invalid(format!("Invalid JSON payload received. {sentence} at '{path}': Proto field is not repeating, cannot start list."))
            .param(path)
    })?;
    let properties = value["properties"].as_object().into_iter().flatten().enumerate();
    properties.into_iter().try_for_each(|(n, (_, inner))| schema(&format!("{path}.properties[{n}].value"), inner))?;
    schema_if_any(&format!("{path}.items"), &value["items"])?;
    let choices = list(field(value, "anyOf", "any_of")).iter().enumerate();
    choices.into_iter().try_for_each(|(n, inner)| schema(&format!("{path}.any_of[{n}]"), inner))
}

fn schema_if_any(path: &str, value: &Value) -> Result<(), Refusal> {
    if value.is_null() { Ok(()) } else { schema(path, value) }
}
