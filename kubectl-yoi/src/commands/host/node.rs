//! `host up` and `host down`: a node with Yoi on a machine that is reached by SSH, and away again.

use std::collections::BTreeSet;
use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;

use super::bundle::Bundle;
use super::connection::{Connection, Credentials, KnownNode, forget_credentials, keep_credentials};
use super::context::{self, Administrator};
use super::findings::State;
use super::list::{self, KnownHost};
use super::ssh::Ssh;
use super::{Looked, default_name, look};
use crate::args::{HostDownOptions, HostUpOptions, HostsFile, OutputFormat, SshTarget, cache_folder};
use crate::commands::ssh::this_program;
use crate::error::{Error, RefusalKind};
use crate::progress::{self, Progress};
use crate::show;

/// All that Yoi has on the machine is below it.
const ROOT: &str = "/var/lib/yoi-cluster";
/// How long one part may take.
const PART_WITHIN: Duration = Duration::from_secs(600);
/// How long one look, one unpacking may take.
const STEP_WITHIN: Duration = Duration::from_secs(600);

pub async fn up(output: Option<OutputFormat>, args: &HostUpOptions) -> Result<(), Error> {
    let mut hosts = list::read(&args.file)?;
    let (name, target) = name_and_target(&hosts, &args.host, args.name.as_deref())?;
    if let Some(other) = hosts.get(&name).filter(|known| known.host != target.to_string()) {
        return Err(super::is_another(&name, &other.host));
    }
    context::check_free(&name)?;
    let operation = format!("set up {target}");
    let looked = look(&target, args.timeout.min(STEP_WITHIN)).await?;
    check(&looked)?;
    let shell = shell(&looked, &operation)?;
    let mut progress = Progress::start();
    progress.set("reading the bundle");
    let bundle = Bundle::open(&bundle_path(args, looked.facts.machine())?)?;
    if bundle.head.machine != looked.facts.machine() {
        let message = format!("the bundle is for {}, and {target} is {}", bundle.head.machine, looked.facts.machine());
        return Err(refused(&operation, message, "make one there, or take a machine of that kind: cargo xtask bundle"));
    }
    progress.set(&format!("connecting to {target}"));
    let connection = Connection::of(&name)?;
    connection.open(&target, &operation, args.timeout).await?;
    let ssh = Ssh { target: &target, control: Some(connection.socket()), operation: operation.clone() };
    send(&ssh, shell, &bundle, &mut progress).await?;
    // From here on there may be something on it: `down` finds it by its name.
    let known = hosts.entry(name.clone()).or_insert_with(|| looked.known());
    *known = KnownHost { node: known.node.take(), ..looked.known() };
    list::write(&args.file, &hosts)?;
    let administrator = run_up(&ssh, shell, &bundle, args, &mut progress).await?;
    progress.set("adding the context");
    let known = hosts.get(&name).and_then(|known| known.node.as_ref()).map(|node| node.port);
    let mut node = remember(&args.file, &mut hosts, &name, &administrator, &bundle, known)?;
    if connection.forward(&target, &node, &operation, args.timeout).await.is_err() {
        // Another program may have the port by now.
        node = remember(&args.file, &mut hosts, &name, &administrator, &bundle, None)?;
        connection.forward(&target, &node, &operation, args.timeout).await?;
    }
    let path = context::add(&name, node.port, &administrator.authority, &connect_words(&args.file, &name)?)?;
    progress.set("asking its API server");
    let version = ask(&name).await?;
    drop(progress);
    let sentence = format!(
        "{target} is a node with Yoi {}, and Kubernetes {version}\ncontext {name} in {}\nnext: kubectl --context {name} get nodes; kubectl yoi --context {name} doctor",
        node.version,
        path.display()
    );
    let object = json!({ "name": name, "host": target.to_string(), "context": name, "kubeconfig": path, "kubernetes": version, "yoi": node.version });
    show::object(output, &object, &name, &sentence)
}

