//! Skills and commands of the tree, from the files to the model and to who lists them.

use http::StatusCode;
use serde_json::json;
use yoi_test_support::eventually;
use yoi_wire::assets::{AssetsResponse, ReloadedAssets};
use yoi_wire::entry::{Body, Entry, RunOutcome};
use yoi_wire::hub::runtime_api;

use crate::harness::{Harness, kinds};

const SCRIPT: &str = r#"
rules:
- when: {lastUserContains: "Review the parser with care."}
  steps:
  - toolCalls:
    - {tool: Skill, args: {name: deploy}}
  - expect: ["Run make deploy."]
    text: Reviewed.
"#;

fn write(harness: &Harness, path: &str, content: &str) {
    let path = harness.tree().join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

async fn listed(harness: &Harness) -> AssetsResponse {
    let look = async || {
        let (status, body) = harness.gateway.request("GET", runtime_api::ASSETS, "").await;
        (status == StatusCode::OK).then_some(body)
    };
    serde_json::from_slice(&eventually("the assets", look).await).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_may_be_a_command_and_its_skill_is_loaded_and_what_does_not_count_is_listed_with_the_reason() {
    let harness = Harness::new(SCRIPT).await;
    write(&harness, ".claude/skills/deploy/SKILL.md", "---\nname: deploy\ndescription: Deploy the service.\n---\nRun make deploy.\n");
    write(&harness, ".claude/commands/review.md", "---\ndescription: Review.\n---\nReview $ARGUMENTS with care.\n");
    write(&harness, ".agents/skills/bad/SKILL.md", "---\nname: [bad\n---\nx\n");
    let mut runtime = harness.start(1, Some("/review the parser"));
    let entries = harness.wait_until("the end of the run", |entries| kinds(entries).ends_with("RunEnded")).await;
    assert!(matches!(&entries.last().unwrap().body, Body::RunEnded(end) if end.outcome == RunOutcome::Finished), "{}", kinds(&entries));
    let request = harness.requests.lock().unwrap()[0].to_string();
    assert!(request.contains("- deploy: Deploy the service."), "{request}");

    let answer = listed(&harness).await;
    let state = |name: &str| answer.assets.iter().find(|asset| asset.name == name).map(|asset| asset.state.as_str());
    assert_eq!((state("deploy"), state("review")), (Some("Valid"), Some("Valid")));
    assert!(answer.diagnostics.iter().any(|one| one.path == ".agents/skills/bad/SKILL.md" && one.level == "Error"), "{answer:?}");
    // Nothing runs, so what is new counts at once.
    write(&harness, ".agents/skills/bad/SKILL.md", "---\nname: bad\ndescription: Mended.\n---\nx\n");
    let look = async || Some(listed(&harness).await).filter(|mended| mended.generation > answer.generation);
    let mended = eventually("the next generation", look).await;
    assert!(mended.assets.iter().any(|asset| asset.name == "bad" && asset.state == "Valid"), "{mended:?}");

    let search = harness.gateway.request("GET", &format!("{}?search=MENDED", runtime_api::ASSETS), "").await;
    let found: AssetsResponse = serde_json::from_slice(&search.1).unwrap();
    assert!(found.assets.is_empty() && found.found.unwrap()[0].name == "bad");
    // A strict reload loads all or nothing.
    let reload = async |strict: bool| harness.gateway.request("POST", runtime_api::ASSETS, json!({ "strict": strict }).to_string()).await;
    let (status, body) = reload(true).await;
    let reloaded: ReloadedAssets = serde_json::from_slice(&body).unwrap();
    assert_eq!((status, reloaded.skills, reloaded.commands, reloaded.errors), (StatusCode::OK, 2, 1, 0));
    write(&harness, ".agents/skills/bad/SKILL.md", "---\nname: [bad\n---\nx\n");
    let (status, body) = reload(true).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(String::from_utf8_lossy(&body).contains(".agents/skills/bad/SKILL.md"));
    let (_, body) = reload(false).await;
    let lenient: ReloadedAssets = serde_json::from_slice(&body).unwrap();
    assert_eq!((lenient.generation, lenient.skills, lenient.errors), (reloaded.generation + 1, 1, 1));
    harness.stop(&mut runtime).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p6_p7_what_a_project_says_of_assets_is_carried_out_reported_and_stands_in_the_log_as_signals() {
    let mut harness = Harness::new("rules: []").await;
    let team = harness.dir.path().join("team");
    std::fs::create_dir(&team).unwrap();
    std::fs::write(team.join("skills.review.md"), "---\nname: review\ndescription: Review a change.\n---\nRead it twice.\n").unwrap();
    let sets = json!([{ "name": "configmap/team", "folder": team }]);
    harness.manifest_settings = json!({ "assets": { "strict": true, "watch": true, "sets": sets } });
    let mut runtime = harness.start(1, None);
    let first = harness.gateway.wait_for_report(|report| report.assets.as_ref().is_some_and(|assets| assets.counts.skills == 1)).await;
    assert_eq!(first.assets.unwrap().first_errors, Vec::<String>::new());
    let review = listed(&harness).await.assets.remove(0);
    assert_eq!((review.source.as_str(), review.path.as_str()), ("configmap/team", "configmap/team/skills/review/SKILL.md"));

    // Nothing runs and nobody asks: the watch sees it, and what was loaded before counts on.
    write(&harness, ".claude/commands/bad.md", "---\nname: [\n---\n");
    let refused =
        harness.gateway.wait_for_report(|report| report.assets.as_ref().is_some_and(|assets| assets.refused)).await.assets.unwrap();
    assert!(refused.counts.skills == 1 && refused.first_errors[0].starts_with(".claude/commands/bad.md:"), "{refused:?}");
    let answer = listed(&harness).await;
    assert_eq!((answer.assets.len(), answer.refused[0].path.as_str()), (1, ".claude/commands/bad.md"));
    write(&harness, ".claude/commands/bad.md", "Do it.\n");
    harness
        .gateway
        .wait_for_report(|report| report.assets.as_ref().is_some_and(|assets| !assets.refused && assets.counts.commands == 1))
        .await;

    let outcomes = |entries: &[Entry]| -> Vec<String> {
        let outcome = |entry: &Entry| match &entry.body {
            Body::Extension(entry) if entry.name == "yoi/assets" => entry.data["outcome"].as_str().map(str::to_owned),
            _ => None,
        };
        entries.iter().filter_map(outcome).collect()
    };
    let entries =
        harness.wait_until("the news of the assets", |entries| outcomes(entries).last().is_some_and(|last| last == "Reloaded")).await;
    assert_eq!(outcomes(&entries), ["Loaded", "Refused", "Reloaded"]);
    harness.stop(&mut runtime).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_in_a_programs_files_are_listed_as_yoi_reads_them() {
    let mut harness = Harness::new("rules: []").await;
    harness.manifest_settings = json!({ "program": { "command": ["true"] } });
    write(&harness, ".claude/skills/bad/SKILL.md", "---\nname: [bad\n---\nx\n");
    write(&harness, ".claude/skills/good/SKILL.md", "---\nname: good\ndescription: Good.\n---\nx\n");
    let mut runtime = harness.start(1, None);
    let answer = listed(&harness).await;
    let error = answer.diagnostics.iter().find(|one| one.level == "Error").expect("an error");
    assert!(error.path == ".claude/skills/bad/SKILL.md" && error.line.is_some(), "{error:?}");
    let report = harness.gateway.wait_for_report(|report| report.assets.is_some()).await.assets.unwrap();
    assert_eq!((report.counts.skills, report.counts.errors, report.refused), (1, 1, false));
    harness.stop(&mut runtime).await;
}
