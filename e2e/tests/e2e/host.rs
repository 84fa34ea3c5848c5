//! A machine that a laptop reaches over a jump host by Debian's sshd: it becomes a node by `kubectl yoi host up`, agents run there, and nothing stays.
//! The three are network namespaces; the machine has a /var/lib of its own, and neither cargo nor Go.

use std::hash::{BuildHasher, Hasher, RandomState};

use anyhow::{Context, Result, ensure};
use yoi_e2e::program::{self, CommandOutput};

const SCRIPT: &str = include_str!("host.sh");

/// The three machines; they go with this.
struct Machines {
    folder: tempfile::TempDir,
    name: String,
}

impl Machines {
    async fn start() -> Result<Self> {
        let machines = Machines { folder: tempfile::tempdir()?, name: format!("yoi-{}", std::process::id()) };
        machines.script("up").await?.exit_ok()?;
        Ok(machines)
    }

    fn folder(&self) -> String {
        self.folder.path().display().to_string()
    }

    async fn script(&self, what: &str) -> Result<CommandOutput> {
        program::run("bash", &["-c", SCRIPT, what, &self.folder(), &self.name], &[], None).await
    }

    /// A line of shell as somebody types it on the laptop.
    async fn laptop(&self, line: &str) -> Result<CommandOutput> {
        self.laptop_with(line, None).await
    }

    async fn laptop_with(&self, line: &str, stdin: Option<&str>) -> Result<CommandOutput> {
        let (folder, netns) = (self.folder(), format!("--net=/run/netns/{}-laptop", self.name));
        let bundle = std::env::var("YOI_BUNDLE").context("YOI_BUNDLE: run this by `cargo xtask test`")?;
        let path = format!("{folder}/bin:/usr/bin:/bin");
        let kubeconfig = format!("{folder}/kubeconfig");
        let config = format!("{folder}/settings");
        let cache = format!("{folder}/cache");
        let env = [
            ("PATH", path.as_str()),
            ("HOME", folder.as_str()),
            ("KUBECONFIG", kubeconfig.as_str()),
            ("XDG_CONFIG_HOME", config.as_str()),
            ("XDG_CACHE_HOME", cache.as_str()),
            ("YOI_BUNDLE", bundle.as_str()),
        ];
        program::run("nsenter", &[&netns, "bash", "-c", line], &env, stdin).await
    }

    /// What is on the machine that a node could leave there.
    async fn inventory(&self) -> Result<String> {
        Ok(self.laptop_with("ssh build bash", Some(&inventory_part())).await?.exit_ok()?.out)
    }

    /// Checks that nothing came to the machine, and nothing went.
    async fn expect_inventory(&self, before: &str) -> Result<()> {
        let now = self.inventory().await?;
        let but = |of: &str, not: &str| of.lines().filter(|line| !not.lines().any(|other| other == *line)).collect::<Vec<_>>().join("\n");
        ensure!(now == before, "came:\n{}\nwent:\n{}", but(&now, before), but(before, &now));
        Ok(())
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        let down = std::process::Command::new("bash").args(["-c", SCRIPT, "down", &self.folder(), &self.name]).output();
        if !down.as_ref().is_ok_and(|down| down.status.success()) {
            eprintln!("the three machines are not all gone: {down:?}");
        }
    }
}

/// The part of the script that runs in the machine itself.
fn inventory_part() -> String {
    let (_, rest) = SCRIPT.split_once("inventory)\n").unwrap_or_default();
    let (part, _) = rest.split_once("    ;;").unwrap_or_default();
    part.to_owned()
}

const AGENT: &str = r#"
apiVersion: yoi.dev/v1alpha1
kind: YoiProject
metadata: { name: p, namespace: default }
spec:
  source: { empty: {} }
  path: /workspace/p
  defaults: { model: { provider: OpenAI, name: none, baseUrl: "http://model.default.svc:8080/v1/" } }
---
apiVersion: yoi.dev/v1alpha1
kind: YoiPod
metadata: { name: a, namespace: default }
spec:
  projectRef: { name: p }
  agent: { builtin: { instruction: Be there. } }
"#;

