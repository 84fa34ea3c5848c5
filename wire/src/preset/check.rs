//! What no type says of a preset. Whoever reads one checks it before it is used.

use std::collections::BTreeSet;

use super::{Preset, PresetInput, ProgramFormat};

/// Names of placeholders, without `${` and `}`.
const PLACEHOLDERS: [&str; 8] = ["input", "session", "model", "proxy", "token", "runtime", "home", "tree"];

/// Why a preset cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PresetError {
    /// Its name is none that `spec.agent.cli.preset` could hold.
    #[error("name {0:?} is no DNS label of at most 50 characters")]
    Name(String),
    /// A field that needs a value has none.
    #[error("{0} is empty")]
    Empty(&'static str),
    /// A path would lead out of HOME.
    #[error("{field} has the path {path:?}, which is not a plain path below HOME")]
    Path {
        /// `files` or `credentials`.
        field: &'static str,
        /// As written.
        path: String,
    },
    /// Two files have one path.
    #[error("two of files and credentials have the path {0:?}")]
    PathTwice(String),
    /// A key that no Secret can have.
    #[error("credentials has the key {0:?}, which no Secret can have")]
    Key(String),
    /// A placeholder that nothing stands behind.
    #[error("{field} holds ${{{name}}}, which is no placeholder; those are {}", PLACEHOLDERS.join(", "))]
    Placeholder {
        /// The field.
        field: &'static str,
        /// As written.
        name: String,
    },
    /// The program would never see what it is asked.
    #[error("input is Argument, and {0} does not hold ${{input}}")]
    NoInput(&'static str),
    /// The program would begin anew instead of going on. Arguments that name a session themselves are those of a first run, too.
    #[error("resumedArgs does not hold ${{session}}, nor is it firstArgs")]
    NoSession,
}

impl Preset {
    /// The first thing that is wrong with it, if anything is.
    ///
    /// # Errors
    /// Says which field, and what it holds.
    pub fn check(&self) -> Result<(), PresetError> {
        if !is_label(&self.name) {
            return Err(PresetError::Name(self.name.clone()));
        }
        let empty = [("program", self.program.is_empty()), ("speaks", self.speaks.is_empty())];
        if let Some((field, _)) = empty.into_iter().find(|(_, is_empty)| *is_empty) {
            return Err(PresetError::Empty(field));
        }
        if self.login.is_some() {
            Preset { login: None, ..self.clone().with_login() }.check()?;
        }
        self.check_paths()?;
        self.check_placeholders()?;
        let args = [("firstArgs", Some(&self.first_args)), ("resumedArgs", self.resumed_args.as_ref())];
        let has = |args: &[String], name: &str| args.iter().any(|arg| arg.contains(name));
        if self.input == PresetInput::Argument
            && let Some((field, _)) = args.into_iter().find(|(_, args)| args.is_some_and(|args| !has(args, "${input}")))
        {
            return Err(PresetError::NoInput(field));
        }
        match &self.resumed_args {
            Some(args) if !has(args, "${session}") && *args != self.first_args => Err(PresetError::NoSession),
            Some(_) | None => Ok(()),
        }
    }

    fn check_paths(&self) -> Result<(), PresetError> {
        let files = self.files.iter().map(|file| ("files", &file.path));
        let credentials = self.credentials.iter().map(|credential| ("credentials", &credential.path));
        let mut seen = BTreeSet::new();
        for (field, path) in files.chain(credentials) {
            if path.is_empty() || path.contains('\0') || path.split('/').any(|name| ["", ".", ".."].contains(&name)) {
                return Err(PresetError::Path { field, path: path.clone() });
            }
            if !seen.insert(path) {
                return Err(PresetError::PathTwice(path.clone()));
            }
        }
        let is_key = |key: &str| {
            let of_keys = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
            (1..=253).contains(&key.len()) && key.bytes().all(of_keys) && !key.starts_with("..") && key != "."
        };
        match self.credentials.iter().find(|credential| !is_key(&credential.key)) {
            Some(credential) => Err(PresetError::Key(credential.key.clone())),
            None => Ok(()),
        }
    }

    fn check_placeholders(&self) -> Result<(), PresetError> {
        let args = self.first_args.iter().map(|text| ("firstArgs", text));
        let resumed = self.resumed_args.iter().flatten().map(|text| ("resumedArgs", text));
        let env = self.env.values().map(|text| ("env", text));
        let files = self.files.iter().map(|file| ("files", &file.content));
        for (field, text) in args.chain(resumed).chain(env).chain(files) {
            let names = text.split("${").skip(1).filter_map(|rest| rest.split_once('}').map(|(name, _)| name));
            // What is no word is the program's own, as `${VAR:-x}` in a script.
            let mut words = names.filter(|name| !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase()));
            if let Some(name) = words.find(|name| !PLACEHOLDERS.contains(name)) {
                return Err(PresetError::Placeholder { field, name: name.to_owned() });
            }
        }
        Ok(())
    }
}

