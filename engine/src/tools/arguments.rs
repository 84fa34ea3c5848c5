//! Reads the arguments of a call into the tool's type.

use std::time::Duration;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use yoi_wire::entry::RefusalClass;

use super::output_limit::truncate;
use crate::decision::Refusal;

/// How long a tool that waits does so at most, in seconds.
const MOST_WAIT_SECONDS: u32 = 3600;
/// How long when its argument is left out. The schemas of these tools say both.
const DEFAULT_WAIT_SECONDS: u32 = 300;

/// Bytes of a message about wrong arguments, which repeats parts of them.
pub const MAX_MESSAGE_BYTES: usize = 1024;

/// How long a tool waits that has this argument.
pub fn wait_time(wait_seconds: Option<u32>) -> Duration {
    Duration::from_secs(u64::from(wait_seconds.unwrap_or(DEFAULT_WAIT_SECONDS)))
}

/// Checks that argument.
///
/// # Errors
/// It is longer than a tool waits.
pub fn check_wait(wait_seconds: Option<u32>) -> Result<(), Refusal> {
    if wait_seconds.is_some_and(|seconds| seconds > MOST_WAIT_SECONDS) {
        return Err(invalid(format_args!("/waitSeconds: must be at most {MOST_WAIT_SECONDS}")));
    }
    Ok(())
}

/// Checks and reads the arguments of a call.
///
/// # Errors
/// Which argument is wrong, and what was expected.
pub fn read<T: DeserializeOwned>(args: &Value) -> Result<T, Refusal> {
    if !args.is_object() {
        // The model's text stays a string where it is no JSON: it broke off, or lacks an escape.
        let cause = if args.is_string() {
            "the text of the arguments is no JSON object: it is cut off, or not escaped. Write it whole, or make the call smaller"
        } else {
            "expected an object"
        };
        return Err(invalid(format_args!("the arguments: {cause}, got {}", type_of(args))));
    }
    serde_path_to_error::deserialize(args).map_err(|error| {
        let path = error.path();
        let at = if path.iter().len() == 0 { String::new() } else { format!("/{path}: ") };
        invalid(format_args!("{at}{}", error.inner()))
    })
}

/// The arguments do not fit: `why` names the argument and what was expected of it.
pub fn invalid(why: impl std::fmt::Display) -> Refusal {
    let refusal = Refusal::new(RefusalClass::InvalidArgs, why);
    Refusal { message: truncate(refusal.message, MAX_MESSAGE_BYTES), ..refusal }
}

/// Models send a call without arguments as null, as an empty string or as an empty object.
pub fn normalize(args: &Value) -> Value {
    match args {
        Value::Null => Value::Object(serde_json::Map::new()),
        Value::String(text) if text.trim().is_empty() => Value::Object(serde_json::Map::new()),
        other => other.clone(),
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// An optional argument may be left out, but is not null.
pub fn not_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// Text that is there.
pub fn not_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.is_empty() { Err(D::Error::custom("must not be empty")) } else { Ok(text) }
}

/// Text that is there, in an argument that may be left out.
pub fn some_not_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    not_empty(deserializer).map(Some)
}
