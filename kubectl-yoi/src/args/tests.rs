use super::*;

fn parsed(line: &str) -> Result<Cli, clap::Error> {
    Cli::from_words(std::iter::once("kubectl-yoi").chain(line.split(' ')))
}

#[test]
fn the_command_line_is_consistent() {
    Cli::clap_command().debug_assert();
}

#[test]
fn what_cannot_be_a_name_is_a_wrong_command_line() {
    for wrong in ["a/b", "../x", "A", "a b", "", "-a", "a-", "a.b"] {
        for line in [vec!["log", wrong], vec!["ls", "-n", wrong], vec!["run", "x", "-p", wrong], vec!["peer", "a", wrong]] {
            let parsed = Cli::from_words(std::iter::once("kubectl-yoi").chain(line.iter().copied()));
            assert!(parsed.is_err_and(|error| error.exit_code() == 2), "{line:?}");
        }
    }
    assert!(Cli::from_words(["kubectl-yoi", "log", "a-1"]).is_ok());
}

#[test]
fn a_flag_that_would_do_nothing_is_refused() {
    for line in [
        "stop",
        "stop a --all",
        "stop a -l x=y",
        "diff a -z",
        "stop a -w --dry-run",
        "rm a --timeout 1m",
        "stop a --timeout 1m",
        "workspace create w --empty --timeout 1m",
        "run a -p p --timeout 1m",
    ] {
        assert!(parsed(line).is_err_and(|error| error.exit_code() == 2), "{line}");
    }
    // The flag is refused before the verb and behind it.
    for (verb, flags) in [
        ("diff a --name-only", &["-o json"][..]),
        ("crds", &["-o json", "-o name", "-n x", "--context x", "--kubeconfig x"]),
        ("completion bash", &["-o json", "-o yaml", "-n x", "--context x", "--kubeconfig x"]),
        ("explain PodGone", &["-n x", "--context x", "--kubeconfig x"]),
        ("version --client", &["--context x", "--as x"]),
        ("log a", &["-o wide"]),
        ("doctor", &["-o wide"]),
    ] {
        assert!(parsed(verb).is_ok(), "{verb}");
        for flag in flags {
            for line in [format!("{verb} {flag}"), format!("{flag} {verb}")] {
                let error = parsed(&line).expect_err(&line);
                assert!(error.exit_code() == 2 && error.to_string().contains("would do nothing with `"), "{line}: {error}");
            }
        }
    }
    for line in [
        "stop a",
        "stop a -w --timeout 1m",
        "diff a -o json",
        "run a -p p",
        "crds -o yaml",
        "explain PodGone -o json",
        "ls -A --context x",
        "workspace ls -n x",
        "doctor -n x -o json",
        "ls -o wide",
        "workspace ls -o wide",
        "version -n x",
        "stop -l a=b",
        "stop --all",
        "run a -p p --dry-run=client",
    ] {
        assert!(parsed(line).is_ok(), "{line}");
    }
}

#[test]
fn a_workspace_comes_from_exactly_one_source() {
    assert!(Cli::from_words(["kubectl-yoi", "workspace", "create", "w"]).is_err());
    assert!(Cli::from_words(["kubectl-yoi", "workspace", "create", "w", "--empty", "--project", "p"]).is_err());
    assert!(Cli::from_words(["kubectl-yoi", "workspace", "create", "w", "--empty", "--claim", "--wait"]).is_ok());
}

#[test]
fn help_and_completion_offer_no_flag_that_would_do_nothing() {
    let global = useless::global_flags();
    let flags: Vec<String> =
        global.iter().filter(|arg| !arg.is_hide_set()).filter_map(|arg| Some(format!("--{}", arg.get_long()?))).collect();
    let all = flags.len();
    assert!(all > 10, "{flags:?}");
    let mut root = Cli::clap_command();
    root.build();
    for (verb, useful) in [("completion", 0), ("crds", 0), ("explain", 1), ("ls", all), ("doctor", all)] {
        let help = root.find_subcommand_mut(verb).unwrap().render_long_help().to_string();
        let is_shown = |flag: &&String| help.lines().any(|line| line.split([' ', ',']).any(|word| word == **flag));
        assert_eq!(flags.iter().filter(is_shown).count(), useful, "{help}");
        let words = [verb, "--"].map(str::to_owned);
        let command = Cli::clap_command();
        let offered = crate::complete::Completion::new(&command, &words).answer();
        let is_offered = |flag: &&String| offered.lines().any(|line| line.split('\t').next() == Some(flag.as_str()));
        assert_eq!(flags.iter().filter(is_offered).count(), useful, "{offered}");
    }
    let refused = Cli::from_words(["kubectl-yoi", "crds", "--context", "x"]).unwrap_err().to_string();
    assert!(refused.contains("--context would do nothing with `crds`"), "{refused}");
}

