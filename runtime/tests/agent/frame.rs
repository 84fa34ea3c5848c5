//! What processes of the agent reach in the frame, and without it.

use http::StatusCode;
use serde_json::json;
use yoi_engine::frame::FrameSupport;

use crate::gateway::person;
use crate::harness::Harness;

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

/// Ways to a process of the Pod that the agent has not started, such as one of `kubectl exec`, which has the container's environment with the key. `B` is
/// its id.
const BYSTANDER_WAYS: [&str; 6] = [
    "grep -q . /proc/B/environ",
    "grep -q . /proc/B/maps",
    "readlink /proc/B/fd/0",
    "cat /proc/B/root/etc/passwd",
    "ls /proc/B/cwd/",
    "kill -0 B",
];
/// As in a Pod: with CAP_PERFMON, Linux shows the memory of any process, whatever Landlock says.
const WITHOUT_CAPABILITIES: &str = "setpriv --bounding-set=-all --inh-caps=-all ";

/// Who starts the shell that tries the ways.
#[derive(Clone, Copy, Debug)]
enum Started {
    /// A call of the tool Shell, which waits for it.
    InACall,
    /// A call that it outlives.
    InTheBackground,
    /// Like that, and it has left its session, and its parent has ended.
    Detached,
    /// The agent is a command, and this is it.
    AsTheAgent,
}

struct Bystander(std::process::Child);

impl Drop for Bystander {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).unwrap();
    }
}

/// The ways that are open, and how many were tried.
async fn open_ways(started: Started, frame: bool) -> (Vec<String>, usize) {
    let mut harness = Harness::new("rules:\n- steps:\n  - text: done\n").await;
    harness.limits["toolSeconds"] = 60.into();
    harness.env.push(("YOI_FRAME", frame.to_string()));
    let path = |name: &str| harness.dir.path().canonicalize().unwrap().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("session/extra"), "x").unwrap();
    std::fs::write(path("session/extra-file"), "x").unwrap();
    let files = [path("session/extra-file"), path("token"), path("manifest.json")];
    let mut ways: Vec<String> = files.iter().flat_map(|file| FILE_WAYS.map(|way| way.replace('F', file))).collect();
    ways.extend(FOLDER_WAYS.map(|way| way.replace('D', &path("session"))));
    ways.extend(SIGNAL_WAYS.map(|way| way.replace('P', "$RUNTIME")));
    let dropped = if rustix::process::geteuid().is_root() { WITHOUT_CAPABILITIES } else { "" };
    let sleep = format!("exec {dropped}sleep 600");
    let bystander = Bystander(std::process::Command::new("sh").args(["-c", &sleep]).env("KEY", "canary").spawn().unwrap());
    ways.extend(BYSTANDER_WAYS.map(|way| format!("{dropped}sh -c '{}'", way.replace('B', &bystander.0.id().to_string()))));
    let count = ways.len();
    let mut script = String::new();
    for (number, way) in ways.iter().enumerate() {
        script.push_str(&format!("( {way}\n) > /dev/null 2>&1 && echo 'open '{number} >> open; rm -rf x own\n"));
    }
    script
        .push_str("echo all tried >> open; cat /etc/passwd > /dev/null && git init -q repo && echo work goes on >> open; mv open tried\n");
    std::fs::write(harness.tree().join("ways.sh"), script).unwrap();
    let shell = |args: serde_json::Value| format!("rules:\n- steps:\n  - toolCalls: [{{tool: Shell, args: {args}}}]\n  - text: done\n");
    let here = "export RUNTIME=$PPID; . ./ways.sh";
    // The first shell tells the others who the runtime is.
    let detached = "export RUNTIME=$PPID; setsid sh -c 'sh -c \". ./ways.sh\" &'; while ! test -e tried; do sleep 0.05; done";
    let steps = match started {
        Started::InACall => shell(json!({"command": here, "timeoutSeconds": 60})),
        Started::InTheBackground => shell(json!({"command": here, "background": true})),
        Started::Detached => shell(json!({"command": detached, "background": true})),
        Started::AsTheAgent => "rules: []\n".to_owned(),
    };
    if let Started::AsTheAgent = started {
        harness.manifest_settings = json!({"program": {"command": ["sh", "-c", here]}, "model": null});
    }
    std::fs::write(harness.dir.path().join("script.yaml"), steps).unwrap();
    let _runtime = harness.start(1, None);
    // Some ways damage the file of the token, by which it reports.
    harness.gateway.wait_for_report(|report| report.ready).await;
    assert_eq!(harness.gateway.deliver("go", person(), "go").await.0, StatusCode::OK);
    harness.wait_until("all ways are tried", |_| harness.tree().join("tried").exists()).await;
    let tried = std::fs::read_to_string(harness.tree().join("tried")).unwrap();
    assert!(tried.contains("all tried") && tried.contains("work goes on"), "{tried}");
    let report = harness.gateway.wait_for_report(|report| report.ready).await;
    let expected = if frame {
        Some(FrameSupport::of_this_kernel().lacks().unwrap_or_default())
    } else {
        report.scope.clone().filter(|scope| scope.contains("switched off"))
    };
    assert!(report.scope == expected && (frame || expected.is_some()), "{:?}", report.scope);
    let open = tried.lines().filter_map(|line| line.strip_prefix("open ")?.parse::<usize>().ok());
    (open.map(|number| ways[number].clone()).collect(), count)
}

/// Tries all ways in the frame, and without it as a control.
async fn no_way_is_open_but_without_the_frame(started: Started) {
    if FrameSupport::of_this_kernel().lacks().is_some() {
        return crate::skip::skip("this kernel lacks a part of Landlock");
    }
    let (open, tried) = open_ways(started, true).await;
    assert!(tried >= 80 && open.is_empty(), "{started:?}: of {tried} ways these are open: {open:#?}");
    let (open, tried) = open_ways(started, false).await;
    assert_eq!(open.len(), tried, "the control: {started:?}: only these are open: {open:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_way_leads_from_a_shell_to_session_token_manifest_or_the_runtime_and_without_the_frame_each_does() {
    no_way_is_open_but_without_the_frame(Started::InACall).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_way_leads_there_from_a_command_in_the_background() {
    no_way_is_open_but_without_the_frame(Started::InTheBackground).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_way_leads_there_from_a_process_that_has_left_its_session_and_its_parent() {
    no_way_is_open_but_without_the_frame(Started::Detached).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_way_leads_there_from_a_command_that_is_the_agent() {
    no_way_is_open_but_without_the_frame(Started::AsTheAgent).await;
}
