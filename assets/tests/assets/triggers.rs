use yoi_assets::{AssetFile, AssetState, Level, Strictness, Trigger, load};

use crate::{assert_message, file, lenient, messages};

const WORKFLOW: &str = "---\nname: review\nversion: 1.0.0\n---\n## Steps\n### one\n- **type**: agent\n- **agent**: builder\n";

fn workflow(name: &str, more: &str) -> AssetFile {
    let text = WORKFLOW.replace("name: review\n", &format!("name: {name}\n{more}"));
    file(&format!(".jido/workflows/{name}.md"), text)
}

fn triggers(entries: &str) -> AssetFile {
    file(".jido/workflows/triggers.json", format!("{{\n\"triggers\": [\n{entries}\n]}}"))
}

#[test]
fn p57_a_trigger_of_its_own_file_is_listed_with_its_state_and_a_workflow_that_is_not_there_is_named_with_the_line() {
    let snapshot = lenient(&[
        workflow("review", ""),
        workflow("off", "enabled: false\n"),
        triggers(
            r#"{"id": "signal", "workflow_id": "review", "type": "signal", "config": {"patterns": ["code.**"]}},
{"id": "night", "workflow_id": "review", "type": "scheduled", "enabled": false, "config": {"schedule": "0 3 * * *", "params": {"a": 1}}},
{"id": "files", "workflow_id": "off", "type": "file_system", "config": {"patterns": ["src/**"], "root_dir": "."}},
{"id": "lost", "workflow_id": "none", "type": "manual"},
{"id": "signal", "workflow_id": "review", "type": "git_hook", "events": ["push"]},
{"id": "odd", "workflow_id": "review", "type": "webhook"},
{"workflow_id": "review", "type": "manual"}"#,
        ),
    ]);
    let states: Vec<_> = snapshot.triggers.iter().map(|trigger| (trigger.id.as_str(), trigger.state.as_str())).collect();
    assert_eq!(
        states,
        [
            ("signal", "Valid"),
            ("night", "Disabled"),
            ("files", "Disabled"),
            ("lost", "Invalid"),
            ("signal", "Shadowed"),
            ("odd", "Invalid")
        ]
    );
    assert_eq!(snapshot.triggers[0].trigger, Some(Trigger::Signal { patterns: vec!["code.**".to_owned()] }));
    assert!(matches!(&snapshot.triggers[3].state, AssetState::Invalid { line: Some(6), .. }), "{:?}", snapshot.triggers[3]);
    assert_message(
        &snapshot,
        Level::Error,
        ".jido/workflows/triggers.json:6: the trigger \"lost\" starts the workflow \"none\", which is not there",
    );
    assert_message(&snapshot, Level::Error, "triggers.json:8: has a trigger of the type \"webhook\"");
    assert_message(&snapshot, Level::Error, "has a trigger without an id");
    assert_message(&snapshot, Level::Warning, "the trigger \"signal\" of .jido/workflows/triggers.json comes first");
    assert_eq!(snapshot.workflows.len(), 2, "the file is no workflow");
}

#[test]
fn a_file_of_triggers_that_cannot_be_read_is_told_with_its_line_and_refuses_strict_reading() {
    for (text, words) in [
        ("{\n\"triggers\": [,]}", ".jido/workflows/triggers.json:2: is no JSON"),
        ("[]", "is a list, not a map with triggers"),
        ("{}", "has no list of triggers"),
        ("{\"triggers\": {}}", "triggers is a map, not a list"),
        ("{\"triggers\": [1]}", "triggers has a number, not a map"),
        ("{\"triggers\": [], \"triggers\": []}", "the key \"triggers\" is there twice"),
        (
            "{\"triggers\": [], \"global_settings\": {\"max_concurrent_triggers\": 0}}",
            "max_concurrent_triggers is not a whole number from 1 on",
        ),
        ("{\"triggers\": []} x", "is no JSON: trailing characters"),
    ] {
        let files = [workflow("review", ""), file(".jido/workflows/triggers.json", text)];
        let snapshot = lenient(&files);
        assert_message(&snapshot, Level::Error, words);
        assert!(snapshot.triggers.is_empty() && snapshot.workflow("review").unwrap().state.is_valid());
        assert!(load(&files, 1, Strictness::Strict).is_err(), "{text}");
    }
    let good = [workflow("review", ""), triggers(r#"{"id": "t", "workflow_id": "review", "type": "manual", "config": {"command": "/x"}}"#)];
    assert!(load(&good, 1, Strictness::Strict).is_ok(), "{:?}", messages(&lenient(&good), Level::Error));
}
