//! Output: tables for people; JSON, YAML and names for programs.

mod table;
mod text;

use std::io::Write;

use serde::Serialize;

pub use table::{activity, age, cell, desired_state_name, duration, lines, message, provider, ready, table};
pub use text::{one_line, quoted_path, quoted_path_bytes, shortened, visible};
pub use yoi_wire::quantity::{bytes, count};

use crate::args::OutputFormat;
use crate::error::Error;

/// Prints objects in the requested format, or as the table when there is none.
pub fn objects<T: Serialize>(
    output: Option<OutputFormat>,
    objects: &[T],
    name: impl Fn(&T) -> String,
    table: impl FnOnce() -> String,
) -> Result<(), Error> {
    match output {
        None | Some(OutputFormat::Wide) => print(&table()),
        Some(OutputFormat::Name) => print(&objects.iter().map(|o| name(o) + "\n").collect::<String>()),
        Some(format) => print_as(format, &list(objects)?),
    }
}

/// Returns objects as one document, as kubectl does.
pub fn list<T: Serialize>(objects: &[T]) -> Result<serde_json::Value, Error> {
    let items = serde_json::to_value(objects).map_err(|e| format_error("JSON", e))?;
    Ok(serde_json::json!({ "apiVersion": "v1", "kind": "List", "metadata": { "resourceVersion": "" }, "items": items }))
}

/// Prints one object in the requested format, or the sentence when there is none.
pub fn object<T: Serialize>(output: Option<OutputFormat>, object: &T, name: &str, sentence: &str) -> Result<(), Error> {
    match output {
        None | Some(OutputFormat::Wide) => print(&format!("{sentence}\n")),
        Some(OutputFormat::Name) => print(&format!("{name}\n")),
        Some(format) => print_as(format, object),
    }
}

/// Prints one document as JSON or YAML. YAML begins with `---`, so that documents can follow each other.
pub fn print_as<T: Serialize>(format: OutputFormat, value: &T) -> Result<(), Error> {
    print(&document(format, value)?)
}

/// Returns one document as JSON or YAML.
pub fn document<T: Serialize>(format: OutputFormat, value: &T) -> Result<String, Error> {
    let mut value = serde_json::to_value(value).map_err(|e| format_error("JSON", e))?;
    without_managed_fields(&mut value);
    Ok(match format {
        OutputFormat::Yaml => yaml(&value)?,
        OutputFormat::Json | OutputFormat::Name | OutputFormat::Wide => {
            serde_json::to_string_pretty(&value).map_err(|e| format_error("JSON", e))? + "\n"
        }
    })
}

/// Returns one YAML document, which begins with `---`.
pub fn yaml(value: &serde_json::Value) -> Result<String, Error> {
    Ok("---\n".to_owned() + &serde_yaml::to_string(value).map_err(|e| format_error("YAML", e))?)
}

fn format_error(format: &str, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::local(format!("write the answer as {format}"), error, "take another form of it: -o json, -o yaml, or none")
}

/// Removes `managedFields`, as kubectl does: they are longer than the object.
fn without_managed_fields(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Array(items) => items.iter_mut().for_each(without_managed_fields),
        serde_json::Value::Object(fields) => {
            if let Some(serde_json::Value::Object(metadata)) = fields.get_mut("metadata") {
                metadata.remove("managedFields");
            }
            fields.values_mut().filter(|field| field.is_array()).for_each(without_managed_fields);
        }
        _ => {}
    }
}

/// Whether standard output takes more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    Done,
    /// It was closed (`| head`), which is no error.
    Closed,
}

/// Writes to standard output. A closed pipe is no error.
pub fn print(text: &str) -> Result<(), Error> {
    write(text).map(drop)
}

/// As [`print`], and says whether more can be written.
pub fn write(text: &str) -> Result<Written, Error> {
    write_bytes(text.as_bytes())
}

/// As [`write`], for what need not be text.
pub fn write_bytes(bytes: &[u8]) -> Result<Written, Error> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(Written::Done),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(Written::Closed),
        Err(error) => {
            Err(Error::local("write the answer", error, "look at where it goes: a disk without room, or a file that may not be written"))
        }
    }
}

/// Returns the sentence for an empty list.
pub fn empty_list(what: &str, namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!("no {what} in namespace {namespace}\n"),
        None => format!("no {what}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn documents_can_follow_each_other_and_hold_no_managed_fields() {
        let object = json!({ "kind": "YoiPod", "metadata": { "name": "a", "managedFields": [{ "manager": "x" }] } });
        let twice = document(OutputFormat::Yaml, &object).unwrap() + &document(OutputFormat::Yaml, &object).unwrap();
        assert_eq!(twice, "---\nkind: YoiPod\nmetadata:\n  name: a\n".repeat(2));
        for list in [list(std::slice::from_ref(&object)).unwrap(), json!({ "agents": [object], "peers": [] })] {
            let text = document(OutputFormat::Json, &list).unwrap();
            assert!(text.contains("YoiPod") && !text.contains("managedFields") && text.ends_with("}\n"), "{text}");
        }
    }
}
