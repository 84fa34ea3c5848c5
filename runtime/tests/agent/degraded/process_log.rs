//! Lines of the process's own log.

use serde_json::Value;
use yoi_wire::entry::Body;

use crate::harness::{EXAMPLE, Harness};

#[tokio::test(flavor = "multi_thread")]
async fn f17_each_line_of_the_process_log_names_the_agent_and_none_holds_the_conversation() {
    let harness = Harness::new(EXAMPLE).await;
    let mut runtime = harness.start(3, Some("write the greeting"));
    let entries = harness.wait_for_runs(1).await;
    assert!(runtime.terminate().await.success());
    let Body::SessionStarted(start) = &entries[0].body else { panic!() };
    let lines: Vec<Value> = harness.stderr().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let opened = lines.iter().position(|line| line["fields"]["kind"] == "RuntimeStarted").unwrap();
    for (number, line) in lines.iter().enumerate() {
        assert_eq!((&line["object"], &line["uid"], &line["run"]), (&"ns/a".into(), &"uid-a".into(), &3.into()), "{line}");
        assert!(number < opened || line["session"] == start.session.as_str(), "{line}");
        assert!(line["fields"]["message"].is_string(), "{line}");
    }
    for entry in &entries {
        let call = match &entry.body {
            Body::ToolStarted(start) => &start.call_id,
            Body::ToolEnded(end) => &end.call_id,
            _ => continue,
        };
        let line = lines.iter().find(|line| line["fields"]["seq"] == entry.seq).unwrap();
        assert_eq!(line["fields"]["call"], call.as_str());
    }
    assert!(lines.iter().any(|line| line["fields"]["message"] == "tool ended" && line["fields"]["call"].is_string()));
    for words in ["greeting", "hello from the script", "I write it first", "You are tested"] {
        assert!(!harness.stderr().contains(words), "{words}");
    }
}
