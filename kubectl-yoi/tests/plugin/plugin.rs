//! Runs the plugin.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdout};
use yoi_test_support::in_time;

use crate::api_server::ApiServer;

/// How patient a wait is with a reason that only a person can fix, in percent of what people get: half a second, and three where another try may help.
const PATIENCE_PERCENT: u32 = 10;

/// What the plugin returned and printed.
#[derive(Debug)]
pub struct Output {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Output {
    /// Checks the exit code.
    pub fn expect_code(self, code: i32) -> Result<Self> {
        ensure!(self.code == code, "exit code {}, not {code}: {self:#?}", self.code);
        Ok(self)
    }

    pub fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.out).with_context(|| format!("no JSON: {}", self.out))
    }
}

/// A folder with a kubeconfig for a server; its namespace is `ns`.
pub struct Plugin {
    pub folder: tempfile::TempDir,
    pub program: PathBuf,
    pub patience_percent: u32,
}

impl Plugin {
    pub fn new(server: &ApiServer) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let config = json!({ "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{ "name": "k", "cluster": { "server": server.url } },
                { "name": "closed", "cluster": { "server": "http://127.0.0.1:1" } }],
            "contexts": [{ "name": "c", "context": { "cluster": "k", "user": "u", "namespace": "ns" } },
                { "name": "nowhere", "context": { "cluster": "closed", "user": "u", "namespace": "ns" } }],
            "users": [{ "name": "u", "user": { "token": "of-u" } }, { "name": "other", "user": { "token": "of-other" } }] });
        std::fs::write(folder.path().join("kubeconfig"), config.to_string())?;
        // Another build of it can be tried.
        let program = std::env::var_os("YOI_KUBECTL_YOI").map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_kubectl-yoi")), PathBuf::from);
        Ok(Plugin { folder, program, patience_percent: PATIENCE_PERCENT })
    }

    pub fn command(&self, program: &std::path::Path, words: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(words).env("KUBECONFIG", self.folder.path().join("kubeconfig")).env_remove("NO_COLOR").stdin(Stdio::null());
        command.env("XDG_CACHE_HOME", self.folder.path().join("cache")).env("YOI_SSH_FOLDER", self.folder.path().join("ssh"));
        // A clone above the working directory may remember a project.
        command.env("YOI_PATIENCE_PERCENT", self.patience_percent.to_string()).current_dir(self.folder.path());
        command
    }

    /// Starts it, and goes on while it runs.
    pub fn start(&self, words: &[&str]) -> Result<Running> {
        self.start_in(self.folder.path(), words)
    }

    /// As [`Plugin::start`], in this working directory.
    pub fn start_in(&self, folder: &std::path::Path, words: &[&str]) -> Result<Running> {
        let mut command = self.command(&self.program, words);
        command.current_dir(folder);
        let mut command = tokio::process::Command::from(command);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn()?;
        let (out, err) = (child.stdout.take().context("no pipe")?, child.stderr.take().context("no pipe")?);
        Ok(Running { child, out: BufReader::new(out).lines(), err: BufReader::new(err).lines() })
    }

    /// Runs it with standard output and error in pipes.
    pub async fn run(&self, words: &[&str]) -> Result<Output> {
        self.run_with(words, None).await
    }

    /// As [`Plugin::run`], in this working directory.
    pub async fn run_in(&self, folder: &std::path::Path, words: &[&str]) -> Result<Output> {
        let mut command = self.command(&self.program, words);
        command.current_dir(folder).stdout(Stdio::piped()).stderr(Stdio::piped());
        output(command).await
    }

    /// As [`Plugin::run`], with standard output to this file.
    pub async fn run_with(&self, words: &[&str], stdout: Option<std::fs::File>) -> Result<Output> {
        let mut command = self.command(&self.program, words);
        command.stdout(stdout.map_or_else(Stdio::piped, Stdio::from)).stderr(Stdio::piped());
        output(command).await
    }

    /// Runs it in a terminal of 100 columns, and returns its exit code and all that the terminal got.
    pub async fn run_in_terminal(&self, words: &[&str]) -> Result<(i32, String)> {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        grantpt(&controller)?;
        unlockpt(&controller)?;
        let name = ptsname(&controller, Vec::new())?;
        let terminal = std::fs::OpenOptions::new().read(true).write(true).open(name.to_str()?)?;
        let mut command = self.command(&self.program, words);
        command.env("TERM", "xterm").env("COLUMNS", "100").stdout(terminal.try_clone()?).stderr(terminal);
        let mut command = tokio::process::Command::from(command);
        let mut child = command.kill_on_drop(true).spawn()?;
        // It holds the terminal open.
        drop(command);
        let reading = tokio::task::spawn_blocking(move || read_terminal(controller));
        let status = in_time(format!("the end of {words:?}"), child.wait()).await?;
        Ok((status.code().unwrap_or(-1), reading.await?))
    }
}

