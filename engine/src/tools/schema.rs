//! The JSON Schema of a tool's arguments.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

/// The schema of a type's arguments, with only those keywords that every endpoint accepts: an optional argument may be left out, but is not
/// null.
pub fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    let mut schema = Value::Object(std::mem::take(schema.ensure_object()));
    simplify(&mut schema);
    schema
}

fn simplify(schema: &mut Value) {
    let Some(schema) = schema.as_object_mut() else { return };
    for keyword in ["title", "format", "default"] {
        schema.remove(keyword);
    }
    let single = schema.get("type").and_then(Value::as_array).and_then(|types| types.iter().find(|name| *name != "null").cloned());
    if let Some(single) = single {
        schema.insert("type".to_owned(), single);
    }
    if schema.get("type").is_some_and(|name| name == "object") {
        // Endpoints refuse an object schema without these, also when there are no arguments.
        schema.entry("required").or_insert_with(|| Value::Array(Vec::new()));
        let properties = schema.entry("properties").or_insert_with(|| Value::Object(Map::new()));
        for property in properties.as_object_mut().into_iter().flat_map(Map::values_mut) {
            simplify(property);
        }
    }
    if let Some(items) = schema.get_mut("items") {
        simplify(items);
    }
}