pub async fn down(output: Option<OutputFormat>, args: &HostDownOptions) -> Result<(), Error> {
    let mut hosts = list::read(&args.file)?;
    let (name, target) = name_and_target(&hosts, &args.host, None)?;
    let operation = format!("take the node down on {target}");
    if !args.yes {
        ask_person(&format!("All agents on {target}, with their trees and sessions, will be gone for good"), &name)?;
    }
    let looked = look(&target, args.timeout.min(STEP_WITHIN)).await?;
    let shell = shell(&looked, &operation)?;
    let mut progress = Progress::start();
    progress.set(&format!("connecting to {target}"));
    let connection = Connection::of(&name)?;
    connection.open(&target, &operation, args.timeout).await?;
    let ssh = Ssh { target: &target, control: Some(connection.socket()), operation: operation.clone() };
    // What is half unpacked is no program. Without one, nothing was ever started.
    let script = format!(
        "cd / || exit\nprogram=\n\
         for found in {ROOT}/bundles/*/bin/yoi-host; do case $found in *.new/*) ;; *) [ -x \"$found\" ] && program=$found ;; esac; done\n\
         if [ -n \"$program\" ]; then \"$program\" down </dev/null 2>&1\n\
         else rm -rf {ROOT}/bundles {ROOT}/incoming {ROOT}/home; rmdir {ROOT} 2>/dev/null; [ ! -e {ROOT}/yoi-host ]; fi\necho \"code=$?\""
    );
    let answer = ssh.run(shell, &script, args.timeout, |line| show_line(&mut progress, line)).await?;
    check_exit(&operation, &answer, "say it again; or look there: sudo ls /var/lib/yoi-cluster")?;
    connection.close(&target).await;
    context::remove(&name)?;
    forget_credentials(&args.file, &name)?;
    if let Some(known) = hosts.get_mut(&name) {
        known.node = None;
        list::write(&args.file, &hosts)?;
    }
    drop(progress);
    show::object(output, &json!({ "name": name, "host": target.to_string() }), &name, &format!("nothing of Yoi is on {target} any more"))
}

/// What this person has of a machine's node, without asking the machine.
pub async fn forget(file: &HostsFile, name: &str, known: &KnownHost) -> Result<(), Error> {
    if known.node.is_some() {
        Connection::of(name)?.close(&known.target()?).await;
        context::remove(name)?;
        forget_credentials(file, name)?;
    }
    Ok(())
}

/// The name that a machine is or will be remembered under, and the machine.
fn name_and_target(
    hosts: &std::collections::BTreeMap<String, KnownHost>,
    host: &SshTarget,
    name: Option<&str>,
) -> Result<(String, SshTarget), Error> {
    let text = host.to_string();
    if let Some(known) = hosts.get(&text) {
        return Ok((text, known.target()?));
    }
    let of_target = hosts.iter().find(|(_, known)| known.host == text).map(|(name, _)| name.clone());
    let name = match (name, of_target) {
        (Some(name), _) => name.to_owned(),
        (None, Some(name)) => name,
        (None, None) => default_name(host)?,
    };
    Ok((name, host.clone()))
}

fn refused(operation: &str, message: impl Into<String>, next: impl Into<String>) -> Error {
    Error::refused_error(operation, message, next, RefusalKind::Other)
}

/// What stands in the way of a node on the machine, before anything is sent.
fn check(looked: &Looked) -> Result<(), Error> {
    if let Some(there) = looked.findings.iter().find(|finding| finding.what == "kubernetes") {
        let next = "install the charts on that, as docs/install.md says under With Helm, and give its kubeconfig a context";
        return Err(refused(&format!("set up {}", looked.host), there.message.clone(), next));
    }
    if looked.findings.iter().any(|finding| finding.state == State::Missing) {
        progress::beside(|| eprintln!("{}", looked.text()));
    }
    looked.result(&looked.host)
}

/// The shell of root there.
fn shell(looked: &Looked, operation: &str) -> Result<&'static str, Error> {
    match looked.facts.root() {
        Some("") => Ok("sh"),
        Some(_) => Ok("sudo -n sh"),
        None => {
            let next = "let sudo ask this person for none there: echo \"$USER ALL=(ALL) NOPASSWD: ALL\" | sudo tee /etc/sudoers.d/yoi; or come as root: \
                        kubectl yoi host up root@HOST";
            Err(refused(operation, "a node needs root, and sudo there asks for a password", next))
        }
    }
}

fn bundle_path(args: &HostUpOptions, machine: &str) -> Result<PathBuf, Error> {
    let name = format!("yoi/bundle/yoi-{}-{machine}.tar.zst", env!("CARGO_PKG_VERSION"));
    let kept = || cache_folder().map(|folder| folder.join(&name)).filter(|path| path.exists());
    args.bundle.clone().or_else(kept).ok_or_else(|| Error::Usage {
        message: format!("there is no bundle for {machine}"),
        next: "make one, in a clone of Yoi: cargo xtask bundle; or name one: --bundle FILE".to_owned(),
    })
}

