//! Tests wait by the crate `test-support` alone: a `sleep` of their own is too long on a fast machine and too short on a slow one, and a comparison with the
//! time that passed fails where nothing is wrong. `xtask/waits.txt` lists the exceptions with their reasons.

use crate::instance::repository;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const TABLE: &str = include_str!("../waits.txt");

/// The lines of a text that sleep, or compare a number with the time that passed.
fn waits(text: &str) -> usize {
    let code = |line: &str| !line.trim_start().starts_with("//");
    let compares = |line: &str| {
        line.split("elapsed()").skip(1).any(|rest| {
            let rest = rest.trim_start();
            rest.starts_with('<') || rest.starts_with('>')
        })
    };
    text.lines().filter(|line| code(line) && (line.contains("sleep(") || compares(line))).count()
}

/// The part of a file that is of tests: all of it in a folder of tests, else what stands below `#[cfg(test)]`.
fn test_code<'a>(path: &Path, text: &'a str) -> &'a str {
    let is_test = |part: &str| ["tests", "tests.rs", "e2e"].contains(&part);
    if path.iter().any(|part| is_test(&part.to_string_lossy())) {
        return text;
    }
    text.find("#[cfg(test)]\nmod tests {").map_or("", |at| &text[at..])
}

/// What is wrong: a file that waits and is not in the table, or waits more or less often than the table says.
fn faults(table: &str, found: &BTreeMap<String, usize>) -> Vec<String> {
    let mut faults = vec![];
    let mut listed = BTreeMap::new();
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.splitn(3, char::is_whitespace);
        let (file, count, reason) = (words.next().unwrap_or_default(), words.next().and_then(|count| count.parse().ok()), words.next());
        match (count, reason.map(str::trim)) {
            (Some(count), Some(reason)) if !reason.is_empty() => drop(listed.insert(file.to_owned(), count)),
            _ => faults.push(format!("{line:?} is not a file, a number and a reason")),
        }
    }
    for (file, count) in found {
        match listed.remove(file) {
            Some(known) if known == *count => {}
            known => faults
                .push(format!("{file}: {count} sleeps or bounds on a clock, {} in xtask/waits.txt; see test-support", known.unwrap_or(0))),
        }
    }
    faults.extend(listed.into_keys().map(|file| format!("{file} waits no more: take its line out of xtask/waits.txt")));
    faults
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && !["target", "benches", ".git"].iter().any(|name| path.ends_with(name)) {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn tests_wait_by_one_helper() {
    let mut files = vec![];
    rust_files(repository(), &mut files);
    assert!(files.len() > 500, "{}", files.len());
    let mut found = BTreeMap::new();
    for file in files {
        let relative = file.strip_prefix(repository()).unwrap().to_owned();
        // The helper itself, and this file, which has examples.
        if relative.starts_with("test-support") || relative.ends_with("waits.rs") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let count = waits(test_code(&relative, &text));
        if count > 0 {
            found.insert(relative.display().to_string(), count);
        }
    }
    assert_eq!(faults(TABLE, &found), Vec::<String>::new());
}

#[test]
fn a_wait_outside_the_helper_is_found() {
    assert_eq!(
        waits("tokio::time::sleep(a).await;\n// sleep(a)\nassert!(began.elapsed() < b);\nlet took = began.elapsed();\nx.elapsed()>c"),
        3
    );
    let code = "fn a() { sleep(b) }\n#[cfg(test)]\nmod tests { fn c() { sleep(d) } }";
    assert_eq!(waits(test_code(Path::new("line/src/a.rs"), code)), 1);
    assert_eq!(waits(test_code(Path::new("line/tests/a.rs"), code)), 2);
    let found = BTreeMap::from([("a.rs".to_owned(), 2)]);
    assert!(faults("# head\na.rs 2 it is about sleeping", &found).is_empty());
    for (table, why) in
        [("", "a.rs: 2"), ("a.rs 1 why", "a.rs: 2"), ("a.rs 2", "not a file"), ("a.rs 2 why\nb.rs 1 why", "b.rs waits no more")]
    {
        assert!(faults(table, &found).iter().any(|fault| fault.contains(why)), "{table}");
    }
}
