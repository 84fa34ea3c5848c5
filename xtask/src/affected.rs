//! Which tests a change affects: what `cargo xtask test --since REV` runs.
//!
//! Each changed file leads to its crate; from there the crates that depend on it, as manifests say, and the tests that read the file, as [`edges::EDGES`]
//! says. A file that no rule knows means everything, as does what all crates are built with. So too much may run, never too little, with one assumption:
//! a test of the cluster names in its row all parts that it is about ([`Row::about`]). Landing does not stand on this: it runs all.

mod edges;
mod git;
mod graph;
mod program;
mod rules;

use crate::instance::repository;
use anyhow::Result;
use edges::{By, Edge};
pub use graph::Graph;
use graph::{Package, TargetKind};
use program::Sources;
use rules::Rule;
use std::collections::BTreeSet;
use std::fmt;

/// A test, as a table of tests lists it.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    /// `yoi-e2e`.
    pub package: &'a str,
    /// cargo's name of the target: `e2e`, `yoi_gateway` for a library, `yoi-runtime` for a program.
    pub program: &'a str,
    /// With its modules: `peers::a17_two_agents_talk`.
    pub name: &'a str,
    /// For a test that drives what we ship: the parts whose change affects it, see [`parts`]. A test of one crate needs none.
    pub about: &'a [&'a str],
}

/// What is to be run. Checks that cost nothing (format, the import law, generated files, faults that fit) are not in it: they run always.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Affected {
    /// Everything, and why.
    pub whole: Option<String>,
    /// Rust code has changed, so the lints can say something new.
    pub lints: bool,
    /// The packages all of whose tests run.
    pub packages: BTreeSet<String>,
    /// Package and test program, all of whose tests run.
    pub programs: BTreeSet<(String, String)>,
    /// Package, program and path of a module whose tests run. Without a program: in the library and in each program of the package.
    pub modules: BTreeSet<(String, Option<String>, String)>,
    /// The programs that changed, so images or the plugin do: `yoi-operator`, `kubectl-yoi`. See [`Self::builds`].
    pub images: BTreeSet<String>,
    /// What changed, in the words of [`Row::about`].
    pub parts: BTreeSet<String>,
}

impl Affected {
    pub fn runs(&self, row: Row<'_>) -> bool {
        let is_below = |path: &str| row.name.strip_prefix(path).is_some_and(|rest| rest.starts_with("::"));
        let in_module = |(package, program, path): &(String, Option<String>, String)| {
            package == row.package && program.as_ref().is_none_or(|program| program == row.program) && is_below(path)
        };
        self.whole.is_some()
            || self.packages.contains(row.package)
            || self.programs.contains(&(row.package.to_owned(), row.program.to_owned()))
            || self.modules.iter().any(in_module)
            || row.about.iter().any(|part| self.parts.contains(*part))
    }

    /// Documents alone, and none that a test reads.
    pub fn nothing(&self) -> bool {
        *self == Self::default()
    }

    fn all(why: String) -> Self {
        Self { whole: Some(why), lints: true, ..Self::default() }
    }

    /// A package whose program, library or manifest changed.
    fn package(&mut self, graph: &Graph, package: &Package) {
        let users = graph.users(&package.name);
        self.packages.extend(graph.tested_with(&users));
        for user in users.iter().filter_map(|name| graph.package(name)) {
            self.parts.insert(user.folder.clone());
            self.images
                .extend(user.targets.iter().filter(|target| user.ships() && target.kind == TargetKind::Program).map(|t| t.name.clone()));
        }
    }
}

/// Every word that [`Row::about`] may have.
#[cfg(test)]
pub fn parts(graph: &Graph) -> BTreeSet<String> {
    graph.packages.iter().map(|package| package.folder.clone()).chain(rules::PARTS.iter().map(|part| part.name.to_owned())).collect()
}

/// What the changes since the last common commit with `rev` affect: what was committed since, and what is not committed.
pub fn since(rev: &str) -> Result<Affected> {
    let changed = git::changed_since(repository(), rev)?;
    Ok(of(&changed, &Graph::read()?, edges::EDGES, &program::read))
}

/// `changed`: paths below the root of the repository; `sources`: the Rust files below a folder.
fn of(changed: &[String], graph: &Graph, edges: &[Edge], sources: &Sources<'_>) -> Affected {
    let mut affected = Affected::default();
    let mut seen: BTreeSet<String> = changed.iter().cloned().collect();
    let mut queue: Vec<String> = seen.iter().cloned().collect();
    while let Some(path) = queue.pop() {
        for edge in edges.iter().filter(|edge| edge.is_read(&path)) {
            match edge.by {
                By::Code => {
                    if seen.insert(edge.reader.to_owned()) {
                        queue.push(edge.reader.to_owned());
                    }
                }
                By::TestsIn(module) => {
                    let package = graph.owner(edge.reader).map(|(package, _)| package.name.clone());
                    affected.modules.extend(package.map(|package| (package, None, module.to_owned())));
                }
                By::Anything => {}
            }
        }
        match rules::rule(&path, graph) {
            Rule::Everything(why) => return Affected::all(why),
            Rule::Document => continue,
            Rule::Lints => {}
            Rule::Parts { parts, package } => {
                affected.parts.extend(parts.into_iter().map(str::to_owned));
                if let Some(package) = package {
                    affected.package(graph, package);
                }
            }
            Rule::Program { package, name } => {
                affected.programs.insert((package.name.clone(), name.clone()));
                affected.parts.insert(name.clone());
                affected.images.insert(name);
            }
            Rule::AllTestsOf(package) => {
                affected.packages.insert(package.name.clone());
            }
            Rule::TestProgram { package, name, folder } => match program::modules(&path, folder.as_deref(), sources) {
                Some(modules) => affected.modules.extend(modules.into_iter().map(|path| (package.name.clone(), Some(name.clone()), path))),
                None => {
                    affected.programs.insert((package.name.clone(), name));
                }
            },
        }
        affected.lints |= path.ends_with(".rs") || path.ends_with(".toml");
        // Its tests look over the whole repository, and take seconds.
        affected.packages.insert("xtask".to_owned());
    }
    affected
}

impl fmt::Display for Affected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = &self.whole {
            return write!(f, "everything: {why}");
        }
        if self.nothing() {
            return f.write_str("no test: only documents that none reads");
        }
        let programs = self.programs.iter().map(|(package, program)| format!("{package} {program}"));
        let modules = self.modules.iter().map(|(package, program, path)| {
            format!("{package} {}{path}", program.as_ref().map_or_else(String::new, |name| name.clone() + " "))
        });
        let tests: Vec<String> = self.packages.iter().cloned().chain(programs).chain(modules).collect();
        write!(f, "tests of {}", tests.join(", "))?;
        if !self.parts.is_empty() {
            write!(f, "; on a cluster what is about {}", self.parts.iter().cloned().collect::<Vec<_>>().join(", "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