/// Sends what the machine lacks of the bundle, and unpacks it once it has all.
async fn send(ssh: &Ssh<'_>, shell: &str, bundle: &Bundle, progress: &mut Progress) -> Result<(), Error> {
    let id = bundle.id();
    let script = format!("[ -e {ROOT}/bundles/{id}/bundle.json ] && echo unpacked\nls {ROOT}/incoming 2>/dev/null\ntrue");
    let answer = ssh.run(shell, &script, STEP_WITHIN, |_| {}).await?;
    let there: BTreeSet<&str> = answer.lines().collect();
    if there.contains("unpacked") {
        return Ok(());
    }
    let (mut sent, all) = (0, bundle.bytes());
    for part in &bundle.parts {
        let digest = &part.sha256;
        if !there.contains(digest.as_str()) {
            // In tenths: without a terminal each text is a line.
            progress.set(&format!("sending the bundle: {} % of {}", sent * 10 / all.max(1) * 10, show::bytes(all)));
            let at = format!("{ROOT}/incoming/{digest}");
            // In one pair of quotes, without what any shell of a person would read in it.
            let line = format!(
                "{shell} -c 'mkdir -p {ROOT}/incoming && cat >{at}.new && test \"$(sha256sum <{at}.new | cut -c1-64)\" = {digest} && mv {at}.new {at} && echo got-{digest}'"
            );
            ssh.feed(&line, &bundle.read(part)?, &format!("got-{digest}"), PART_WITHIN).await?;
        }
        sent += part.bytes();
    }
    progress.set("unpacking the bundle");
    let parts: Vec<&str> = bundle.parts.iter().map(|part| part.sha256.as_str()).collect();
    let script = format!(
        "cd {ROOT}/incoming && rm -rf ../bundles/{id}.new && mkdir -p ../bundles/{id}.new &&\n\
         cat {} | zstd -dcq | tar -xf - -C ../bundles/{id}.new --no-same-owner &&\n\
         rm -rf ../bundles/{id} && mv ../bundles/{id}.new ../bundles/{id} && cd .. && rm -rf incoming; echo code=$?",
        parts.join(" ")
    );
    let answer = ssh.run(shell, &format!("{{ {script}; }} 2>&1"), STEP_WITHIN, |_| {}).await?;
    check_exit(&ssh.operation, &answer, "make room there when its disk is full, and say it again: what has arrived stays")
}

/// Runs the bundle's own program, and reads who the administrator is.
async fn run_up(
    ssh: &Ssh<'_>,
    shell: &str,
    bundle: &Bundle,
    args: &HostUpOptions,
    progress: &mut Progress,
) -> Result<Administrator, Error> {
    let trees = args.trees.map_or(String::new(), |trees| format!(" --trees {trees}"));
    let program = format!("{ROOT}/bundles/{}/bin/yoi-host", bundle.id());
    let script = format!("cd / && {program} up{trees} </dev/null 2>&1; echo \"code=$?\"");
    let answer = ssh.run(shell, &script, args.timeout, |line| show_line(progress, line)).await?;
    check_exit(&ssh.operation, &answer, "do what it says there, and say it again; or take away what is there: kubectl yoi host down HOST")?;
    let kubeconfig = ssh.run(shell, &format!("cat {ROOT}/yoi-host/kubeconfig"), STEP_WITHIN, |_| {}).await?;
    Administrator::parse(&kubeconfig)
        .ok_or_else(|| refused(&ssh.operation, "its kubeconfig cannot be understood", crate::error::SAME_VERSION))
}

/// Shows what the program on the machine says of its work.
fn show_line(progress: &mut Progress, line: &str) {
    let line = line.trim().trim_start_matches(".. ").trim_start_matches("ok ");
    if !line.is_empty() && !line.contains('=') && !line.starts_with("begin-") && !line.starts_with("end-") {
        progress.set(line);
    }
}

/// Reads the `code=` that a script prints last.
///
/// # Errors
/// It is not 0: with the script's last words.
fn check_exit(operation: &str, answer: &str, next: &str) -> Result<(), Error> {
    let (said, code) = answer.trim_end().rsplit_once("code=").unwrap_or((answer, ""));
    if code == "0" {
        return Ok(());
    }
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let from = lines.iter().rposition(|line| line.starts_with("error:")).unwrap_or(lines.len().saturating_sub(3));
    let words = lines[from..].join("; ");
    Err(refused(operation, show::shortened(&show::one_line(words.trim_start_matches("error: ")), 600), next))
}

