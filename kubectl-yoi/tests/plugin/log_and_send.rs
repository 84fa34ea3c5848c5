//! `log` and `send`.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::api_server::ApiServer;
use crate::plugin::{Plugin, agent};

fn line(n: u64, at: &str, kind: &str, body: Value) -> String {
    json!({ "token": format!("t:{n}"), "entry": { "id": format!("e{n}"), "seq": n, "run": 1, "at": at, "kind": kind, "body": body } })
        .to_string()
        + "\n"
}

pub fn assistant_line(n: u64, at: &str, text: &str) -> String {
    line(n, at, "Assistant", json!({ "text": text }))
}

#[tokio::test]
async fn a_log_that_cannot_be_written_is_an_error_and_a_closed_pipe_is_none() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    let many: String = (1..5000).map(|n| assistant_line(n, "2026-01-01T10:20:30.000Z", "hello")).collect();
    server.answer_for("a", "log", 200, many);
    for words in [&["log", "a"][..], &["log", "a", "-o", "json"], &["log", "a", "-o", "yaml"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full")?;
        let failed = plugin.run_with(words, Some(full)).await?.expect_code(1)?;
        ensure!(failed.err.contains("failed to write the answer: No space left on device"), "{failed:?}");
    }
    let (reader, writer) = std::io::pipe()?;
    drop(reader);
    let closed = plugin.run_with(&["log", "a"], Some(std::fs::File::from(std::os::fd::OwnedFd::from(writer)))).await?.expect_code(0)?;
    ensure!(closed.err.is_empty(), "{closed:?}");
    Ok(())
}

#[tokio::test]
async fn times_of_a_log_have_date_and_zone_and_since_leaves_out_what_is_older() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.answer_for(
        "a",
        "log",
        200,
        assistant_line(1, "2026-01-01T10:20:30.000Z", "old\u{1b}[2J") + &assistant_line(2, "2999-01-01T00:00:00.000Z", "new"),
    );
    let all = plugin.run(&["log", "a"]).await?.expect_code(0)?;
    ensure!(all.out == "2026-01-01T10:20:30Z    agent old^[[2J\n2999-01-01T00:00:00Z    agent new\n", "{all:?}");
    let new = plugin.run(&["log", "a", "--since", "10m"]).await?.expect_code(0)?;
    ensure!(new.out == "2999-01-01T00:00:00Z    agent new\n", "{new:?}");
    Ok(())
}

const ID: &str = "0197c0de-0000-7000-8000-000000000001";

fn delivered(duplicate: bool) -> String {
    json!({ "messageId": ID, "duplicate": duplicate }).to_string()
}

#[tokio::test]
async fn a_message_can_be_sent_again_under_its_id() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    for duplicate in [false, true] {
        server.answer_for("a", "message", 200, delivered(duplicate));
        let sent = plugin.run(&["send", "a", "hello", "--id", ID]).await?.expect_code(0)?;
        ensure!(sent.out.contains("delivered before") == duplicate, "{sent:?}");
    }
    let ids: Vec<Value> = server.requests().iter().map(|request| request.body["messageId"].clone()).collect();
    ensure!(ids == [ID, ID], "{ids:?}");
    let wrong = plugin.run(&["send", "a", "hello", "--id", "mine"]).await?.expect_code(2)?;
    ensure!(wrong.err.contains("UUID"), "{wrong:?}");
    Ok(())
}

#[tokio::test]
async fn send_waits_for_the_run_that_reads_the_message() -> Result<()> {
    let at = "2026-01-01T10:20:30.000Z";
    let run = |outcome: &str| {
        assistant_line(1, at, "of another run")
            + &line(2, at, "RunEnded", json!({ "runId": "r1", "outcome": "finished" }))
            + &line(3, at, "Input", json!({ "from": "person", "messageId": ID, "user": "u", "text": "hello" }))
            + &line(4, at, "RunStarted", json!({ "runId": "r4", "cause": [ID] }))
            + &assistant_line(5, at, "I am well.\u{1b}[2J")
            + &line(6, at, "RunEnded", json!({ "runId": "r4", "outcome": outcome, "message": "why\u{1b}[2J" }))
    };
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(agent("a", &[])).answer_for("a", "message", 200, delivered(false)).answer_for("a", "log", 200, run("finished"));
    let answered = plugin.run(&["send", "a", "hello", "--id", ID, "--wait"]).await?.expect_code(0)?;
    ensure!(answered.out == "I am well.^[[2J\n", "{answered:?}");
    ensure!(answered.err.contains("it works on it"), "progress is told as lines: {answered:?}");
    server.answer_for("a", "log", 200, run("limitReached"));
    let failed = plugin.run(&["send", "a", "hello", "--id", ID, "--wait"]).await?.expect_code(6)?;
    ensure!(failed.err.contains("a limit was reached: why^[[2J") && failed.err.contains("next: kubectl yoi log a"), "{failed:?}");
    server.answer_for("a", "log", 200, assistant_line(1, at, "of another run"));
    let late = plugin.run(&["send", "a", "hello", "--id", ID, "--wait", "--timeout", "2s"]).await?.expect_code(5)?;
    ensure!(late.err.contains("its run has not ended"), "{late:?}");
    Ok(())
}
