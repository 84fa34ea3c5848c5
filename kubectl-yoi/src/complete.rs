//! `kubectl yoi <TAB>`. kubectl runs `kubectl_complete-yoi` with the words of the line and reads the answer in cobra's format: one candidate
//! a line, with its description behind a tab, and then a number that is a cobra directive.

use std::fmt::Write;

use clap::builder::PossibleValue;
use clap::{Arg, Command};

/// The name under which kubectl looks for it on PATH.
pub const PROGRAM: &str = "kubectl_complete-yoi";
/// cobra's ShellCompDirectiveNoFileComp: the shell must not offer names of files.
const NO_FILES: u8 = 4;

/// Returns the answer for `words`. The last word is the one that is being typed.
pub fn candidates(root: &Command, words: &[String]) -> String {
    let (typed, before) = words.split_last().map_or(("", [].as_slice()), |(last, before)| (last.as_str(), before));
    let mut verb = root;
    let mut pending: Option<&Arg> = None;
    for word in before {
        if let Some(flag) = word.strip_prefix('-') {
            pending = flags(root, verb).find(|arg| has_name(arg, flag) && arg.get_action().takes_values());
        } else if pending.take().is_none() {
            verb = verb.find_subcommand(word).unwrap_or(verb);
        }
    }
    let mut text = String::new();
    let mut offer = |word: &str, description: Option<String>| {
        if word.starts_with(typed) {
            let description = description.and_then(|a| a.lines().next().map(|line| format!("\t{line}"))).unwrap_or_default();
            let _ = writeln!(text, "{word}{description}");
        }
    };
    let values = |arg: &Arg| arg.get_possible_values().into_iter().filter(|v| !v.is_hide_set()).collect::<Vec<PossibleValue>>();
    if let Some(arg) = pending {
        values(arg).iter().for_each(|v| offer(v.get_name(), v.get_help().map(ToString::to_string)));
    } else if typed.starts_with('-') {
        for arg in flags(root, verb) {
            if let Some(long) = arg.get_long() {
                offer(&format!("--{long}"), arg.get_help().map(ToString::to_string));
            }
        }
    } else {
        verb.get_subcommands().filter(|c| !c.is_hide_set()).for_each(|c| offer(c.get_name(), c.get_about().map(ToString::to_string)));
        let positional = verb.get_positionals().flat_map(values);
        positional.for_each(|v| offer(v.get_name(), v.get_help().map(ToString::to_string)));
    }
    let _ = writeln!(text, ":{NO_FILES}");
    text
}

/// Returns the flags of a verb, and the global ones that it does not hide.
fn flags<'a>(root: &'a Command, verb: &'a Command) -> impl Iterator<Item = &'a Arg> {
    let hides = |arg: &Arg| verb.get_arguments().any(|own| own.get_id() == arg.get_id() && own.is_hide_set());
    let global = root.get_arguments().filter(move |a| a.is_global_set() && !hides(a));
    let own = verb.get_arguments().filter(|a| !a.is_global_set());
    own.chain(global).filter(|a| !a.is_positional() && !a.is_hide_set())
}

fn has_name(arg: &Arg, flag: &str) -> bool {
    match flag.strip_prefix('-') {
        Some(long) => arg.get_long() == Some(long),
        None => arg.get_short().map(String::from).as_deref() == Some(flag),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates_for(line: &str) -> Vec<String> {
        let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
        let text = candidates(&crate::args::Cli::clap_command(), &words);
        assert!(text.ends_with("\n:4\n") || text == ":4\n", "{text}");
        text.lines().filter_map(|l| l.split('\t').next()).filter(|l| !l.starts_with(':')).map(str::to_owned).collect()
    }

    #[test]
    fn verbs_flags_and_values_are_offered_where_they_may_stand() {
        assert!(candidates_for("").contains(&"doctor".to_owned()) && candidates_for("").contains(&"run".to_owned()));
        assert_eq!(candidates_for("do"), ["doctor"]);
        assert_eq!(candidates_for("workspace "), ["create", "ls", "rm"]);
        assert_eq!(candidates_for("-n x ls w"), ["workspaces"]);
        assert_eq!(candidates_for("ls -o "), ["json", "yaml", "name"]);
        assert_eq!(candidates_for("log a --fo"), ["--follow"]);
        assert!(candidates_for("doctor --").contains(&"--context".to_owned()));
        assert_eq!(candidates_for("log "), Vec::<String>::new());
    }
}
