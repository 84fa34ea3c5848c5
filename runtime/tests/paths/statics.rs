//! Every input by every tool.

use yoi_wire::entry::ToolOutcome;

use crate::hands::{Hand, Naive, Prefix, Tools, WRITTEN, calls};
use crate::inputs::{Due, Input, Kind, all};
use crate::world::{INSIDE, SECRET, World};

/// One input in a world of its own: the promise that was broken, if one was.
fn judge(input: &Input, make: &dyn Fn(&World) -> Box<dyn Hand>) -> Result<usize, String> {
    let world = World::new();
    let (hand, path) = (make(&world), input.path(&world));
    let shown = || format!("{:?} {:?}", input.kind, path.chars().take(120).collect::<String>());
    let mut tried = 0;
    for (tool, args) in calls(&path) {
        if tool != "Read" && input.kind == Kind::System {
            continue;
        }
        let refusal = hand.check(tool, &args);
        let end = hand.run(tool, &args);
        tried += 1;
        let broken = |what: String| Err(format!("{tool} {}: {what} ({:?}: {:.200})", shown(), end.outcome, end.output));
        if let Err(what) = world.untouched() {
            return broken(what);
        }
        if end.output.contains(SECRET) || refusal.as_ref().is_some_and(|sentence| sentence.contains(SECRET)) {
            return broken("the secret was told".to_owned());
        }
        let succeeded = end.outcome == ToolOutcome::Succeeded;
        match input.due {
            Due::Refused if refusal.is_none() || end.outcome != ToolOutcome::Refused => return broken("was not refused".to_owned()),
            Due::Fails if succeeded => return broken("succeeded".to_owned()),
            Due::Works if !succeeded || refusal.is_some() => return broken("did not work".to_owned()),
            Due::Works if tool == "Read" && end.output != INSIDE => return broken("read something else".to_owned()),
            Due::Refused | Due::Fails | Due::Works | Due::Free => {}
        }
        if end.outcome == ToolOutcome::TimedOut || end.output.contains("the tool broke") {
            return broken("did not end well".to_owned());
        }
    }
    world.nothing_brought_in().map_err(|what| format!("{}: {what}", shown()))?;
    if input.due == Due::Works {
        let end = hand.run("Read", &calls(&path)[0].1);
        if end.output != WRITTEN {
            return Err(format!("{}: what was written is not read: {}", shown(), end.output));
        }
    }
    Ok(tried)
}

fn tools(world: &World) -> Box<dyn Hand> {
    Box::new(Tools::new(&world.tree()))
}

#[test]
fn no_path_leads_a_tool_out_of_the_tree() {
    let inputs = all();
    let mut broken = Vec::new();
    let mut calls = 0;
    let mut count = std::collections::BTreeMap::new();
    for input in &inputs {
        match judge(input, &tools) {
            Ok(tried) => calls += tried,
            Err(what) => broken.push(what),
        }
        *count.entry(format!("{:?}", input.kind)).or_insert(0) += 1;
    }
    println!("paths: {} inputs, {calls} calls of Read, Edit and Write, each checked first: {count:?}", inputs.len());
    assert!(broken.is_empty(), "{} of {} inputs:\n{}", broken.len(), inputs.len(), broken.join("\n"));
    assert!(inputs.len() >= 600, "{} inputs", inputs.len());
}

/// The control: how many inputs led a hand out.
fn caught(how: Naive) -> usize {
    let inputs = all().into_iter().filter(|input| matches!(input.kind, Kind::Climb | Kind::Absolute | Kind::LinkOut));
    let found: Vec<String> =
        inputs.filter_map(|input| judge(&input, &|world| Box::new(Prefix { root: world.tree(), how })).err()).collect();
    let out = |what: &&String| what.contains("the secret was told") || what.contains("was touched") || what.contains("made outside");
    let led_out: Vec<&String> = found.iter().filter(out).collect();
    println!("{how:?}: led out by {} inputs, the first: {}", led_out.len(), led_out.first().map_or("", |what| what));
    led_out.len()
}

#[test]
fn planted_a_prefix_compared_as_words_is_led_out() {
    assert!(caught(Naive::Words) >= 20);
}

#[test]
fn planted_a_prefix_compared_after_canonicalization_is_led_out() {
    assert!(caught(Naive::Canonical) >= 5);
}

#[test]
fn arguments_that_are_no_path_at_all_are_refused() {
    let world = World::new();
    let hand = Tools::new(&world.tree());
    let strange = [serde_json::Value::Null, 7.into(), true.into(), serde_json::json!(["file"]), serde_json::json!({"path": "file"})];
    for path in strange {
        for (tool, mut args) in calls("file") {
            args["path"] = path.clone();
            assert!(hand.check(tool, &args).is_some_and(|sentence| sentence.starts_with("invalid_args: /path")), "{tool} {args}");
            assert_eq!(hand.run(tool, &args).outcome, ToolOutcome::Refused);
        }
    }
    // Shell takes no folder: there is no path to give it.
    let args = serde_json::json!({"command": "pwd", "cwd": world.outer()});
    assert!(hand.check("Shell", &args).is_some());
    world.untouched().unwrap();
}
