//! `devcontainer.json`: what of it a project can say, and what it cannot, by its key.

use std::collections::BTreeMap;

use jsonc_parser::ParseOptions;
use serde_json::{Map, Value};

use crate::args::{env_pair, image_name};

/// Environment variables that a project's Pods may have.
const MAX_VARIABLES: usize = 64;
/// Bytes of a variable's value, and of a command's word.
const MAX_VALUE: usize = 32_768;
const MAX_WORD: usize = 16_384;
/// Keys that say nothing about how the tree is worked in.
const SILENT: [&str; 2] = ["$schema", "name"];
/// Keys that are understood by people who know them, and why they are left out.
const REASONS: [(&str, &str); 27] = [
    ("build", BUILD),
    ("dockerFile", BUILD),
    ("dockerfile", BUILD),
    ("context", BUILD),
    ("dockerComposeFile", "Yoi starts one container for an agent: run the other services in the cluster, and name an image by --image"),
    ("service", "it belongs to dockerComposeFile"),
    ("runServices", "it belongs to dockerComposeFile"),
    (
        "features",
        "features are put into an image: devcontainer build --workspace-folder . --image-name IMAGE --push; then name it by --image",
    ),
    ("overrideFeatureInstallOrder", "it belongs to features"),
    ("workspaceFolder", "agents see the tree where you have it, or where --path says"),
    ("workspaceMount", "the tree comes from the project's source"),
    ("mounts", "volumes stand in spec.defaults.pod.volumes, of the kinds that Pod Security restricted allows"),
    ("runArgs", "there is no docker: what a Pod can have stands in spec.defaults.pod"),
    ("privileged", "agents are never privileged"),
    ("capAdd", "agents have no capabilities"),
    ("securityOpt", "what may be said stands in spec.defaults.pod.securityContext"),
    ("init", "the runtime ends what an agent leaves behind"),
    ("hostRequirements", "processors and memory stand in spec.defaults.pod.resources"),
    ("customizations", "it is for editors"),
    ("forwardPorts", "it is for editors; kubectl port-forward reaches a Pod's ports"),
    ("portsAttributes", "it is for editors"),
    ("updateRemoteUserUID", "agents run as spec.owner, whose number is this machine's"),
    ("onCreateCommand", "only postCreateCommand becomes spec.prepare: add it there"),
    ("updateContentCommand", "only postCreateCommand becomes spec.prepare: add it there"),
    ("postStartCommand", "nothing runs when an agent starts: say it in the agent's instruction"),
    ("postAttachCommand", "nobody attaches to an agent's shell"),
    ("initializeCommand", "nothing runs on your machine"),
];
const BUILD: &str =
    "Yoi builds no image: build it and push it (devcontainer build --workspace-folder . --image-name IMAGE --push), and name it by --image";

/// What a project takes of the file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DevContainer {
    pub image: Option<String>,
    /// The number of the user, where the file has a number.
    pub uid: Option<i64>,
    pub env: BTreeMap<String, String>,
    /// The words of `postCreateCommand`.
    pub prepare: Option<Vec<String>>,
    /// What is not taken, each with its key and the reason.
    pub notes: Vec<String>,
}

/// Reads the file for a tree that agents see at `path`.
///
/// # Errors
/// It is no JSON with comments, or no object: in words for a person.
pub fn parse(text: &str, path: &str) -> Result<DevContainer, String> {
    let strict = ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let value: Value = jsonc_parser::parse_to_serde_value(text, &strict).map_err(|error| error.to_string())?;
    let Value::Object(fields) = value else { return Err("it is no object".to_owned()) };
    let mut read = DevContainer::default();
    for (key, value) in &fields {
        match key.as_str() {
            "image" => read.take_image(value, path),
            "containerEnv" | "remoteEnv" => {}
            "remoteUser" => read.take_user(key, value),
            // Of both, the first is the one that tools run as.
            "containerUser" if !fields.contains_key("remoteUser") => read.take_user(key, value),
            "postCreateCommand" => read.take_command(value, path),
            "waitFor" | "containerUser" | "overrideCommand" | "shutdownAction" => read.note(key, "it means nothing to an agent's Pod"),
            silent if SILENT.contains(&silent) => {}
            other => {
                let reason = REASONS.iter().find(|(known, _)| *known == other).map_or("Yoi does not know it", |(_, reason)| *reason);
                read.note(key, reason);
            }
        }
    }
    // As in a dev container: what is for the tools counts more than what is for the container.
    for key in ["containerEnv", "remoteEnv"] {
        read.take_env(key, fields.get(key), path);
    }
    Ok(read)
}

impl DevContainer {
    fn note(&mut self, key: &str, reason: &str) {
        self.notes.push(format!("{key}: {reason}"));
    }

    fn take_image(&mut self, value: &Value, path: &str) {
        match value.as_str().map(|text| substituted(text, path)) {
            Some(Ok(image)) if image_name(&image).is_ok() => self.image = Some(image),
            Some(Err(variable)) => self.note("image", &format!("{variable} is not known here: name the image by --image")),
            Some(Ok(_)) | None => self.note("image", "it is no name of an image: name one by --image"),
        }
    }

