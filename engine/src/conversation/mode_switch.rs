//! The entries by which a conversation gets a mode.

use serde_json::json;
use yoi_wire::entry::{Body, ModeSwitched, Requester, SystemItem};
use yoi_wire::mode::Mode;

/// The entries by which a conversation gets a mode, and its model learns of it.
pub(super) fn switched(mode: Mode, by: Requester) -> [Body; 2] {
    let tools = match mode {
        Mode::Planning => "Until it is another one, only tools that change nothing run: look, and say what should be done.",
        Mode::Coding | Mode::Engineering => "All tools run.",
    };
    let text = format!("[A person has set the mode of this conversation to {mode}. {tools}]");
    let item = SystemItem { topic: "Mode".to_owned(), data: json!({ "mode": mode }), text };
    [Body::ModeSwitched(ModeSwitched { mode, by }), Body::SystemItem(item)]
}
