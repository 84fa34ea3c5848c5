//! Modules of one crate that use each other in a circle: no part of it can be read, moved or replaced alone.
//!
//! Read from the text of `use` and of paths that begin with `crate`, `super` or `self`. A module and those within it are one here, and tests do not count.

use crate::instance::repository;
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Crates that still have circles. One that has none any more has to leave the list, so that none comes back.
const STILL: &[&str] =
    &["agent-shim", "assets", "crds", "gateway", "kubectl-yoi", "line", "plan", "session", "watch-cache", "workspace", "worktree", "xtask"];

type Module = Vec<String>;

/// The circles of each crate that may have none, and crates that are without need in the list, as sentences.
pub fn violations() -> Result<Vec<String>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(repository())? {
        let folder = entry?.path();
        if folder.join("Cargo.toml").is_file() && folder.join("src").is_dir() {
            let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            found.insert(name, circles(&modules(&folder.join("src"))?));
        }
    }
    Ok(judge(&found, STILL))
}

fn judge(found: &BTreeMap<String, Vec<Vec<String>>>, still: &[&str]) -> Vec<String> {
    let new = found.iter().filter(|(name, _)| !still.contains(&name.as_str()));
    let new = new.flat_map(|(name, circles)| circles.iter().map(move |circle| (name, circle)));
    let new = new.map(|(name, circle)| format!("{name}: the modules {} use each other in a circle", circle.join(", ")));
    let gone = still.iter().filter(|name| found.get(**name).is_none_or(Vec::is_empty));
    let gone = gone.map(|name| format!("{name} has no circle any more: remove it from the list in xtask/src/module_circles.rs"));
    new.chain(gone).collect()
}

/// The modules of a crate with their text, by their paths.
fn modules(source: &Path) -> Result<BTreeMap<Module, String>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![(source.to_owned(), Module::new())];
    while let Some((folder, of)) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("failed to list {}", folder.display()))? {
            let path = entry?.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let child = |name: String| of.iter().cloned().chain([name]).collect::<Module>();
            if path.is_dir() {
                if name != "tests" && !(of.is_empty() && name == "bin") {
                    folders.push((path, child(name)));
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") && name != "tests" && !name.starts_with("test_") {
                let module = if of.is_empty() && matches!(name.as_str(), "lib" | "main") { Module::new() } else { child(name) };
                found.insert(module, fs::read_to_string(&path)?);
            }
        }
    }
    Ok(found)
}

/// The circles of these modules, each in the order of its names.
fn circles(modules: &BTreeMap<Module, String>) -> Vec<Vec<String>> {
    let mut reaches: BTreeMap<&Module, BTreeSet<&Module>> = BTreeMap::new();
    for (module, text) in modules {
        let used = paths(text).into_iter().filter_map(|path| used_module(modules, module, &path));
        reaches.insert(module, used.filter(|used| !used.starts_with(module) && !module.starts_with(used)).collect());
    }
    // What each can reach over others.
    let direct = reaches.clone();
    for set in reaches.values_mut() {
        let mut new: Vec<&Module> = set.iter().copied().collect();
        while let Some(next) = new.pop() {
            new.extend(direct[next].iter().copied().filter(|module| set.insert(module)));
        }
    }
    let mut circles = BTreeSet::new();
    for (module, set) in &reaches {
        if set.contains(module) {
            let circle = set.iter().filter(|other| reaches[**other].contains(module)).map(|other| other.join("/"));
            circles.insert(circle.collect::<Vec<String>>());
        }
    }
    circles.into_iter().collect()
}

/// The module of the crate that a path in `from` names.
fn used_module<'a>(modules: &'a BTreeMap<Module, String>, from: &Module, path: &[String]) -> Option<&'a Module> {
    let absolute: Module = match path.first()?.as_str() {
        "crate" => path[1..].to_vec(),
        "self" | "super" => {
            let ups = path.iter().take_while(|name| matches!(name.as_str(), "self" | "super"));
            let (mut base, mut count) = (from.clone(), 0);
            for name in ups {
                count += 1;
                if name == "super" {
                    base.pop();
                }
            }
            base.into_iter().chain(path[count..].iter().cloned()).collect()
        }
        _ => return None,
    };
    let longest = (1..=absolute.len()).rev().find_map(|length| modules.get_key_value(&absolute[..length]));
    longest.map(|(module, _)| module)
}

