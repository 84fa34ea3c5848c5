//! Every path is given to every tool.

use yoi_wire::entry::{CallFrom, ToolOutcome};

use crate::fixture::{INSIDE, SECRET, TreeFixture};
use crate::inputs::{Expected, Input, Kind, all};
use crate::subjects::{PathTools, PrefixCheck, PrefixMethod, RuntimeTools, WRITTEN, calls};

/// Tries one input in a fixture of its own. Returns the number of calls, or the promise that was broken.
fn check_promises(input: &Input, make: &dyn Fn(&TreeFixture) -> Box<dyn PathTools>) -> Result<usize, String> {
    let fixture = TreeFixture::new();
    let (subject, path) = (make(&fixture), input.path(&fixture));
    let shown = || format!("{:?} {:?}", input.kind, path.chars().take(120).collect::<String>());
    let mut tried = 0;
    for (tool, args) in calls(&path) {
        if tool != "Read" && input.kind == Kind::System {
            continue;
        }
        let refusal = subject.check(tool, &args);
        let end = subject.run(tool, &args);
        tried += 1;
        let broken = |what: String| Err(format!("{tool} {}: {what} ({:?}: {:.200})", shown(), end.outcome, end.output));
        if let Err(what) = fixture.check_untouched() {
            return broken(what);
        }
        if end.output.contains(SECRET) || refusal.as_ref().is_some_and(|sentence| sentence.contains(SECRET)) {
            return broken("the secret was disclosed".to_owned());
        }
        let succeeded = end.outcome == ToolOutcome::Succeeded;
        match input.expected {
            Expected::Refused if refusal.is_none() || end.outcome != ToolOutcome::Refused => return broken("was not refused".to_owned()),
            Expected::Fails if succeeded => return broken("succeeded".to_owned()),
            Expected::Works if !succeeded || refusal.is_some() => return broken("did not work".to_owned()),
            Expected::Works if tool == "Read" && end.output != INSIDE => return broken("read something else".to_owned()),
            Expected::Refused | Expected::Fails | Expected::Works | Expected::Free => {}
        }
        if end.outcome == ToolOutcome::TimedOut || end.output.contains("the tool broke") {
            return broken("did not end well".to_owned());
        }
    }
    fixture.check_no_secret_inside().map_err(|what| format!("{}: {what}", shown()))?;
    if input.expected == Expected::Works {
        let end = subject.run("Read", &calls(&path)[0].1);
        if end.output != WRITTEN {
            return Err(format!("{}: what was written is not read: {}", shown(), end.output));
        }
    }
    Ok(tried)
}

#[test]
fn no_path_leads_a_tool_out_of_the_tree() {
    try_all_from(CallFrom::Model);
}

#[test]
fn no_path_leads_a_tool_out_of_the_tree_that_no_model_asked_for() {
    try_all_from(CallFrom::Engine);
}

fn try_all_from(from: CallFrom) {
    let tools = |fixture: &TreeFixture| -> Box<dyn PathTools> { Box::new(RuntimeTools::called_by(&fixture.tree(), from)) };
    let inputs = all();
    let mut broken = Vec::new();
    let mut calls = 0;
    let mut count = std::collections::BTreeMap::new();
    for input in &inputs {
        match check_promises(input, &tools) {
            Ok(tried) => calls += tried,
            Err(what) => broken.push(what),
        }
        *count.entry(format!("{:?}", input.kind)).or_insert(0) += 1;
    }
    println!("paths: {} inputs, {calls} calls of Read, Edit and Write, each checked first: {count:?}", inputs.len());
    assert!(broken.is_empty(), "{} of {} inputs:\n{}", broken.len(), inputs.len(), broken.join("\n"));
    assert!(inputs.len() >= 600, "{} inputs", inputs.len());
}

/// The number of inputs that lead a planted fault out of the tree.
fn count_escapes(how: PrefixMethod) -> usize {
    let inputs = all().into_iter().filter(|input| matches!(input.kind, Kind::DotDot | Kind::Absolute | Kind::LinkOut));
    let found: Vec<String> =
        inputs.filter_map(|input| check_promises(&input, &|fixture| Box::new(PrefixCheck { root: fixture.tree(), how })).err()).collect();
    let out = |what: &&String| what.contains("the secret was disclosed") || what.contains("was touched") || what.contains("made outside");
    let led_out: Vec<&String> = found.iter().filter(out).collect();
    println!("{how:?}: led out by {} inputs, the first: {}", led_out.len(), led_out.first().map_or("", |what| what));
    led_out.len()
}

#[test]
fn planted_a_prefix_compared_as_text_leaves_the_tree() {
    assert!(count_escapes(PrefixMethod::Text) >= 20);
}

#[test]
fn planted_a_prefix_compared_after_canonicalization_leaves_the_tree() {
    assert!(count_escapes(PrefixMethod::Canonical) >= 5);
}

#[test]
fn arguments_that_are_no_path_at_all_are_refused() {
    let fixture = TreeFixture::new();
    let subject = RuntimeTools::new(&fixture.tree());
    let strange = [serde_json::Value::Null, 7.into(), true.into(), serde_json::json!(["file"]), serde_json::json!({"path": "file"})];
    for path in strange {
        for (tool, mut args) in calls("file") {
            args["path"] = path.clone();
            assert!(subject.check(tool, &args).is_some_and(|sentence| sentence.starts_with("invalid_args: /path")), "{tool} {args}");
            assert_eq!(subject.run(tool, &args).outcome, ToolOutcome::Refused);
        }
    }
    // Shell has no argument for a folder.
    let args = serde_json::json!({"command": "pwd", "cwd": fixture.outer()});
    assert!(subject.check("Shell", &args).is_some());
    fixture.check_untouched().unwrap();
}
