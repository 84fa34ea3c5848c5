//! The system's ssh: jump hosts, agents, keys and known hosts are as the person's configuration has them.

use std::fs::File;
use std::io::{IsTerminal, Read};
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};

use crate::args::SshTarget;
use crate::error::{Error, RefusalKind};
use crate::show::one_line;

/// What the program ends with when it, and not what it ran, has failed.
const FAILED: i32 = 255;
/// Bytes of the longest answer; a machine may say anything before it.
const MAX_ANSWER: u64 = 256 << 10;

/// How a machine is talked to.
pub struct Ssh<'a> {
    pub target: &'a SshTarget,
    /// The socket of a connection that is there already; a connection of its own for each call when absent.
    pub control: Option<&'a Path>,
    /// What is done there, for errors: `look at ann@build`.
    pub operation: String,
}

impl Ssh<'_> {
    /// The script runs in `shell`, whatever the person's own shell is there. Returns what it has written, without what the machine says of itself before
    /// and behind it. `on_line` gets each line as it comes.
    ///
    /// # Errors
    /// The machine is not reached, lets nobody in, runs no command, or the connection ends in the middle.
    pub async fn run(&self, shell: &str, script: &str, patience: Duration, on_line: impl FnMut(&str)) -> Result<String, Error> {
        let id = uuid::Uuid::new_v4().simple().to_string();
        let (begin, end) = (format!("begin-{id}"), format!("end-{id}"));
        let script = format!("printf '\\n%s\\n' {begin}\n{script}\nprintf '%s\\n' {end}\n");
        let errors = ErrorsFile::new()?;
        let mut child = self.spawn(self.command(asks(), &[shell]), &errors)?;
        let exchange = exchange(&mut child, script.as_bytes(), on_line);
        let Ok((answer, status)) = tokio::time::timeout(patience, exchange).await else {
            return Err(self.no_answer(patience, &errors));
        };
        let answer = String::from_utf8_lossy(&answer).into_owned();
        if let Some(between) = between(&answer, &begin, &end) {
            return Ok(between.to_owned());
        }
        let code = status.ok().and_then(|status| status.code());
        let (message, next) = why_not(self.target, &errors.text(), code, answer.contains(&begin));
        Err(self.failed(message, next))
    }

    /// Runs a line with these bytes as its input. The line prints `mark` when it has succeeded: the exit code may be that of another program, such as sudo.
    ///
    /// # Errors
    /// It was not done: with the last words of the machine.
    pub async fn feed(&self, line: &str, bytes: &[u8], mark: &str, patience: Duration) -> Result<(), Error> {
        let errors = ErrorsFile::new()?;
        let mut child = self.spawn(self.command(asks(), &[line]), &errors)?;
        let exchange = exchange(&mut child, bytes, |_| {});
        let answer = tokio::time::timeout(patience, exchange).await.map(|(answer, _)| answer).unwrap_or_default();
        if String::from_utf8_lossy(&answer).contains(mark) {
            return Ok(());
        }
        let said = last_line(&errors.text());
        let (message, next) = match said.contains("No space left") {
            true => (format!("its disk is full: {said}"), "make room there, and say it again: what has arrived stays"),
            false if said.is_empty() => ("the connection ended in the middle".to_owned(), "say it again: it goes on where it was cut"),
            false => (format!("the connection ended in the middle: {said}"), "say it again: it goes on where it was cut"),
        };
        Err(self.failed(message, next.to_owned()))
    }

    /// Starts a connection that stays, with its socket at `control`.
    ///
    /// # Errors
    /// As [`Ssh::run`].
    pub async fn start(&self, control: &Path, patience: Duration) -> Result<(), Error> {
        let errors = ErrorsFile::new()?;
        let mut command = self.options(asks());
        // The control connection says by itself when the other side is gone.
        command.args(["-o", "ServerAliveCountMax=3", "-o", "ControlPersist=no", "-M", "-f", "-N", "-S"]).arg(control);
        self.name_target(&mut command);
        command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(false);
        let mut child = self.spawn(command, &errors)?;
        let Ok(status) = tokio::time::timeout(patience, child.wait()).await else {
            let _ = child.kill().await;
            return Err(self.no_answer(patience, &errors));
        };
        match status.ok().and_then(|status| status.code()) {
            Some(0) => Ok(()),
            code => {
                let (message, next) = why_not(self.target, &errors.text(), code, false);
                Err(self.failed(message, next))
            }
        }
    }

    /// Asks the connection at `control` for something: `check`, `exit`, or `forward` with its words. Says whether that was done.
    pub async fn ask(&self, control: &Path, what: &str, words: &[&str]) -> bool {
        // A person's configuration is about connections that are made anew.
        let mut command = Command::new("ssh");
        command.args(["-F", "none", "-S"]).arg(control).args(["-O", what]).args(words);
        self.name_target(&mut command);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().await.is_ok_and(|status| status.success())
    }

    /// Whether the connection at `control` still leads to the machine.
    pub async fn is_alive(&self, control: &Path, patience: Duration) -> bool {
        if !self.ask(control, "check", &[]).await {
            return false;
        }
        let there = Ssh { target: self.target, control: Some(control), operation: self.operation.clone() };
        there.feed("echo is-there", &[], "is-there", patience).await.is_ok()
    }

    fn spawn(&self, mut command: Command, errors: &ErrorsFile) -> Result<Child, Error> {
        command.stderr(errors.to_write()?).spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                self.failed("there is no ssh on this machine".to_owned(), "install it: the package openssh-client".to_owned())
            }
            _ => self.failed(format!("ssh cannot be started: {error}"), "try again".to_owned()),
        })
    }

    fn no_answer(&self, patience: Duration, errors: &ErrorsFile) -> Error {
        let message = format!("it has not answered in {} s{}", patience.as_secs(), errors.last_words());
        self.failed(message, format!("try it by hand: {}", by_hand(self.target)))
    }

    fn failed(&self, message: String, next: String) -> Error {
        Error::refused_error(&self.operation, message, next, RefusalKind::Unreachable)
    }

    /// `asks`: there is a terminal in which ssh may ask for a passphrase, or whether a host's key is right. Without one it would wait for an answer forever.
    fn options(&self, asks: bool) -> Command {
        let mut command = Command::new("ssh");
        // A command or forwarding of the person's configuration is for a shell of theirs.
        for option in ["RequestTTY=no", "RemoteCommand=none", "ClearAllForwardings=yes", "ConnectTimeout=20", "ServerAliveInterval=15"] {
            command.args(["-o", option]);
        }
        if !asks {
            command.args(["-o", "BatchMode=yes"]);
        }
        command.env("LC_ALL", "C");
        command
    }

    fn name_target(&self, command: &mut Command) {
        if let Some(port) = self.target.port {
            command.args(["-p", &port.to_string()]);
        }
        if let Some(user) = &self.target.user {
            command.args(["-l", user]);
        }
        command.args(["--", &self.target.host]);
    }

    fn command(&self, asks: bool, words: &[&str]) -> Command {
        let mut command = self.options(asks);
        if let Some(control) = self.control {
            command.args(["-o", "ControlMaster=no", "-S"]).arg(control);
        }
        self.name_target(&mut command);
        command.args(words).kill_on_drop(true).stdin(Stdio::piped()).stdout(Stdio::piped());
        command
    }
}

