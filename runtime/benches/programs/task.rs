//! A task that the scripted model leads a program through: as an agent, and by hand.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use yoi_wire::entry::RunOutcome;
use yoi_wire::preset::{Preset, PresetInput};

use crate::gateway::person;
use crate::harness::{Harness, Runtime, outcomes, tool_ends};
use crate::pairs::{Pairs, Side};

const BAR: f64 = 1.15;
const TURNS: usize = 15;
/// Turns that are not counted.
const WARM: usize = 1;
/// Some programs refuse to do all they are asked where they are root.
const UID: u32 = 1000;
const TASK: &str = "Change the title and commit it.";
/// What the task takes. Each command is a call of its own, and a call of the model.
const COMMANDS: [&str; 5] = [
    "cat README.md",
    "sed -i 's/Title/Other title/' README.md",
    "git init -q && git add -A && git -c user.name=a -c user.email=a@b.invalid commit -qm Title",
    "git log -1 --format=%s",
    "ls",
];
/// No process of the runtime for so long: it has asked the program for its version.
const QUIET: Duration = Duration::from_millis(500);

/// A program, its model, and its tool that runs commands.
struct Program {
    name: &'static str,
    preset: &'static str,
    provider: &'static str,
    model: &'static str,
    /// Version segment of the endpoint's URL.
    version: &'static str,
    tool: &'static str,
}

const PROGRAMS: [Program; 2] = [
    Program {
        name: "Claude Code",
        preset: include_str!("../../../charts/yoi-operator/files/presets/claude.yaml"),
        provider: "Anthropic",
        model: "claude-sonnet-4-5",
        version: "v1",
        tool: "Bash",
    },
    Program {
        name: "Gemini CLI",
        preset: include_str!("../../../charts/yoi-operator/files/presets/gemini.yaml"),
        provider: "Gemini",
        model: "gemini-2.5-pro",
        version: "v1beta",
        tool: "run_shell_command",
    },
];

pub async fn rows() -> Vec<Value> {
    let Some(folder) = std::env::var_os("YOI_PROGRAMS").map(PathBuf::from) else {
        println!("task: NOT RUN: YOI_PROGRAMS names no folder with the programs");
        return Vec::new();
    };
    if !rustix::process::geteuid().is_root() {
        println!("task: NOT RUN: starting programs as another user needs root");
        return Vec::new();
    }
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", folder.join("bin").display());
    let mut rows = Vec::new();
    for program in &PROGRAMS {
        let mut pairs = Pairs::default();
        for turn in 0..WARM + TURNS {
            for side in Side::in_turn(turn) {
                let took = match side {
                    Side::Ours => program.as_an_agent(&path).await,
                    Side::Bare => program.by_hand(&path).await,
                };
                if turn >= WARM {
                    pairs.push_time(side, took);
                }
            }
        }
        let name = format!("{}: a task of {} commands as an agent, over by hand", program.name, COMMANDS.len());
        rows.push(pairs.row(&name, "ms", Some(BAR)));
    }
    rows
}

impl Program {
    fn preset(&self) -> Preset {
        serde_yaml::from_str(self.preset).unwrap()
    }

    /// The folders of a Pod with a tree, and the scripted model.
    async fn harness(&self) -> Harness {
        let call =
            |command: &str| json!({"toolCalls": [{"tool": self.tool, "args": {"command": command, "description": "A step of the work"}}]});
        let steps: Vec<Value> = COMMANDS.into_iter().map(call).chain([json!({"text": "It is committed."})]).collect();
        let mut harness = Harness::new(&json!({"rules": [{"when": {"lastUserContains": TASK}, "steps": steps}]}).to_string()).await;
        std::fs::write(harness.tree().join("README.md"), "# Title\n").unwrap();
        chown(harness.tree().join("README.md"), Some(UID), Some(UID)).unwrap();
        harness.model_url = harness.model_url.replace("/v1", &format!("/{}", self.version));
        (harness.provider, harness.model, harness.uid) = (self.provider, self.model, Some(UID));
        harness
    }

    /// The task was done as the script has it.
    fn check(&self, harness: &Harness) {
        assert_eq!(std::fs::read_to_string(harness.tree().join("README.md")).unwrap(), "# Other title\n", "{}", self.name);
        assert!(harness.tree().join(".git/refs/heads").read_dir().unwrap().next().is_some(), "{}: nothing was committed", self.name);
    }