/// The plugin while it runs. It is killed when this is dropped.
pub struct Running {
    child: Child,
    out: Lines<BufReader<ChildStdout>>,
    err: Lines<BufReader<ChildStderr>>,
}

impl Running {
    /// The next line of standard output.
    pub async fn line(&mut self) -> Result<String> {
        in_time("a line of standard output", self.out.next_line()).await?.context("standard output has ended")
    }

    /// The next line of standard error that has these words.
    pub async fn error_line(&mut self, words: &str) -> Result<String> {
        Ok(self.error_lines(words).await?.pop().unwrap_or_default())
    }

    /// The next lines of standard error, up to the one that has these words.
    pub async fn error_lines(&mut self, words: &str) -> Result<Vec<String>> {
        let matching = async {
            let mut lines = Vec::new();
            while let Some(line) = self.err.next_line().await? {
                lines.push(line);
                if lines.last().is_some_and(|line| line.contains(words)) {
                    return Ok(lines);
                }
            }
            anyhow::bail!("standard error has ended without `{words}`")
        };
        in_time(format!("a line of standard error with `{words}`"), matching).await
    }

    /// Its exit code, and the rest of standard output.
    pub async fn end(mut self) -> Result<(Option<i32>, String)> {
        let rest = async {
            let mut rest = String::new();
            while let Some(line) = self.out.next_line().await? {
                rest += &format!("{line}\n");
            }
            anyhow::Ok((self.child.wait().await?.code(), rest))
        };
        in_time("the end of the plugin", rest).await
    }
}

pub async fn output(command: Command) -> Result<Output> {
    let mut command = tokio::process::Command::from(command);
    let child = command.kill_on_drop(true).spawn()?;
    let done = in_time("the end of the plugin", child.wait_with_output()).await?;
    Ok(Output {
        code: done.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&done.stdout).into_owned(),
        err: String::from_utf8_lossy(&done.stderr).into_owned(),
    })
}

/// Reads until the last process has closed the terminal.
fn read_terminal(controller: OwnedFd) -> String {
    let (mut controller, mut text, mut buffer) = (std::fs::File::from(controller), Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = controller.read(&mut buffer) {
        text.extend_from_slice(&buffer[..count]);
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// A YoiPod of project `p` with these conditions, as `(type, status, reason, message)`.
pub fn agent(name: &str, conditions: &[(&str, &str, &str, &str)]) -> Value {
    json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPod", "metadata": { "name": name, "uid": format!("uid-{name}") },
        "spec": { "projectRef": { "name": "p" }, "agent": { "builtin": {} } }, "status": status(conditions) })
}

pub fn status(conditions: &[(&str, &str, &str, &str)]) -> Value {
    let condition = |(type_, status, reason, message): &(&str, &str, &str, &str)| {
        json!({ "type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z",
            "observedGeneration": 9 })
    };
    json!({ "observedGeneration": 1, "conditions": conditions.iter().map(condition).collect::<Vec<_>>() })
}

/// The project `p`, with a model whose key is in a Secret.
pub fn project(conditions: &[(&str, &str, &str, &str)]) -> Value {
    let model = json!({ "provider": "OpenAI", "name": "m", "baseUrl": "http://m/v1/", "authSecretRef": { "name": "keys", "key": "k" } });
    json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "YoiProject", "metadata": { "name": "p" },
        "spec": { "source": { "empty": {} }, "defaults": { "model": model } }, "status": status(conditions) })
}