/// Writes `input` and reads the answer at once, as a pipe that nobody serves would block the other side. `on_line` gets each line as it comes. Returns the
/// answer, at most [`MAX_ANSWER`] bytes of it, and how ssh ended.
async fn exchange(child: &mut Child, input: &[u8], mut on_line: impl FnMut(&str)) -> (Vec<u8>, std::io::Result<ExitStatus>) {
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let write = async {
        if let Some(mut stdin) = stdin {
            // A machine that ends early has said why.
            let _ = stdin.write_all(input).await;
        }
    };
    let read = async {
        let mut answer = Vec::new();
        let Some(stdout) = stdout else { return answer };
        let mut stdout = BufReader::new(stdout.take(MAX_ANSWER));
        let mut at = 0;
        while stdout.read_until(b'\n', &mut answer).await.is_ok_and(|count| count > 0) {
            on_line(String::from_utf8_lossy(&answer[at..]).trim_end());
            at = answer.len();
        }
        answer
    };
    let ((), answer) = tokio::join!(write, read);
    (answer, child.wait().await)
}

/// Whether ssh may ask a person.
fn asks() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// What ssh has said, in a file that goes with this.
struct ErrorsFile(std::path::PathBuf);

impl ErrorsFile {
    /// In a file: a connection that the person's configuration keeps would hold a pipe open.
    fn new() -> Result<Self, Error> {
        let path = std::env::temp_dir().join(format!("kubectl-yoi-ssh-{}", uuid::Uuid::new_v4().simple()));
        match File::create_new(&path) {
            Ok(_) => Ok(ErrorsFile(path)),
            Err(error) => Err(Self::disk(&path, error)),
        }
    }

    fn to_write(&self) -> Result<Stdio, Error> {
        File::options().append(true).open(&self.0).map(Stdio::from).map_err(|error| Self::disk(&self.0, error))
    }

    fn disk(path: &Path, error: std::io::Error) -> Error {
        Error::local(format!("write {}", path.display()), error, crate::commands::pull::LOOK_AT_DISK)
    }

    fn text(&self) -> String {
        let mut text = Vec::new();
        let _ = File::open(&self.0).map(|file| file.take(64 << 10).read_to_end(&mut text));
        String::from_utf8_lossy(&text).into_owned()
    }

    fn last_words(&self) -> String {
        let words = last_line(&self.text());
        if words.is_empty() { words } else { format!(": {words}") }
    }
}

