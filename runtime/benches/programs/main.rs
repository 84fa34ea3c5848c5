//! What a program costs as an agent: `cargo bench -p yoi-runtime --bench programs`.
//!
//! | Word | Measured | Over | Bar |
//! |---|---|---|---|
//! | `proxy` | an answer of the model through the proxy, at a model's pace | the same answer straight from the endpoint | 1.1x |
//! | `frame` | `true` in the frame, from its start to its end | without the frame | 1.3x |
//! | `build` | a build, and `git status`, in a tree of 57,000 files in the frame | without the frame | 1.05x |
//! | `memory` | resident memory of the runtime beside a program | beside a built-in agent | 1.1x |
//! | `task` | a task as an agent, from the message to the end of its run | the same program by hand, from its start to its end | 1.15x |
//!
//! Both sides take turns, and take turns in going first. Words choose what runs. `YOI_PROGRAMS` names a folder whose `bin` has the programs of
//! `task`; `cargo xtask bench programs` makes one. `YOI_BENCH_FILES` is the number of files of `build`: fewer try the bench. With
//! `YOI_BENCH_OUT` (a folder) the figures also go to `programs.json` there.

// The scripted model is a binary of another crate, and the harness is that of the tests, so both are included by path.
#[path = "../../../e2e/src/bin/scripted-model/endpoint.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod endpoint;
mod frame;
#[path = "../../tests/agent/gateway.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod gateway;
#[path = "../../tests/agent/harness.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod harness;
mod memory;
mod pairs;
mod proxy;
mod task;

use endpoint::{script, server};

#[tokio::main]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wanted = |word: &str| words.is_empty() || words.iter().any(|given| given == word);
    let mut rows = Vec::new();
    if wanted("proxy") {
        rows.extend(proxy::rows().await);
    }
    if wanted("frame") {
        rows.extend(frame::of_a_process().await);
    }
    if wanted("build") {
        rows.extend(frame::of_a_build().await);
    }
    if wanted("memory") {
        rows.extend(memory::rows().await);
    }
    if wanted("task") {
        rows.extend(task::rows().await);
    }
    if let Some(out) = std::env::var_os("YOI_BENCH_OUT") {
        let file = std::path::Path::new(&out).join("programs.json");
        std::fs::write(file, serde_json::to_vec_pretty(&rows).unwrap()).unwrap();
    }
}
