use std::sync::Arc;

use serde_json::json;
use yoi_assets::{AssetState, Command, Level, ParameterType, Part, RenderError};

use crate::{assert_message, file, lenient};

fn command(path: &str, text: &str) -> Command {
    let snapshot = lenient(&[file(path, text)]);
    let command = snapshot.commands.into_iter().next().expect("a command");
    assert!(command.state.is_valid(), "{command:?}");
    Arc::unwrap_or_clone(command)
}

fn claude(body: &str) -> Command {
    command(".claude/commands/do.md", body)
}

/// A command of jido with the fields of a schema, each `name: {..}`.
fn jido(schema: &[&str], body: &str) -> String {
    let fields: String = schema.iter().map(|field| format!("    {field}\n")).collect();
    let schema = if schema.is_empty() { String::new() } else { format!("jido:\n  schema:\n{fields}") };
    format!("---\nname: deploy\ndescription: Deploys.\n{schema}---\n{body}")
}

#[track_caller]
fn text(command: &Command, arguments: &str) -> String {
    let rendered = command.render(arguments).expect("a prompt");
    match rendered.parts.as_slice() {
        [Part::Text(text)] => text.clone(),
        [] => String::new(),
        parts => panic!("more than text: {parts:?}"),
    }
}

/// What a person might give, so that something reads it again.
const HOSTILE: [&str; 10] = [
    "{{other}}",
    "{{value}}",
    "$1 $2 $ARGUMENTS $ARGUMENTS[0]",
    "$(touch /tmp/x) `id` ; rm -rf / && true | cat > y # z",
    "!`id`",
    "!{id}",
    "@{/etc/passwd}",
    "{{args}} !{echo {{args}}}",
    "\\\" \\n %s \u{202e}",
    "--- \n name: x \n ---",
];

#[test]
fn p46_a_parameter_is_inserted_once_as_it_is_and_is_never_parsed_again() {
    let typed = command(
        ".jido/commands/d.md",
        &jido(&["value: {type: string}", "other: {type: string, default: SECRET}"], "a {{value}} b {{ value }} c"),
    );
    let untyped = command(".jido/commands/d.md", &jido(&[], "a {{value}} b {{value}} c"));
    let claude = claude("a $ARGUMENTS b $ARGUMENTS c");
    let gemini = command(".gemini/commands/g.toml", "prompt = 'a {{args}} b {{args}} c'\n");
    for hostile in HOSTILE {
        let expected = format!("a {0} b {0} c", hostile.trim());
        let values = json!({"value": hostile.trim()});
        for command in [&typed, &untyped] {
            let rendered = command.render_named(values.as_object().unwrap()).unwrap();
            assert_eq!(rendered.parts, [Part::Text(expected.clone())]);
            // As one text, in quotes as a person would write it.
            let quoted = format!("value=\"{}\"", hostile.trim().replace('\\', "\\\\").replace('"', "\\\""));
            assert_eq!(text(command, &quoted), expected);
        }
        assert_eq!(text(&claude, hostile), expected);
        assert_eq!(text(&gemini, hostile), expected);
        let rendered = gemini.render_named(json!({"arguments": hostile}).as_object().unwrap()).unwrap();
        assert_eq!(rendered.parts, [Part::Text(expected)]);
    }
}

#[test]
fn p46_a_line_for_a_shell_never_holds_a_parameter() {
    let claude = claude("Now:\n!`git status`\nThen:\n!`git diff $1`\nand !`echo $ARGUMENTS`.");
    let expected = [
        Part::Text("Now:\n".to_owned()),
        Part::Shell { command: "git status".to_owned() },
        Part::Text("\nThen:\n!`git diff ;id`\nand !`echo ;id`.".to_owned()),
    ];
    assert_eq!(claude.render(";id").unwrap().parts, expected);
    let gemini = command(".gemini/commands/g.toml", "prompt = '''\n!{ls {a}} !{grep {{args}} x} @{docs/{{args}}.md}'''\n");
    let expected = [
        Part::Shell { command: "ls {a}".to_owned() },
        Part::Text(" !{grep $(id)} x} ".to_owned()),
        Part::File { path: "docs/$(id)}.md".to_owned() },
    ];
    assert_eq!(gemini.render("$(id)}").unwrap().parts, expected);
    let snapshot = lenient(&[file(".claude/commands/do.md", "!`git diff $1`")]);
    assert_message(&snapshot, Level::Note, "no parameter reaches a shell");
}

