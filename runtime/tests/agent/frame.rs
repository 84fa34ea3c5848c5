//! What a shell of the agent reaches in the frame, and without it.

use yoi_engine::frame::FrameSupport;
use yoi_wire::entry::ToolOutcome;

use crate::harness::{Harness, tool_ends};

/// Ways to a file that a process may not read. `F` is the file.
const FILE_WAYS: [&str; 22] = [
    "cat F",
    "head -c 1 F",
    "tail -c 1 F",
    "cp F x",
    "ln F x",
    "ln -s F x && cat x",
    "mv F x && mv x F",
    "dd if=F of=x",
    ": < F",
    "exec 3< F",
    "exec 3<> F",
    ": >> F",
    "wc -c < F",
    "cat /proc/self/rootF",
    "cd / && cat .F",
    "cat $(dirname F)/../$(basename $(dirname F))/$(basename F)",
    "setsid cat F",
    "env -i /bin/cat F",
    "sh -c 'cat F'",
    "cat F & wait $!",
    "tar cf x F",
    "truncate -s +1 F",
];
/// Ways into a folder that is closed. `D` is the folder.
const FOLDER_WAYS: [&str; 10] = [
    "ls D",
    "test -n \"$(find D -mindepth 1)\"",
    "touch D/new-1",
    "mkdir D/new-2",
    "ln -s / D/new-3",
    "mkfifo D/new-4",
    "echo x > own && mv own D/new-5",
    "echo x > D/new-6",
    "rm D/extra",
    "cd D && ls",
];
const SIGNAL_WAYS: [&str; 4] = ["kill -0 P", "kill -CONT P", "kill -WINCH P", "sh -c 'kill -0 P'"];

/// The ways that are open, and how many were tried.
async fn open_ways(frame: bool) -> (Vec<String>, usize) {
    let mut harness = Harness::new("rules:\n- steps:\n  - text: done\n").await;
    harness.limits["toolSeconds"] = 60.into();
    harness.limits["toolOutputBytes"] = 65536.into();
    harness.env.push(("YOI_FRAME", frame.to_string()));
    let path = |name: &str| harness.dir.path().canonicalize().unwrap().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("session/extra"), "x").unwrap();
    std::fs::write(path("session/extra-file"), "x").unwrap();
    let files = [path("session/extra-file"), path("token"), path("manifest.json")];
    let mut ways: Vec<String> = files.iter().flat_map(|file| FILE_WAYS.map(|way| way.replace('F', file))).collect();
    ways.extend(FOLDER_WAYS.map(|way| way.replace('D', &path("session"))));
    ways.extend(SIGNAL_WAYS.map(|way| way.replace('P', "$RUNTIME")));
    let count = ways.len();
    let mut script = "export RUNTIME=$PPID\n".to_owned();
    for (number, way) in ways.iter().enumerate() {
        script.push_str(&format!("( {way}\n) > /dev/null 2>&1 && echo 'open '{number}; rm -rf x own\n"));
    }
    std::fs::write(harness.tree().join("ways.sh"), script).unwrap();
    let args = serde_json::json!({"command": ". ./ways.sh; echo all tried; cat /etc/passwd > /dev/null && git init -q repo && echo work goes on", "timeoutSeconds": 60});
    let steps = format!("rules:\n- steps:\n  - toolCalls: [{{tool: Shell, args: {args}}}]\n  - text: done\n");
    std::fs::write(harness.dir.path().join("script.yaml"), steps).unwrap();
    let _runtime = harness.start(1, Some("go"));
    let entries = harness.wait_for_runs(1).await;
    let end = tool_ends(&entries).remove(0);
    assert_eq!(end.outcome, ToolOutcome::Succeeded, "{}", end.output);
    assert!(end.output.contains("all tried") && end.output.contains("work goes on"), "{}", end.output);
    let report = harness.gateway.wait_for_report(|report| report.ready).await;
    let expected = if frame {
        Some(FrameSupport::of_this_kernel().lacks().unwrap_or_default())
    } else {
        report.scope.clone().filter(|scope| scope.contains("switched off"))
    };
    assert!(report.scope == expected && (frame || expected.is_some()), "{:?}", report.scope);
    let open = end.output.lines().filter_map(|line| line.strip_prefix("open ")?.parse::<usize>().ok());
    (open.map(|number| ways[number].clone()).collect(), count)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_way_leads_from_a_shell_to_session_token_manifest_or_the_runtime_and_without_the_frame_each_does() {
    if FrameSupport::of_this_kernel().lacks().is_some() {
        return crate::skip::skip("this kernel lacks a part of Landlock");
    }
    let (open, tried) = open_ways(true).await;
    assert!(tried >= 80 && open.is_empty(), "of {tried} ways these are open: {open:#?}");
    let (open, tried) = open_ways(false).await;
    assert_eq!(open.len(), tried, "the control: only these are open: {open:#?}");
}
