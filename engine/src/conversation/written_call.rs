//! A call of a tool that a model writes as text: its server did not take it for one, so nothing ran.

use yoi_wire::entry::OfferedTool;

/// How models write a call, as their servers read it. A server that does not know its model's way leaves it in the text.
const BEGINS: [&str; 10] = [
    "<tool_call>",
    "<|tool_call|>",
    "<|tool_call_begin|>",
    "<|python_tag|>",
    "[TOOL_CALLS]",
    "<function=",
    "<function_call>",
    "<function_calls>",
    "<invoke name=",
    "<tool_use>",
];
/// Bytes after the begin within which the tool's name stands.
const NAME_WITHIN: usize = 256;

/// The offered tool that a text ends with a call of. A text that only mentions one goes on after it.
pub(super) fn written_call<'a>(text: &str, offered: &'a [OfferedTool]) -> Option<&'a str> {
    let text = text.trim_end();
    if !text.ends_with(['>', '}', ']']) {
        return None;
    }
    let at = BEGINS.iter().filter_map(|begin| Some(text.rfind(begin)? + begin.len())).max()?;
    let begin = &text[at..text.floor_char_boundary(at + NAME_WITHIN)];
    offered.iter().map(|tool| tool.name.as_str()).find(|name| {
        begin.match_indices(name).any(|(at, _)| {
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            !begin[..at].ends_with(is_name) && !begin[at + name.len()..].starts_with(is_name)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_at_the_end_of_a_text_is_known_in_each_models_way() {
        let tool = |name: &str| OfferedTool { name: name.to_owned(), description: String::new(), schema: serde_json::Value::Null };
        let offered = [tool("Shell"), tool("Read")];
        for text in [
            "<tool_call>{\"name\": \"Shell\", \"arguments\": {\"command\": \"ls\"}}</tool_call>",
            "I look first.\n<tool_call>\n{\"name\":\"Shell\"}\n</tool_call>\n\n",
            "<tool_call>\n<function=Shell>\n<parameter=command>\nls\n</parameter>\n</function>\n</tool_call>",
            "[TOOL_CALLS][{\"name\": \"Shell\", \"arguments\": {}}]",
            "<|python_tag|>{\"name\": \"Shell\", \"parameters\": {}}",
            "<function_calls>\n<invoke name=\"Shell\">\n<parameter name=\"command\">ls</parameter>\n</invoke>\n</function_calls>",
            "<|tool_call_begin|>functions.Shell:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
        ] {
            assert_eq!(written_call(text, &offered), Some("Shell"), "{text}");
        }
        for text in [
            "",
            "done",
            "A model writes `<tool_call>{\"name\": \"Shell\"}</tool_call>`, and the server reads it.",
            "<tool_call>{\"name\": \"Shells\"}</tool_call>",
            "<tool_call>{\"name\": \"Other\"}</tool_call>",
            "Shell <b>done</b>",
        ] {
            assert_eq!(written_call(text, &offered), None, "{text}");
        }
    }
}