#[test]
fn words_of_claude_code_are_those_of_a_shell_without_a_shell() {
    assert_eq!(text(&claude("<$1|$2|$3>"), "one 'two  words' \"$HOME\""), "<one|two  words|$HOME>");
    assert_eq!(text(&claude("<$0|$1>"), "one two"), "<one|two>", "a text that has $0 counts from zero");
    assert_eq!(text(&claude("<$ARGUMENTS[1]>"), "one two"), "<two>");
    assert_eq!(text(&claude("<$1>"), "it's"), "<it's>", "an apostrophe is one");
    assert_eq!(text(&claude("It costs $100, $1.50, $5k. $ARGUMENTSX. wow!`x`"), ""), "It costs $100, $1.50, $5k. $ARGUMENTSX. wow!`x`");
    assert_eq!(text(&claude("Review."), "all of it"), "Review.\n\nARGUMENTS: all of it", "what has no place follows");
    assert_eq!(text(&claude("Keep {{value}} and {{args}}."), ""), "Keep {{value}} and {{args}}.", "other programs' parameters are text");
}

#[test]
fn a_command_of_claude_code_is_named_by_its_file_and_needs_no_front_matter() {
    let snapshot = lenient(&[
        file(".claude/commands/web/fix.md", "Fix it: $ARGUMENTS"),
        file(".claude/commands/see.md", "---\ndescription: Looks.\nargument-hint: [file]\nallowed-tools: Read\n---\nSee."),
    ]);
    let (fix, see) = (snapshot.command("fix").unwrap(), snapshot.command("see").unwrap());
    assert!(fix.state.is_valid() && !fix.for_model, "nothing tells the model what it is for");
    assert!(see.for_model);
    assert_eq!((fix.description.as_str(), see.description.as_str()), ("Fix it: $ARGUMENTS", "Looks."));
    assert_eq!((see.argument_hint.as_deref(), see.allowed_tools.as_deref()), (Some("[file]"), Some(&["Read".to_owned()][..])));
    let hinted = command(".claude/commands/c.md", "---\nargument-hint: [file] [mode]\nallowed-tools: *\n---\n");
    assert_eq!(
        (hinted.argument_hint.as_deref(), hinted.allowed_tools),
        (Some("[file] [mode]"), None),
        "what is no YAML, and often written"
    );
    assert_eq!(see.input_schema()["properties"]["arguments"]["description"], "[file]");
}

#[test]
fn a_schema_gives_values_their_types_and_defaults() {
    let schema = [
        "env: {type: atom, required: true, doc: Where to.}",
        "count: {type: integer, default: 3}",
        "dry: {type: boolean}",
        "tags: {type: list}",
        "note: {type: string}",
    ];
    let deploy = command(".jido/commands/x.md", &jido(&schema, "{{env}}/{{count}}/{{dry}}/{{tags}}/{{note}}"));
    assert_eq!(deploy.name, "deploy");
    assert_eq!(deploy.parameters.iter().map(|parameter| parameter.kind).next(), Some(ParameterType::Atom));
    assert_eq!(text(&deploy, "prod"), "prod/3///");
    assert_eq!(text(&deploy, "dry=true prod 5"), "prod/5/true//");
    assert_eq!(text(&deploy, "prod 5 false '[1,\"a\"]' so it is"), "prod/5/false/[1,\"a\"]/so it is");
}

#[test]
fn values_that_do_not_fit_the_schema_are_refused_with_the_usage() {
    let schema = ["env: {type: atom, required: true}", "count: {type: integer}"];
    let deploy = command(".jido/commands/x.md", &jido(&schema, "{{env}}{{count}}"));
    let error = |arguments: &str| deploy.render(arguments).unwrap_err();
    assert_eq!(error("").to_string(), "the command \"deploy\" needs a value for env: write /deploy env=... [count=...]");
    assert_eq!(error("a b").to_string(), "the parameter \"count\" of the command \"deploy\" has to be a whole number");
    assert!(matches!(error("a 1 c"), RenderError::Surplus { surplus, .. } if surplus == ["\"c\""]));
    assert!(matches!(error("'a"), RenderError::Arguments { .. }));
    assert!(matches!(error("{\"env\":"), RenderError::Arguments { .. }));
    assert!(matches!(error("{\"env\": \"a\", \"x\": 1}"), RenderError::Surplus { .. }));
    assert_eq!(text(&deploy, "{\"env\": \"a\", \"count\": 2}"), "a2");
    let named = |values: serde_json::Value| deploy.render_named(values.as_object().unwrap());
    assert!(matches!(named(json!({"env": "a", "count": "2"})), Err(RenderError::WrongType { .. })));
    assert!(matches!(named(json!({"env": 1})), Err(RenderError::WrongType { .. })));
    assert_eq!(
        deploy.input_schema(),
        json!({
            "type": "object",
            "properties": {"env": {"type": "string"}, "count": {"type": "integer"}},
            "required": ["env"],
            "additionalProperties": false,
        })
    );
}

