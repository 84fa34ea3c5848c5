//! Environment, processes and output of commands.

use yoi_wire::entry::ToolOutcome;

use crate::harness::{Harness, outcomes, tool_ends};
use crate::people::programs_in;

fn script(command: &str, timeout: u32) -> String {
    let args = serde_json::json!({"command": command, "timeoutSeconds": timeout});
    format!("rules:\n- steps:\n  - toolCalls: [{{tool: Shell, args: {args}}}]\n  - text: done\n")
}

async fn run(harness: &Harness) -> yoi_wire::entry::ToolEnded {
    let _runtime = harness.start(1, Some("go"));
    let entries = harness.wait_for_runs(1).await;
    assert_eq!(outcomes(&entries).len(), 1);
    tool_ends(&entries).remove(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn p21_a_command_gets_no_variable_of_the_runtime() {
    let harness =
        Harness::with_key(&script("env; echo; tr '\\0' '\\n' < /proc/$PPID/environ; cat /proc/$PPID/maps; pwd", 10), Some("k-123")).await;
    let harness = Harness { key: Some("k-123"), needs_key: true, user_env: vec![("FOO", "bar"), ("TERM", "xterm")], ..harness };
    let end = run(&harness).await;
    let names: Vec<&str> = end.output.split("\n\n").next().unwrap().lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    for wanted in ["PATH", "HOME", "LANG", "TERM", "TMPDIR", "YOI_AGENT", "FOO"] {
        assert!(names.contains(&wanted), "{wanted} in {}", end.output);
    }
    let known = ["PATH", "HOME", "LANG", "TERM", "TMPDIR", "YOI_AGENT", "YOI_CALL", "FOO", "PWD", "SHLVL", "_"];
    assert!(names.iter().all(|name| known.contains(name)), "{}", end.output);
    assert!(end.output.contains("TERM=dumb") && end.output.contains("YOI_AGENT=a") && end.output.contains("FOO=bar"));
    assert!(!end.output.contains("k-123"), "{}", end.output);
    assert!(end.output.contains(harness.tree().to_str().unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn p23_a_command_that_forks_and_ignores_signals_is_gone_after_its_time() {
    // One process ignores signals, one leaves the session, one leaves the session and its parent.
    let command = "trap '' TERM INT HUP; echo head; \
        (trap '' TERM INT HUP; while :; do echo x >> alive-1; sleep 0.05; done) & \
        setsid sh -c 'while :; do echo x >> alive-2; sleep 0.05; done' & \
        sh -c 'setsid sh -c \"while :; do echo x >> alive-3; sleep 0.05; done\" & exit' ; \
        while :; do sleep 0.1; done";
    let harness = Harness::new(&script(command, 2)).await;
    let end = run(&harness).await;
    assert_eq!(end.outcome, ToolOutcome::TimedOut);
    assert!(end.output.starts_with("head\n[the time limit of 2 s was reached"), "{}", end.output);
    let sizes = ["alive-1", "alive-2", "alive-3"].map(|name| std::fs::metadata(harness.tree().join(name)).unwrap().len());
    assert!(sizes.iter().all(|size| *size > 4), "{sizes:?}");
    assert_eq!(programs_in(&harness.tree().canonicalize().unwrap()), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_command_leaves_behind_ends_with_it_and_is_reaped() {
    let command = "sleep 300 & setsid sleep 300 & echo $! ; (sleep 0.1; exit 3)";
    let harness = Harness::new(&script(command, 20)).await;
    let runtime = harness.start(1, Some("go"));
    let entries = harness.wait_for_runs(1).await;
    let end = tool_ends(&entries).remove(0);
    assert_eq!(end.outcome, ToolOutcome::Failed);
    assert!(end.output.ends_with("[exit code 3]") && end.millis.unwrap() < 5000, "{end:?}");
    let children = || std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", runtime.child.id())).unwrap_or_default();
    harness.wait_until("the end of all children", |_| children().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_bounded_and_keeps_head_and_tail() {
    let harness = Harness::new(&script("echo first; yes | head -c 100000; echo last; echo wrong >&2; exit 7", 10)).await;
    let end = run(&harness).await;
    assert!(end.output.len() <= 4096, "{}", end.output.len());
    assert!(end.output.starts_with("first\ny\n") && end.output.ends_with("last\nwrong\n[exit code 7]"), "{}", end.output);
    assert!(end.output.contains("bytes left out"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_needs_no_settings_and_bears_the_agents_name() {
    let command = "git init -q && echo x > f && git add f && git commit -q -m first && git log --format='%an <%ae>'; \
        git config user.name other && git commit -q --amend --no-edit --reset-author && git log --format=%an";
    let harness = Harness::new(&script(command, 20)).await;
    let end = run(&harness).await;
    assert_eq!(end.output, "a <a@p.ns.invalid>\nother\n[exit code 0]");
}

#[tokio::test(flavor = "multi_thread")]
async fn git_reads_no_file_of_a_copied_tree_that_has_the_size_and_time_in_its_index() {
    // The time of the file lies before that of the index, as it does in every base. The copy has another content of the same size: who reads it sees that.
    let copy = "git init -q base && echo one > base/f && touch -d 2020-01-01 base/f && git -C base add f && git -C base commit -qm 1 && cp -a base copy && \
        echo two > copy/f && touch -r base/f copy/f";
    let status = |settings: &str| format!("{copy}; {settings} git -C copy status --short");
    let harness = Harness::new(&script(&status(""), 20)).await;
    assert_eq!(run(&harness).await.output, "[exit code 0]");
    let asked = "GIT_CONFIG_COUNT=2 GIT_CONFIG_KEY_0=core.checkStat GIT_CONFIG_VALUE_0=default GIT_CONFIG_KEY_1=core.trustctime GIT_CONFIG_VALUE_1=true";
    let harness = Harness::new(&script(&status(asked), 20)).await;
    assert_eq!(run(&harness).await.output, " M f\n[exit code 0]", "the control");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_closed_the_root_of_its_tree_can_open_it_again() {
    if !rustix::process::geteuid().is_root() {
        return crate::skip::skip("starting the runtime as another user needs root");
    }
    let call = |command: &str| format!("{{tool: Shell, args: {}}}", serde_json::json!({"command": command}));
    let steps = format!(
        "rules:\n- steps:\n  - toolCalls: [{}]\n  - toolCalls: [{}]\n  - toolCalls: [{}]\n  - text: done\n",
        call("chmod 000 ."),
        call("pwd; chmod 755 $TREE"),
        call("pwd"),
    );
    let harness = Harness { uid: Some(1000), ..Harness::new(&steps).await };
    let tree = harness.tree().to_str().unwrap().to_owned();
    let harness = Harness { user_env: vec![("TREE", tree.clone().leak())], ..harness };
    let _runtime = harness.start(1, Some("go"));
    let entries = harness.wait_for_runs(1).await;
    let outputs: Vec<String> = tool_ends(&entries).into_iter().map(|end| end.output).collect();
    assert!(
        outputs[1].starts_with(&format!("[{tree} cannot be entered (permission denied), so this command runs in /]\n/\n")),
        "{outputs:?}"
    );
    assert_eq!(outputs[2], format!("{tree}\n[exit code 0]"));
}
