//! What the policy of an agent says to a call of a tool. It decides by the call alone and reads no disk: where a path leads, it is told.
//!
//! Rules for commands and paths are help, not a fence: a command may run a program that does anything. The fence is the frame, the mounts and the network.

use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher, GlobSet, GlobSetBuilder};
use serde_json::Value;
use yoi_wire::entry::RefusalClass;
use yoi_wire::policy::{
    APPROVAL_SECONDS, NetworkPolicy, OutsideException, Pattern, PatternKind, Rule, SENSITIVE_FILES, ToolName, ToolPolicy, check_host,
    check_outside, check_variable, is_folder_within, is_host_below,
};

mod arguments;
mod command;

use arguments::{hosts_in, paths_in, variables_in};
use command::{SimpleCommand, simple_commands};

use crate::decision::{Question, Refusal};
use crate::secrets::Redactor;

/// The name of the entry that says that a call has used an exception to what is outside of the tree. It changes nothing.
pub const EXCEPTION: &str = "yoi/sandbox-exception";

/// The manifest has a policy that this version cannot carry out.
#[derive(Debug, thiserror::Error)]
#[error("failed to understand {rule:?} in the policy of the manifest: {why}")]
pub struct PolicyError {
    rule: String,
    why: String,
}

/// Where a path leads, every link followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathTarget {
    /// In the tree: relative to its root.
    Inside(PathBuf),
    /// In a folder that the policy excepts, by the absolute path.
    Excepted(PathBuf),
    /// Elsewhere, or nowhere.
    Outside,
}

/// A policy that can be asked. Its [`Redactor`] reads the variables of this process once.
#[derive(Debug)]
pub struct Policy {
    deny: Vec<CompiledRule>,
    ask: Vec<CompiledRule>,
    approval_seconds: u64,
    allow: Vec<Vec<CompiledRule>>,
    sensitive: GlobSet,
    not_sensitive: GlobSet,
    outside: Vec<OutsideException>,
    environment: Vec<String>,
    network: Option<NetworkPolicy>,
    redactor: Redactor,
    source: ToolPolicy,
}

#[derive(Debug)]
struct CompiledRule {
    rule: Rule,
    /// Of a pattern for paths.
    paths: Vec<GlobMatcher>,
}

/// The parts of a call that rules are about.
struct Facts {
    tool: ToolName,
    paths: Vec<(String, PathTarget)>,
    /// `None`: a command that cannot be read.
    commands: Option<Vec<SimpleCommand>>,
    /// Scheme and host; a host without a scheme has none.
    hosts: Vec<(Option<String>, String)>,
    /// Names of variables that it sets.
    variables: Vec<String>,
}

fn path_globs(pattern: &str) -> Result<Vec<GlobMatcher>, PolicyError> {
    let relative = pattern.trim_start_matches('/');
    let anchored = if pattern.contains('/') { relative.to_owned() } else { format!("**/{relative}") };
    // The folder itself, too.
    let folder = anchored.strip_suffix("/**").map(str::to_owned);
    let compile = |text: &str| match GlobBuilder::new(text).literal_separator(true).build() {
        Ok(glob) => Ok(glob.compile_matcher()),
        Err(error) => Err(PolicyError { rule: pattern.to_owned(), why: error.kind().to_string() }),
    };
    std::iter::once(anchored).chain(folder).map(|text| compile(&text)).collect()
}

fn glob_set(patterns: impl Iterator<Item = impl AsRef<str>>) -> Result<GlobSet, PolicyError> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        for matcher in path_globs(pattern.as_ref())? {
            set.add(matcher.glob().clone());
        }
    }
    set.build().map_err(|error| PolicyError { rule: error.glob().unwrap_or_default().to_owned(), why: error.kind().to_string() })
}

fn compile(rules: &[String]) -> Result<Vec<CompiledRule>, PolicyError> {
    let compile = |text: &String| {
        let rule = Rule::parse(text).map_err(|error| PolicyError { rule: text.clone(), why: error.to_string() })?;
        let paths = match &rule.pattern {
            Some(Pattern::Path(pattern)) => path_globs(pattern)?,
            Some(Pattern::Command(_) | Pattern::Host(_)) | None => Vec::new(),
        };
        Ok(CompiledRule { rule, paths })
    };
    rules.iter().map(compile).collect()
}

