//! Which modules of one test program a change affects.

use crate::instance::repository;
use std::collections::BTreeSet;
use std::path::Path;

/// The Rust files below a folder: path below the root of the repository, and text.
pub type Sources<'a> = dyn Fn(&str) -> Vec<(String, String)> + 'a;

pub fn read(folder: &str) -> Vec<(String, String)> {
    let mut files = vec![];
    let mut folders = vec![repository().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in folder.read_dir().into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if let (Some("rs"), Ok(text), Ok(below)) =
                (path.extension().and_then(|e| e.to_str()), std::fs::read_to_string(&path), path.strip_prefix(repository()))
            {
                files.push((below.display().to_string(), text));
            }
        }
    }
    files.sort();
    files
}

/// The modules of the test program in `folder` that change with the file: its own, those that name it, those that name them. `None`: all, because the
/// program's first file is among them, or because more than names tie the file to others.
pub fn modules(path: &str, folder: Option<&str>, sources: &Sources<'_>) -> Option<BTreeSet<String>> {
    let folder = folder?;
    let files = sources(folder);
    let mut changed: BTreeSet<&str> = if path.ends_with(".rs") {
        // One that is gone was named in others, which changed with it.
        BTreeSet::from([path])
    } else {
        let name = Path::new(path).file_name()?.to_str()?;
        let readers: BTreeSet<&str> = files.iter().filter(|(_, text)| text.contains(name)).map(|(file, _)| file.as_str()).collect();
        if readers.is_empty() {
            return None;
        }
        readers
    };
    loop {
        let more = files.iter().filter(|(file, text)| changed.iter().any(|used| used != file && names(text, &module_name(used))));
        let before = changed.len();
        let more: Vec<&str> = more.map(|(file, _)| file.as_str()).collect();
        changed.extend(more);
        if changed.len() == before {
            break;
        }
    }
    let text = |path: &str| files.iter().find(|(file, _)| file == path).map_or("", |(_, text)| text);
    changed.iter().map(|file| module_path(file, folder).filter(|_| !is_tied_without_a_name(text(file)))).collect()
}

/// `a::b` of `tests/e2e/a/b.rs`; none of the first file.
fn module_path(file: &str, folder: &str) -> Option<String> {
    let below = file.strip_prefix(folder)?.strip_prefix('/')?.strip_suffix(".rs")?;
    (below != "main").then(|| below.replace('/', "::"))
}

fn module_name(file: &str) -> String {
    Path::new(file).file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Whether the text takes anything from a module of this name: `name::thing`, or the name in a `use`.
fn names(text: &str, module: &str) -> bool {
    let (mut in_use, mut previous) = (false, "");
    let mut rest = text;
    while let Some(begin) = rest.find(is_of_name) {
        in_use &= !rest[..begin].contains(';');
        let after = &rest[begin..];
        let end = after.find(|c| !is_of_name(c)).unwrap_or(after.len());
        let (word, behind) = after.split_at(end);
        if word == module && previous != "mod" && (in_use || behind.starts_with("::")) {
            return true;
        }
        in_use |= word == "use";
        (previous, rest) = (word, behind);
    }
    false
}

fn is_of_name(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// A macro, and methods of a type that another file has, are used without the name of the module.
fn is_tied_without_a_name(text: &str) -> bool {
    let defines = |name: &str| {
        let is_here =
            |kind| text.match_indices(&format!("{kind} {name}")).any(|(at, found)| !text[at + found.len()..].starts_with(is_of_name));
        ["struct", "enum", "trait", "type", "union"].into_iter().any(is_here)
    };
    let is_impl_of_others = |line: &str| implemented_on(line).is_some_and(|name| !defines(name));
    text.contains("macro_rules!") || text.lines().any(is_impl_of_others)
}

/// `Setup` of `impl<'a> Drop for Setup<'a> {`.
fn implemented_on(line: &str) -> Option<&str> {
    let mut head = line.strip_prefix("impl")?;
    if head.starts_with('<') {
        let mut depth = 0;
        let end = head.find(|c| {
            depth += i32::from(c == '<') - i32::from(c == '>');
            depth == 0
        })?;
        head = &head[end..];
    }
    let on = head.rsplit(" for ").next()?.trim_start_matches(|c| !is_of_name(c));
    // The last of a path.
    on.split(['<', ' ', '{']).next()?.rsplit("::").next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: [(&str, &str); 8] = [
        ("t/p/main.rs", "mod agents;\nmod git;\nmod peers;\nmod rounds;\nmod server;\nmod setup;\nuse setup::Setup;\n"),
        ("t/p/agents.rs", "use crate::{\n    git,\n    Setup,\n};\n#[test]\nfn a() {}\n"),
        ("t/p/git.rs", "use super::server::start;\n// The peers are told.\npub fn clone() { start(include_str!(\"git.yaml\")) }\n"),
        ("t/p/peers.rs", "#[test]\nfn b() { let git = 1; }\n"),
        ("t/p/rounds.rs", "mod checks;\n#[test]\nfn c() { checks::all() }\n"),
        ("t/p/rounds/checks.rs", "pub fn all() {}\n"),
        ("t/p/server.rs", "pub fn start(_: &str) {}\n"),
        ("t/p/setup.rs", "pub struct Setup;\nimpl Setup {}\n"),
    ];

    fn of(path: &str) -> Option<String> {
        let sources = |folder: &str| {
            FILES.iter().filter(|(file, _)| file.starts_with(folder)).map(|(f, t)| ((*f).to_owned(), (*t).to_owned())).collect()
        };
        modules(path, Some("t/p"), &sources).map(|modules| modules.into_iter().collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn a_module_brings_those_that_take_something_from_it() {
        for (changed, affected) in [
            ("t/p/peers.rs", Some("peers")),
            ("t/p/agents.rs", Some("agents")),
            // Agents use it in a group; to the peers it is a variable.
            ("t/p/git.rs", Some("agents git")),
            ("t/p/server.rs", Some("agents git server")),
            ("t/p/rounds/checks.rs", Some("rounds rounds::checks")),
            ("t/p/git.yaml", Some("agents git")),
            ("t/p/gone.rs", Some("gone")),
            ("t/p/setup.rs", None),
            ("t/p/main.rs", None),
            ("t/p/read-by-nobody.json", None),
        ] {
            assert_eq!(of(changed).as_deref(), affected, "{changed}");
        }
        assert_eq!(modules("t/alone.rs", None, &|_| vec![]), None);
    }

    #[test]
    fn what_is_used_without_a_name_is_everybodys() {
        for text in ["impl Setup {\n", "impl<T> Wait for Option<T> {\n", "struct Setups;\nimpl crate::Setup {\n", "macro_rules! wait {\n"] {
            assert!(is_tied_without_a_name(text), "{text}");
        }
        for text in [
            "struct Setup;\nimpl Setup {}\n",
            "enum Kind {}\nimpl Display for Kind {\n",
            "struct S<'a>;\nimpl<'a, T: Into<&'a str>> Drop for S<'_> {\n",
        ] {
            assert!(!is_tied_without_a_name(text), "{text}");
        }
    }
}
