use super::*;
use serde_json::json;

fn affected(changed: &[&str]) -> Affected {
    let changed: Vec<String> = changed.iter().map(|path| (*path).to_owned()).collect();
    of(&changed, &Graph::read().expect("cargo knows the workspace"), edges::EDGES, &program::read)
}

fn words(set: &BTreeSet<String>) -> String {
    set.iter().cloned().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_change_of_a_crate_runs_the_tests_of_those_that_stand_on_it() {
    let all_crates = "kubectl-yoi xtask yoi-agent-shim yoi-assets yoi-crds yoi-e2e yoi-engine yoi-gateway yoi-host yoi-line yoi-mcp yoi-operator yoi-plan yoi-runtime \
        yoi-session yoi-wire";
    let all_images = "kubectl-yoi scripted-model yoi-agent-shim yoi-gateway yoi-host yoi-operator yoi-runtime";
    for (file, packages, images, parts) in [
        ("runtime/src/agent.rs", "xtask yoi-runtime", "yoi-runtime", "runtime"),
        ("runtime/Cargo.toml", "xtask yoi-runtime", "yoi-runtime", "runtime"),
        (
            "wire/src/lib.rs",
            all_crates,
            all_images,
            "agent-shim assets crds e2e engine gateway host kubectl-yoi line mcp operator plan runtime session wire xtask",
        ),
        // The tests of plan use it, plan does not.
        ("workspace/src/copy.rs", "xtask yoi-agent-shim yoi-plan yoi-workspace", "yoi-agent-shim", "agent-shim workspace"),
        ("kubectl-yoi/src/main.rs", "kubectl-yoi xtask", "kubectl-yoi", "kubectl-yoi"),
        (
            "plan/src/workspace/populate/main.sh",
            "kubectl-yoi xtask yoi-agent-shim yoi-e2e yoi-gateway yoi-operator yoi-plan",
            "kubectl-yoi yoi-agent-shim yoi-gateway yoi-operator",
            "agent-shim gateway kubectl-yoi operator plan",
        ),
        ("session/src/frame.rs", "xtask yoi-engine yoi-runtime yoi-session", "yoi-runtime", "engine runtime session"),
        ("line/src/lib.rs", "xtask yoi-gateway yoi-line yoi-runtime", "yoi-gateway yoi-runtime", "gateway line runtime"),
        ("engine/src/program/parser.rs", "xtask yoi-engine yoi-runtime", "yoi-runtime", "engine programs runtime"),
        ("xtask/src/cluster.rs", "xtask", "", "cluster xtask"),
    ] {
        let change = affected(&[file]);
        assert_eq!((change.whole.as_deref(), change.lints), (None, file.ends_with(".rs") || file.ends_with(".toml")), "{file}");
        assert_eq!(words(&change.packages), packages, "{file}");
        assert_eq!(words(&change.images), images, "{file}");
        assert_eq!(words(&change.parts), parts, "{file}");
        assert!(change.programs.is_empty() && change.modules.is_empty(), "{file}");
    }
}

#[test]
fn what_everything_is_built_with_and_what_no_rule_knows_run_everything() {
    for file in [
        "Cargo.lock",
        "Cargo.toml",
        ".cargo/config.toml",
        ".ci/run",
        "rust-toolchain.toml",
        "a-file-that-nobody-knows",
        "new-crate/src/lib.rs",
    ] {
        let change = affected(&["docs/use.md", file, "runtime/src/agent.rs"]);
        assert!(change.whole.as_ref().is_some_and(|why| why.contains(file)) && change.lints, "{file}: {change:?}");
        assert!(change.runs(Row { package: "yoi-plan", program: "stable", name: "a", about: &[] }), "{file}");
    }
}

#[test]
fn documents_run_only_the_tests_that_read_them() {
    for file in ["docs/use.md", "README.md", "LICENSE", "docs/benchmarks/fork.svg", "e2e/cluster/README.md", ".gitignore"] {
        let change = affected(&[file]);
        assert!(change.nothing(), "{file}: {change:?}");
        assert_eq!(change.to_string(), "no test: only documents that none reads");
    }
    assert!(affected(&[]).nothing());
    let metrics = affected(&["docs/metrics.md"]);
    let runs = |package, program, name| metrics.runs(Row { package, program, name, about: &["runtime"] });
    assert!(runs("yoi-gateway", "yoi_gateway", "metrics::tests::each_is_in_the_page"));
    assert!(runs("yoi-agent-shim", "yoi_agent_shim", "shim::metrics::tests::each_is_in_the_page"));
    assert!(runs("yoi-operator", "yoi_operator", "health::tests::each_is_in_the_page"));
    assert!(!runs("yoi-gateway", "gateway", "peers::a2") && !runs("yoi-gateway", "yoi_gateway", "metrics_of_others::a"));
    assert!(!runs("yoi-runtime", "agent", "metrics::a") && metrics.images.is_empty() && metrics.parts.is_empty());
}

/// A workspace of three crates: a library, a program with a library, and tests on a cluster that have a program of their own.
fn small_graph() -> Graph {
    let target = |kind: &str, name: &str, file: &str| json!({"kind": [kind], "name": name, "src_path": format!("/r/{file}")});
    let package = |folder: &str, dependencies: serde_json::Value, targets: Vec<serde_json::Value>| json!({"name": format!("yoi-{folder}"), "manifest_path": format!("/r/{folder}/Cargo.toml"), "dependencies": dependencies, "targets": targets});
    let metadata = json!({"workspace_root": "/r", "packages": [
        package("wire", json!([{"name": "serde", "kind": null}]), vec![target("lib", "yoi_wire", "wire/src/lib.rs")]),
        package("runtime", json!([{"name": "yoi-wire", "kind": "build", "path": "/r/wire"}]), vec![
            target("lib", "yoi_runtime", "runtime/src/lib.rs"),
            target("bin", "yoi-runtime", "runtime/src/main.rs"),
            target("test", "agent", "runtime/tests/agent/main.rs"),
            target("test", "paths", "runtime/tests/paths.rs"),
            target("bench", "agent", "runtime/benches/agent/main.rs"),
        ]),
        package("e2e", json!([{"name": "yoi-wire", "kind": "dev", "path": "/r/wire"}]), vec![
            target("lib", "yoi_e2e", "e2e/src/lib.rs"),
            target("bin", "scripted-model", "e2e/src/bin/scripted-model/main.rs"),
            target("test", "e2e", "e2e/tests/e2e/main.rs"),
            target("test", "kills", "e2e/tests/kills/main.rs"),
        ]),
    ]});
    Graph::parse(&metadata).expect("a graph")
}

/// What runs of the small workspace after one change: names of tests, each once.
fn runs_after(file: &str) -> String {
    let sources = |folder: &str| {
        let files = [
            ("e2e/tests/e2e/main.rs", "mod agents; mod peers; mod server;"),
            ("e2e/tests/e2e/agents.rs", "use crate::server;"),
            ("e2e/tests/e2e/peers.rs", ""),
            ("e2e/tests/e2e/server.rs", "include_str!(\"server.yaml\")"),
        ];
        files.into_iter().filter(|(file, _)| file.starts_with(folder)).map(|(file, text)| (file.to_owned(), text.to_owned())).collect()
    };
    let edges = [
        Edge { reader: "runtime/tests/agent/main.rs", reads: "e2e/src/bin/scripted-model/", by: By::Code },
        Edge { reader: "runtime/src/metrics.rs", reads: "docs/metrics.md", by: By::TestsIn("metrics") },
        Edge { reader: "e2e/tests/e2e/peers.rs", reads: "examples/", by: By::Code },
        Edge { reader: "runtime/src/lib.rs", reads: "docs/use.md", by: By::Anything },
    ];
    let change = of(&[file.to_owned()], &small_graph(), &edges, &sources);
    let rows = [
        ("yoi-wire", "yoi_wire", "preset::tests::unit-of-wire", &[][..]),
        ("yoi-runtime", "yoi_runtime", "agent::tests::unit-of-runtime", &[]),
        ("yoi-runtime", "yoi_runtime", "metrics::tests::page", &[]),
        ("yoi-runtime", "agent", "endpoints::agent", &[]),
        ("yoi-runtime", "paths", "paths", &[]),
        ("yoi-e2e", "scripted-model", "tests::unit-of-model", &[]),
        ("yoi-e2e", "e2e", "agents::agents", &["runtime", "scripted-model"]),
        ("yoi-e2e", "e2e", "peers::peers", &["runtime"]),
        ("yoi-e2e", "e2e", "charts::charts", &["charts"]),
        ("yoi-e2e", "kills", "rounds::kills", &["runtime", "images"]),
    ];
    let runs = rows.into_iter().filter(|(package, program, name, about)| change.runs(Row { package, program, name, about }));
    runs.map(|(_, _, name, _)| name.rsplit("::").next().unwrap_or_default()).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_row_of_the_table_runs_if_its_crate_its_program_its_module_or_what_it_is_about_changed() {
    let whole = "unit-of-wire unit-of-runtime page agent paths unit-of-model agents peers charts kills";
    for (file, expected) in [
        // A build script of the runtime uses it, the tests of e2e do, and no row is about it.
        ("wire/src/preset.rs", whole),
        ("runtime/src/agent.rs", "unit-of-runtime page agent paths agents peers kills"),
        ("runtime/tests/agent/endpoints.rs", "agent"),
        ("runtime/tests/agent/main.rs", "agent"),
        ("runtime/tests/paths.rs", "paths"),
        ("runtime/tests/samples/request.json", "unit-of-runtime page agent paths"),
        ("runtime/benches/agent/main.rs", ""),
        ("e2e/src/lib.rs", "unit-of-model agents peers charts kills"),
        // The runtime's tests have it in them.
        ("e2e/src/bin/scripted-model/rule.rs", "agent unit-of-model agents"),
        ("e2e/tests/e2e/peers.rs", "peers"),
        ("e2e/tests/e2e/server.rs", "agents"),
        ("e2e/tests/e2e/server.yaml", "agents"),
        ("e2e/tests/e2e/main.rs", "agents peers charts"),
        ("e2e/tests/kills/rounds.rs", "kills"),
        ("charts/yoi-operator/values.yaml", "charts"),
        ("xtask/src/images/oci.rs", "kills"),
        ("examples/fleet/6-ci.yaml", "peers"),
        ("deny.toml", ""),
        ("docs/use.md", ""),
        ("docs/metrics.md", "page"),
        ("Cargo.lock", whole),
        ("operator/src/lib.rs", whole),
    ] {
        assert_eq!(runs_after(file), expected, "{file}");
    }
}

#[test]
fn the_words_of_rows_are_crates_and_parts() {
    let words = parts(&Graph::read().expect("cargo knows the workspace"));
    for word in ["runtime", "agent-shim", "kubectl-yoi", "charts", "cluster", "images", "install", "programs", "scripted-model"] {
        assert!(words.contains(word), "{word}");
    }
    assert!(!words.contains("yoi-runtime"));
}
