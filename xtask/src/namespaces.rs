//! A test on a cluster that makes a namespace removes it where it ends well; the run's last check finds one that stays only after all others have ended.

use crate::instance::repository;
use std::fs;

/// The tests of a text that make a namespace and never remove one.
fn that_keep_theirs(text: &str) -> Vec<String> {
    let tests = text.split("#[tokio::test").skip(1);
    let keeps =
        |test: &&str| test.contains("TestNamespace::create(") && !test.contains(".remove().await") && !test.contains(".remove_and_wait()");
    let name = |test: &str| {
        test.split_once("fn ").and_then(|(_, rest)| rest.split_once('(')).map_or_else(String::new, |(name, _)| name.to_owned())
    };
    tests.filter(keeps).map(name).collect()
}

#[test]
fn a_test_that_makes_a_namespace_removes_it() {
    let mut keeping = vec![];
    let mut tests = 0;
    for folder in fs::read_dir(repository().join("e2e/tests")).unwrap().map(|entry| entry.unwrap().path()) {
        for file in
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|file| file.extension().is_some_and(|e| e == "rs"))
        {
            let text = fs::read_to_string(&file).unwrap();
            tests += text.matches("TestNamespace::create(").count();
            keeping.extend(that_keep_theirs(&text));
        }
    }
    assert!(tests > 50, "{tests} namespaces are made: the tests are elsewhere");
    // This one deletes it as a person does, and looks at what is left of it.
    assert_eq!(keeping, ["a_namespace_ends_with_agents_at_work_and_leaves_only_the_sessions_that_are_kept"]);
}

#[test]
fn a_planted_test_that_keeps_its_namespace_is_found() {
    let text = "#[tokio::test]\nasync fn a() -> Result<()> {\n    let ns = TestNamespace::create(\"a\").await?;\n    Ok(())\n}\n\
        #[tokio::test]\nasync fn b() -> Result<()> {\n    let ns = TestNamespace::create(\"b\").await?;\n    ns.remove().await\n}\n";
    assert_eq!(that_keep_theirs(text), ["a"]);
}
