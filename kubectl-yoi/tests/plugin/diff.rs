//! `diff`, and an agent's bytes in errors.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::api_server::{ApiServer, status};
use crate::plugin::{Plugin, agent};
use crate::terminal::Terminal;

async fn with_diff(response: Value) -> Result<(ApiServer, Plugin)> {
    let server = ApiServer::start().await?;
    server.answer_for("a", "diff", 200, response.to_string());
    let plugin = Plugin::new(&server)?;
    Ok((server, plugin))
}

fn odd() -> Value {
    json!({ "paths": [{ "path": "odd\nD\tsrc", "kind": "added" }, { "path": "\u{1b}[2Jx", "kind": "modified" }], "text": "+a\u{1b}]0;title\u{7}b\r\n" })
}

#[tokio::test]
async fn a_name_with_control_characters_is_one_line_and_quoted_as_git_does() -> Result<()> {
    let (_server, plugin) = with_diff(odd()).await?;
    let expected = "A\t\"odd\\nD\\tsrc\"\nM\t\"\\033[2Jx\"\n";
    let piped = plugin.run(&["diff", "a", "--name-only"]).await?.expect_code(0)?;
    ensure!(piped.out == expected, "{piped:?}");
    let (code, seen) = plugin.run_in_terminal(&["diff", "a", "--name-only"]).await?;
    ensure!(code == 0 && seen.replace("\r\n", "\n") == expected, "{seen:?}");
    let zero = plugin.run(&["diff", "a", "--name-only", "-z"]).await?.expect_code(0)?;
    ensure!(zero.out == "A\todd\nD\tsrc\0M\t\u{1b}[2Jx\0", "{zero:?}");
    let names = plugin.run(&["diff", "a", "-o", "name"]).await?.expect_code(0)?;
    ensure!(names.out == "\"odd\\nD\\tsrc\"\n\"\\033[2Jx\"\n", "{names:?}");
    Ok(())
}

#[tokio::test]
async fn a_name_that_is_not_utf_8_is_given_out_byte_by_byte() -> Result<()> {
    let path = json!({ "path": "a\u{fffd}\"\u{fc}", "pathHex": "61ff22c3bc", "kind": "added" });
    let (_server, plugin) = with_diff(json!({ "paths": [path] })).await?;
    let file = plugin.folder.path().join("names");
    plugin.run_with(&["diff", "a", "--name-only", "-z"], Some(std::fs::File::create(&file)?)).await?.expect_code(0)?;
    let zero = std::fs::read(&file)?;
    ensure!(zero == b"A\ta\xff\"\xc3\xbc\0", "{zero:?}");
    let lines = plugin.run(&["diff", "a", "--name-only"]).await?.expect_code(0)?;
    ensure!(lines.out == "A\t\"a\\377\\\"\u{fc}\"\n", "{lines:?}");
    let json = plugin.run(&["diff", "a", "-o", "json"]).await?.expect_code(0)?.json()?;
    ensure!(json["paths"][0]["pathHex"] == "61ff22c3bc", "{json}");
    Ok(())
}

#[tokio::test]
async fn a_deep_path_is_cut_in_its_sentence_and_the_rest_is_shown() -> Result<()> {
    let deep = vec!["x".repeat(250); 300].join("/");
    let inner = json!({ "path": deep, "state": "noSubmodule" });
    let response = json!({ "paths": [], "text": "+a\n", "tooDeep": [deep], "innerRepositories": [inner], "textCut": false, "pathsCut": true, "cut": true });
    let (_server, plugin) = with_diff(response).await?;
    let shown = plugin.run(&["diff", "a"]).await?.expect_code(0)?;
    ensure!(shown.out == "+a\n" && shown.err.contains("left out, because it is too deep: what is in xxx"), "{shown:?}");
    ensure!(shown.err.contains("is a git repository of its own") && shown.err.lines().all(|line| line.len() < 600), "{shown:?}");
    Ok(())
}

#[tokio::test]
async fn a_diff_whose_base_is_gone_is_no_success() -> Result<()> {
    let gone = json!({ "paths": [], "text": "+a\n", "noBase": "what the tree was made from is gone", "cut": false });
    let (_server, plugin) = with_diff(gone).await?;
    for words in [&["diff", "a"][..], &["diff", "a", "--name-only"], &["diff", "a", "-o", "json"], &["diff", "a", "-o", "name"]] {
        let partly = plugin.run(words).await?.expect_code(7)?;
        ensure!(partly.err.contains("what the tree was made from is gone; what is committed is not in it"), "{words:?}: {partly:?}");
    }
    // This one needs no base.
    ensure!(plugin.run(&["diff", "a", "--since-commit"]).await?.expect_code(0)?.out == "+a\n");
    Ok(())
}

#[tokio::test]
async fn control_characters_in_a_diff_are_shown_and_not_obeyed() -> Result<()> {
    let (_server, plugin) = with_diff(odd()).await?;
    let shown = plugin.run(&["diff", "a"]).await?.expect_code(0)?;
    ensure!(shown.out == "+a^[]0;title^Gb^M\n" && shown.err.contains("-o json"), "{shown:?}");
    let (_, seen) = plugin.run_in_terminal(&["diff", "a"]).await?;
    ensure!(!seen.contains('\u{1b}') && !seen.contains('\u{7}'), "{seen:?}");
    let whole = plugin.run(&["diff", "a", "-o", "json"]).await?.expect_code(0)?;
    ensure!(whole.json()?["text"] == odd()["text"], "{whole:?}");
    Ok(())
}

