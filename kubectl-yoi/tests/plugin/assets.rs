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

    let refused = json!([{ "path": ".agents/skills/x/SKILL.md", "line": 2, "level": "Error", "message": "is no YAML" }]);
    let strict = json!({ "generation": 0, "digest": "", "assets": [], "diagnostics": [], "refused": refused });
    server.answer_for("a", "assets", 200, strict.to_string());
    let list = plugin.run(&["assets", "a"]).await?.expect_code(0)?;
    ensure!(list.out.contains("reads them strictly") && list.out.ends_with("error: .agents/skills/x/SKILL.md:2: is no YAML\n"), "{list:?}");

    let sets = json!([
        { "name": "git/team", "revision": "0123" },
        { "name": "git/gone", "missing": "is not fetched: no such branch" },
        { "name": "image/all", "missing": "is fetched when the agent starts" },
    ]);
    let told = json!([{ "path": "git/gone", "level": "Error", "message": "is not fetched: no such branch" }]);
    let fetched = json!({ "generation": 1, "digest": "d", "assets": [], "diagnostics": told, "sets": sets });
    server.answer_for("a", "assets", 200, fetched.to_string());
    let list = plugin.run(&["assets", "a"]).await?.expect_code(0)?;
    let said = "git/team is of commit 0123\nimage/all is fetched when the agent starts\nerror: git/gone: is not fetched: no such branch\n";
    ensure!(list.out.ends_with(said), "{list:?}");

    server.answer_for("a", "assets", 403, status(403, "Forbidden", "no"));
    plugin.run(&["assets", "a"]).await?.expect_code(4)?;
    Ok(())
}

#[tokio::test]
async fn a_search_is_the_agents_and_a_reload_says_what_counts_or_why_nothing_was_loaded() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(agent("a", &[]));
    let found = json!([{ "kind": "Node", "name": "build", "path": ".jido/skill_graph/build.md", "excerpt": "Run make\u{1b}[2J deploy." }]);
    let answer = json!({ "generation": 2, "digest": "d", "assets": [], "diagnostics": [], "found": found });
    server.answer_for("a", "assets", 200, answer.to_string());
    let searched = plugin.run(&["assets", "a", "search", "make", "deploy"]).await?.expect_code(0)?;
    let lines: Vec<Vec<&str>> = searched.out.lines().map(|line| line.split_whitespace().collect()).collect();
    ensure!(
        lines[0] == ["NAME", "KIND", "FILE", "TEXT"] && lines[1][..3] == ["build", "Node", ".jido/skill_graph/build.md"],
        "{searched:?}"
    );
    ensure!(!searched.out.contains('\u{1b}'), "{searched:?}");
    let none = json!({ "generation": 2, "digest": "d", "assets": [], "diagnostics": [], "found": [] });
    server.answer_for("a", "assets", 200, none.to_string());
    let nothing = plugin.run(&["assets", "a", "search", "x"]).await?.expect_code(0)?;
    ensure!(nothing.out == "nothing in the tree of a that counts has \"x\"\n", "{nothing:?}");
    // A runtime that knows no search lists all.
    server.answer_for("a", "assets", 200, json!({ "generation": 2, "digest": "d", "assets": [], "diagnostics": [] }).to_string());
    let earlier = plugin.run(&["assets", "a", "search", "x"]).await?.expect_code(1)?;
    ensure!(earlier.err.contains("of an earlier version") && earlier.err.contains("kubectl yoi restart a"), "{earlier:?}");

    let counts = json!({ "generation": 3, "digest": "d", "skills": 2, "commands": 1, "workflows": 0, "nodes": 4, "errors": 1 });
    server.answer_for("a", "assets", 200, counts.to_string());
    let reloaded = plugin.run(&["assets", "a", "reload"]).await?.expect_code(0)?;
    ensure!(
        reloaded.out.contains("generation 3: 2 skills, 1 commands") && reloaded.out.contains("1 errors: kubectl yoi assets a"),
        "{reloaded:?}"
    );
    let words = "YoiPod ns/a: nothing was loaded, and what was loaded before counts on: failed to load the assets: x.md:3: a key twice";
    server.answer_for("a", "assets", 409, status(409, "Conflict", words));
    let refused = plugin.run(&["assets", "a", "reload", "--strict"]).await?;
    ensure!(refused.code != 0 && refused.err.contains("a key twice"), "{refused:?}");
    Ok(())
}