impl Policy {
    /// Reads the policy of a manifest.
    ///
    /// # Errors
    /// A rule of it is none.
    pub fn new(policy: &ToolPolicy) -> Result<Self, PolicyError> {
        let ToolPolicy { deny, ask, approval_seconds, allow, sensitive, not_sensitive, network, .. } = policy;
        let ToolPolicy { outside, environment, keep_secrets, secret_variables, .. } = policy;
        for exception in outside {
            check_outside(exception).map_err(|why| PolicyError { rule: exception.path.clone(), why: why.to_owned() })?;
        }
        for name in environment {
            check_variable(name).map_err(|why| PolicyError { rule: name.clone(), why: why.to_owned() })?;
        }
        Ok(Self {
            deny: compile(deny)?,
            ask: compile(ask)?,
            approval_seconds: approval_seconds.unwrap_or(APPROVAL_SECONDS),
            allow: allow.iter().map(|rules| compile(rules)).collect::<Result<_, _>>()?,
            sensitive: glob_set(SENSITIVE_FILES.into_iter().chain(sensitive.iter().map(String::as_str)))?,
            not_sensitive: glob_set(not_sensitive.iter())?,
            outside: outside.clone(),
            environment: environment.clone(),
            network: network.clone(),
            redactor: if *keep_secrets { Redactor::off() } else { Redactor::new(secret_variables, |name| std::env::var(name).ok()) },
            source: policy.clone(),
        })
    }

    /// As it was written.
    #[must_use]
    pub fn source(&self) -> &ToolPolicy {
        &self.source
    }

    /// Takes secrets out of what calls return.
    pub(crate) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// Whether calls of the tool can be allowed at all.
    #[must_use]
    pub fn exposes(&self, tool: &str) -> bool {
        let tool = ToolName::of_call(tool);
        let is_denied = self.deny.iter().any(|rule| rule.is_for_all_of(&tool));
        let is_allowed = |rules: &Vec<CompiledRule>| rules.iter().any(|rule| rule.is_about(&tool));
        let has_network = !tool.uses_network() || self.network.as_ref().is_none_or(|network| !network.hosts.is_empty());
        !is_denied && has_network && self.allow.iter().all(is_allowed)
    }

    /// Whether a path of the tree is a file that holds secrets, or one that no tool may read.
    #[must_use]
    pub fn hides(&self, path: &Path) -> bool {
        self.is_sensitive(path) || self.deny.iter().any(|rule| !rule.rule.tool.writes_files() && rule.matches_path(path))
    }

    /// Decides about a call. `locate` says where a path leads. Returns what a person has to be asked, if anything.
    ///
    /// # Errors
    /// Why the call may not begin.
    pub fn check(&self, tool: &str, args: &Value, locate: &dyn Fn(&str) -> PathTarget) -> Result<Option<Question>, Refusal> {
        let facts = Facts::new(tool, args, locate);
        self.check_denied(&facts)?;
        self.check_allowed(&facts)?;
        self.check_network(&facts)?;
        self.check_variables(&facts)?;
        for (given, place) in &facts.paths {
            let leads_to_secret = match place {
                PathTarget::Inside(path) => self.is_sensitive(path),
                PathTarget::Excepted(path) => self.is_sensitive(path.strip_prefix("/").unwrap_or(path)),
                PathTarget::Outside => false,
            };
            if leads_to_secret || self.is_sensitive(Path::new(given.trim_start_matches('/'))) {
                let why = format_args!("{given:?} is a file that may hold secrets, and the policy of this agent does not except it");
                return Err(Refusal::new(RefusalClass::SensitivePathDenied, why));
            }
        }
        Ok(self.question(&facts))
    }

    /// The folder outside of the tree that the policy excepts and that a path names. Whether it leads there, the folder's own tree says.
    #[must_use]
    pub fn exception_of(&self, given: &str) -> Option<&OutsideException> {
        self.outside.iter().find(|exception| is_folder_within(given, &exception.path))
    }

    fn is_sensitive(&self, path: &Path) -> bool {
        self.sensitive.is_match(path) && !self.not_sensitive.is_match(path)
    }

    fn check_denied(&self, facts: &Facts) -> Result<(), Refusal> {
        if let Some(rule) = self.deny.iter().find(|rule| rule.matches(facts)) {
            let text = &rule.rule.text;
            let refusal = Refusal::new(RefusalClass::ToolDenied, format_args!("the policy of this agent denies it by the rule {text}"));
            return Err(Refusal { rule: Some(text.clone()), ..refusal });
        }
        match self.deny.iter().find(|rule| rule.is_for_commands_of(&facts.tool)) {
            Some(rule) if facts.commands.is_none() => {
                let why =
                    "the policy of this agent denies some commands, and this one cannot be read well enough to tell; write it simpler";
                Err(Refusal { rule: Some(rule.rule.text.clone()), ..Refusal::new(RefusalClass::ToolDenied, why) })
            }
            Some(_) | None => Ok(()),
        }
    }

