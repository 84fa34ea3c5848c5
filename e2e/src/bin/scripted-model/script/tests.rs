//! Tests of the choice of the next step.

use super::*;

fn conversation(items: Vec<Item>) -> Conversation {
    Conversation { model: "small".to_owned(), system: "You are the reviewer.".to_owned(), items }
}

fn user(text: &str) -> Item {
    Item::User(text.to_owned())
}

fn answer() -> Item {
    Item::Assistant(String::new())
}

#[test]
fn the_conversation_decides_the_next_step() {
    let script: Script = serde_yaml::from_str(
        "rules:\n- {name: a, when: {lastUserContains: alpha, systemContains: reviewer}, steps: [{text: a0}, {text: a1}, {text: a2}]}\n\
         - {name: b, when: {lastUserContains: beta}, steps: [{text: b0, expect: [gamma]}]}\n",
    )
    .unwrap();
    let text = |items| script.next(&conversation(items)).map(|answer| answer.step.text);
    assert_eq!(text(vec![user("alpha")]).unwrap(), "a0");
    assert_eq!(text(vec![user("alpha"), answer()]).unwrap(), "a1");
    // A message that no rule matches is skipped.
    assert_eq!(text(vec![user("alpha"), answer(), user("other"), answer()]).unwrap(), "a2");
    // The newest message that a rule matches counts.
    assert_eq!(text(vec![user("alpha"), answer(), user("beta gamma")]).unwrap(), "b0");
    assert!(text(vec![user("beta")]).unwrap_err().contains("expects \"gamma\""));
    assert!(text(vec![user("alpha"), answer(), answer(), answer()]).unwrap_err().contains("has 3 steps"));
    assert!(text(vec![user("delta")]).unwrap_err().contains("newest user message is \"delta\""));
}

#[test]
fn arguments_may_contain_the_message_and_the_calls_id() {
    let script: Script = serde_yaml::from_str(
        "rules: [{name: a, steps: [{toolCalls: [{tool: Shell, args: {command: 'echo {{user}} {{call}}', deep: [{x: '{{user}}'}]}}]}]}]",
    )
    .unwrap();
    let answer = script.next(&conversation(vec![user("alpha 7")])).unwrap();
    let (id, call) = &answer.calls[0];
    assert_eq!(call.args["command"], format!("echo alpha 7 {id}"));
    assert_eq!(call.args["deep"][0]["x"], "alpha 7");
}

#[test]
fn the_example_is_a_valid_script() {
    let script: Script = serde_yaml::from_str(include_str!("../example.yaml")).unwrap();
    assert!(script.rules.len() > 2);
}
