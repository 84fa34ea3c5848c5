use crate::tools::arguments::MAX_MESSAGE_BYTES;

use super::*;

#[test]
fn p22_bad_arguments_are_refused_with_their_path() {
    let fixture = Fixture::new();
    for (tool, args, sentence) in [
        ("Shell", json!({}), "missing field `command`"),
        ("Shell", json!({"command": 7}), "/command: invalid type: integer `7`, expected a string"),
        ("Shell", json!({"command": ""}), "/command: must not be empty"),
        (
            "Shell",
            json!({"command": "ls", "cwd": "/"}),
            "/cwd: unknown field `cwd`, expected one of `command`, `timeoutSeconds`, `env`, `background`",
        ),
        ("Shell", json!({"command": "ls", "timeoutSeconds": 3601}), "/timeoutSeconds: must be at most 3600"),
        (
            "Shell",
            json!({"command": "ls", "timeoutSeconds": 5, "background": true}),
            "/timeoutSeconds: a command in the background has no time limit; end it with ShellStop",
        ),
        ("Shell", json!({"command": "ls", "timeoutSeconds": "5"}), "/timeoutSeconds: invalid type: string \"5\", expected a nonzero u64"),
        (
            "Shell",
            json!({"command": "ls", "timeoutSeconds": 5.0}),
            "/timeoutSeconds: invalid type: floating point `5.0`, expected a nonzero u64",
        ),
        ("ShellOutput", json!({"id": "x", "waitSeconds": 3601}), "/waitSeconds: must be at most 3600"),
        ("ShellOutput", json!({"id": "x", "waitSeconds": -1}), "/waitSeconds: invalid value: integer `-1`, expected u32"),
        ("ShellStop", json!({}), "missing field `id`"),
        ("Read", json!({"path": "x", "offset": -1}), "/offset: invalid value: integer `-1`, expected a nonzero u64"),
        ("Read", json!({"path": "x", "offset": 0}), "/offset: invalid value: integer `0`, expected a nonzero u64"),
        ("Read", json!({"path": "x", "limit": null}), "/limit: invalid type: null, expected a nonzero u64"),
        ("Edit", json!({"path": "x", "old": "a", "new": "b", "all": 1}), "/all: invalid type: integer `1`, expected a boolean"),
        ("Edit", json!({"path": "x", "old": "", "new": "b"}), "/old: must not be empty"),
        ("Edit", json!({"path": "x", "old": "a"}), "missing field `new`"),
        ("Edit", json!({"path": "x"}), "missing field `old`, or `edits`"),
        ("Edit", json!({"path": "x", "edits": []}), "/edits: must not be empty"),
        ("Edit", json!({"path": "x", "edits": [{"old": "a", "new": "b"}, {"old": "c"}]}), "/edits[1]: missing field `new`"),
        ("Edit", json!({"path": "x", "edits": [{"old": "a", "new": "b"}], "old": "a", "new": "b"}), EITHER),
        ("Edit", json!({"path": "x", "edits": [{"old": "a", "new": "b"}], "all": true}), EITHER),
        (
            "Write",
            json!("{\"path\": "),
            "the arguments: the text of the arguments is no JSON object: it is cut off, or not escaped. Write it whole, or make the call smaller, got a string",
        ),
        ("Grep", json!({"pattern": "x", "limit": 2001}), "/limit: must be from 1 to 2000"),
        ("Grep", json!({"pattern": "x", "context": 21}), "/context: must be at most 20"),
        (
            "Grep",
            json!({"pattern": "x", "glob": "a{b"}),
            "/glob: \"a{b\" is no glob: unclosed alternate group; missing '}' (maybe escape '{' with '[{]'?)",
        ),
        ("Glob", json!({"pattern": "[z-a]"}), "/pattern: \"[z-a]\" is no glob: invalid range; 'z' > 'a'"),
        ("ListPods", json!({"all": true}), "/all: unknown field `all`, there are no fields"),
        ("SendToPeerPod", json!({"to": "", "message": "m"}), "/to: must not be empty"),
        ("SendToPeerPod", json!({"to": "b", "message": ""}), "/message: must not be empty"),
    ] {
        assert_eq!(fixture.refuse(tool, args).message, format!("invalid_args: {sentence}"));
    }
    let pattern = fixture.refuse("Grep", json!({"pattern": "(a"})).message;
    assert!(pattern.starts_with("invalid_args: /pattern: ") && pattern.contains("unclosed group"), "{pattern}");
    let unknown = fixture.refuse("Rm", json!({})).message;
    assert!(unknown.starts_with("unknown_tool: there is no tool \"Rm\"; there are Shell,"), "{unknown}");
}

const EITHER: &str = "/edits: give either `edits`, or `old`, `new` and `all`";

#[test]
fn a_message_about_wrong_arguments_repeats_only_a_part_of_them() {
    let fixture = Fixture::new();
    let long = "x".repeat(1 << 20);
    for (tool, args) in [
        ("Shell", json!({"command": "ls", "timeoutSeconds": long})),
        ("Shell", json!({"command": "ls", long.as_str(): 1})),
        ("Shell", json!([long])),
        ("Grep", json!({"pattern": format!("({long}")})),
        ("Glob", json!({"pattern": format!("{{{long}")})),
        (long.as_str(), json!({})),
    ] {
        assert!(fixture.refuse(tool, args).message.len() <= MAX_MESSAGE_BYTES);
    }
}

/// Whatever the schema of a tool calls required is missed when it is left out.
#[test]
fn the_schema_and_the_type_require_the_same_arguments() {
    let fixture = Fixture::new();
    for tool in fixture.gate.runner().tools().offered(&RunLimits::default()) {
        let required: Vec<&str> = tool.schema["required"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        for name in &required {
            let others = required.iter().filter(|other| *other != name);
            let args: Value = others.map(|other| ((*other).to_owned(), json!("text"))).collect::<serde_json::Map<_, _>>().into();
            let message = fixture.refuse(&tool.name, args).message;
            assert_eq!(message, format!("invalid_args: missing field `{name}`"));
        }
    }
}

#[test]
fn the_model_is_offered_the_tools_of_the_golden_file() {
    let offered = serde_json::to_string_pretty(&Fixture::new().gate.offered(CallFrom::Model)).unwrap() + "\n";
    if std::env::var_os("YOI_WRITE_GOLDEN").is_some() {
        fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/src/tools/offered.json"), &offered).unwrap();
    }
    assert_eq!(offered, fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/tools/offered.json")).unwrap());
}

/// Each endpoint refuses some keywords of JSON Schema. None refuses these.
#[test]
fn schemas_use_only_keywords_that_every_endpoint_accepts() {
    fn check(schema: &Value) {
        for (keyword, value) in schema.as_object().unwrap() {
            match keyword.as_str() {
                "description" | "minLength" | "minimum" | "maximum" | "required" | "additionalProperties" | "enum" => {}
                "type" => assert!(value.is_string(), "{schema}"),
                "properties" => value.as_object().unwrap().values().for_each(check),
                "items" => check(value),
                other => panic!("{other} in {schema}"),
            }
        }
        if schema["type"] == "object" {
            assert!(schema["properties"].is_object() && schema["required"].is_array(), "{schema}");
        }
    }
    Fixture::new().gate.runner().tools().offered(&RunLimits::default()).iter().for_each(|tool| check(&tool.schema));
}