/// The paths of a text that begin with `crate`, `self` or `super`, with those of its `use` trees.
fn paths(text: &str) -> Vec<Vec<String>> {
    let code: String = text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n");
    let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let mut found = Vec::new();
    let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    for begin in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(begin) {
            // `$crate::` and the end of a longer name are none.
            if !code[..at].ends_with(|before: char| is_name(before) || before == '$' || before == ':') {
                add_tree(&mut Vec::new(), &code[at..], &mut found);
            }
        }
    }
    found
}

/// Adds the paths of a tree such as `a::{b, c::d}`, and returns what stands behind it.
fn add_tree<'a>(prefix: &mut Vec<String>, text: &'a str, found: &mut Vec<Vec<String>>) -> &'a str {
    let mut rest = text.trim_start();
    let depth = prefix.len();
    loop {
        let end = rest.find(|letter: char| !(letter.is_alphanumeric() || letter == '_')).unwrap_or(rest.len());
        if end > 0 {
            prefix.push(rest[..end].to_owned());
        }
        rest = &rest[end..];
        let Some(behind) = rest.strip_prefix("::") else { break };
        rest = behind.trim_start();
        if let Some(inner) = rest.strip_prefix('{') {
            rest = inner;
            loop {
                rest = add_tree(prefix, rest, found).trim_start();
                // A name with another one for it.
                if rest.starts_with("as ") {
                    rest = &rest[rest.find([',', '}']).unwrap_or(rest.len())..];
                }
                match rest.strip_prefix(',') {
                    Some(next) if !next.trim_start().starts_with('}') => rest = next,
                    Some(next) => rest = next.trim_start(),
                    None => {}
                }
                match rest.strip_prefix('}') {
                    Some(next) => {
                        prefix.truncate(depth);
                        return next;
                    }
                    None if rest.is_empty()
                        || !rest.starts_with(|letter: char| letter.is_alphanumeric() || matches!(letter, '_' | ' ' | '\n' | '*')) =>
                    {
                        prefix.truncate(depth);
                        return rest;
                    }
                    None => rest = rest.strip_prefix('*').unwrap_or(rest),
                }
            }
        }
    }
    if prefix.len() > depth {
        found.push(prefix.clone());
    }
    prefix.truncate(depth);
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crate_of(files: &[(&str, &str)]) -> BTreeMap<Module, String> {
        files
            .iter()
            .map(|(path, text)| (path.split('/').filter(|name| !name.is_empty()).map(str::to_owned).collect(), (*text).to_owned()))
            .collect()
    }

    #[test]
    fn a_planted_circle_is_found_and_a_module_with_what_is_in_it_is_none() {
        let one_way = [
            ("", "mod a; mod b;"),
            ("a", "mod inner;\nuse crate::b::B;\nuse inner::I;"),
            ("a/inner", "use super::Outer;"),
            ("b", "pub struct B;"),
        ];
        assert!(circles(&crate_of(&one_way)).is_empty());
        let mut planted = one_way;
        planted[3].1 = "fn of() { crate::a::call() }";
        assert_eq!(circles(&crate_of(&planted)), [["a", "b"]]);
    }

    #[test]
    fn the_paths_of_a_tree_are_each_of_its_branches() {
        let found =
            paths("use crate::{a::{self, B}, c as d, e};\nuse super::f::*;\nlet x = crate::g::h();\n// use crate::no;\n$crate::never!();");
        let found: Vec<String> = found.into_iter().map(|path| path.join("::")).collect();
        for wanted in ["crate::a::self", "crate::a::B", "crate::c", "crate::e", "super::f", "crate::g::h"] {
            assert!(found.iter().any(|path| path == wanted), "{wanted}: {found:?}");
        }
        assert!(!found.iter().any(|path| path.contains("no") || path.contains("never")), "{found:?}");
    }

    #[test]
    fn a_circle_in_a_crate_that_may_have_none_and_a_crate_without_one_that_may_are_told() {
        let found = BTreeMap::from([("x".to_owned(), vec![vec!["a".to_owned(), "b".to_owned()]]), ("y".to_owned(), vec![])]);
        assert!(judge(&found, &["x"]).is_empty());
        let told = judge(&found, &["y"]);
        assert!(told[0].contains("x: the modules a, b use each other") && told[1].contains("y has no circle"), "{told:?}");
    }
}
