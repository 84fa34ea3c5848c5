//! `kubectl yoi <TAB>`. kubectl runs `kubectl_complete-yoi` with the words of the line and reads the answer in cobra's format: one candidate
//! a line, with its description behind a tab, and then a number that is a cobra directive.

mod names;

use std::fmt::Write;

use clap::builder::PossibleValue;
use clap::{Arg, Command};

pub use names::names_of;

/// The name under which kubectl looks for it on PATH.
pub const PROGRAM: &str = "kubectl_complete-yoi";
/// cobra's ShellCompDirectiveNoFileComp: the shell must not offer names of files.
const NO_FILES: u8 = 4;
/// cobra's ShellCompDirectiveDefault: the shell offers names of files.
const FILES: u8 = 0;

/// What may stand in the place of the word that is being typed.
pub struct Completion<'a> {
    typed: &'a str,
    candidates: Vec<(String, Option<String>)>,
    /// As the help calls the value: AGENT, PROJECT, ...
    value_name: Option<String>,
    /// The first word that is neither verb nor flag.
    first_positional: Option<String>,
}

impl<'a> Completion<'a> {
    /// Looks at `words`. The last word is the one that is being typed.
    pub fn new(root: &Command, words: &'a [String]) -> Self {
        let (typed, before) = words.split_last().map_or(("", [].as_slice()), |(last, before)| (last.as_str(), before));
        let mut verb = root;
        let mut pending: Option<&Arg> = None;
        let mut positionals = 0;
        let mut first_positional = None;
        for word in before {
            if pending.take().is_some() {
                continue;
            }
            if let Some(flag) = word.strip_prefix('-') {
                let attached = flag.contains('=');
                pending = flags(root, verb).find(|arg| has_name(arg, flag) && takes_next_word(arg)).filter(|_| !attached);
            } else if let Some(subcommand) = verb.find_subcommand(word) {
                verb = subcommand;
            } else {
                positionals += 1;
                first_positional.get_or_insert_with(|| word.clone());
            }
        }
        let mut completion = Completion { typed, candidates: Vec::new(), value_name: None, first_positional };
        if let Some(arg) = pending {
            completion.offer_values(arg);
        } else if typed.starts_with('-') {
            for arg in flags(root, verb) {
                if let Some(long) = arg.get_long() {
                    completion.offer(&format!("--{long}"), arg.get_help().map(ToString::to_string));
                }
            }
        } else {
            for command in verb.get_subcommands().filter(|c| !c.is_hide_set()) {
                completion.offer(command.get_name(), command.get_about().map(ToString::to_string));
            }
            // The last one takes all further words, if it may be given again.
            let all: Vec<&Arg> = verb.get_positionals().collect();
            let many = all.last().copied().filter(|arg| matches!(arg.get_action(), clap::ArgAction::Append));
            if let Some(arg) = all.get(positionals).copied().or(many) {
                completion.offer_values(arg);
            }
        }
        completion
    }

    /// As the help calls the value that is being typed, where that names objects.
    pub fn value_name(&self) -> Option<&str> {
        self.value_name.as_deref()
    }

    /// The first word of the verb that is no flag: in most verbs the agent.
    pub fn first_positional(&self) -> Option<&str> {
        self.first_positional.as_deref()
    }

    /// Adds a candidate, if it begins as the word that is being typed.
    pub fn offer(&mut self, word: &str, description: Option<String>) {
        if word.starts_with(self.typed) {
            self.candidates.push((word.to_owned(), description));
        }
    }

    fn offer_values(&mut self, arg: &Arg) {
        let values = arg.get_possible_values().into_iter().filter(|v| !v.is_hide_set()).collect::<Vec<PossibleValue>>();
        values.iter().for_each(|v| self.offer(v.get_name(), v.get_help().map(ToString::to_string)));
        if values.is_empty() {
            self.value_name = arg.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
        }
    }

