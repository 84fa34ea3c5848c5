//! What an agent's calls of tools may do: the policy as the manifest has it, and the form of its rules.
//!
//! A rule is `Tool` or `Tool(pattern)`. The pattern of Shell is a command, in which `*` stands for any text; that of a tool for files is a path of the tree,
//! as in a `.gitignore` (`*` and `?` within a name, `**` over folders, a name without `/` at any depth); that of WebFetch is `domain:HOST`.

use serde::{Deserialize, Serialize};

mod tool_name;

pub use tool_name::{PatternKind, ToolName};

/// Names of files that hold secrets. No call may name one, unless the policy excepts it.
pub const SENSITIVE_FILES: [&str; 6] = [".env", ".env.*", "*.pem", "*.key", "id_rsa", "id_ed25519"];

/// How long a call waits for a person, unless the policy says otherwise.
pub const APPROVAL_SECONDS: u64 = 3600;

/// The policy of one agent: that of its project, narrowed by its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolPolicy {
    /// A call that one of these rules matches is refused, whatever else allows it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
    /// A call that one of these rules matches waits for a person, whatever else allows it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ask: Vec<String>,
    /// After how many seconds without an answer such a call is refused; absent: [`APPROVAL_SECONDS`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_seconds: Option<u64>,
    /// A call has to match a rule of each of these lists. No list: what is not denied is allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<Vec<String>>,
    /// Sensitive files beside [`SENSITIVE_FILES`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sensitive: Vec<String>,
    /// Files that are not sensitive, although a pattern says so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_sensitive: Vec<String>,
    /// Folders outside of the tree that Read and List may look into.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outside: Vec<OutsideException>,
    /// Names of variables that a call may set for its command.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environment: Vec<String>,
    /// Which hosts the arguments of calls may name; absent: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkPolicy>,
    /// Secrets in what calls return stay there; else the model, the log and whoever watches see their kind alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep_secrets: bool,
    /// Variables of the agent that hold secrets, which are known by their values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secret_variables: Vec<String>,
}

impl ToolPolicy {
    /// Nothing but the sensitive files of every agent is closed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A folder outside of the tree that tools may read. What may hold secrets stays closed in it, and so does what the frame closes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OutsideException {
    /// Its absolute path.
    pub path: String,
    /// Why, in one CamelCase word. Each use is recorded with it.
    pub reason: String,
}

/// Hosts and schemes that the arguments of calls may name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicy {
    /// Names of hosts, each with all names below it. None: no tool of the network may be used.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Schemes of URLs.
    #[serde(default)]
    pub schemes: Vec<String>,
}

/// A rule, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// As it was written.
    pub text: String,
    /// The tool.
    pub tool: ToolName,
    /// Absent: every call of the tool.
    pub pattern: Option<Pattern>,
}

/// What calls of a tool a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Commands of a shell; `*` stands for any text.
    Command(String),
    /// Paths of the tree.
    Path(String),
    /// A host, with all names below it.
    Host(String),
}

/// Why a rule or a pattern is none, as a clause.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// The form is wrong.
    #[error("is no rule: write Tool or Tool(pattern)")]
    Form,
    /// No tool of Yoi's, or of a program that Yoi knows, has this name.
    #[error("names the tool {0:?}, which is none; there are {known}", known = ToolName::known().join(", "))]
    UnknownTool(String),
    /// The tool has no arguments that a pattern could be about.
    #[error("has a pattern, and the tool {0} takes none")]
    NoPattern(String),
    /// The pattern is no path of the tree.
    #[error("has a pattern that is no path of the tree: {0}")]
    Path(&'static str),
    /// The pattern is no host.
    #[error("has a pattern that is no host: write domain:HOST")]
    Host,
}

impl Rule {
    /// Reads a rule.
    ///
    /// # Errors
    /// Why it is none.
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        let text = text.trim();
        let (tool, pattern) = match text.split_once('(') {
            Some((tool, rest)) => (tool, Some(rest.strip_suffix(')').ok_or(RuleError::Form)?)),
            None => (text, None),
        };
        if tool.is_empty() || !tool.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.')) {
            return Err(RuleError::Form);
        }
        let Some(name) = ToolName::of_rule(tool) else { return Err(RuleError::UnknownTool(tool.to_owned())) };
        let pattern = match pattern.map(str::trim) {
            None => None,
            Some("") => return Err(RuleError::Form),
            // As in other programs: the same as no pattern.
            Some("*") => None,
            Some(pattern) => Some(match name.pattern_kind() {
                PatternKind::Command => Pattern::Command(pattern.to_owned()),
                PatternKind::Path => Pattern::Path(check_path(pattern)?),
                PatternKind::Host => Pattern::Host(check_host(pattern.strip_prefix("domain:").ok_or(RuleError::Host)?)?),
                PatternKind::None => return Err(RuleError::NoPattern(tool.to_owned())),
            }),
        };
        Ok(Self { text: text.to_owned(), tool: name, pattern })
    }

    /// Whether every call that `other` matches is matched by this rule too, as far as the two texts show it. False also where that cannot be seen.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let same_tool = self.tool == other.tool;
        match (&self.pattern, &other.pattern) {
            (None, _) => same_tool,
            (Some(_), None) => false,
            (Some(Pattern::Command(wide)), Some(Pattern::Command(narrow))) => same_tool && command_covers(wide, narrow),
            // A pattern for files is for all tools that read, or all that write.
            (Some(Pattern::Path(wide)), Some(Pattern::Path(narrow))) => self.tool.same_files(&other.tool) && path_covers(wide, narrow),
            (Some(Pattern::Host(wide)), Some(Pattern::Host(narrow))) => same_tool && is_host_below(narrow, wide),
            (Some(Pattern::Command(_) | Pattern::Path(_) | Pattern::Host(_)), Some(_)) => false,
        }
    }
}

