//! `assets`.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::api_server::{ApiServer, status};
use crate::plugin::{Plugin, agent};

#[tokio::test]
async fn assets_lists_what_counts_and_says_why_the_rest_does_not_with_file_and_line() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(agent("a", &[]));
    let asset = |kind: &str, name: &str, path: &str, state: &str| {
        json!({ "kind": kind, "name": name, "path": path, "source": ".claude", "state": state, "forModel": true, "forPeople": true,
            "description": "Does\u{1b}[2J it." })
    };
    let mut invalid = asset("Command", "ship", ".claude/commands/ship.md", "Invalid");
    (invalid["reason"], invalid["line"]) = (json!("a key twice"), json!(3));
    let assets = json!([asset("Skill", "deploy", ".claude/skills/deploy/SKILL.md", "Valid"), invalid]);
    let diagnostics = json!([
        { "path": ".claude/commands/ship.md", "line": 3, "level": "Error", "message": "a key twice" },
        { "path": ".claude/skills/out", "level": "Error", "message": "it is a link that leads out of the tree" },
        { "path": ".claude/skills/deploy/SKILL.md", "level": "Note", "message": "its name was taken from the folder" },
    ]);
    let answer = json!({ "generation": 2, "digest": "d", "assets": assets, "diagnostics": diagnostics });
    server.answer_for("a", "assets", 200, answer.to_string());
    let list = plugin.run(&["assets", "a"]).await?.expect_code(0)?;
    let lines: Vec<Vec<&str>> = list.out.lines().map(|line| line.split_whitespace().collect()).collect();
    ensure!(
        lines[0] == ["NAME", "KIND", "FROM", "STATE", "REASON"] && lines[1] == ["deploy", "Skill", ".claude", "Valid", "-"],
        "{list:?}"
    );
    ensure!(lines[2].join(" ") == "ship Command .claude Invalid .claude/commands/ship.md:3: a key twice", "{list:?}");
    ensure!(lines[3].join(" ") == "error: .claude/skills/out: it is a link that leads out of the tree" && lines.len() == 4, "{list:?}");

    let shown = plugin.run(&["assets", "a", "show", "deploy"]).await?.expect_code(0)?;
    ensure!(
        shown.out.contains("File:          .claude/skills/deploy/SKILL.md") && shown.out.contains("For:           the model, people"),
        "{shown:?}"
    );
    ensure!(shown.out.contains("note: .claude/skills/deploy/SKILL.md: its name") && !shown.out.contains('\u{1b}'), "{shown:?}");
    let missing = plugin.run(&["assets", "a", "show", "none"]).await?.expect_code(1)?;
    ensure!(missing.err.contains("none of that name"), "{missing:?}");
    let whole = plugin.run(&["assets", "a", "-o", "json"]).await?.expect_code(0)?.json()?;
    ensure!(whole["generation"] == 2 && whole["assets"][1]["line"] == 3, "{whole}");

    server.answer_for("a", "assets", 403, status(403, "Forbidden", "no"));
    plugin.run(&["assets", "a"]).await?.expect_code(4)?;
    Ok(())
}
