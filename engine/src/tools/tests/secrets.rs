use std::sync::{Arc, Mutex};

use super::*;

fn token() -> String {
    format!("ghp_{}", "aB3dE5gH7jK9".repeat(3))
}

#[tokio::test(flavor = "multi_thread")]
async fn p27_a_token_in_a_file_or_in_a_commands_output_reaches_neither_the_model_nor_who_watches() {
    let fixture = Fixture::new();
    fixture.write("settings.toml", format!("user = 'a'\ntoken = '{}'\n", token()));
    let read = fixture.succeed("Read", json!({"path": "settings.toml"})).await;
    assert!(read.contains("token = '[redacted: GitHub token]'") && !read.contains(&token()), "{read}");
    let shown = Arc::new(Mutex::new(String::new()));
    let live = LiveOutput::new({
        let shown = shown.clone();
        move |text| shown.lock().unwrap().push_str(text)
    });
    // In two writes, so that no piece holds the whole of it.
    let command = format!("printf '%s' 'a {}'; sleep 0; printf '%s\\n' '{} b'", &token()[..20], &token()[20..]);
    let end = fixture.gate.run(&call("Shell", json!({ "command": command })), CallFrom::Model, &live).await;
    assert!(end.output.contains("a [redacted: GitHub token] b"), "{}", end.output);
    let shown = shown.lock().unwrap().clone();
    assert!(shown.contains("a [redacted: GitHub token] b") && !shown.contains(&token()[..30]), "{shown}");
    let kept = Fixture::with_policy(&ToolPolicy { keep_secrets: true, ..ToolPolicy::default() });
    kept.write("settings.toml", token());
    assert!(kept.succeed("Read", json!({"path": "settings.toml"})).await.contains(&token()));
}

#[tokio::test(flavor = "multi_thread")]
async fn p27_what_stands_in_the_place_of_a_secret_is_not_written_over_it() {
    let fixture = Fixture::new();
    fixture.write("settings.toml", format!("user = 'a'\ntoken = '{}'\n", token()));
    let read = "user = 'b'\ntoken = '[redacted: GitHub token]'\n";
    for (tool, args) in [
        ("Write", json!({"path": "settings.toml", "content": read})),
        ("Edit", json!({"path": "settings.toml", "old": "user = 'a'", "new": read})),
    ] {
        let refusal = fixture.refuse(tool, args);
        assert_eq!(refusal.class, RefusalClass::InvalidArgs, "{tool}");
        assert!(refusal.message.contains("[redacted: GitHub token]"), "{}", refusal.message);
    }
    fixture.succeed("Edit", json!({"path": "settings.toml", "old": "user = 'a'", "new": "user = 'b'"})).await;
    assert_eq!(std::fs::read_to_string(fixture.path("settings.toml")).unwrap(), format!("user = 'b'\ntoken = '{}'\n", token()));
}
