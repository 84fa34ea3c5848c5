//! kubectl as the administrator of one cluster.

use crate::command::{capture, command, run_with_input, tail};
use crate::instance::Instance;
use anyhow::Result;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

pub struct Kubectl {
    program: PathBuf,
    target: [OsString; 2],
}

impl Kubectl {
    pub fn new(instance: Instance, programs: &Path) -> Self {
        Self { program: programs.join("kubectl"), target: ["--kubeconfig".into(), instance.kubeconfig().into()] }
    }

    pub fn of_context(programs: &Path, context: &str) -> Self {
        Self { program: programs.join("kubectl"), target: ["--context".into(), context.into()] }
    }

    fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut kubectl = command(&self.program, &self.target);
        kubectl.args(args);
        kubectl
    }

    pub fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<String> {
        capture(&mut self.command(args))
    }

    /// Runs this build of the plugin on the same cluster.
    pub fn run_plugin(&self, plugin: &Path, args: &[&str]) -> Result<String> {
        capture(command(plugin, &self.target).args(args))
    }

    /// Pods and Events of a namespace, for an error message.
    pub fn diagnostics(&self, namespace: &str) -> String {
        let ask = |words: &[&str]| self.run(["--namespace", namespace].iter().chain(words)).unwrap_or_else(|error| format!("{error:#}\n"));
        let mut text = format!("{namespace}:\n{}", ask(&["get", "pods", "-o", "wide"]));
        let events = ask(&[
            "get",
            "events",
            "--sort-by=.lastTimestamp",
            "-o",
            "custom-columns=OBJECT:.involvedObject.name,REASON:.reason,TEXT:.message",
        ]);
        text += &tail(&events, 8);
        for pod in ask(&["get", "pods", "-o", "name"]).lines() {
            text += &format!("\n{pod}:\n{}", ask(&["logs", pod, "--all-containers", "--tail=6"]));
        }
        text
    }

    pub fn apply(&self, manifests: &str) -> Result<()> {
        run_with_input(&mut self.command(["apply", "--server-side", "--force-conflicts", "-f", "-"]), manifests)
    }
}
