//! YAML and JSON as values of our own, within bounds: bytes, depth, and values with those that aliases repeat.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// The longest text that is parsed as YAML.
pub(crate) const MAX_YAML_BYTES: usize = 64 << 10;
/// How many values a text may have, aliases included.
const MAX_VALUES: usize = 20_000;
/// How many bytes of text its values may have, aliases included.
const MAX_TEXT_BYTES: usize = 256 << 10;
/// How many brackets may be open at once. The parser looks at each open one for each token.
const MAX_OPEN: usize = 64;
/// How many brackets there may be. Those in quotes look as if they closed others, so that more are open than are counted.
const MAX_BRACKETS: usize = 4_096;

/// A value of YAML.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    Null,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Map),
}

/// In the order of the file.
pub(crate) type Map = Vec<(String, Node)>;

/// Why a text is no YAML that we take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct YamlError {
    pub(crate) message: String,
    /// From 1, within the text.
    pub(crate) line: Option<u32>,
}

impl Node {
    /// A scalar as text; `None` for null, lists and maps.
    pub(crate) fn scalar(&self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text.clone()),
            Self::Bool(value) => Some(value.to_string()),
            Self::Integer(value) => Some(value.to_string()),
            Self::Float(value) => Some(value.to_string()),
            Self::Null | Self::List(_) | Self::Map(_) => None,
        }
    }

    /// What it is, with its article.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "a boolean",
            Self::Integer(_) | Self::Float(_) => "a number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::from(*value),
            Self::Integer(value) => Value::from(*value),
            Self::Float(value) => Value::from(*value),
            Self::Text(value) => Value::from(value.as_str()),
            Self::List(values) => values.iter().map(Self::to_json).collect(),
            Self::Map(values) => Value::Object(values.iter().map(|(key, value)| (key.clone(), value.to_json())).collect()),
        }
    }
}

/// Reads one document.
pub(crate) fn parse(text: &str) -> Result<Node, YamlError> {
    if text.len() > MAX_YAML_BYTES {
        let message = format!("is longer than {} KiB of YAML", MAX_YAML_BYTES >> 10);
        return Err(YamlError { message, line: None });
    }
    if let Some(line) = line_too_deep(text) {
        let message = format!("has more than {MAX_OPEN} brackets open at once, or {MAX_BRACKETS} in all");
        return Err(YamlError { message, line: Some(line) });
    }
    let mut budget = Budget { values: MAX_VALUES, bytes: MAX_TEXT_BYTES };
    ValueSeed(&mut budget).deserialize(serde_yaml::Deserializer::from_str(text)).map_err(|error| {
        let line = error.location().and_then(|location| u32::try_from(location.line()).ok());
        let message = error.to_string();
        // The place is told apart.
        let message = message.split(" at line ").next().unwrap_or_default();
        YamlError { message: format!("is no YAML: {message}"), line }
    })
}

/// Reads one document of JSON.
pub(crate) fn parse_json(text: &str) -> Result<Node, YamlError> {
    if text.len() > MAX_YAML_BYTES {
        let message = format!("is longer than {} KiB of JSON", MAX_YAML_BYTES >> 10);
        return Err(YamlError { message, line: None });
    }
    let mut budget = Budget { values: MAX_VALUES, bytes: MAX_TEXT_BYTES };
    let mut from = serde_json::Deserializer::from_str(text);
    let read = ValueSeed(&mut budget).deserialize(&mut from).and_then(|node| from.end().map(|()| node));
    read.map_err(|error| {
        let line = u32::try_from(error.line()).ok().filter(|line| *line > 0);
        let message = error.to_string();
        // The place is told apart.
        let message = message.split(" at line ").next().unwrap_or_default();
        YamlError { message: format!("is no JSON: {message}"), line }
    })
}

/// The line of the first bracket that is one too many.
fn line_too_deep(text: &str) -> Option<u32> {
    let (mut open, mut all, mut line) = (0_usize, 0_usize, 1);
    for byte in text.bytes() {
        match byte {
            b'[' | b'{' => {
                open += 1;
                all += 1;
            }
            b']' | b'}' => open = open.saturating_sub(1),
            b'\n' => line += 1,
            _ => {}
        }
        if open > MAX_OPEN || all > MAX_BRACKETS {
            return Some(line);
        }
    }
    None
}

/// What a document may still have.
struct Budget {
    values: usize,
    bytes: usize,
}

impl Budget {
    fn take<E: serde::de::Error>(&mut self, bytes: usize) -> Result<(), E> {
        let (Some(values), Some(bytes)) = (self.values.checked_sub(1), self.bytes.checked_sub(bytes)) else {
            return Err(E::custom(format!(
                "it has more than {MAX_VALUES} values or {} KiB of text, aliases included",
                MAX_TEXT_BYTES >> 10
            )));
        };
        (self.values, self.bytes) = (values, bytes);
        Ok(())
    }
}

struct ValueSeed<'budget>(&'budget mut Budget);

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = Node;

    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<Node, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = Node;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a value without a tag")
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Node, E> {
        self.0.take::<E>(1)?;
        Ok(Node::Bool(value))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Node, E> {
        self.0.take::<E>(8)?;
        Ok(Node::Integer(value))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Node, E> {
        self.0.take::<E>(8)?;
        Ok(i64::try_from(value).map_or_else(|_| Node::Text(value.to_string()), Node::Integer))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Node, E> {
        self.0.take::<E>(8)?;
        Ok(Node::Float(value))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Node, E> {
        self.0.take::<E>(value.len())?;
        Ok(Node::Text(value.to_owned()))
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Node, E> {
        self.0.take::<E>(0)?;
        Ok(Node::Null)
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<Node, E> {
        self.visit_unit()
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Node, A::Error> {
        self.0.take::<A::Error>(0)?;
        let mut values = vec![];
        while let Some(value) = from.next_element_seed(ValueSeed(self.0))? {
            values.push(value);
        }
        Ok(Node::List(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Node, A::Error> {
        self.0.take::<A::Error>(0)?;
        let (mut values, mut keys) = (vec![], BTreeSet::new());
        while let Some(key) = from.next_key_seed(ValueSeed(self.0))? {
            let key = key.scalar().ok_or_else(|| A::Error::custom(format!("a key is {}", key.kind())))?;
            if !keys.insert(key.clone()) {
                return Err(A::Error::custom(format!("the key {} is there twice", crate::diagnostic::quote(&key))));
            }
            values.push((key, from.next_value_seed(ValueSeed(self.0))?));
        }
        Ok(Node::Map(values))
    }
}