#[test]
fn each_verb_shows_examples_and_each_example_is_a_command_line() {
    fn check(command: &clap::Command, path: &str) {
        for verb in command.get_subcommands() {
            let path = format!("{path} {}", verb.get_name());
            let help = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            // Between the words of a path, an argument may stand: `assets NAME show`.
            let names_verb = |line: &str| {
                let mut words = line.split_whitespace();
                path.split_whitespace().all(|verb| words.any(|word| word == verb))
            };
            assert!(help.starts_with("Examples:\n") && help.lines().any(names_verb), "{path}: {help}");
            for line in help.lines().filter_map(|line| line.strip_prefix("  kubectl yoi ")) {
                let line = line.split(" | ").next().unwrap_or_default();
                let line = line.split(" < ").next().unwrap_or_default();
                let line = line.split(" > ").next().unwrap_or_default();
                let line = line.split("   ").next().unwrap_or_default().trim();
                // What stands between quotes is one word, and double ones between single ones are letters of it.
                let unquoted = |part: &str| part.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
                let double = |part: &str| -> Vec<String> {
                    let parts = part.split('"').enumerate();
                    parts.flat_map(|(n, part)| if n % 2 == 0 { unquoted(part) } else { vec![part.to_owned()] }).collect()
                };
                let parts = line.split('\'').enumerate();
                let words: Vec<String> =
                    parts.flat_map(|(n, part)| if n % 2 == 0 { double(part) } else { vec![part.to_owned()] }).collect();
                let parsed = Cli::from_words(std::iter::once("kubectl-yoi".to_owned()).chain(words));
                assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
            }
            check(verb, &path);
        }
    }
    check(&Cli::clap_command(), "");
}

#[test]
fn a_name_that_no_object_can_have_is_answered_by_the_rule() {
    for (line, words) in [
        (format!("run {} -p p", "a".repeat(51)), "a name has at most 50 characters, and this one has 51: take a shorter one"),
        (format!("workspace create {} --empty", "a".repeat(63)), "at most 50 characters, and this one has 63"),
        (format!("run a -p {}", "p".repeat(60)), "at most 50 characters"),
        ("workspace create w --empty --quota 1000".to_owned(), "a quota is a size of at least 1Mi"),
        ("workspace create w --empty --quota=-1Gi".to_owned(), "a quota is a size of at least 1Mi"),
        ("workspace create w --empty --quota lots".to_owned(), "like 500Mi or 10Gi"),
        ("workspace create w --git https://me:word@host/p".to_owned(), "name it by --git-secret"),
    ] {
        let error = parsed(&line).expect_err(&line);
        assert!(error.exit_code() == 2 && error.to_string().contains(words), "{error}");
    }
    assert!(parsed(&format!("run {} -p p", "a".repeat(50))).is_ok());
    assert!(parsed(&format!("ls -n {}", "n".repeat(63))).is_ok(), "a namespace may be longer");
}

#[test]
fn an_agent_is_the_runtimes_own_loop_a_program_or_a_command() {
    for line in [
        "run a -p p --program claude",
        "run a -p p --program claude --program-arg --effort --program-arg high --credentials login",
        "run a -p p --preset-from presets/mine.yaml --program-arg x --credentials login",
        "run a -p p --preset-from presets",
        "run a -p p --program codex --model-provider openai --model m --model-url http://m/v1/ --api responses",
        "run a -p p --command -- make -j 4 --keep-going",
        "run a -p p -t work --wait --command -- true",
        "run a -p p -i x",
    ] {
        assert!(parsed(line).is_ok(), "{line}: {}", parsed(line).unwrap_err());
    }
    for line in [
        "run a -p p --program claude --command -- true",
        "run a -p p --program claude -i x",
        "run a -p p --command -i x -- true",
        "run a -p p --command",
        "run a -p p -- true",
        "run a -p p --program-arg x",
        "run a -p p --credentials login",
        "run a -p p --command --credentials login -- true",
        "run a -p p --program Claude",
        "run a -p p --program claude --preset-from presets/mine.yaml",
        "run a -p p --preset-from presets/mine.yaml --command -- true",
        "run a -p p --preset-from presets/mine.yaml -i x",
        "run a -p p --preset-from presets/../other",
        "run a -p p --preset-from presets/",
        "run a -p p --api responses",
        "run a -p p --model-provider openai --model m --api completions",
    ] {
        assert!(parsed(line).is_err_and(|error| error.exit_code() == 2), "{line}");
    }
}

#[test]
fn how_patient_a_wait_is_with_a_person_has_bounds_and_stands_in_no_help() {
    for percent in ["0", "1001", "-5", "much", ""] {
        assert!(parsed(&format!("ls --patience-percent={percent}")).is_err_and(|error| error.exit_code() == 2), "{percent}");
    }
    assert_eq!(parsed("ls --patience-percent 10").unwrap().cluster.patience_percent, Some(10));
    assert_eq!(parsed("ls").unwrap().cluster.patience_percent, None);
    assert!(!Cli::clap_command().render_long_help().to_string().contains("atience"));
}
