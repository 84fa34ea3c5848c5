//! Resident memory of the runtime, from `/proc`: of a program's, and of a built-in agent's.

use std::time::Duration;

use serde_json::{Value, json};
use yoi_wire::hub::Activity;

use crate::harness::{EXAMPLE, Harness, Runtime, status_kib};
use crate::pairs::{Pairs, Side};

const BAR: f64 = 1.1;
/// Processes of each.
const PROCESSES: usize = 10;
/// A runtime that waits has given back what it had freed by then.
const SETTLED: Duration = Duration::from_secs(2);
/// A built-in agent works for three turns; so does this program, which then goes on until it may end.
const PROGRAM: &str = "cat > /dev/null; for n in 1 2 3; do \
    echo \"{\\\"tool_name\\\":\\\"Bash\\\",\\\"tool_input\\\":{\\\"command\\\":\\\"ls\\\"},\\\"tool_use_id\\\":\\\"t$n\\\"}\" | $RUNTIME hook before; \
    curl -sS $PROXY/v1/chat/completions -H \"authorization: Bearer $TOKEN\" -H 'content-type: application/json' \
    -d '{\"model\":\"scripted\",\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}' > /dev/null || exit 1; \
    echo \"{\\\"tool_name\\\":\\\"Bash\\\",\\\"tool_input\\\":{\\\"command\\\":\\\"ls\\\"},\\\"tool_use_id\\\":\\\"t$n\\\",\\\"tool_response\\\":\\\"files\\\"}\" | $RUNTIME hook after; \
    done; touch asked; while ! test -e go-on; do sleep 0.1; done; echo done";

pub async fn rows() -> Vec<Value> {
    let (mut beside, mut after) = (Pairs::default(), Pairs::default());
    for turn in 0..PROCESSES {
        for side in Side::in_turn(turn) {
            match side {
                Side::Ours => {
                    let [during, ended] = program().await;
                    beside.push(side, during);
                    after.push(side, ended);
                }
                Side::Bare => {
                    let ended = builtin().await;
                    beside.push(side, ended);
                    after.push(side, ended);
                }
            }
        }
    }
    vec![
        beside.row("runtime (RSS) beside a program that has asked three times, over a built-in agent after three turns", "MiB", Some(BAR)),
        after.row("runtime (RSS) after that program's run, over the same", "MiB", Some(BAR)),
    ]
}

/// While the program runs, and after its end.
async fn program() -> [f64; 2] {
    let mut harness = Harness::new("rules:\n- steps:\n  - text: from the model\n").await;
    harness.manifest_settings = json!({"program": {"preset": {
        "name": "asks", "program": "sh", "firstArgs": ["-c", PROGRAM], "speaks": ["ChatCompletions"], "parser": "Text", "hooks": true,
        "env": {"PROXY": "${proxy}", "TOKEN": "${token}", "RUNTIME": "${runtime}"},
    }}});
    let runtime = harness.start(1, Some("go"));
    harness.wait_until("it has asked", |_| harness.tree().join("asked").exists()).await;
    let during = resident(&runtime).await;
    std::fs::write(harness.tree().join("go-on"), "").unwrap();
    harness.wait_for_runs(1).await;
    assert_eq!(harness.requests.lock().unwrap().len(), 3);
    [during, resident(&runtime).await]
}

async fn builtin() -> f64 {
    let harness = Harness::new(EXAMPLE).await;
    let runtime = harness.start(1, Some("write the greeting"));
    harness.wait_for_runs(1).await;
    harness.gateway.wait_for_report(|report| report.ready && report.activity == Activity::Idle && report.task.is_some()).await;
    resident(&runtime).await
}

/// MiB, once the process has settled.
async fn resident(runtime: &Runtime) -> f64 {
    tokio::time::sleep(SETTLED).await;
    status_kib(runtime.child.id(), "VmRSS") as f64 / 1024.0
}