    fn question(&self, facts: &Facts) -> Option<Question> {
        let is_unread = |rule: &CompiledRule| facts.commands.is_none() && rule.is_for_commands_of(&facts.tool);
        let asking: Vec<&CompiledRule> = self.ask.iter().filter(|rule| rule.matches(facts) || is_unread(rule)).collect();
        let unreadable = asking.iter().any(|rule| is_unread(rule));
        let rules: Vec<String> = asking.into_iter().map(|rule| rule.rule.text.clone()).collect();
        (!rules.is_empty()).then_some(Question { rules, unreadable, seconds: self.approval_seconds })
    }

    fn check_allowed(&self, facts: &Facts) -> Result<(), Refusal> {
        let Some(rules) = self.allow.iter().find(|rules| !allows(rules, facts)) else { return Ok(()) };
        let of_tool: Vec<&str> = rules.iter().filter(|rule| rule.is_about(&facts.tool)).map(|rule| rule.rule.text.as_str()).collect();
        let name = facts.tool.as_str();
        Err(match of_tool[..] {
            [] => Refusal::new(RefusalClass::ToolNotExposed, format_args!("the policy of this agent does not allow the tool {name}")),
            _ => Refusal::new(
                RefusalClass::ToolDenied,
                format_args!("of {name} the policy of this agent allows only {}", of_tool.join(", ")),
            ),
        })
    }

    fn check_variables(&self, facts: &Facts) -> Result<(), Refusal> {
        let denied: Vec<&str> = facts.variables.iter().filter(|name| !self.environment.contains(name)).map(String::as_str).collect();
        if denied.is_empty() {
            return Ok(());
        }
        let allowed = if self.environment.is_empty() { "none".to_owned() } else { self.environment.join(", ") };
        let why = format_args!("the policy of this agent lets calls set the variables {allowed}, and not {}", denied.join(", "));
        Err(Refusal::new(RefusalClass::EnvDenied, why))
    }

    fn check_network(&self, facts: &Facts) -> Result<(), Refusal> {
        let Some(NetworkPolicy { hosts, schemes }) = &self.network else { return Ok(()) };
        let refuse = |why: String| Err(Refusal::new(RefusalClass::NetworkDenied, why));
        let allowed = if hosts.is_empty() { "none".to_owned() } else { hosts.join(", ") };
        if facts.tool.uses_network() && facts.hosts.is_empty() {
            return refuse(format!("the call names no host, and the policy of this agent allows {allowed}"));
        }
        for (scheme, host) in &facts.hosts {
            if let Some(scheme) = scheme.as_ref().filter(|scheme| !schemes.contains(scheme)) {
                return refuse(format!("the policy of this agent allows the schemes {}, and not {scheme}", schemes.join(", ")));
            }
            if !hosts.iter().any(|rule| is_host_below(host, rule)) {
                return refuse(format!("the policy of this agent allows the hosts {allowed}, and not {host:?}"));
            }
        }
        Ok(())
    }
}

impl Facts {
    fn new(tool: &str, args: &Value, locate: &dyn Fn(&str) -> PathTarget) -> Self {
        let tool = ToolName::of_call(tool);
        let mut paths = paths_in(args);
        // A search that names no folder is one of the whole tree.
        if paths.is_empty() && matches!(tool.as_str(), "Grep" | "Glob" | "List") {
            paths.push(".".to_owned());
        }
        let command = ["command", "cmd", "script"].into_iter().find_map(|name| args.get(name)?.as_str());
        let commands = match tool.pattern_kind() {
            PatternKind::Command => command.and_then(simple_commands),
            PatternKind::Path | PatternKind::Host | PatternKind::None => Some(Vec::new()),
        };
        let located = |given: String| {
            let place = locate(&given);
            (given, place)
        };
        let variables = variables_in(args);
        Self { paths: paths.into_iter().map(located).collect(), commands, hosts: hosts_in(args, tool.uses_network()), variables, tool }
    }
}

/// Whether a list of rules allows the call: each of its commands, paths and hosts by one of the rules.
fn allows(rules: &[CompiledRule], facts: &Facts) -> bool {
    let rules: Vec<&CompiledRule> = rules.iter().filter(|rule| rule.is_about(&facts.tool)).collect();
    if rules.iter().any(|rule| rule.rule.pattern.is_none()) {
        return true;
    }
    match facts.tool.pattern_kind() {
        PatternKind::Command => facts.commands.as_ref().is_some_and(|commands| {
            let is_allowed = |command: &SimpleCommand| command.is_plain && rules.iter().any(|rule| rule.matches_command(&command.text));
            !commands.is_empty() && commands.iter().all(is_allowed)
        }),
        PatternKind::Path => {
            let is_allowed =
                |place: &PathTarget| matches!(place, PathTarget::Inside(path) if rules.iter().any(|rule| rule.matches_path(path)));
            !facts.paths.is_empty() && facts.paths.iter().all(|(_, place)| is_allowed(place))
        }
        PatternKind::Host => {
            !facts.hosts.is_empty() && facts.hosts.iter().all(|(_, host)| rules.iter().any(|rule| rule.matches_host(host)))
        }
        PatternKind::None => false,
    }
}

