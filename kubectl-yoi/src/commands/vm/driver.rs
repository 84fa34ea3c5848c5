//! The programs that drive machines, and their words.

use std::process::Stdio;

use serde::Deserialize;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::args::{VmDriver, VmUpOptions};
use crate::commands::pull::LOOK_AT_DISK;
use crate::error::{Error, RefusalKind};
use crate::show::one_line;

const TEMPLATE: &str = include_str!("lima.yaml");
const SETUP: &str = include_str!("setup.sh");
const OF_WSL: &str = include_str!("wsl.sh");
/// GiB of a machine's disk beside its trees.
const SYSTEM_GIB: u16 = 20;

/// A program that drives machines.
#[derive(Clone, Copy, Debug)]
pub struct Driver(pub VmDriver);

/// A machine of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    pub name: String,
    /// In the words of its driver.
    pub state: String,
}

impl Machine {
    pub fn is_running(&self) -> bool {
        self.state.eq_ignore_ascii_case("running")
    }
}

impl Driver {
    pub fn title(self) -> &'static str {
        match self.0 {
            VmDriver::Lima => "Lima",
            VmDriver::Colima => "Colima",
            VmDriver::Wsl => "WSL",
        }
    }

    fn program(self) -> &'static str {
        match self.0 {
            VmDriver::Lima => "limactl",
            VmDriver::Colima => "colima",
            VmDriver::Wsl => "wsl.exe",
        }
    }

    pub async fn is_installed(self) -> bool {
        let mut command = Command::new(self.program());
        command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().await.is_ok_and(|status| status.success())
    }

    /// The machines of ours.
    pub async fn machines(self) -> Result<Vec<Machine>, Error> {
        let words: &[&str] = match self.0 {
            VmDriver::Lima | VmDriver::Colima => &["list", "--json"],
            VmDriver::Wsl => &["--list", "--verbose"],
        };
        let output = self.command(words).stdin(Stdio::null()).output().await.map_err(|error| self.failed(words, error.to_string()))?;
        // WSL ends with an error where it has none at all.
        if !output.status.success() && self.0 != VmDriver::Wsl {
            return Err(self.failed(words, one_line(String::from_utf8_lossy(&output.stderr).trim())));
        }
        let all = if self.0 == VmDriver::Wsl { of_wsl(&output.stdout) } else { of_json_lines(&output.stdout) };
        Ok(all.into_iter().filter(|machine| machine.name == "yoi" || machine.name.starts_with("yoi-")).collect())
    }

    /// Starts a machine, which is made first unless it is there.
    pub async fn start(self, name: &str, is_there: bool, args: &VmUpOptions) -> Result<(), Error> {
        let setup = format!("TREES_GIB={}\n{SETUP}", args.disk);
        match self.0 {
            VmDriver::Lima if is_there => self.run(&["start", "--tty=false", name], "").await,
            VmDriver::Lima => {
                let file = std::env::temp_dir().join(format!("{name}-{}.yaml", uuid::Uuid::new_v4().simple()));
                let failed = |error| Error::local(format!("write {}", file.display()), error, LOOK_AT_DISK);
                std::fs::write(&file, template(args, &setup)).map_err(failed)?;
                let started = self.run(&["start", "--tty=false", &format!("--name={name}"), &file.to_string_lossy()], "").await;
                let _ = std::fs::remove_file(&file);
                started
            }
            VmDriver::Colima => {
                let (cpus, memory, disk) = (args.cpus.to_string(), args.memory.to_string(), (args.disk + SYSTEM_GIB).to_string());
                let made = ["--cpus", &cpus, "--memory", &memory, "--disk", &disk, "--runtime", "none"];
                let words = ["start", "--profile", name];
                self.run(&if is_there { words.to_vec() } else { [&words[..], &made].concat() }, "").await?;
                self.run(&["ssh", "--profile", name, "--", "sudo", "sh", "-s"], &setup).await
            }
            VmDriver::Wsl => {
                if !is_there {
                    self.run(&["--install", "--distribution", "Debian", "--name", name, "--no-launch"], "").await?;
                }
                let setup = format!("KEYS='{}'\n{setup}{OF_WSL}", keys().join("\n"));
                self.run(&["--distribution", name, "--user", "root", "--", "sh", "-s"], &setup).await?;
                // Its services start with it.
                self.run(&["--terminate", name], "").await?;
                self.run(&["--distribution", name, "--user", "root", "--", "true"], "").await
            }
        }
    }

    pub async fn stop(self, name: &str) -> Result<(), Error> {
        match self.0 {
            VmDriver::Lima => self.run(&["stop", name], "").await,
            VmDriver::Colima => self.run(&["stop", "--profile", name], "").await,
            VmDriver::Wsl => self.run(&["--terminate", name], "").await,
        }
    }

    pub async fn delete(self, name: &str) -> Result<(), Error> {
        match self.0 {
            VmDriver::Lima => self.run(&["delete", "--force", name], "").await,
            VmDriver::Colima => self.run(&["delete", "--force", "--profile", name], "").await,
            VmDriver::Wsl => self.run(&["--unregister", name], "").await,
        }
    }

    /// What a person does next.
    pub fn next(self, name: &str) -> String {
        match self.0 {
            VmDriver::Lima => format!(
                "once, as first line of ~/.ssh/config: Include ~/.lima/{name}/ssh.config\nnext: kubectl yoi host check lima-{name}, then kubectl yoi host up lima-{name}"
            ),
            VmDriver::Colima => format!(
                "once: colima ssh-config --profile {name} >> ~/.ssh/config\nnext: kubectl yoi host check colima-{name}, then kubectl yoi host up colima-{name}"
            ),
            VmDriver::Wsl => "next: kubectl yoi host check root@localhost:2222, then kubectl yoi host up root@localhost:2222".to_owned(),
        }
    }

    fn command(self, words: &[&str]) -> Command {
        let mut command = Command::new(self.program());
        command.args(words).kill_on_drop(true);
        command
    }

    /// What the program says goes to standard error, as it comes: it may download a system.
    async fn run(self, words: &[&str], input: &str) -> Result<(), Error> {
        eprintln!("{} {}", self.program(), words.join(" "));
        let mut command = self.command(words);
        command.stdin(if input.is_empty() { Stdio::null() } else { Stdio::piped() }).stdout(Stdio::from(std::io::stderr()));
        let mut child = command.spawn().map_err(|error| self.failed(words, error.to_string()))?;
        if let Some(mut stdin) = child.stdin.take() {
            // One that ends early has said why.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        let status = child.wait().await.map_err(|error| self.failed(words, error.to_string()))?;
        if status.success() { Ok(()) } else { Err(self.failed(words, format!("it ended with {status}"))) }
    }

    fn failed(self, words: &[&str], why: String) -> Error {
        let line = format!("{} {}", self.program(), words.join(" "));
        Error::refused_error(format!("run {line}"), why, "look at what it has said, and say it again", RefusalKind::Other)
    }
}