impl Drop for ErrorsFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The line that a person types to see it for themselves.
pub fn by_hand(target: &SshTarget) -> String {
    let port = target.port.map_or(String::new(), |port| format!("-p {port} "));
    let user = target.user.as_ref().map_or(String::new(), |user| format!("{user}@"));
    format!("ssh {port}{user}{}", target.host)
}

/// What the script has written.
fn between<'a>(answer: &'a str, begin: &str, end: &str) -> Option<&'a str> {
    let (_, rest) = answer.split_once(&format!("\n{begin}\n"))?;
    let at = rest.find(&format!("{end}\n"))?;
    rest.get(..at)
}

fn last_line(text: &str) -> String {
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    one_line(line.unwrap_or_default().chars().take(300).collect::<String>().as_str())
}

/// What has happened and what to do next, by the words of OpenSSH.
fn why_not(target: &SshTarget, errors: &str, code: Option<i32>, has_begun: bool) -> (String, String) {
    let by_hand = by_hand(target);
    let said = last_line(errors);
    if has_begun {
        let said = if said.is_empty() { String::new() } else { format!(": {said}") };
        return (format!("the connection ended in the middle of the answer{said}"), "say it again".to_owned());
    }
    let has = |words: &str| errors.contains(words);
    let host = match target.port {
        Some(port) => format!("[{}]:{port}", target.host),
        None => target.host.clone(),
    };
    if has("REMOTE HOST IDENTIFICATION HAS CHANGED") {
        let next = format!("ask whoever runs it whether it was made anew; only then: ssh-keygen -R '{host}'");
        return ("its host key is another one than known_hosts has".to_owned(), next);
    }
    if has("Host key verification failed") {
        let next = format!("compare its key with what whoever runs it says, and take it: {by_hand}");
        return ("its host key is not known, and there is no terminal to ask in".to_owned(), next);
    }
    if has("Permission denied") || has("Too many authentication failures") {
        let next = format!("a key with a passphrase needs ssh-add, or a terminal: {by_hand}");
        return (format!("it lets nobody in with the keys at hand: {said}"), next);
    }
    if code == Some(FAILED) {
        return (if said.is_empty() { "ssh has failed, and says nothing".to_owned() } else { said }, format!("try it by hand: {by_hand}"));
    }
    let said = if said.is_empty() { String::new() } else { format!(": {said}") };
    let next = "name the machine itself, and a jump host as ProxyJump in ~/.ssh/config; it must let `ssh HOST sh` run".to_owned();
    (format!("it lets this person in, and runs no command of theirs{said}"), next)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> SshTarget {
        "ann@build:2222".parse().unwrap()
    }

    #[test]
    fn what_a_machine_says_of_itself_is_no_part_of_the_answer() {
        let answer = "Welcome!\nbegin-1 is a word\n\nbegin-1\na=1\nb=end-1?\nend-1\nmail for you\n";
        assert_eq!(between(answer, "begin-1", "end-1"), Some("a=1\nb=end-1?\n"));
        assert_eq!(between("no newline before\nbegin-1\na=1\n", "begin-1", "end-1"), None, "it was cut");
    }

    #[test]
    fn ssh_gets_no_terminal_no_command_and_no_question_without_a_terminal() {
        let target = target();
        let ssh = Ssh { target: &target, control: None, operation: String::new() };
        let words =
            |asks| ssh.command(asks, &["sh"]).as_std().get_args().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>();
        let quiet = words(false);
        assert!(quiet.contains(&"BatchMode=yes".to_owned()) && !words(true).contains(&"BatchMode=yes".to_owned()));
        assert_eq!(quiet[quiet.len() - 7..], ["-p", "2222", "-l", "ann", "--", "build", "sh"]);
    }

    /// As OpenSSH 9.2 says it.
    #[test]
    fn each_way_to_fail_has_its_next_step() {
        for (errors, code, has_begun, message, next) in [
            ("Host key verification failed.\r\n", 255, false, "host key is not known", "take it: ssh -p 2222 ann@build"),
            (
                "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.\n",
                255,
                false,
                "another one",
                "ssh-keygen -R '[build]:2222'",
            ),
            ("ann@build: Permission denied (publickey).\n", 255, false, "lets nobody in", "ssh-add"),
            ("ssh: Could not resolve hostname build: Name or service not known\n", 255, false, "Could not resolve", "by hand"),
            ("ssh: connect to host build port 2222: Connection refused\n", 255, false, "Connection refused", "by hand"),
            ("", 255, false, "says nothing", "by hand"),
            ("This account is not available.\n", 1, false, "runs no command of theirs: This account", "ProxyJump"),
            ("Connection to build closed by remote host.\n", 255, true, "in the middle", "again"),
        ] {
            let (said, then) = why_not(&target(), errors, Some(code), has_begun);
            assert!(said.contains(message) && then.contains(next), "{errors}: {said}; {then}");
        }
    }
}