/// Keeps what the context needs. `port`: the one that it has had.
fn remember(
    file: &HostsFile,
    hosts: &mut std::collections::BTreeMap<String, KnownHost>,
    name: &str,
    administrator: &Administrator,
    bundle: &Bundle,
    port: Option<u16>,
) -> Result<KnownNode, Error> {
    let pem = |text: &str| {
        let bytes: Option<k8s_openapi::ByteString> = serde_json::from_value(text.into()).ok();
        bytes.and_then(|bytes| String::from_utf8(bytes.0).ok())
    };
    let unclear = || refused("read the machine's kubeconfig", "its certificates cannot be understood", crate::error::SAME_VERSION);
    let certificate = pem(&administrator.certificate).ok_or_else(unclear)?;
    let key = pem(&administrator.key).ok_or_else(unclear)?;
    keep_credentials(file, name, &Credentials { certificate, key })?;
    let port = match port {
        Some(port) => port,
        None => free_port()?,
    };
    let node = KnownNode { version: bundle.head.version.clone(), port, server: administrator.server.clone() };
    if let Some(known) = hosts.get_mut(name) {
        known.node = Some(node.clone());
    }
    list::write(file, hosts)?;
    Ok(node)
}

fn free_port() -> Result<u16, Error> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    listener.map(|address| address.port()).map_err(|error| Error::local("find a free port", error, "try again"))
}

/// The words that the context has for its connection.
fn connect_words(file: &HostsFile, name: &str) -> Result<Vec<String>, Error> {
    let failed = |error| Error::local("find this program", error, "try again");
    let program = this_program().map_err(failed)?;
    let path = std::path::absolute(list::path(file)?).map_err(failed)?;
    let words = [program, "host".into(), "connect".into(), name.into(), "--hosts".into(), path.display().to_string()];
    Ok(words.into())
}

/// Asks as every other verb does, over the context. Returns the version of Kubernetes.
async fn ask(name: &str) -> Result<String, Error> {
    let config_error = |source: Box<dyn std::error::Error + Send + Sync>| Error::Config { source };
    let file = Kubeconfig::read().map_err(|error| config_error(error.into()))?;
    let options = KubeConfigOptions { context: Some(name.to_owned()), ..KubeConfigOptions::default() };
    let config = Config::from_custom_kubeconfig(file, &options).await.map_err(|error| config_error(error.into()))?;
    let client = kube::Client::try_from(config).map_err(|error| config_error(error.into()))?;
    let version = client.apiserver_version().await.map_err(|error| {
        Error::refused_error(
            format!("ask the API server of {name}"),
            yoi_wire::error_chain(&error),
            format!("say it again; or look: kubectl --context {name} get nodes"),
            RefusalKind::Unreachable,
        )
    })?;
    Ok(version.git_version)
}

/// # Errors
/// There is no terminal, or the answer is no.
fn ask_person(what: &str, name: &str) -> Result<(), Error> {
    let operation = format!("take the node down on {name}");
    let next = format!("kubectl yoi host down {name} --yes");
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        return Err(Error::Usage { message: format!("{what}; there is no terminal to ask in"), next });
    }
    eprint!("{what}.\nGo on? [y/N] ");
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    let is_yes = read.is_ok() && ["y", "yes"].contains(&answer.trim().to_lowercase().as_str());
    if is_yes { Ok(()) } else { Err(refused(&operation, "the answer was no", next)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_program_there_said_last_is_told() {
        let exit = |answer| check_exit("set up a", answer, "say it again").map_err(|error| error.to_string());
        assert_eq!(exit("  .. Start\n  ok Start (1.0s)\nkubeconfig=/x\ncode=0\n"), Ok(()));
        let refused =
            exit("  .. Read the bundle\nerror: this machine lacks runc; on Debian or Ubuntu:\n  sudo apt-get install runc\ncode=1\n")
                .unwrap_err();
        assert!(
            refused.contains("this machine lacks runc; on Debian or Ubuntu:; sudo apt-get install runc")
                && refused.contains("say it again"),
            "{refused}"
        );
        assert!(exit("cat: write error: No space left on device\ncode=1").unwrap_err().contains("No space left"));
        assert!(exit("code=137").is_err());
    }
}
