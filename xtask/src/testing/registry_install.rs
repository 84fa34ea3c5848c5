//! `cargo xtask up --context NAME --registry HOST/PATH`, tried on a cluster that is named only by its context and pulls its images.

use super::clusters::SHARED as INSTANCE;
use crate::build;
use crate::cluster::Kubectl;
use crate::command::{command, run_in_terminal, this_program, wait};
use crate::install;
use crate::instance::Node;
use anyhow::{Context, Result, bail};
use std::fs;
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const CONTEXT: &str = "elsewhere";
const PATH: &str = "team/yoi";

pub fn check() -> Result<()> {
    let kubectl = Kubectl::new(INSTANCE, &build::kubernetes()?);
    let folder = tempfile::tempdir()?;
    let address = format!("{}:5000", Node::first(INSTANCE).host_address());
    let _registry = Registry::serve(&address, folder.path())?;
    // What an administrator does for a registry without TLS.
    let hosts = INSTANCE.state().join("registries").join(&address);
    fs::create_dir_all(&hosts)?;
    fs::write(hosts.join("hosts.toml"), format!("[host.\"http://{address}\"]\ncapabilities = [\"pull\", \"resolve\"]\n"))?;

    let kubeconfig = folder.path().join("kubeconfig");
    fs::copy(INSTANCE.kubeconfig(), &kubeconfig)?;
    let program = this_program()?;
    let as_user = |words: &[&str]| {
        let mut up = command(&program, words);
        up.env("KUBECONFIG", &kubeconfig);
        up
    };
    let config = |words: &[&str]| -> Result<()> {
        let mut kubectl = Command::new(build::kubernetes()?.join("kubectl"));
        crate::command::run(kubectl.arg("config").args(words).env("KUBECONFIG", &kubeconfig))
    };
    let current = crate::command::capture(
        Command::new(build::kubernetes()?.join("kubectl")).args(["config", "current-context"]).env("KUBECONFIG", &kubeconfig),
    )?;
    config(&["rename-context", current.trim(), CONTEXT])?;
    config(&["unset", "current-context"])?;

    if run_in_terminal(&mut as_user(&["up", "--context", CONTEXT]))? {
        bail!("a cluster that is given neither images nor a registry was taken for installed");
    }
    let registry = format!("{address}/{PATH}");
    let settings = install::settings(INSTANCE);
    let mut words = vec!["up", "--context", CONTEXT, "--registry", &registry, "--plain-http", "--profile", "dev"];
    words.extend(settings.iter().flat_map(|setting| ["--set", setting]));
    // Said again, it repairs or reuses what is there.
    for time in ["first", "second"] {
        if !run_in_terminal(&mut as_user(&words))? {
            bail!("`cargo xtask {}` failed the {time} time", words.join(" "));
        }
    }
    let images = kubectl.run([
        "get",
        "pods",
        "-A",
        "-o",
        "jsonpath={range .items[*]}{.metadata.namespace} {.spec.containers[*].image}{\"\\n\"}{end}",
    ])?;
    let ours = images.lines().filter(|line| line.starts_with("yoi-"));
    let (pulled, other): (Vec<_>, Vec<_>) = ours.partition(|line| line.contains(&registry));
    if pulled.len() < 5 || !other.is_empty() {
        bail!("{} Pods of ours run images of that registry, and these do not: {}", pulled.len(), other.join(", "));
    }
    Ok(())
}

struct Registry(Child);

impl Registry {
    fn serve(address: &str, folder: &std::path::Path) -> Result<Self> {
        let mut crane = Command::new(build::tools()?.join("crane"));
        crane.args(["registry", "serve", "--address", address, "--disk"]).arg(folder.join("registry"));
        fs::create_dir(folder.join("registry"))?;
        let served = Self(crane.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().context("failed to start crane")?);
        wait("the registry", Duration::from_secs(10), || Ok(TcpStream::connect(address).ok()))?;
        Ok(served)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