/// Reads a pattern for files of the tree, relative to its root.
///
/// # Errors
/// It is none.
pub fn check_path(pattern: &str) -> Result<String, RuleError> {
    let relative = pattern.trim_start_matches("./");
    let why = if pattern.starts_with("//") || pattern.starts_with('~') {
        "it leads out of the tree"
    } else if pattern.contains(['[', ']', '{', '}', '!', '\\', '\0', ',']) {
        "only *, ** and ? stand for something else"
    } else if relative.split('/').any(|name| name == "..") {
        "it has .. in it"
    } else if relative.split('/').any(|name| name.contains("**") && name != "**") {
        "** has to be a whole name"
    } else if relative.trim_matches('/').is_empty() {
        "it is empty"
    } else {
        // A folder is what is in it.
        return Ok(relative.strip_suffix('/').map_or_else(|| relative.to_owned(), |folder| format!("{folder}/**")));
    };
    Err(RuleError::Path(why))
}

/// Checks a folder outside of the tree.
///
/// # Errors
/// Why it is none, as a clause.
pub fn check_outside(OutsideException { path, reason }: &OutsideException) -> Result<(), &'static str> {
    let mut letters = reason.bytes();
    let is_word = letters.next().is_some_and(|first| first.is_ascii_uppercase()) && letters.all(|letter| letter.is_ascii_alphanumeric());
    if !is_word || reason.len() > 64 {
        Err("has a reason that is no word such as SharedHeaders: 1 to 64 letters and digits, the first a capital")
    } else if !path.starts_with('/') || path.contains('\0') || path.split('/').any(|name| matches!(name, "." | "..")) {
        Err("is no absolute path without `.` and `..`")
    } else if path.trim_matches('/').is_empty() {
        Err("is the root of all files: name the folder that is meant")
    } else {
        Ok(())
    }
}

/// Whether all that one folder has is in the other one, too.
#[must_use]
pub fn is_folder_within(narrow: &str, wide: &str) -> bool {
    let (narrow, wide) = (narrow.trim_end_matches('/'), wide.trim_end_matches('/'));
    narrow.strip_prefix(wide).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Checks the name of a variable.
///
/// # Errors
/// Why it is none, as a clause.
pub fn check_variable(name: &str) -> Result<(), &'static str> {
    let mut letters = name.bytes();
    let begins = letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_');
    let is_name = begins && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == b'_') && name.len() <= 128;
    if is_name { Ok(()) } else { Err("is no name of a variable: letters, digits and `_`, the first no digit") }
}

/// Reads the name of a host, in lower case.
///
/// # Errors
/// It is none.
pub fn check_host(host: &str) -> Result<String, RuleError> {
    let host = host.trim().trim_start_matches("*.").trim_end_matches('.').to_ascii_lowercase();
    let is_label = |label: &str| {
        let letters = label.bytes().all(|letter| letter.is_ascii_alphanumeric() || letter == b'-' || letter == b'_');
        !label.is_empty() && label.len() <= 63 && letters && !label.starts_with('-') && !label.ends_with('-')
    };
    if host.len() <= 253 && host.split('.').all(is_label) { Ok(host) } else { Err(RuleError::Host) }
}