    /// From the message to the end of its run. The runtime waits for it when it comes, as that of an agent does.
    async fn as_an_agent(&self, path: &str) -> Duration {
        let mut harness = self.harness().await;
        harness.manifest_settings = json!({"program": {"preset": self.preset()}});
        harness.limits["toolSeconds"] = 60.into();
        harness.env.push(("PATH", path.to_owned()));
        let runtime = harness.start(1, None);
        harness.gateway.wait_for_report(|report| report.ready).await;
        quiet(&runtime).await;
        let begun = Instant::now();
        harness.gateway.deliver("m", person(), TASK).await;
        while outcomes(&harness.entries()).is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
            assert!(begun.elapsed() < Duration::from_secs(300), "{} does not end: {}", self.name, harness.stderr());
        }
        let took = begun.elapsed();
        let entries = harness.entries();
        assert_eq!(outcomes(&entries), [RunOutcome::Finished], "{}: {entries:#?}\n{}", self.name, harness.stderr());
        assert_eq!(tool_ends(&entries).len(), COMMANDS.len(), "{}", self.name);
        self.check(&harness);
        took
    }

    /// With the settings of the preset, but for what is Yoi's: its hooks and its tools.
    async fn by_hand(&self, path: &str) -> Duration {
        let harness = self.harness().await;
        let preset = self.preset();
        let home = harness.dir.path().join("home");
        let (root, _) = harness.model_url.rsplit_once('/').unwrap();
        let fill = |text: &str| {
            let text = text.replace("${proxy}", root).replace("${token}", "by-hand").replace("${model}", self.model);
            text.replace("${home}", home.to_str().unwrap()).replace("${tree}", harness.tree().to_str().unwrap())
        };
        for file in preset.files.iter().filter(|file| !file.path.contains("yoi-")) {
            let mut settings: Value = serde_json::from_str(&fill(&file.content)).unwrap();
            for of_yoi in ["hooks", "mcpServers"] {
                settings.as_object_mut().unwrap().remove(of_yoi);
            }
            let file = home.join(&file.path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, settings.to_string()).unwrap();
        }
        give_to(UID, harness.dir.path());
        let output = harness.dir.path().join("output");
        let mut command = Command::new(&preset.program);
        command.args(preset.first_args.iter().filter(|arg| !arg.contains("yoi-")).map(|arg| fill(arg)));
        command.env_clear().envs(preset.env.iter().map(|(name, value)| (name, fill(value))));
        command.envs([("PATH", path), ("LANG", "C.UTF-8"), ("TERM", "dumb"), ("TMPDIR", harness.dir.path().join("tmp").to_str().unwrap())]);
        command.env("HOME", &home).current_dir(harness.tree()).uid(UID).gid(UID);
        command.stdout(File::create(&output).unwrap()).stderr(File::create(harness.dir.path().join("errors")).unwrap());
        assert_eq!(preset.input, PresetInput::Stdin);
        command.stdin(Stdio::piped());
        let begun = Instant::now();
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(TASK.as_bytes()).unwrap();
        let status = tokio::task::spawn_blocking(move || child.wait()).await.unwrap().unwrap();
        let took = begun.elapsed();
        let read = |name: &str| std::fs::read_to_string(harness.dir.path().join(name)).unwrap_or_default();
        assert!(status.success(), "{}: {status}: {}\n{}", self.name, read("output"), read("errors"));
        self.check(&harness);
        took
    }
}

/// Waits until the runtime has no process for a while.
async fn quiet(runtime: &Runtime) {
    let children = || {
        let mut tasks = std::fs::read_dir(format!("/proc/{}/task", runtime.child.id())).unwrap().flatten();
        tasks.any(|task| std::fs::read_to_string(task.path().join("children")).is_ok_and(|children| !children.is_empty()))
    };
    let mut since = Instant::now();
    while since.elapsed() < QUIET {
        tokio::time::sleep(Duration::from_millis(20)).await;
        if children() {
            since = Instant::now();
        }
    }
}

fn give_to(uid: u32, path: &Path) {
    chown(path, Some(uid), Some(uid)).unwrap();
    if path.is_dir() {
        path.read_dir().unwrap().flatten().for_each(|entry| give_to(uid, &entry.path()));
    }
}
