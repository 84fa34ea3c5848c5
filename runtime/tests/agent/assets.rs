//! Skills and commands of the tree, from the files to the model and to who lists them.

use http::StatusCode;
use serde_json::json;
use yoi_test_support::eventually;
use yoi_wire::assets::{AssetsResponse, ReloadedAssets};
use yoi_wire::entry::{Body, RunOutcome};
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
