//! Parts of an input that a newer client may send, such as images. This version knows no kind of them: a placeholder takes the place of each, in the
//! log and for the model, and the answer says so.

use serde_json::Value;
use yoi_wire::control::{ControlDone, MAX_INPUT_PARTS};

const MAX_KIND: usize = 64;

/// Takes `parts` out of a request to run, puts placeholders at the end of its text, and returns their kinds.
///
/// # Errors
///
/// A sentence, if `parts` is no list of objects with a type, or has too many.
pub(super) fn replace(request: &mut Value) -> Result<Vec<String>, String> {
    let action =
        request.get_mut("action").and_then(Value::as_object_mut).filter(|action| action.get("type").is_some_and(|kind| kind == "run"));
    let Some((action, parts)) = action.and_then(|action| action.remove("parts").map(|parts| (action, parts))) else {
        return Ok(Vec::new());
    };
    let parts = parts.as_array().ok_or("parts is no list")?;
    if parts.len() > MAX_INPUT_PARTS {
        return Err(format!("an input has at most {MAX_INPUT_PARTS} parts"));
    }
    let kinds: Vec<String> = parts.iter().map(kind).collect::<Result<_, _>>()?;
    if let Some(Value::String(text)) = action.get_mut("text") {
        for kind in &kinds {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&format!("[Here was a part of kind {kind}, which this version of Yoi cannot take.]"));
        }
    }
    Ok(kinds)
}

fn kind(part: &Value) -> Result<String, String> {
    let kind = part["type"].as_str().ok_or("a part of an input has a type")?;
    let is_name = !kind.is_empty() && kind.len() <= MAX_KIND && kind.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_name.then(|| kind.to_owned()).ok_or_else(|| format!("the type of a part has 1 to {MAX_KIND} ASCII letters and digits"))
}

/// Adds to the answer what the model does not see.
pub(super) fn warn(done: &mut ControlDone, kinds: &[String]) {
    if !kinds.is_empty() {
        done.message
            .push_str(&format!("; parts of these kinds were left out, because this version does not know them: {}", kinds.join(", ")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_no_list_of_parts_is_refused_and_other_requests_are_left_alone() {
        let run = |parts: Value| replace(&mut json!({"id": "i", "action": {"type": "run", "text": "t", "parts": parts}}));
        for parts in [json!({}), json!("image"), json!([1]), json!([{}]), json!([{"type": ""}]), json!([{"type": "a\nb"}])] {
            assert!(run(parts.clone()).is_err(), "{parts}");
        }
        assert!(run(vec![json!({"type": "image"}); MAX_INPUT_PARTS + 1].into()).is_err());
        assert!(run(json!([{"type": "x".repeat(MAX_KIND + 1)}])).is_err());
        assert_eq!(run(json!([])), Ok(Vec::new()));
        let mut pause = json!({"id": "i", "action": {"type": "pause", "parts": [{"type": "image"}]}});
        assert_eq!(replace(&mut pause), Ok(Vec::new()));
        assert!(pause["action"]["parts"].is_array(), "an unknown key of another request is still refused");
        for request in [json!(1), json!([]), json!({"id": "i"}), json!({"action": "run"})] {
            assert_eq!(replace(&mut request.clone()), Ok(Vec::new()), "{request}");
        }
    }
}
