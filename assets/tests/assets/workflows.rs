use yoi_assets::{AssetSnapshot, AssetState, Level, OnFailure, StepKind, Trigger, Workflow};

use crate::{assert_message, file, lenient};

const GOOD: &str = "---
name: release
version: 1.2.0
description: Makes a release.
inputs:
  - name: tag
    type: string
    required: true
  - {name: dry, type: boolean, default: false}
triggers:
  - {type: manual, command: release}
  - {type: file_system, patterns: ['src/**'], events: [modified]}
  - {type: scheduled, schedule: '0 3 * * *'}
settings:
  max_concurrency: 2
  timeout_ms: 60000
  retry_policy: {max_retries: 2, backoff: constant, base_delay_ms: 10}
  on_failure: compensate
signals: {topic: releases, publish_events: [step_failed]}
---

# Release

## Steps

### build
- **type**: action
- **module**: Shell
- **inputs**:
  - command: `make`
- **outputs**: [path]
- **timeout_ms**: 5000

### look
- **type**: agent
- **agent**: reviewer
- **mode**: async
- **inputs**:
  - what: `result:build.path`
  - tag: `input:tag`

### ship
- **type**: sub_workflow
- **workflow**: shipping
- **depends_on**:
  - look
- **condition**: `input:dry`

```sh
### this is no step
```

## Error Handling

### compensate:build
- **type**: action
- **module**: Shell

## Return
- **value**: `result:ship.url`
";
const SHIPPING: &str = "---\nname: shipping\nversion: 0.1.0\n---\n## Steps\n### go\n- **type**: skill\n- **module**: ship\n";

fn workflow(text: &str) -> AssetSnapshot {
    lenient(&[file(".jido/workflows/w.md", text), file(".jido/workflows/x.md", SHIPPING)])
}

fn first(snapshot: &AssetSnapshot) -> &Workflow {
    snapshot.workflows.iter().find(|workflow| workflow.path.ends_with("/w.md")).expect("it is listed")
}

#[test]
fn a_workflow_is_read_with_its_steps_inputs_triggers_and_settings() {
    let snapshot = workflow(GOOD);
    assert_eq!(snapshot.diagnostics, []);
    let release = snapshot.workflow("release").expect("the workflow");
    assert!(release.state.is_valid(), "{release:?}");
    let steps: Vec<_> = release.steps.iter().map(|step| (step.name.as_str(), step.line, step.depends_on.as_slice())).collect();
    assert_eq!(steps, [("build", 26, &[][..]), ("look", 34, &["build".to_owned()]), ("ship", 42, &["look".to_owned()])]);
    assert_eq!(release.steps[1].kind, StepKind::Agent("reviewer".to_owned()));
    assert_eq!(release.steps[0].inputs, [("command".to_owned(), "make".to_owned())]);
    assert_eq!((release.steps[0].timeout_ms, release.steps[1].is_async), (Some(5000), true));
    assert_eq!(release.compensations.len(), 1);
    assert_eq!(release.return_value.as_deref(), Some("result:ship.url"));
    assert_eq!((release.settings.on_failure, release.settings.max_retries), (OnFailure::Compensate, Some(2)));
    assert_eq!(release.inputs.len(), 2);
    let Trigger::FileSystem { debounce_ms, .. } = &release.triggers[1] else { panic!("{:?}", release.triggers) };
    assert_eq!(*debounce_ms, 500);
}

