//! Who reads the files of another crate or test program. No manifest shows it.

/// `reader` reads `reads`: a file, or with a slash at the end all below a folder. Both are below the root of the repository.
pub struct Edge {
    pub reader: &'static str,
    pub reads: &'static str,
    pub by: By,
}

pub enum By {
    /// A change counts as one of the reader.
    Code,
    /// Only tests in this module read it, in the sources of a library or program.
    TestsIn(&'static str),
    /// It is material, and what is in it decides nothing.
    Anything,
}

impl Edge {
    pub fn is_read(&self, path: &str) -> bool {
        if self.reads.ends_with('/') { path.starts_with(self.reads) } else { path == self.reads }
    }
}

const fn code(reader: &'static str, reads: &'static str) -> Edge {
    Edge { reader, reads, by: By::Code }
}

pub const EDGES: &[Edge] = &[
    code("agent-shim/tests/shim/crash_points.rs", "workspace/tests/conformance/syscall_faults.rs"),
    Edge { reader: "agent-shim/src/shim/metrics.rs", reads: "docs/metrics.md", by: By::TestsIn("shim::metrics") },
    code("e2e/tests/degraded/main.rs", "e2e/tests/explain/doctor.rs"),
    code("e2e/tests/e2e/charts.rs", "charts/"),
    code("e2e/tests/explain/metrics.rs", "docs/metrics.md"),
    code("e2e/tests/programs/main.rs", "xtask/programs/package-lock.json"),
    code("e2e/tests/teardown/installation.rs", "charts/"),
    Edge { reader: "gateway/src/metrics.rs", reads: "docs/metrics.md", by: By::TestsIn("metrics") },
    code("gateway/tests/gateway/main.rs", "line/tests/line/certificates.rs"),
    Edge { reader: "kubectl-yoi/src/complete/names.rs", reads: "charts/yoi-operator/files/presets/", by: By::TestsIn("complete::names") },
    code("kubectl-yoi/tests/plugin/main.rs", "runtime/tests/agent/generated_history.rs"),
    Edge { reader: "operator/src/health.rs", reads: "docs/metrics.md", by: By::TestsIn("health") },
    code("operator/tests/api/chart_values.rs", "charts/yoi-operator/"),
    code("operator/tests/api/presets.rs", "charts/yoi-operator/files/presets/"),
    code("operator/tests/api/rbac.rs", "charts/yoi-operator/templates/rbac-operator.yaml"),
    code("plan/tests/populate/main.rs", "runtime/tests/agent/generated_history.rs"),
    code("runtime/tests/agent/main.rs", "e2e/src/bin/scripted-model/"),
    code("runtime/tests/agent/harness.rs", "e2e/src/bin/scripted-model/example.yaml"),
    code("runtime/tests/fence/main.rs", "runtime/tests/agent/skip.rs"),
    code("runtime/tests/paths/main.rs", "runtime/tests/agent/skip.rs"),
    code("session/tests/session/recorded_logs.rs", "runtime/tests/recorded-logs/"),
    code("watch-cache/src/lib.rs", "watch-cache/tests/watch_cache/example.rs"),
    // All tests of xtask run after any change of code.
    Edge { reader: "xtask/src/instance.rs", reads: "", by: By::Anything },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::affected::graph::{Graph, TargetKind};
    use crate::affected::rules;
    use crate::instance::repository;
    use std::path::{Component, Path, PathBuf};

    /// The test program, or else the package, that a path belongs to.
    fn owner<'a>(graph: &'a Graph, path: &str) -> Option<&'a str> {
        let (package, _) = graph.owner(path)?;
        let program = package.targets.iter().find(|target| target.kind == TargetKind::Test && rules::has(&target.file, path));
        Some(program.map_or(&package.folder, |program| &program.file))
    }

    /// What the text of `reader` reads elsewhere: each path in a string with `..` in it that leads to something there, from the file's own folder as in
    /// `#[path = "..."]` and `include_str!`, or from the crate's as behind `CARGO_MANIFEST_DIR`; and `""` where the folder above the crate is asked for.
    fn reads(graph: &Graph, reader: &str, text: &str, is_there: impl Fn(&str) -> bool) -> Vec<String> {
        let Some((package, below)) = graph.owner(reader) else { return vec![] };
        // No test runs them.
        if below.starts_with("benches/") {
            return vec![];
        }
        let own_folder = Path::new(reader).parent().unwrap_or(Path::new(""));
        let strings = text.split('"').filter(|string| (string.contains("../") || *string == "..") && !string.contains('\n'));
        let paths = strings.flat_map(|string| {
            // A placeholder stands for one folder or several, at the begin mostly for the crate's.
            let piece = string.split(['{', '}']).find(|piece| piece.contains("..")).unwrap_or_default().trim_start_matches('/');
            [own_folder, Path::new(&package.folder)].map(|from| normal(&from.join(piece)))
        });
        let elsewhere = |path: &String| {
            let theirs = owner(graph, path);
            // What belongs to no program of this package is read by all of them, and a program sees the package's own sources by nature.
            let is_common = graph.owner(path).is_some_and(|(of, _)| of.name == package.name) && theirs == Some(package.folder.as_str());
            theirs != owner(graph, reader) && !is_common && path != &package.folder
        };
        let mut found: Vec<String> = paths.flatten().filter(|path| !path.is_empty() && is_there(path)).filter(elsewhere).collect();
        let statements = text.split(';').filter(|statement| statement.contains("CARGO_MANIFEST_DIR"));
        found.extend(statements.filter(|statement| statement.contains(".parent()")).map(|_| String::new()));
        found.sort();
        found.dedup();
        found
    }

    /// Without `..`; nothing for what leaves the repository.
    fn normal(path: &Path) -> Option<String> {
        let mut plain = PathBuf::new();
        for component in path.components() {
            match component {
                Component::ParentDir if !plain.pop() => return None,
                Component::ParentDir | Component::CurDir => {}
                Component::Normal(name) => plain.push(name),
                _ => return None,
            }
        }
        Some(plain.to_str()?.to_owned())
    }

    /// What the table lacks, one sentence each.
    fn missing(edges: &[Edge], reader: &str, reads: &[String]) -> Vec<String> {
        let has = |path: &str| {
            let is_read =
                |edge: &Edge| edge.reads.is_empty() == path.is_empty() && (edge.is_read(path) || edge.is_read(&format!("{path}/")));
            edges.iter().any(|edge| edge.reader == reader && is_read(edge))
        };
        reads
            .iter()
            .filter(|path| !has(path))
            .map(|path| format!("{reader} reads {path:?}: xtask/src/affected/edges.rs has no row for it"))
            .collect()
    }

    fn graph() -> Graph {
        Graph::read().expect("cargo knows the workspace")
    }

    fn in_repository(path: &str) -> bool {
        repository().join(path).exists()
    }

    #[test]
    fn the_table_has_every_file_that_is_read_from_another_crate_or_test_program() {
        let graph = graph();
        // Without this file: what it plants below is no edge.
        let all = graph.packages.iter().flat_map(|package| crate::affected::program::read(&package.folder));
        let files = all.filter(|(file, _)| file != file!());
        let faults: Vec<String> =
            files.flat_map(|(file, text)| missing(EDGES, &file, &reads(&graph, &file, &text, in_repository))).collect();
        assert_eq!(faults, Vec::<String>::new());
    }

    #[test]
    fn the_table_has_no_row_for_what_is_not_read_any_more() {
        let graph = graph();
        for edge in EDGES {
            let text = std::fs::read_to_string(repository().join(edge.reader)).unwrap_or_default();
            let read = reads(&graph, edge.reader, &text, in_repository);
            let is_used = read.iter().any(|path| missing(std::slice::from_ref(edge), edge.reader, std::slice::from_ref(path)).is_empty());
            assert!(is_used, "{} does not read {:?}, but {read:?}", edge.reader, edge.reads);
        }
    }

    #[test]
    fn a_planted_edge_that_the_table_lacks_is_found() {
        let graph = graph();
        for (reader, text, path) in [
            (
                "runtime/tests/agent/planted.rs",
                r#"#[path = "../../../line/tests/line/certificates.rs"]"#,
                "line/tests/line/certificates.rs",
            ),
            ("plan/src/planted.rs", r#"let page = include_str!("../../docs/metrics.md");"#, "docs/metrics.md"),
            ("plan/src/a/planted.rs", r#"include_bytes!("../../../docs/icon.svg")"#, "docs/icon.svg"),
            (
                "line/tests/line/planted.rs",
                r#"concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/yoi-crds/Chart.yaml")"#,
                "charts/yoi-crds/Chart.yaml",
            ),
            ("line/src/planted.rs", "Path::new(env!(\"CARGO_MANIFEST_DIR\"))\n    .join(\"../examples\")", "examples"),
            ("line/src/planted.rs", r#"format!("{}/../charts/{name}", env!("CARGO_MANIFEST_DIR"))"#, "charts/"),
            ("line/src/planted.rs", "Path::new(env!(\"CARGO_MANIFEST_DIR\"))\n    .parent()", ""),
            ("runtime/tests/program/planted.rs", r#"#[path = "../agent/harness.rs"]"#, "runtime/tests/agent/harness.rs"),
        ] {
            let found = reads(&graph, reader, text, in_repository);
            assert_eq!(found, [path.trim_end_matches('/')], "{reader}: {text}");
            assert_eq!(missing(EDGES, reader, &found).len(), 1, "{reader}: {text}");
            let edge = code(reader, path);
            assert!(missing(&[edge], reader, &found).is_empty(), "{reader}: {text}");
        }
    }

    #[test]
    fn what_a_crate_has_itself_and_what_is_no_file_take_no_row() {
        let graph = graph();
        for (reader, text) in [
            ("operator/tests/api/rbac.rs", r#"include_str!("../src/lib.rs")"#),
            ("plan/src/workspace/planted.rs", r#"include_str!("populate/words.sh")"#),
            ("runtime/tests/paths/inputs.rs", r#"["dir/../../", "../secret", "../tree/../tree-beside/secret"]"#),
            ("runtime/benches/agent/main.rs", r#"#[path = "../../tests/agent/harness.rs"]"#),
            ("engine/src/planted.rs", r#"Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tools")"#),
        ] {
            assert_eq!(reads(&graph, reader, text, in_repository), Vec::<String>::new(), "{reader}: {text}");
        }
    }
}
