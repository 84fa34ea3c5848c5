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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_agent_put_into_one_message_is_parted_at_blank_lines_and_nothing_else_is() {
        let item = |kind: fn(String) -> Item| kind("pass 1\n\nnumber 2\nmore".to_owned());
        let mut conversation = Conversation { items: vec![item(Item::User), item(Item::Result)], ..Conversation::default() };
        conversation.part_user_texts();
        let items: Vec<String> = conversation.items.iter().map(|item| format!("{item:?}")).collect();
        assert_eq!(items, [r#"User("pass 1")"#, r#"User("number 2\nmore")"#, r#"Result("pass 1\n\nnumber 2\nmore")"#]);
    }
}
