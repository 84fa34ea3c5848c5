//! A conversation, independent of the wire format of the request.

use serde_json::Value;

#[derive(Clone, Debug, Default)]
pub struct Conversation {
    /// Name of the model in the request.
    pub model: String,
    pub system: String,
    pub items: Vec<Item>,
}

#[derive(Clone, Debug)]
pub enum Item {
    User(String),
    Assistant(String),
    /// Output of a tool.
    Result(String),
}

impl Conversation {
    /// Makes several user messages of one that has blank lines.
    pub fn part_user_texts(&mut self) {
        let parted = std::mem::take(&mut self.items).into_iter().flat_map(|item| match item {
            Item::User(text) => text.split("\n\n").map(|part| Item::User(part.to_owned())).collect(),
            other => vec![other],
        });
        self.items = parted.collect();
    }

    pub fn all_text(&self) -> String {
        let mut all = self.system.clone();
        for item in &self.items {
            let (Item::User(text) | Item::Assistant(text) | Item::Result(text)) = item;
            all.push('\n');
            all.push_str(text);
        }
        all
    }

    pub fn add_system(&mut self, text: &str) {
        if !self.system.is_empty() {
            self.system.push('\n');
        }
        self.system.push_str(text);
    }
}

/// Returns the text of a `content` field, which is a string or a list of blocks.
pub fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let texts = blocks.iter().filter_map(|block| block.get("text").and_then(Value::as_str));
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}