    fn take_user(&mut self, key: &str, value: &Value) {
        let number = value.as_str().and_then(|text| text.split(':').next()?.parse::<i64>().ok());
        match (number, value.as_str()) {
            (Some(uid @ 1..=2_147_483_647), _) => self.uid = Some(uid),
            (Some(_), _) | (None, Some("root")) => {
                self.note(key, "agents never run as root: they run as spec.owner; another one: --owner UID:GID");
            }
            (None, _) => self.note(
                key,
                "a user's name is known in the image only: agents run as spec.owner, a number, as dev containers give the user this machine's; \
                 another one: --owner UID:GID",
            ),
        }
    }

    fn take_env(&mut self, key: &str, value: Option<&Value>, path: &str) {
        let fields = match value {
            None => return,
            Some(Value::Object(fields)) => fields,
            Some(_) => return self.note(key, "it is no object"),
        };
        for (name, value) in fields {
            let full = format!("{key}.{name}");
            let text = match value.as_str().map(|text| substituted(text, path)) {
                Some(Ok(text)) => text,
                Some(Err(variable)) => {
                    // Such a value is often a key of somebody's.
                    self.note(
                        &full,
                        &format!("{variable} is not read here: put the value into a Secret, and name it in spec.defaults.pod.env"),
                    );
                    continue;
                }
                None => {
                    self.note(&full, "its value is no text");
                    continue;
                }
            };
            let is_full = self.env.len() >= MAX_VARIABLES && !self.env.contains_key(name);
            match env_pair(&format!("{name}={text}")) {
                _ if is_full => self.note(&full, &format!("a Pod has at most {MAX_VARIABLES} variables")),
                _ if text.len() > MAX_VALUE || text.contains('\0') => self.note(&full, "its value is too long, or has a zero byte"),
                Ok((parsed, text)) if parsed == *name => drop(self.env.insert(parsed, text)),
                Ok(_) => self.note(&full, "it is not the name of an environment variable"),
                Err(rule) => self.note(&full, &rule),
            }
        }
    }

    fn take_command(&mut self, value: &Value, path: &str) {
        const KEY: &str = "postCreateCommand";
        let substituted = match substituted_value(value, path) {
            Ok(value) => value,
            Err(variable) => return self.note(KEY, &format!("{variable} is not known where it runs: say it in spec.prepare")),
        };
        let words = match &substituted {
            Value::String(text) if text.trim().is_empty() => return,
            Value::String(text) => Some(vec!["/bin/sh".to_owned(), "-c".to_owned(), text.clone()]),
            Value::Array(words) if words.is_empty() => return,
            Value::Array(words) => strings(words),
            Value::Object(named) if named.is_empty() => return,
            Value::Object(named) => {
                self.note(KEY, "its commands run one after another, and the first that fails ends them");
                script(named).map(|text| vec!["/bin/sh".to_owned(), "-c".to_owned(), text])
            }
            _ => None,
        };
        match words {
            Some(words)
                if words.len() <= 64 && !words[0].is_empty() && words.iter().all(|word| word.len() <= MAX_WORD && !word.contains('\0')) =>
            {
                self.prepare = Some(words);
            }
            Some(_) => self.note(KEY, "it is too long for spec.prepare: put it into a script of the repository"),
            None => self.note(KEY, "it is no command: a text, a list of words, or several of these by name"),
        }
    }
}

/// Several commands as one script of the shell.
fn script(named: &Map<String, Value>) -> Option<String> {
    let line = |command: &Value| match command {
        Value::String(text) => Some(format!("(\n{text}\n)")),
        Value::Array(words) => Some(strings(words)?.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")),
        _ => None,
    };
    let lines: Option<Vec<String>> = named.values().map(line).collect();
    Some(lines?.join(" &&\n"))
}

fn strings(words: &[Value]) -> Option<Vec<String>> {
    words.iter().map(|word| word.as_str().map(str::to_owned)).collect()
}

/// A word that the shell takes as it is.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The text with the variables that are known: the tree is where it is on this machine. `Err` is the first one that is not.
fn substituted(text: &str, path: &str) -> Result<String, String> {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, behind)) = rest.split_once("${") {
        let Some((name, after)) = behind.split_once('}') else { break };
        out.push_str(before);
        match name {
            "localWorkspaceFolder" | "containerWorkspaceFolder" => out.push_str(path),
            "localWorkspaceFolderBasename" | "containerWorkspaceFolderBasename" => {
                out.push_str(path.rsplit('/').next().unwrap_or_default())
            }
            // In a command this is the shell's own.
            _ if !name.contains(':') && !name.starts_with("devcontainer") => out.push_str(&format!("${{{name}}}")),
            other => return Err(format!("${{{other}}}")),
        }
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

fn substituted_value(value: &Value, path: &str) -> Result<Value, String> {
    Ok(match value {
        Value::String(text) => Value::String(substituted(text, path)?),
        Value::Array(items) => Value::Array(items.iter().map(|item| substituted_value(item, path)).collect::<Result<_, _>>()?),
        Value::Object(fields) => {
            let pairs = fields.iter().map(|(key, item)| substituted_value(item, path).map(|item| (key.clone(), item)));
            Value::Object(pairs.collect::<Result<_, String>>()?)
        }
        other => other.clone(),
    })
}

#[cfg(test)]
mod tests;