/// Whether a host is the one of a rule, or a name below it. Both are in lower case.
#[must_use]
pub fn is_host_below(host: &str, rule: &str) -> bool {
    host.strip_suffix(rule).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// What stands before the `*` at the end of a pattern, if that is its only one.
fn only_prefix(pattern: &str) -> Option<&str> {
    let prefix = pattern.strip_suffix('*')?;
    (!prefix.contains('*')).then_some(prefix)
}

fn command_covers(wide: &str, narrow: &str) -> bool {
    wide == narrow || only_prefix(wide).is_some_and(|prefix| !prefix.ends_with(':') && narrow.starts_with(prefix))
}

fn path_covers(wide: &str, narrow: &str) -> bool {
    let (wide, narrow) = (wide.trim_start_matches('/'), narrow.trim_start_matches('/'));
    // A name without `/` is a name at any depth.
    let below = |folder: &str| narrow == folder || narrow.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
    wide == narrow
        || wide == "**"
        || wide.strip_suffix("/**").is_some_and(|folder| !folder.contains(['*', '?']) && narrow.contains('/') && below(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_read_by_the_name_of_any_program() {
        for (text, tool, pattern) in [
            ("Shell", "Shell", None),
            (" Bash(git push*) ", "Shell", Some(Pattern::Command("git push*".into()))),
            ("Bash(*)", "Shell", None),
            ("run_shell_command(ls)", "Shell", Some(Pattern::Command("ls".into()))),
            ("Read(./docs/**)", "Read", Some(Pattern::Path("docs/**".into()))),
            ("Edit(/src/)", "Edit", Some(Pattern::Path("/src/**".into()))),
            ("WebFetch(domain:Example.org)", "WebFetch", Some(Pattern::Host("example.org".into()))),
            ("mcp__github__merge", "mcp__github__merge", None),
            ("mcp__yoi__ListPods", "ListPods", None),
        ] {
            let rule = Rule::parse(text).unwrap();
            assert_eq!((rule.tool.as_str(), &rule.pattern), (tool, &pattern), "{text}");
        }
    }

    #[test]
    fn what_is_no_rule_is_refused_with_its_cause() {
        for (text, words) in [
            ("", "is no rule"),
            ("Shell(", "is no rule"),
            ("Shell()", "is no rule"),
            ("Shell (x)", "is no rule"),
            ("Shel(x)", "names the tool \"Shel\", which is none; there are Shell, "),
            ("ListPods(a)", "takes none"),
            ("mcp__a__b(c)", "takes none"),
            ("Read(../x)", "it has .. in it"),
            ("Read(//etc/**)", "leads out"),
            ("Read(~/.ssh)", "leads out"),
            ("Read(a[bc])", "only *, ** and ?"),
            ("Read(a**)", "a whole name"),
            ("WebFetch(example.org)", "domain:HOST"),
            ("WebFetch(domain:-x)", "domain:HOST"),
        ] {
            let error = Rule::parse(text).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn a_rule_covers_what_is_narrower_and_is_not_taken_to_cover_what_cannot_be_seen() {
        let covers = |wide: &str, narrow: &str| Rule::parse(wide).unwrap().covers(&Rule::parse(narrow).unwrap());
        for (wide, narrow) in [
            ("Shell", "Bash"),
            ("Shell", "Shell(rm *)"),
            ("Shell(git *)", "Bash(git log *)"),
            ("Read(src/**)", "Grep(src/a/b.rs)"),
            ("Read(**)", "Read(x)"),
            ("Edit(src/**)", "Write(/src/x)"),
            ("WebFetch(domain:example.org)", "WebFetch(domain:docs.example.org)"),
        ] {
            assert!(covers(wide, narrow), "{wide} covers {narrow}");
        }
        for (wide, narrow) in [
            ("Shell(git *)", "Shell"),
            ("Shell(git *)", "Shell(gitk)"),
            ("Shell(a*b*)", "Shell(aab)"),
            ("Read", "Edit"),
            ("Read(src/**)", "Edit(src/**)"),
            ("Read(src/**)", "Read(src2/x)"),
            ("Read(src/**)", "Read(src)"),
            ("Read(*/a/**)", "Read(b/a/c)"),
            ("WebFetch(domain:example.org)", "WebFetch(domain:evil-example.org)"),
        ] {
            assert!(!covers(wide, narrow), "{wide} does not cover {narrow}");
        }
    }

    #[test]
    fn p17_a_folder_outside_of_the_tree_is_an_absolute_path_with_a_reason_and_one_within_another_is_narrower() {
        let outside = |path: &str, reason: &str| check_outside(&OutsideException { path: path.to_owned(), reason: reason.to_owned() });
        assert_eq!(outside("/usr/include", "SharedHeaders"), Ok(()));
        for (path, reason) in [
            ("/", "All"),
            ("//", "All"),
            ("usr", "R"),
            ("/usr/../etc", "R"),
            ("/usr/./x", "R"),
            ("/usr", ""),
            ("/usr", "because"),
            ("/usr", "No way"),
        ] {
            assert!(outside(path, reason).is_err(), "{path} {reason}");
        }
        assert!(is_folder_within("/usr/include/x", "/usr/include/") && is_folder_within("/usr", "/usr"));
        assert!(!is_folder_within("/usr/include2", "/usr/include") && !is_folder_within("/usr", "/usr/include"));
    }

    #[test]
    fn p21_the_name_of_a_variable_is_one_of_a_shell() {
        assert!(["A", "_x", "RUST_LOG", "a1"].into_iter().all(|name| check_variable(name).is_ok()));
        assert!(["", "1a", "A-B", "A=B", "A B", &"X".repeat(129)].into_iter().all(|name| check_variable(name).is_err()));
    }

    #[test]
    fn p20_a_host_is_below_another_by_whole_labels() {
        assert!(is_host_below("example.org", "example.org") && is_host_below("sub.example.org", "example.org"));
        assert!(!is_host_below("evil-example.org", "example.org") && !is_host_below("org", "example.org"));
    }
}
