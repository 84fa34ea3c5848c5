use super::*;

fn parsed(line: &str) -> Result<Cli, clap::Error> {
    Cli::from_words(std::iter::once("kubectl-yoi").chain(line.split(' ')))
}

#[test]
fn the_command_line_is_consistent() {
    Cli::clap_command().debug_assert();
}

#[test]
fn durations_have_a_unit() {
    assert_eq!(duration("10m"), Ok(std::time::Duration::from_secs(600)));
    assert!(duration("10").is_err());
    assert!(duration("ten").is_err());
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
    for line in ["stop a --timeout 1m", "workspace create w --empty --timeout 1m", "run a -p p --timeout 1m"] {
        assert!(parsed(line).is_err_and(|error| error.exit_code() == 2), "{line}");
    }
    // The flag is refused before the verb and behind it.
    for (verb, flags) in [
        ("diff a --name-only", &["-o json"][..]),
        ("crds", &["-o json", "-o name", "-n x", "--context x", "--kubeconfig x"]),
        ("completion bash", &["-o json", "-o yaml", "-n x", "--context x", "--kubeconfig x"]),
        ("explain PodGone", &["-n x", "--context x", "--kubeconfig x"]),
        ("ls -A", &["-n x"]),
        ("ls sessions -A", &["-n x"]),
        ("workspace ls -A", &["-n x"]),
        ("doctor -A", &["-n x"]),
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
    let mut root = Cli::clap_command();
    root.build();
    for (verb, useless, useful) in [("completion", 4, 0), ("crds", 4, 0), ("explain", 3, 1), ("ls", 0, 4), ("doctor", 0, 4)] {
        let help = root.find_subcommand_mut(verb).unwrap().render_long_help().to_string();
        let shown = GLOBAL_FLAGS.iter().filter(|flag| help.contains(&format!("{flag} "))).count();
        assert_eq!((GLOBAL_FLAGS.len() - shown, shown), (useless, useful), "{help}");
        let words = [verb, "--"].map(str::to_owned);
        let offered = crate::complete::candidates(&Cli::clap_command(), &words);
        assert_eq!(GLOBAL_FLAGS.iter().filter(|flag| offered.contains(*flag)).count(), useful, "{offered}");
    }
    let refused = Cli::from_words(["kubectl-yoi", "crds", "--context", "x"]).unwrap_err().to_string();
    assert!(refused.contains("--context would do nothing with `crds`"), "{refused}");
}