impl CompiledRule {
    /// Whether it says something of calls of the tool.
    fn is_about(&self, tool: &ToolName) -> bool {
        self.rule.tool == *tool || (matches!(self.rule.pattern, Some(Pattern::Path(_))) && self.rule.tool.same_files(tool))
    }

    /// Whether it matches every call of the tool.
    fn is_for_all_of(&self, tool: &ToolName) -> bool {
        self.rule.tool == *tool && self.rule.pattern.is_none()
    }

    fn is_for_commands_of(&self, tool: &ToolName) -> bool {
        self.rule.tool == *tool && matches!(self.rule.pattern, Some(Pattern::Command(_)))
    }

    /// Whether it matches a part of the call.
    fn matches(&self, facts: &Facts) -> bool {
        self.is_for_all_of(&facts.tool) || (self.is_about(&facts.tool) && self.matches_part(facts))
    }

    fn matches_part(&self, facts: &Facts) -> bool {
        let place = |place: &PathTarget| matches!(place, PathTarget::Inside(path) if self.matches_path(path));
        // A program is denied by its name, wherever it is.
        let command = |text: &str| self.matches_command(text) || without_folder(text).is_some_and(|text| self.matches_command(&text));
        match &self.rule.pattern {
            Some(Pattern::Command(_)) => facts.commands.iter().flatten().any(|found| command(&found.text)),
            Some(Pattern::Path(_)) => {
                facts.paths.iter().any(|(given, to)| place(to) || self.matches_path(Path::new(given.trim_start_matches('/'))))
            }
            Some(Pattern::Host(_)) => facts.hosts.iter().any(|(_, host)| self.matches_host(host)),
            None => false,
        }
    }

    fn matches_path(&self, path: &Path) -> bool {
        // What matches a folder matches what is in it, too.
        let mut folders = path.ancestors().filter(|folder| !folder.as_os_str().is_empty());
        !self.paths.is_empty() && folders.any(|folder| self.paths.iter().any(|glob| glob.is_match(folder)))
    }

    fn matches_command(&self, text: &str) -> bool {
        let Some(Pattern::Command(pattern)) = &self.rule.pattern else { return false };
        // `npm test:*` and `npm test *` are for the command without arguments, too.
        let words = pattern.strip_suffix(":*").or_else(|| pattern.strip_suffix(" *"));
        match words {
            Some(words) => matches_text(words, text) || matches_text(&format!("{words} *"), text),
            None => matches_text(pattern, text),
        }
    }

    fn matches_host(&self, host: &str) -> bool {
        matches!(&self.rule.pattern, Some(Pattern::Host(rule)) if is_host_below(host, rule))
    }
}

/// The command with the bare name of its program; `None` where it has no other.
fn without_folder(text: &str) -> Option<String> {
    let (program, rest) = text.split_at(text.find(' ').unwrap_or(text.len()));
    Some(format!("{}{rest}", program.rsplit_once('/')?.1))
}

/// Whether the text is the pattern, in which `*` stands for any text.
fn matches_text(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        // The first place is the best: it leaves most of the text for what follows.
        let Some(at) = rest.find(part) else { return false };
        rest = rest.get(at + part.len()..).unwrap_or_default();
    }
    rest.ends_with(last)
}

/// A host of a URL, or one that stands alone, in lower case and without its port.
fn plain_host(text: &str) -> Option<String> {
    let host = text.rsplit_once(':').filter(|(_, port)| port.bytes().all(|digit| digit.is_ascii_digit())).map_or(text, |(host, _)| host);
    check_host(host).ok()
}

#[cfg(test)]
mod tests {
    use super::matches_text;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, text) in [("git *", "git log"), ("*", ""), ("a*b*c", "a-b-b-c"), ("*push*", "git push origin"), ("ls", "ls")] {
            assert!(matches_text(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("git *", "git"), ("a*b", "ab-"), ("ls", "ls -a"), ("aa*aa", "aaa"), ("*x", "")] {
            assert!(!matches_text(pattern, text), "{pattern} {text}");
        }
    }
}
