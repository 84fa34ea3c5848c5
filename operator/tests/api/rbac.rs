//! The chart grants what the table in `lib.rs` says, and no more.

use std::collections::{BTreeMap, BTreeSet};

type Permissions = BTreeMap<String, BTreeSet<String>>;

/// The first word of each entry; the rest is for readers.
fn words(list: &str) -> Vec<String> {
    list.split(',').filter_map(|entry| entry.split_whitespace().next()).map(str::to_owned).collect()
}

fn grant(permissions: &mut Permissions, group: &str, resources: &str, verbs: &str) {
    for resource in words(resources) {
        // The core group has no name.
        permissions.entry(format!("{group}/{resource}")).or_default().extend(words(verbs));
    }
}

fn table() -> Permissions {
    let mut permissions = Permissions::new();
    for line in include_str!("../../src/lib.rs").lines().filter_map(|l| l.strip_prefix("//! | ")) {
        let cells: Vec<&str> = line.trim_end_matches('|').split('|').map(str::trim).collect();
        let [group, resources, verbs] = cells[..] else { panic!("three cells in {line:?}") };
        if group != "Group" && !group.contains("own namespace") {
            grant(&mut permissions, if group == "core" { "" } else { group }, resources, verbs);
        }
    }
    permissions
}

fn chart() -> Permissions {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/yoi-operator/templates/rbac-operator.yaml"));
    let text = text.expect("the chart lies beside this crate");
    let role = text.split("\n---").next().expect("a first object");
    let list = |line: &str, key: &str| Some(line.split_once(key)?.1.trim().trim_matches(['[', ']']).replace('"', ""));
    let (mut permissions, mut group, mut resources) = (Permissions::new(), String::new(), String::new());
    for line in role.lines() {
        if let Some(found) = list(line, "apiGroups:") {
            group = found;
        } else if let Some(found) = list(line, "resources:") {
            resources = found;
        } else if let Some(verbs) = list(line, "verbs:") {
            grant(&mut permissions, &group, &resources, &verbs);
        }
    }
    permissions
}

#[test]
fn the_chart_grants_what_the_table_says() {
    assert!(table().len() > 15, "{:?}", table());
    assert_eq!(chart(), table());
}
