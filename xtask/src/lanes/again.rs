//! Runs failed tests once more. Hundreds of tests share two cores with two clusters: now and then one of them waits longer than it allows for.

use std::ffi::OsStr;
use std::process::Command;

/// The most failed tests of one program that are run again: more have a common cause.
const MOST: usize = 3;

/// Returns the command of a `cargo test` again, for these tests alone; `None` where they are not to be run again.
pub fn command(tests: &Command, failed: &[String]) -> Option<Command> {
    // The name of a test of documentation has spaces, and none at all means that a program did not come to its end.
    if failed.is_empty() || failed.len() > MOST || failed.iter().any(|name| name.contains(' ')) {
        return None;
    }
    let words: Vec<_> = tests.get_args().collect();
    let end = words.iter().position(|word| *word == "--").unwrap_or(words.len());
    let options = words[end..].iter().filter(|word| word.len() > 2 && word.as_encoded_bytes().starts_with(b"--")).copied();
    let arguments = words[..end].iter().copied().chain([OsStr::new("--")]).chain(failed.iter().map(OsStr::new)).chain(options);
    Some(with_arguments(tests, arguments))
}

/// Returns the same command once more.
pub fn copy(tests: &Command) -> Command {
    with_arguments(tests, tests.get_args())
}

fn with_arguments<'a>(tests: &Command, arguments: impl Iterator<Item = &'a OsStr>) -> Command {
    let mut again = Command::new(tests.get_program());
    again.args(arguments);
    for (name, value) in tests.get_envs() {
        match value {
            Some(value) => again.env(name, value),
            None => again.env_remove(name),
        };
    }
    if let Some(folder) = tests.get_current_dir() {
        again.current_dir(folder);
    }
    again
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(command: &Command) -> Vec<String> {
        command.get_args().map(|word| word.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn only_what_failed_is_run_again_in_the_same_way() {
        let mut tests = Command::new("cargo");
        tests.args(["test", "--no-fail-fast", "--test", "e2e", "--", "--test-threads=6"]).env("A", "1").current_dir("/");
        let again = command(&tests, &["peers::a".to_owned(), "b".to_owned()]).unwrap();
        assert_eq!(words(&again), ["test", "--no-fail-fast", "--test", "e2e", "--", "peers::a", "b", "--test-threads=6"]);
        assert_eq!((again.get_program(), again.get_envs().count()), (tests.get_program(), 1));
        assert_eq!(again.get_current_dir(), tests.get_current_dir());
        let mut plain = Command::new("nice");
        plain.args(["-n", "10", "cargo", "test", "--workspace"]);
        assert_eq!(words(&command(&plain, &["a".to_owned()]).unwrap()), ["-n", "10", "cargo", "test", "--workspace", "--", "a"]);
    }

    #[test]
    fn many_failures_and_programs_that_broke_off_are_not_run_again() {
        let tests = Command::new("cargo");
        let names = |count: usize| (0..count).map(|n| n.to_string()).collect::<Vec<_>>();
        assert!(command(&tests, &names(MOST)).is_some());
        assert!(command(&tests, &names(MOST + 1)).is_none() && command(&tests, &[]).is_none());
        assert!(command(&tests, &["src/lib.rs - (line 3)".to_owned()]).is_none());
    }
}