#[test]
fn p10_a_workflow_with_a_missing_or_cyclic_dependency_is_listed_as_invalid_with_the_place() {
    for (from, to, line, words) in [
        ("  - look\n", "  - lock\n", 42, "the step \"ship\" depends on \"lock\", which is not there"),
        ("result:build.path", "result:built.path", 34, "refers to the result of \"built\""),
        ("input:tag", "input:tac", 34, "refers to the input \"tac\""),
        ("- **outputs**: [path]", "- **depends_on**: [ship]", 26, "the steps build -> ship -> look -> build depend on each other"),
        ("- **outputs**: [path]", "- **depends_on**: build", 26, "the steps build -> build depend on each other"),
        ("compensate:build", "compensate:bild", 55, "undoes the step \"bild\""),
        ("### look", "### build", 34, "has the step \"build\" twice"),
        ("workflow**: shipping", "workflow**: sipping", 42, "runs the workflow \"sipping\", which is not there"),
    ] {
        let snapshot = workflow(&GOOD.replacen(from, to, 1));
        let AssetState::Invalid { reason, line: at } = &first(&snapshot).state else { panic!("{words}: {:?}", first(&snapshot)) };
        assert!(reason.contains(words), "{words}: {reason}");
        assert_eq!(*at, Some(line), "{words}");
        assert!(snapshot.workflow("shipping").unwrap().state.is_valid());
    }
}

#[test]
fn what_a_workflow_may_not_have_is_told_with_its_place() {
    for (from, to, words) in [
        ("name: release", "name: Release-1", "the name \"Release-1\""),
        ("version: 1.2.0", "version: 1.2", "the version \"1.2\" is not x.y.z"),
        ("timeout_ms: 60000", "timeout_ms: 999", "timeout_ms is not a whole number from 1000 on"),
        ("backoff: constant", "backoff: never", "backoff is \"never\""),
        ("on_failure: compensate", "on_failure: retry", "on_failure is \"retry\""),
        ("type: manual", "type: magic", "has a trigger of the type \"magic\""),
        ("'0 3 * * *'", "soon", "without a schedule"),
        ("patterns: ['src/**']", "patterns: []", "without patterns"),
        ("publish_events: [step_failed]", "publish_events: [all]", "publish_events has \"all\""),
        ("type: boolean", "type: bool", "the input \"dry\" has the type \"bool\""),
        ("default: false", "default: 0", "the default of the input \"dry\""),
        ("**module**: Shell", "**module**: My.Action", "names \"My.Action\", which is no tool of Yoi's"),
        ("**type**: agent", "**type**: person", "has the type \"person\""),
        ("**mode**: async", "**mode**: later", "mode is \"later\""),
        ("**timeout_ms**: 5000", "**timeout**: 5000", "the key \"timeout\" of the step \"build\""),
        ("## Steps", "## Stages", "has no steps"),
    ] {
        let snapshot = workflow(&GOOD.replacen(from, to, 1));
        assert!(matches!(first(&snapshot).state, AssetState::Invalid { .. }), "{words}: {:?}", first(&snapshot));
        assert_message(&snapshot, Level::Error, words);
    }
    let snapshot = workflow(&GOOD.replace("- **value**", "- **transform**: `fn x -> x end`\n- **value**"));
    assert!(first(&snapshot).state.is_valid());
    assert_message(&snapshot, Level::Warning, "which is never run");
}

#[test]
fn p57_a_disabled_or_invalid_workflow_is_listed_with_its_state_and_reason() {
    let snapshot = workflow(&GOOD.replace("description:", "enabled: false\ndescription:"));
    assert_eq!(first(&snapshot).state, AssetState::Disabled);
    let snapshot = workflow("---\nname: a\n---\n");
    assert!(matches!(&first(&snapshot).state, AssetState::Invalid { reason, line: Some(1) } if reason == "has no version"));
}

#[test]
fn ten_thousand_references_and_steps_end_in_an_answer() {
    let steps: String =
        (0..10_000).map(|at| format!("### s{at}\n- **type**: skill\n- **module**: x\n- **depends_on**: s{}\n", at + 1)).collect();
    let snapshot = workflow(&format!("---\nname: a\nversion: 1.0.0\n---\n## Steps\n{steps}"));
    assert_message(&snapshot, Level::Error, "has more than 500 steps");
    let ring: String =
        (0..400).map(|at| format!("### s{at}\n- **type**: skill\n- **module**: x\n- **depends_on**: s{}\n", (at + 1) % 400)).collect();
    let snapshot = workflow(&format!("---\nname: a\nversion: 1.0.0\n---\n## Steps\n{ring}"));
    assert_message(&snapshot, Level::Error, "-> ... depend on each other");
}
