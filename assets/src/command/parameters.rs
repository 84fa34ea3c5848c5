//! Parameters by name: their types, and how values come to them.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::arguments::{Word, words};
use super::{Command, RenderError};

/// The type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ParameterType {
    /// Text.
    String,
    /// A whole number.
    Integer,
    /// A number.
    Float,
    /// `true` or `false`.
    Boolean,
    /// An object of JSON.
    Map,
    /// A name: text without spaces.
    Atom,
    /// A list of JSON.
    List,
}

/// A parameter of a command.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Parameter {
    /// As `{{name}}` has it.
    pub name: String,
    /// What its values are.
    #[serde(rename = "type")]
    pub kind: ParameterType,
    /// Whether the caller has to give it. One with a default is never.
    pub required: bool,
    /// In words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doc: Option<String>,
    /// What it is without a value of the caller's. A parameter without either is empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
}

impl ParameterType {
    pub(super) fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "string" => Self::String,
            "integer" => Self::Integer,
            "float" => Self::Float,
            "boolean" => Self::Boolean,
            "map" => Self::Map,
            "atom" => Self::Atom,
            "list" => Self::List,
            _ => return None,
        })
    }

    /// Its values, as a noun with its article.
    pub(super) const fn noun(self) -> &'static str {
        match self {
            Self::String => "text",
            Self::Integer => "a whole number",
            Self::Float => "a number",
            Self::Boolean => "true or false",
            Self::Map => "an object of JSON",
            Self::Atom => "a name without spaces",
            Self::List => "a list of JSON",
        }
    }

    const fn of_schema(self) -> &'static str {
        match self {
            Self::String | Self::Atom => "string",
            Self::Integer => "integer",
            Self::Float => "number",
            Self::Boolean => "boolean",
            Self::Map => "object",
            Self::List => "array",
        }
    }

    pub(super) fn is_of(self, value: &Value) -> bool {
        match self {
            Self::String => value.is_string(),
            Self::Atom => value.as_str().is_some_and(|text| !text.is_empty() && !text.contains(char::is_whitespace)),
            Self::Integer => value.is_i64() || value.is_u64(),
            Self::Float => value.is_number(),
            Self::Boolean => value.is_boolean(),
            Self::Map => value.is_object(),
            Self::List => value.is_array(),
        }
    }

    /// The value of a word.
    fn value_of(self, word: &str) -> Option<Value> {
        let value = match self {
            Self::String | Self::Atom => Value::from(word),
            Self::Integer | Self::Float | Self::Boolean | Self::Map | Self::List => serde_json::from_str(word.trim()).ok()?,
        };
        self.is_of(&value).then_some(value)
    }
}

