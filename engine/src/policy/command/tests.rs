use super::*;

fn texts(line: &str) -> Option<Vec<String>> {
    Some(simple_commands(line)?.into_iter().map(|command| command.text).collect())
}

#[test]
fn every_simple_command_of_a_line_is_found_without_its_quotes() {
    for (line, commands) in [
        ("git push", &["git push"][..]),
        ("  \"git\"   pu''sh # a note", &["git push"]),
        ("\\git p\\ush", &["git push"]),
        ("cd a && git push; ls | wc -l & sleep 1 || true", &["cd a", "git push", "ls", "wc -l", "sleep 1", "true"]),
        ("(cd a; git push)", &["cd a", "git push"]),
        ("{ git push; } 2>&1", &["git push"]),
        ("if test -f x; then git push; else ls; fi", &["test -f x", "git push", "ls"]),
        ("for x in $(git ls-files) b; do rm $x; done", &["git ls-files", "rm $x"]),
        ("while ! git push; do sleep 1; done", &["git push", "sleep 1"]),
        ("echo \"$(git push)\" `git fetch`", &["git push", "git fetch", "echo $(git push) `git fetch`"]),
        ("diff <(git show a) <(git show b)", &["git show a", "git show b", "diff <(git show a) <(git show b)"]),
        ("echo '$(git push)' \\\n  more", &["echo $(git push) more"]),
        ("cat <<'EOF' && git push\n$(rm -r x) `\nEOF\nls", &["cat", "git push", "ls"]),
        ("cat <<-E\n\tif (\n\tE\n", &["cat"]),
        ("echo $((1 + 2)) ${HOME} $? $", &["echo $((1 + 2)) ${HOME} $? $"]),
        ("[[ -f x && -d y ]] && ls", &["[[ -f x", "-d y ]]", "ls"]),
        ("ls 2>/dev/null <in", &["ls"]),
    ] {
        assert_eq!(texts(line).as_deref(), Some(&commands.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>()[..]), "{line}");
    }
}

#[test]
fn a_command_that_does_more_than_its_words_say_is_not_plain() {
    for line in [
        "PATH=/tmp git log",
        "git log > ~/.bashrc",
        "git log >>x",
        "git log &> x",
        "git log >& x",
        "X=1",
        "> x",
        "$GIT log",
        "g* log",
        "g{i,}t log",
        "~/git log",
        "$(echo git) log",
    ] {
        let commands = simple_commands(line).unwrap();
        assert!(commands.iter().any(|command| !command.is_plain), "{line}: {commands:?}");
    }
    for line in ["git log *", "git log $X {a,b}", "git log 2>&1", "git log >/dev/null 2>&1", "git log < in"] {
        assert!(simple_commands(line).unwrap().iter().all(|command| command.is_plain), "{line}");
    }
}

#[test]
fn what_is_not_understood_is_not_guessed() {
    for line in [
        "echo 'a",
        "echo \"a",
        "echo `a",
        "echo $(a",
        "(a",
        "a)",
        "f() { git push; }",
        "function f { a; }",
        "case x in a) git push;; esac",
        "((x = 1))",
        "x=(a b)",
        "echo ${x:-$(git push)}",
        "echo $'\\x67it'",
        "echo $(( $(a) ))",
        "cat <<E\n$(git push)\nE",
        "cat <<E\nnever ends",
        "echo `echo \\`git push\\``",
        "(a) b",
    ] {
        assert_eq!(texts(line), None, "{line}");
    }
}

#[test]
fn a_line_that_is_deep_or_long_costs_neither_the_stack_nor_much_time() {
    for line in ["(".repeat(1 << 16), "$(".repeat(1 << 16), "\"$(".repeat(1 << 15), "if ".repeat(1 << 14) + "a (", "a".repeat(1 << 20)] {
        assert_eq!(texts(&line), None);
    }
    assert_eq!(texts(&format!("echo '{}'", "x".repeat(1 << 17))).unwrap().len(), 1);
}