fn is_label(name: &str) -> bool {
    let of_labels = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=50).contains(&name.len()) && name.bytes().all(of_labels) && !name.starts_with('-') && !name.ends_with('-')
}

impl ProgramFormat {
    /// Its name for people.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            ProgramFormat::Anthropic => "Anthropic messages",
            ProgramFormat::Responses => "OpenAI Responses",
            ProgramFormat::ChatCompletions => "OpenAI chat completions",
            ProgramFormat::Gemini => "Gemini",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preset(change: impl FnOnce(&mut serde_json::Value)) -> Preset {
        let mut preset = serde_json::json!({
            "name": "p", "program": "p", "firstArgs": ["-p"], "resumedArgs": ["-p", "--resume", "${session}"], "speaks": ["Anthropic"], "parser": "Text",
            "env": {"URL": "${proxy}/v1", "OWN": "${HOME}"}, "files": [{"path": ".p/settings.json", "content": "{\"hook\": \"${runtime} hook\"}"}],
            "credentials": [{"key": ".login.json", "path": ".p/.login.json"}],
        });
        change(&mut preset);
        serde_json::from_value(preset).expect("a preset")
    }

    #[test]
    fn a_preset_that_could_not_work_is_refused_by_the_field_that_is_wrong() {
        assert_eq!(preset(|_| {}).check(), Ok(()));
        let too_long = "a".repeat(51);
        type Change<'a> = Box<dyn FnOnce(&mut serde_json::Value) + 'a>;
        let set = |field: &'static str, value: serde_json::Value| -> Change<'_> { Box::new(move |preset| preset[field] = value) };
        let file = |path: &str| serde_json::json!([{"path": path, "content": ""}]);
        let table = [
            (set("name", "Upper".into()), "\"Upper\" is no DNS label"),
            (set("name", too_long.clone().into()), "is no DNS label"),
            (set("name", "".into()), "is no DNS label"),
            (set("program", "".into()), "program is empty"),
            (set("speaks", serde_json::json!([])), "speaks is empty"),
            (set("files", file("/etc/passwd")), "files has the path \"/etc/passwd\""),
            (set("files", file("a/../../b")), "not a plain path below HOME"),
            (set("files", file(".p/.login.json")), "two of files and credentials"),
            (set("credentials", serde_json::json!([{"key": "a/b", "path": "x"}])), "which no Secret can have"),
            (set("login", serde_json::json!({"files": file("/etc/passwd")})), "files has the path \"/etc/passwd\""),
            (set("login", serde_json::json!({"env": {"A": "${key}"}})), "env holds ${key}"),
            (set("firstArgs", serde_json::json!(["${modell}"])), "firstArgs holds ${modell}"),
            (set("env", serde_json::json!({"A": "${key}"})), "env holds ${key}"),
            (set("input", "Argument".into()), "firstArgs does not hold ${input}"),
            (set("resumedArgs", serde_json::json!(["--continue"])), "does not hold ${session}"),
        ];
        let login = serde_json::json!({"env": {"A": "a"}, "files": [{"path": ".p/settings.json", "content": "{}"}, {"path": "new", "content": ""}]});
        let with_login = preset(set("login", login)).with_login();
        let files: Vec<_> = with_login.files.iter().map(|file| (file.path.as_str(), file.content.as_str())).collect();
        assert_eq!((with_login.env.len(), files), (1, vec![(".p/settings.json", "{}"), ("new", "")]));
        for (change, words) in table {
            let error = preset(change).check().expect_err(words).to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