/// A value as it is put into the text.
fn inserted(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The values of a text: `name=value` for a name that the command has, an object of JSON, and what is left in the order of the parameters.
pub(super) fn from_text(command: &Command, arguments: &str) -> Result<Vec<(String, String)>, RenderError> {
    if command.parameters.is_empty() {
        return Ok(vec![]);
    }
    let arguments = arguments.trim();
    if arguments.starts_with('{') {
        let object = serde_json::from_str::<Map<String, Value>>(arguments);
        let object = object
            .map_err(|error| RenderError::Arguments { name: command.name.clone(), reason: format!("it is no object of JSON: {error}") })?;
        return Ok(from_values(command, &object)?.0);
    }
    let words = words(arguments)
        .map_err(|open| RenderError::Arguments { name: command.name.clone(), reason: format!("the quote {} has no end", open.0) })?;
    let (mut texts, mut plain): (Vec<(usize, String)>, Vec<Word>) = (vec![], vec![]);
    let mut last_named = None;
    for word in words {
        let named = word.text.split_once('=').and_then(|(name, value)| Some((position(command, name)?, value)));
        match named {
            Some((parameter, value)) if texts.iter().all(|(other, _)| *other != parameter) => {
                texts.push((parameter, value.to_owned()));
                last_named = Some(word.begin);
            }
            _ => plain.push(word),
        }
    }
    let free: Vec<usize> = (0..command.parameters.len()).filter(|at| texts.iter().all(|(taken, _)| taken != at)).collect();
    place(command, arguments, &free, &plain, last_named, &mut texts)?;
    let mut values = Map::new();
    for (at, text) in texts {
        let Some(parameter) = command.parameters.get(at) else { continue };
        let value = parameter.kind.value_of(&text).ok_or_else(|| wrong_type(command, parameter))?;
        values.insert(parameter.name.clone(), value);
    }
    Ok(from_values(command, &values)?.0)
}

/// Gives words without a name to the parameters that have none yet. The last of them takes all that is left, if it is text.
fn place(
    command: &Command,
    arguments: &str,
    free: &[usize],
    plain: &[Word],
    last_named: Option<usize>,
    texts: &mut Vec<(usize, String)>,
) -> Result<(), RenderError> {
    for (place, parameter) in free.iter().enumerate() {
        let Some(word) = plain.get(place) else { return Ok(()) };
        let is_last = place + 1 == free.len();
        let takes_rest = command.parameters.get(*parameter).is_some_and(|parameter| parameter.kind == ParameterType::String);
        if is_last && takes_rest && plain.len() > free.len() {
            let rest = &plain[place..];
            // As it was written, quotes included, unless a named value stands in between.
            let text = if last_named < Some(word.begin) {
                arguments[word.begin..].to_owned()
            } else {
                rest.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ")
            };
            texts.push((*parameter, text));
            return Ok(());
        }
        texts.push((*parameter, word.text.clone()));
    }
    if plain.len() > free.len() {
        let surplus = plain[free.len()..].iter().map(|word| crate::diagnostic::quote(&word.text)).take(5).collect();
        return Err(RenderError::Surplus { name: command.name.clone(), surplus, usage: usage(command) });
    }
    Ok(())
}

fn position(command: &Command, name: &str) -> Option<usize> {
    command.parameters.iter().position(|parameter| parameter.name == name)
}

fn wrong_type(command: &Command, parameter: &Parameter) -> RenderError {
    RenderError::WrongType { name: command.name.clone(), parameter: parameter.name.clone(), expected: parameter.kind.noun() }
}

/// Checks values, and gives them as they are put into the text, with defaults; and all of them as one text.
pub(super) fn from_values(command: &Command, values: &Map<String, Value>) -> Result<(Vec<(String, String)>, String), RenderError> {
    let surplus: Vec<String> =
        values.keys().filter(|name| position(command, name).is_none()).map(|name| crate::diagnostic::quote(name)).take(5).collect();
    if !surplus.is_empty() {
        return Err(RenderError::Surplus { name: command.name.clone(), surplus, usage: usage(command) });
    }
    let (mut texts, mut missing) = (vec![], vec![]);
    for parameter in &command.parameters {
        let value = values.get(&parameter.name).or(parameter.default.as_ref());
        match value {
            Some(value) if parameter.kind.is_of(value) => texts.push((parameter.name.clone(), inserted(value))),
            Some(_) => return Err(wrong_type(command, parameter)),
            None if parameter.required => missing.push(parameter.name.clone()),
            None => {}
        }
    }
    if !missing.is_empty() {
        return Err(RenderError::Missing { name: command.name.clone(), missing, usage: usage(command) });
    }
    let all = texts.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join(" ");
    Ok((texts, all))
}

/// The value `arguments`, of a command without parameters by name.
pub(super) fn only_text(command: &Command, values: &Map<String, Value>) -> Result<String, RenderError> {
    let surplus: Vec<String> =
        values.keys().filter(|name| *name != "arguments").map(|name| crate::diagnostic::quote(name)).take(5).collect();
    if !surplus.is_empty() {
        return Err(RenderError::Surplus { name: command.name.clone(), surplus, usage: usage(command) });
    }
    match values.get("arguments") {
        None => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(RenderError::WrongType {
            name: command.name.clone(),
            parameter: "arguments".to_owned(),
            expected: ParameterType::String.noun(),
        }),
    }
}

pub(super) fn schema(command: &Command) -> Value {
    if command.parameters.is_empty() {
        let description = command.argument_hint.as_deref().unwrap_or("What the command is about.");
        return json!({
            "type": "object",
            "properties": {"arguments": {"type": "string", "description": description}},
            "additionalProperties": false,
        });
    }
    let property = |parameter: &Parameter| {
        let mut property = Map::new();
        property.insert("type".to_owned(), parameter.kind.of_schema().into());
        if let Some(doc) = &parameter.doc {
            property.insert("description".to_owned(), doc.as_str().into());
        }
        if let Some(default) = &parameter.default {
            property.insert("default".to_owned(), default.clone());
        }
        (parameter.name.clone(), Value::Object(property))
    };
    let properties: Map<String, Value> = command.parameters.iter().map(property).collect();
    let required: Vec<&str> =
        command.parameters.iter().filter(|parameter| parameter.required).map(|parameter| parameter.name.as_str()).collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

pub(super) fn usage(command: &Command) -> String {
    let mut usage = format!("/{}", command.name);
    if command.parameters.is_empty() {
        return format!("{usage} {}", command.argument_hint.as_deref().unwrap_or("[TEXT]"));
    }
    for parameter in &command.parameters {
        let text = if parameter.required { format!(" {}=...", parameter.name) } else { format!(" [{}=...]", parameter.name) };
        usage.push_str(&text);
    }
    usage
}