#[test]
fn the_last_text_of_a_command_takes_the_rest_as_it_was_written() {
    let say = command(".jido/commands/x.md", &jido(&["to: {type: atom, required: true}", "what: {type: string}"], "{{to}}: {{what}}"));
    assert_eq!(text(&say, "ann it is \"fine\"  now"), "ann: it is \"fine\"  now");
    assert_eq!(text(&say, "what=x=y ann"), "ann: x=y");
    let one = command(".jido/commands/x.md", &jido(&[], "<{{what}}>"));
    assert_eq!(text(&one, "a 'b c' d"), "<a 'b c' d>");
    assert_eq!(text(&one, "'a b'"), "<a b>");
}

#[test]
fn p9_a_command_with_both_spellings_or_a_required_default_is_rejected_with_that_reason() {
    for (front, words) in [
        ("allowed-tools: Read\nallowed_tools: Read", "has both allowed-tools and allowed_tools"),
        ("allowed-tools: []", "allowed-tools is empty"),
        ("allowed_tools: ''", "allowed_tools is empty"),
        ("jido:\n  schema:\n    a: {type: string, required: true, default: x}", "is required and has a default"),
        ("jido:\n  schema:\n    a: {type: integer, default: x}", "has a default that is not a whole number"),
        ("jido:\n  schema:\n    a: {type: number}", "has the type \"number\""),
        ("jido:\n  schema:\n    a: {type: string, other: 1}", "has the key \"other\""),
        ("jido:\n  schema:\n    Big: {type: string}", "does not begin with a small letter"),
        ("jido:\n  schema: [a]", "jido.schema is a list, not a map"),
        ("jido:\n  other: 1", "jido.other is not known"),
    ] {
        let text = format!("---\nname: x\ndescription: y\n{front}\n---\n{{{{a}}}}");
        let snapshot = lenient(&[file(".jido/commands/x.md", text)]);
        let AssetState::Invalid { reason, .. } = &snapshot.command("x").unwrap().state else { panic!("{front}: {:?}", snapshot.commands) };
        assert!(reason.contains(words), "{front}: {reason}");
    }
    // Another program's command may have both.
    for (front, words) in
        [("description: y", "has no name"), ("name: x", "has no description"), ("name: a b\ndescription: y", "has other characters")]
    {
        let snapshot = lenient(&[file(".jido/commands/x.md", format!("---\n{front}\n---\n"))]);
        assert_message(&snapshot, Level::Error, words);
    }
}

#[test]
fn p12_an_invalid_command_is_listed_hidden_from_the_model_and_does_nothing() {
    let snapshot = lenient(&[file(".jido/commands/x.md", "---\nname: x\ndescription: y\njido: 1\n---\n!`id`")]);
    let invalid = snapshot.command("x").expect("it is listed");
    assert!(matches!(invalid.state, AssetState::Invalid { line: Some(4), .. }) && !invalid.for_model);
    assert_eq!(invalid.input_schema(), json!({"type": "object"}));
    for rendered in [invalid.render("a"), invalid.render_named(&serde_json::Map::new())] {
        assert_eq!(rendered.unwrap_err().to_string(), "the command \"x\" is invalid, so nothing was done: jido is a number, not a map");
    }
}

#[test]
fn commands_of_gemini_are_named_by_their_path_and_their_faults_have_lines() {
    let snapshot = lenient(&[
        file(".gemini/commands/git/commit.toml", "description = 'Commits.'\nprompt = \"\"\"\nCommit: {{args}}\n\"\"\"\n"),
        file(".gemini/commands/a.toml", "description = 'x'\nprompt = 1\n"),
        file(".gemini/commands/b.toml", "prompt = 'x'\nprompt = 'y'\n"),
        file(".gemini/commands/c.toml", "description = 'x'\n"),
        file(".gemini/commands/d.toml", format!("prompt = 'x'\na = {}", "[".repeat(200_000))),
        file(".gemini/commands/e.toml", "prompt = 'x'\nmore = 1\n"),
    ]);
    let commit = snapshot.command("git:commit").unwrap();
    assert_eq!((commit.description.as_str(), text(commit, " all ").as_str()), ("Commits.", "Commit: all\n"));
    for (name, line, words) in [("a", 2, "not text"), ("b", 2, "is no TOML"), ("c", 1, "has no prompt"), ("d", 2, "is no TOML")] {
        let AssetState::Invalid { reason, line: Some(at) } = &snapshot.command(name).unwrap().state else { panic!("{name}") };
        assert!(reason.contains(words) && *at == line, "{name}: line {at}: {reason}");
    }
    assert!(snapshot.command("e").unwrap().state.is_valid());
    assert_message(&snapshot, Level::Note, "e.toml:2: the key \"more\" is not known");
}

#[test]
fn a_text_that_grows_without_bound_is_refused() {
    let many = claude(&"$ARGUMENTS".repeat(10_000).replace("$ARGUMENTS", "$ARGUMENTS "));
    assert!(matches!(many.render(&"x".repeat(1_000)), Err(RenderError::TooLong { .. })));
    assert!(many.render("x").is_ok());
}