fn template(args: &VmUpOptions, setup: &str) -> String {
    let script: String = setup.lines().map(|line| format!("      {line}\n")).collect();
    let disk = (args.disk + SYSTEM_GIB).to_string();
    let with = [("CPUS", args.cpus.to_string()), ("MEMORY", args.memory.to_string()), ("DISK", disk), ("SCRIPT\n", script)];
    with.iter().fold(TEMPLATE.to_owned(), |text, (name, value)| text.replace(name, value))
}

/// The person's public keys, for a machine that has no way of its own to know them.
fn keys() -> Vec<String> {
    let folder = std::env::home_dir().map(|home| home.join(".ssh"));
    let files = folder.and_then(|folder| std::fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    let public = files.filter(|file| file.path().extension().is_some_and(|end| end == "pub"));
    let lines = public.filter_map(|file| std::fs::read_to_string(file.path()).ok()).map(|text| text.trim().to_owned());
    lines.filter(|line| !line.contains(['\'', '\n'])).collect()
}

#[derive(Debug, Deserialize)]
struct Listed {
    name: String,
    status: String,
}

/// One object a line.
fn of_json_lines(text: &[u8]) -> Vec<Machine> {
    let lines = text.split(|byte| *byte == b'\n');
    lines.filter_map(|line| serde_json::from_slice(line).ok()).map(|Listed { name, status }| Machine { name, state: status }).collect()
}

/// A table with a star before the default one, in UTF-16.
fn of_wsl(text: &[u8]) -> Vec<Machine> {
    let text = String::from_utf8_lossy(text).replace('\0', "");
    let of_line = |line: &str| {
        let mut words = line.trim_start_matches(['*', ' ', '\u{feff}', '\u{fffd}']).split_whitespace();
        Some(Machine { name: words.next()?.to_owned(), state: words.next()?.to_owned() })
    };
    text.lines().skip(1).filter_map(of_line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(name: &str, state: &str) -> Machine {
        Machine { name: name.to_owned(), state: state.to_owned() }
    }

    #[test]
    fn machines_are_found_in_the_words_of_each_program() {
        let json = b"{\"name\":\"default\",\"status\":\"Stopped\",\"arch\":\"x\"}\n{\"name\":\"yoi\",\"status\":\"Running\"}\nwarning\n";
        assert_eq!(of_json_lines(json), [machine("default", "Stopped"), machine("yoi", "Running")]);
        let table = "  NAME      STATE           VERSION\r\n* Ubuntu    Running         2\r\n  yoi       Stopped         2\r\n";
        let wide: Vec<u8> = table.encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert_eq!(of_wsl(&wide), [machine("Ubuntu", "Running"), machine("yoi", "Stopped")]);
        assert!(machine("yoi", "Running").is_running() && !machine("yoi", "Stopped").is_running());
    }
}