    /// The answer for kubectl.
    pub fn answer(&self) -> String {
        let mut text = String::new();
        for (word, description) in &self.candidates {
            let description = description.as_ref().and_then(|a| a.lines().next().map(|line| format!("\t{line}"))).unwrap_or_default();
            let _ = writeln!(text, "{word}{description}");
        }
        let files = matches!(self.value_name.as_deref(), Some("FILE" | "KUBECONFIG"));
        let _ = writeln!(text, ":{}", if files { FILES } else { NO_FILES });
        text
    }
}

/// Whether a flag's value is the next word.
fn takes_next_word(arg: &Arg) -> bool {
    arg.get_action().takes_values() && !arg.is_require_equals_set()
}

/// Returns the flags of a verb, and the global ones that it does not hide.
fn flags<'a>(root: &'a Command, verb: &'a Command) -> impl Iterator<Item = &'a Arg> {
    let hides = |arg: &Arg| verb.get_arguments().any(|own| own.get_id() == arg.get_id() && own.is_hide_set());
    let global = root.get_arguments().filter(move |a| a.is_global_set() && !hides(a));
    let own = verb.get_arguments().filter(|a| !a.is_global_set());
    own.chain(global).filter(|a| !a.is_positional() && !a.is_hide_set())
}

/// Whether a word, without its first hyphen, is this flag.
pub fn has_name(arg: &Arg, flag: &str) -> bool {
    match flag.strip_prefix('-') {
        Some(long) => arg.get_long() == Some(long),
        None => arg.get_short().map(String::from).as_deref() == Some(flag),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(line: &str) -> (Vec<String>, Option<String>) {
        let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
        let command = crate::args::Cli::clap_command();
        let completion = Completion::new(&command, &words);
        let text = completion.answer();
        assert!(text.ends_with(":4\n") || text == ":0\n", "{text}");
        let words = text.lines().filter_map(|l| l.split('\t').next()).filter(|l| !l.starts_with(':')).map(str::to_owned).collect();
        (words, completion.value_name)
    }

    fn candidates_for(line: &str) -> Vec<String> {
        completed(line).0
    }

    #[test]
    fn verbs_flags_and_values_are_offered_where_they_may_stand() {
        assert!(candidates_for("").contains(&"doctor".to_owned()) && candidates_for("").contains(&"run".to_owned()));
        assert_eq!(candidates_for("do"), ["doctor"]);
        assert_eq!(candidates_for("workspace "), ["create", "ls", "rm"]);
        assert_eq!(candidates_for("-n x ls w"), ["workspaces"]);
        assert_eq!(candidates_for("ls -o "), ["json", "yaml", "name", "wide"]);
        assert_eq!(candidates_for("log a --fo"), ["--follow"]);
        assert!(candidates_for("doctor --").contains(&"--context".to_owned()));
    }

    #[test]
    fn each_place_of_a_name_knows_which_kind_of_name() {
        for (line, kind) in [
            ("log ", Some("AGENT")),
            ("stop a b ", Some("AGENT")),
            ("peer a ", Some("AGENT")),
            ("peer a b ", None),
            ("send a ", Some("TEXT")),
            ("run ", Some("NAME")),
            ("run a -p ", Some("PROJECT")),
            ("run a --fork ", Some("WORKSPACE")),
            ("run a --claim ", Some("CLAIM")),
            ("run a --peer ", Some("AGENT")),
            ("run a --program ", Some("PRESET")),
            ("workspace rm w ", Some("WORKSPACE")),
            ("workspace create w --project ", Some("PROJECT")),
            ("ls -n ", Some("NAMESPACE")),
            ("explain ", Some("REASON")),
            ("approve a ", Some("CALL")),
            ("projection a ", Some("KEY")),
            ("events ", Some("AGENT")),
            ("deny a 5 --because ", Some("TEXT")),
            ("--kubeconfig ", Some("KUBECONFIG")),
            ("stop --dry-run ", Some("AGENT")),
        ] {
            assert_eq!(completed(line).1.as_deref(), kind, "{line}");
        }
    }
}