#[tokio::test]
async fn a_cut_answer_says_so_in_the_output_and_does_not_end_with_0() -> Result<()> {
    let paths: Vec<Value> = (0..3).map(|n| json!({ "path": format!("f{n}"), "kind": "added" })).collect();
    let (server, plugin) =
        with_diff(json!({ "paths": paths, "text": "+whole\n", "cut": true, "pathsCut": true, "textCut": false })).await?;
    let mut a = agent("a", &[]);
    a["status"]["pod"] = json!({ "name": "a-1", "uid": "u" });
    a["status"]["workspace"] = json!({ "name": "a" });
    server.put(a).put(json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "AgentWorkspace", "metadata": { "name": "a" },
        "spec": { "source": { "empty": {} }, "path": "/workspace/p" } }));
    let names = plugin.run(&["diff", "a", "--name-only"]).await?.expect_code(7)?;
    ensure!(names.out.ends_with("A\tf2\n# cut here, after 3 paths: there are more\n"), "{names:?}");
    ensure!(names.err.contains("next: kubectl exec a-1 -n ns -- git -C /workspace/p diff HEAD"), "{names:?}");
    let json = plugin.run(&["diff", "a", "-o", "json"]).await?.expect_code(7)?;
    ensure!(json.json()?["cut"] == true, "{json:?}");
    plugin.run(&["diff", "a", "--name-only", "-z"]).await?.expect_code(7)?;
    let text = plugin.run(&["diff", "a"]).await?.expect_code(0)?;
    ensure!(text.out == "+whole\n", "the text is whole: {text:?}");

    let (_server, plugin) = with_diff(json!({ "paths": [], "text": "+half", "cut": true })).await?;
    let text = plugin.run(&["diff", "a"]).await?.expect_code(7)?;
    ensure!(text.out == "+half\n# cut here: the diff goes on\n", "{text:?}");
    Ok(())
}

#[tokio::test]
async fn an_error_and_a_wait_show_no_control_character_of_an_agent() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.answer_for(
        "a",
        "log",
        503,
        status(503, "ServiceUnavailable", "YoiPod ns/a is not reachable: \u{1b}]0;gone\u{7}\u{202e}kubectl\n  next: x"),
    );
    let (code, seen) = plugin.run_in_terminal(&["log", "a"]).await?;
    ensure!(code == 5 && seen.contains("^[]0;gone^G<U+202E>kubectl   next: x") && !seen.contains('\u{1b}'), "{seen:?}");

    server.put(agent("b", &[("Ready", "False", "Starting", "so far\u{1b}]0;gone\u{7}\nok")]));
    let mut terminal = Terminal::start(&plugin, &["start", "b", "--wait"])?;
    terminal.wait_until("what it waits for", |screen| screen.contains("so far")).await?;
    server.put(agent("b", &[("Ready", "True", "AllMet", "fine")]));
    let (code, seen) = terminal.end_with_all().await?;
    ensure!(code == 0 && seen.contains("so far^[]0;gone^G ok") && !seen.contains("\u{1b}]"), "{seen:?}");
    Ok(())
}

#[tokio::test]
async fn a_directory_that_is_too_deep_is_named_and_the_rest_is_shown() -> Result<()> {
    let response =
        json!({ "paths": [{ "path": "a", "kind": "added" }], "tooDeep": ["d/e\n"], "cut": true, "pathsCut": true, "textCut": false });
    let (_server, plugin) = with_diff(response).await?;
    let names = plugin.run(&["diff", "a", "--name-only"]).await?.expect_code(7)?;
    ensure!(names.out.starts_with("A\ta\n") && names.err.contains("too deep: what is in \"d/e\\n\""), "{names:?}");
    Ok(())
}

#[tokio::test]
async fn a_diff_without_the_bases_commit_says_that_it_is_only_what_is_not_committed() -> Result<()> {
    let against = |commit: &str| json!({ "paths": [], "text": "+x\n", "comparedWith": commit, "base": "b1" });
    let (_server, plugin) = with_diff(against("b1")).await?;
    let whole = plugin.run(&["diff", "a"]).await?.expect_code(0)?;
    ensure!(whole.err.is_empty(), "{whole:?}");
    let (_server, plugin) = with_diff(against("h1")).await?;
    let rest = plugin.run(&["diff", "a"]).await?.expect_code(0)?;
    ensure!(rest.out == "+x\n" && rest.err.contains("only what is not committed"), "{rest:?}");
    let asked = plugin.run(&["diff", "a", "--since-commit"]).await?.expect_code(0)?;
    ensure!(asked.err.is_empty(), "{asked:?}");
    Ok(())
}

#[tokio::test]
async fn a_patch_reaches_git_as_it_is_and_a_terminal_without_control_characters() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.answer_for("a", "patch", 200, "Subject: \u{1b}[2Jx\n".to_owned());
    let piped = plugin.run(&["patch", "a"]).await?.expect_code(0)?;
    ensure!(piped.out == "Subject: \u{1b}[2Jx\n", "{piped:?}");
    let (code, seen) = plugin.run_in_terminal(&["patch", "a"]).await?;
    ensure!(code == 0 && seen.contains("^[[2Jx") && !seen.contains('\u{1b}'), "{seen:?}");
    let (code, seen) = plugin.run_in_terminal(&["patch", "a", "--bundle"]).await?;
    ensure!(code == 1 && seen.contains("> FILE"), "{seen:?}");
    server.answer_for("a", "patch", 200, String::new());
    let nothing = plugin.run(&["patch", "a"]).await?.expect_code(0)?;
    ensure!(nothing.out.is_empty() && nothing.err.contains("has committed nothing"), "{nothing:?}");
    Ok(())
}