#[tokio::test]
async fn w47_a_machine_behind_a_jump_host_becomes_a_node_that_agents_run_on_and_nothing_stays() -> Result<()> {
    let machines = Machines::start().await?;
    let before = machines.inventory().await?;
    ensure!(machines.laptop("ssh build 'command -v cargo rustc go'").await?.out.is_empty(), "something compiles there");

    // What is not whole is refused before anything is sent.
    let cut = machines.laptop("head -c 1000000 \"$YOI_BUNDLE\" > ~/cut && kubectl yoi host up build --bundle ~/cut").await?;
    ensure!(cut.code == 1 && cut.err.contains("cargo xtask bundle"), "{cut:?}");
    machines.expect_inventory(&before).await?;

    let up = machines.laptop("kubectl yoi host up build --trees 2").await?.exit_ok()?;
    ensure!(up.out.contains("context build in") && up.out.contains("next: kubectl --context build get nodes"), "{up:?}");
    machines.laptop_with("kubectl --context build apply -f -", Some(AGENT)).await?.exit_ok()?;
    machines.laptop("kubectl --context build wait --for=condition=Ready yoipod/a --timeout=240s").await?.exit_ok()?;

    // The connection is lost, as when a laptop sleeps: the next line makes it anew.
    machines.laptop("ssh -S ~/cache/yoi/ssh/build -O exit build").await?.exit_ok()?;
    let agents = machines.laptop("kubectl yoi --context build ls agents -n default").await?.exit_ok()?;
    ensure!(agents.out.lines().any(|line| line.starts_with("a ")), "{agents:?}");
    machines.laptop("kubectl yoi host up build").await?.exit_ok()?;

    let asked = machines.laptop("kubectl yoi host down build").await?;
    ensure!(asked.code == 2 && asked.err.contains("kubectl yoi host down build --yes"), "{asked:?}");
    machines.laptop("kubectl yoi host down build --yes").await?.exit_ok()?;
    machines.expect_inventory(&before).await?;
    let contexts = machines.laptop("kubectl config get-contexts -o name").await?.exit_ok()?;
    ensure!(contexts.out.is_empty(), "{contexts:?}");
    machines.laptop("kubectl yoi host down build --yes").await?.exit_ok()?;
    machines.expect_inventory(&before).await
}

/// How often a setup is killed.
const KILLS: u32 = 20;
/// Seconds that a setup takes here at most; a kill comes before.
const SETUP: u64 = 45;

#[tokio::test]
async fn a_setup_that_is_killed_at_any_moment_goes_on_and_leaves_nothing_half() -> Result<()> {
    let machines = Machines::start().await?;
    let before = machines.inventory().await?;
    let link = format!("ip -n {}-jump link set up1", machines.name);
    for round in 0..KILLS {
        // Every moment is as likely as another.
        let tenths = RandomState::new().build_hasher().finish() % (SETUP * 10);
        let at = format!("{}.{}", tenths / 10, tenths % 10);
        let up = "kubectl yoi host up build --trees 2";
        let line = match round % 4 {
            // Whoever sets it up, with the connection; what does it on the machine; the link between them.
            0 | 1 => format!("timeout -s KILL {at} {up}; ssh -S ~/cache/yoi/ssh/build -O exit build"),
            2 => format!("(sleep {at}; ssh build 'kill -9 $(pidof yoi-host)') & {up}; wait"),
            _ => format!("(sleep {at}; {link} down) & {up}; wait; {link} up"),
        };
        let killed = machines.laptop(&line).await?;
        println!("round {round}, {at} s: {}: {}", line, killed.err.lines().last().unwrap_or_default());
        // Sometimes what is half there is brought to its end before it is taken away.
        if round % 3 != 2 {
            machines.laptop(up).await?.exit_ok().with_context(|| format!("after {line}"))?;
            machines.laptop("kubectl --context build wait --for=condition=Ready node --all --timeout=60s").await?.exit_ok()?;
        }
        machines.laptop("kubectl yoi host down build --yes").await?.exit_ok().with_context(|| format!("after {line}"))?;
        machines.expect_inventory(&before).await.with_context(|| format!("after {line}"))?;
    }
    machines.laptop("kubectl yoi host up build --trees 2").await?.exit_ok()?;
    machines.laptop_with("kubectl --context build apply -f -", Some(AGENT)).await?.exit_ok()?;
    machines.laptop("kubectl --context build wait --for=condition=Ready yoipod/a --timeout=240s").await?.exit_ok()?;
    machines.laptop("kubectl yoi host down build --yes").await?.exit_ok()?;
    machines.expect_inventory(&before).await
}
