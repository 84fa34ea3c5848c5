//! The tools under test: the runtime's, and two planted faults that only compare prefixes.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::runtime::Runtime;
use yoi_engine::decision::{Decision, Refusal};
use yoi_engine::policy::Policy;
use yoi_engine::processes::ProcessSupervisor;
use yoi_engine::tools::shell::Shell;
use yoi_engine::tools::tree::Tree;
use yoi_engine::tools::{CallResult, LiveOutput, ToolGate, ToolRunner};
use yoi_line::{Dial, RequestClient, TextSource, Timings};
use yoi_runtime::gateway_peers::{Delegation, GatewayPeers};
use yoi_wire::entry::{CallFrom, RefusalClass, ToolCall};
use yoi_wire::manifest::RunLimits;
use yoi_wire::policy::ToolPolicy;

/// The content that Write writes.
pub const WRITTEN: &str = "written by the tool";

pub trait PathTools {
    /// The message of a refusal before the call starts.
    fn check(&self, tool: &str, args: &Value) -> Option<String>;
    fn run(&self, tool: &str, args: &Value) -> CallResult;
}

/// A call for each tool that takes a path. Edit's old text is in files inside and outside.
pub fn calls(path: &str) -> [(&'static str, Value); 3] {
    [
        ("Read", json!({"path": path})),
        ("Edit", json!({"path": path, "old": "e", "new": "E", "all": true})),
        ("Write", json!({"path": path, "content": WRITTEN})),
    ]
}

/// The runtime's tools.
pub struct RuntimeTools {
    gate: ToolGate,
    runtime: Runtime,
    /// Who calls them.
    from: CallFrom,
}

impl RuntimeTools {
    pub fn new(tree: &Path) -> Self {
        Self::called_by(tree, CallFrom::Model)
    }

    pub fn called_by(tree: &Path, from: CallFrom) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { gate: Self::gate(tree, &ToolPolicy::default()), runtime, from }
    }

    /// The gate of the same tools, under this policy.
    pub fn gate(tree: &Path, policy: &ToolPolicy) -> ToolGate {
        let shell = Shell::new(Arc::new(ProcessSupervisor::new(tree.to_owned(), "a", &[])));
        let unused_gateway = Dial {
            address: "127.0.0.1:9".into(),
            server_name: "nobody.test".into(),
            ca_pem: TextSource::fixed(""),
            path: "/".into(),
            token: TextSource::fixed("none"),
            timings: Timings::default(),
        };
        ToolGate::new(ToolRunner::new(
            Arc::new(Tree::open(tree).unwrap()),
            Arc::new(shell),
            Arc::new(GatewayPeers::new(RequestClient::new(unused_gateway), Delegation::default())),
            RunLimits::default(),
            Arc::new(Policy::new(policy).unwrap()),
        ))
    }

    fn call(tool: &str, args: &Value) -> ToolCall {
        ToolCall { call_id: "c".into(), tool: tool.into(), args: args.clone() }
    }
}

impl PathTools for RuntimeTools {
    fn check(&self, tool: &str, args: &Value) -> Option<String> {
        match self.gate.begin(&Self::call(tool, args), self.from) {
            Decision::Allow | Decision::Ask(_) => None,
            Decision::Refuse(refusal) => Some(refusal.message),
        }
    }

    fn run(&self, tool: &str, args: &Value) -> CallResult {
        let end = self.runtime.block_on(self.gate.run(&Self::call(tool, args), self.from, &LiveOutput::discard()));
        // The files have one line, whose number Read puts before it.
        let output = end.output.strip_prefix("     1\t").map(str::to_owned);
        CallResult { output: output.unwrap_or(end.output.clone()), ..end }
    }
}

/// How a prefix is compared.
#[derive(Clone, Copy, Debug)]
pub enum PrefixMethod {
    /// `.` and `..` are removed from the text, and the rest has to begin with the root.
    Text,
    /// The path, or its folder if it does not exist, is made canonical and has to begin with the root. Then the given path is opened.
    Canonical,
}

/// Tools with a planted fault.
pub struct PrefixCheck {
    pub root: PathBuf,
    pub how: PrefixMethod,
}

impl PrefixCheck {
    fn place(&self, given: &str) -> Option<PathBuf> {
        let path = self.root.join(given);
        let result = match self.how {
            PrefixMethod::Text => path.components().fold(PathBuf::new(), |mut so_far, component| {
                if component == Component::ParentDir {
                    so_far.pop();
                } else {
                    so_far.push(component);
                }
                so_far
            }),
            PrefixMethod::Canonical => match path.canonicalize() {
                Ok(path) => path,
                Err(_) => path.parent()?.canonicalize().ok()?.join(path.file_name()?),
            },
        };
        // Compared as text: a neighbour whose name begins with the tree's name passes.
        result.to_str()?.starts_with(self.root.to_str()?).then_some(path)
    }
}

impl PathTools for PrefixCheck {
    fn check(&self, _tool: &str, args: &Value) -> Option<String> {
        let given = args["path"].as_str().unwrap_or_default();
        self.place(given).is_none().then(|| "sandbox_violation".to_owned())
    }

    fn run(&self, tool: &str, args: &Value) -> CallResult {
        let given = args["path"].as_str().unwrap_or_default();
        let Some(path) = self.place(given) else {
            return CallResult::refused(Refusal::new(RefusalClass::SandboxViolation, "it leads out"));
        };
        // Avoids waiting for the writer of the FIFO.
        if path.exists() && !path.is_file() {
            return CallResult::failed("it is not a regular file");
        }
        let done = match tool {
            "Read" => fs::read_to_string(&path),
            "Edit" => fs::read_to_string(&path).and_then(|text| fs::write(&path, text.replace('e', "E"))).map(|()| "replaced".into()),
            _ => path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, WRITTEN)).map(|()| "wrote".into()),
        };
        match done {
            Ok(output) => CallResult::succeeded(output),
            Err(error) => CallResult::failed(error.to_string()),
        }
    }
}
