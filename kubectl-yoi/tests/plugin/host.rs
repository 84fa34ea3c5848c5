//! `host` against the sshd of this machine, with host keys, known hosts and a jump host of the test's own.

use std::fs;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::api_server::ApiServer;
use crate::plugin::{Output, Plugin, output};

/// One process of sshd for each connection; its thread ends with the test's process.
struct Sshd {
    port: u16,
}

impl Sshd {
    /// `more` are further lines of its configuration. Lets in who has the key `folder/client` or `folder/locked`.
    fn start(folder: &Path, name: &str, more: &str) -> Result<Self> {
        // sshd of root demands this folder, which the package's service makes.
        _ = fs::DirBuilder::new().mode(0o755).create("/run/sshd");
        let key = folder.join(format!("{name}-key"));
        make_key(&key, "")?;
        let config = folder.join(format!("{name}-config"));
        let lines = format!(
            "HostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
            PermitRootLogin prohibit-password\nPidFile none\n{more}\n",
            key.display(),
            folder.join("authorized").display()
        );
        fs::write(&config, lines)?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let Ok(input) = stream.try_clone() else { continue };
                let mut sshd = Command::new("/usr/sbin/sshd");
                sshd.args(["-i", "-f"]).arg(&config).stdin(Stdio::from(OwnedFd::from(input))).stdout(Stdio::from(OwnedFd::from(stream)));
                let Ok(mut child) = sshd.stderr(Stdio::null()).spawn() else { continue };
                std::thread::spawn(move || child.wait());
            }
        });
        let known = fs::read_to_string(key.with_extension("pub"))?;
        let mut hosts = fs::read_to_string(folder.join("known_hosts")).unwrap_or_default();
        hosts += &format!("[127.0.0.1]:{port} {known}");
        fs::write(folder.join("known_hosts"), hosts)?;
        Ok(Sshd { port })
    }
}

fn make_key(path: &Path, passphrase: &str) -> Result<()> {
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", passphrase, "-f"]).arg(path).output()?;
    ensure!(made.status.success(), "{made:?}");
    Ok(())
}

/// A person with a configuration of ssh, and machines.
struct Person {
    plugin: Plugin,
    folder: PathBuf,
}

impl Person {
    async fn new() -> Result<Self> {
        let plugin = Plugin::new(&ApiServer::start().await?)?;
        let folder = plugin.folder.path().join("ssh");
        fs::create_dir_all(folder.join("bin"))?;
        make_key(&folder.join("client"), "")?;
        make_key(&folder.join("locked"), "a passphrase")?;
        let keys = [fs::read_to_string(folder.join("client.pub"))?, fs::read_to_string(folder.join("locked.pub"))?];
        fs::write(folder.join("authorized"), keys.concat())?;
        // ssh reads the configuration of the account, whatever HOME says.
        let config = folder.join("config");
        let ssh = format!("#!/bin/sh\nexec /usr/bin/ssh -F {} \"$@\"\n", config.display());
        fs::write(folder.join("bin/ssh"), ssh)?;
        fs::set_permissions(folder.join("bin/ssh"), fs::Permissions::from_mode(0o755))?;
        let person = Person { plugin, folder };
        person.configure("client", "")?;
        Ok(person)
    }

    fn configure(&self, key: &str, more: &str) -> Result<()> {
        let (key, hosts) = (self.folder.join(key), self.folder.join("known_hosts"));
        let lines = format!(
            "{more}\nHost *\n  IdentityFile {}\n  IdentitiesOnly yes\n  IdentityAgent none\n  UserKnownHostsFile {}\n  GlobalKnownHostsFile /dev/null\n",
            key.display(),
            hosts.display()
        );
        Ok(fs::write(self.folder.join("config"), lines)?)
    }

    async fn host(&self, words: &[&str]) -> Result<Output> {
        let mut command = self.plugin.command(&self.plugin.program, &[&["host"], words].concat());
        let path = std::env::var("PATH").context("no PATH")?;
        command.env("PATH", format!("{}:{path}", self.folder.join("bin").display())).env("YOI_HOSTS", self.folder.join("hosts.json"));
        output({
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command
        })
        .await
    }

    /// Looks at it, and checks that all that a machine has is told.
    async fn check(&self, host: &str) -> Result<Value> {
        let done = self.host(&["check", host, "-o", "json"]).await?;
        let value = done.json().with_context(|| format!("{done:?}"))?;
        let findings = value["findings"].as_array().context("no findings")?.clone();
        let missing = findings.iter().any(|finding| finding["state"] == "missing");
        ensure!(done.code == i32::from(missing), "{done:?}");
        let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
        let kernel = findings.iter().find(|finding| finding["what"] == "kernel").context("no kernel")?;
        ensure!(kernel["message"].as_str().is_some_and(|text| text.starts_with(&format!("Linux {}", release.trim()))), "{kernel}");
        Ok(value)
    }
}

#[tokio::test]
async fn a_machine_is_looked_at_behind_a_jump_host_and_whatever_it_and_the_persons_configuration_say() -> Result<()> {
    let person = Person::new().await?;
    let noise = "ForceCommand echo 'Welcome!'; eval \"$SSH_ORIGINAL_COMMAND\"; echo 'You have mail.'";
    let (inner, jump) = (Sshd::start(&person.folder, "inner", noise)?, Sshd::start(&person.folder, "jump", "")?);
    let config = format!(
        "Host inner\n  HostName 127.0.0.1\n  Port {}\n  ProxyJump jump\n  RemoteCommand echo only this\n  RequestTTY yes\n\
        Host jump\n  HostName 127.0.0.1\n  Port {}\n",
        inner.port, jump.port
    );
    person.configure("client", &config)?;
    let found = person.check("inner").await?;
    ensure!(found["host"] == "inner", "{found}");
    let text = person.host(&["check", "inner"]).await?;
    ensure!(text.out.contains("kernel     Linux ") && !text.out.contains("Welcome"), "{text:?}");
    ensure!(!person.folder.join("hosts.json").exists(), "a check remembers nothing");

    // By its name from then on.
    let added = person.host(&["add", &format!("127.0.0.1:{}", jump.port), "--name", "build"]).await?;
    ensure!(added.out.contains("remembered as build"), "{added:?}");
    let named = person.check("build").await?;
    ensure!(named["host"] == format!("127.0.0.1:{}", jump.port), "{named}");
    let other = person.host(&["add", "inner", "--name", "build"]).await?.expect_code(2)?;
    ensure!(other.err.contains("build is 127.0.0.1:"), "{other:?}");
    let listed = person.host(&["ls"]).await?.expect_code(0)?;
    ensure!(listed.out.lines().count() == 2 && listed.out.contains("build  127.0.0.1:"), "{listed:?}");
    person.host(&["rm", "build"]).await?.expect_code(0)?;
    person.host(&["rm", "build"]).await?.expect_code(3)?;
    ensure!(person.host(&["ls", "-o", "name"]).await?.expect_code(0)?.out.is_empty());
    Ok(())
}

#[tokio::test]
async fn w47_a_machine_that_cannot_be_looked_at_is_said_with_the_next_command_and_is_not_remembered() -> Result<()> {
    let person = Person::new().await?;
    let server = Sshd::start(&person.folder, "server", "")?;
    let (bastion, cut) = (
        Sshd::start(&person.folder, "bastion", "ForceCommand echo 'This is a bastion.'; exit 1")?,
        Sshd::start(&person.folder, "cut", "ForceCommand eval \"$SSH_ORIGINAL_COMMAND\" | head -c 90")?,
    );
    let at = |server: &Sshd| format!("127.0.0.1:{}", server.port);
    let refused = async |host: &str, words: &[&str]| {
        let done = person.host(&["add", host, "--name", "x"]).await?.expect_code(5)?;
        for words in words {
            ensure!(done.err.contains(words), "{words}: {done:?}");
        }
        anyhow::Ok(())
    };
    refused(&at(&bastion), &["runs no command of theirs", "ProxyJump"]).await?;
    refused(&at(&cut), &["the connection ended in the middle of the answer", "say it again"]).await?;
    let free = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    refused(&format!("127.0.0.1:{free}"), &["Connection refused", &format!("ssh -p {free} 127.0.0.1")]).await?;

    // A key with a passphrase, and nobody to ask.
    person.configure("locked", "")?;
    refused(&at(&server), &["it lets nobody in with the keys at hand", "ssh-add"]).await?;
    person.configure("client", "")?;
    let hosts = fs::read_to_string(person.folder.join("known_hosts"))?;
    fs::write(person.folder.join("known_hosts"), "")?;
    refused(&at(&server), &["its host key is not known", &format!("take it: ssh -p {} 127.0.0.1", server.port)]).await?;
    let other = fs::read_to_string(person.folder.join("client.pub"))?;
    fs::write(person.folder.join("known_hosts"), format!("[127.0.0.1]:{} {other}", server.port))?;
    refused(&at(&server), &["another one than known_hosts has", &format!("ssh-keygen -R '[127.0.0.1]:{}'", server.port)]).await?;
    fs::write(person.folder.join("known_hosts"), hosts)?;
    let form = person.host(&["check", "--", "-oProxyCommand=x"]).await?.expect_code(2)?;
    ensure!(form.err.contains("[USER@]HOST[:PORT]"), "{form:?}");
    ensure!(!person.folder.join("hosts.json").exists());
    person.check(&at(&server)).await?;
    Ok(())
}

/// A bundle as far as it can be told before it is sent.
fn write_bundle(path: &Path, machine: &str) -> Result<()> {
    let content = b"no bundle that is ever unpacked";
    let digest: String = Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
    let head = format!(r#"{{"version":"1","machine":"{machine}","bytes":{},"sha256":"{digest}"}}"#, content.len());
    let length = u32::try_from(head.len())?.to_le_bytes();
    Ok(fs::write(path, [&0x184D_2A50_u32.to_le_bytes(), &length, head.as_bytes(), content].concat())?)
}

#[tokio::test]
async fn w47_a_machine_that_cannot_be_a_node_is_said_with_the_next_command_and_nothing_is_sent() -> Result<()> {
    let person = Person::new().await?;
    let (bundle, other) = (person.folder.join("bundle"), person.folder.join("other"));
    write_bundle(&bundle, "x86_64")?;
    write_bundle(&other, "pdp11")?;
    let cut = person.folder.join("cut");
    fs::write(&cut, &fs::read(&bundle)?[..60])?;
    let commands = person.folder.join("commands");
    // A machine that has all that a node takes, whatever this one has, but for what a line of sed changes.
    let good = "s/^kernel=.*/kernel=6.1.0/; s/^machine=.*/machine=x86_64/; s/^uid=.*/uid=0/; s/^cgroup=.*/cgroup=cgroup2fs/; \
                s/^room=.*/room=a 1 1 99999999 1 b/; s/^memory=.*/memory=8000000/; s/^filesystems=.*/filesystems=btrfs overlay/; \
                /^program.k3s/d; s/^end=yes/program.containerd=yes\\nprogram.runc=yes\\nprogram.cni-plugins=yes\\nprogram.mkfs.btrfs=yes\\n\
                program.ip=yes\\nprogram.iptables=yes\\nprogram.ipset=yes\\nprogram.conntrack=yes\\nprogram.nsenter=yes\\nprogram.zstd=yes\\nend=yes/";
    for (number, (change, file, code, words)) in [
        ("s/^uid=.*/uid=1000/; s/^sudo=.*/sudo=no/", &bundle, 1, "a node needs root, and there is no sudo"),
        ("s/^uid=.*/uid=1000/; s/^sudo=.*/sudo=asks/", &bundle, 1, "NOPASSWD"),
        ("s/^kernel=.*/kernel=5.4.0/", &bundle, 1, "Linux 5.4.0, and trees are mounted by 5.12 or newer"),
        ("s/^room=.*/room=a 1 1 99 1 b/", &bundle, 1, "and a node needs 20.0 GiB"),
        ("/^program.runc/d", &bundle, 1, "it lacks packages"),
        ("s/^end=yes/program.k3s=yes\\nend=yes/", &bundle, 1, "k3s is there"),
        ("", &other, 1, "the bundle is for pdp11"),
        ("", &cut, 1, "is cut"),
        ("", &person.folder.join("none"), 1, "cargo xtask bundle"),
    ]
    .into_iter()
    .enumerate()
    {
        let [first, second] = ["good", "change"].map(|name| person.folder.join(name));
        fs::write(&first, good)?;
        fs::write(&second, change)?;
        let line = format!(
            "ForceCommand echo \"$SSH_ORIGINAL_COMMAND\" >> {}; eval \"$SSH_ORIGINAL_COMMAND\" | sed -f {} | sed -f {}",
            commands.display(),
            first.display(),
            second.display()
        );
        let server = Sshd::start(&person.folder, &format!("machine-{number}"), &line)?;
        let host = format!("127.0.0.1:{}", server.port);
        let file = file.display().to_string();
        let done = person.host(&["up", &host, "--name", "m", "--bundle", &file]).await?.expect_code(code)?;
        ensure!(done.err.contains(words) && done.err.contains("next: "), "{words}: {done:?}");
        ensure!(fs::read_to_string(&commands)? == "sh\n", "more than a look for {words}");
        fs::remove_file(&commands)?;
    }
    ensure!(!person.folder.join("hosts.json").exists());

    // A name that means something else to this person.
    let done = person.host(&["up", "127.0.0.1:1", "--name", "c", "--bundle", &bundle.display().to_string()]).await?.expect_code(2)?;
    ensure!(done.err.contains("has c already, and it is not this machine") && done.err.contains("--name NAME"), "{done:?}");
    let none = person.host(&["up", "127.0.0.1:1", "--name", "new"]).await?.expect_code(5)?;
    ensure!(none.err.contains("Connection refused"), "{none:?}");
    person.host(&["connect", "new"]).await?.expect_code(3)?;
    let asked = person.host(&["down", "127.0.0.1:1"]).await?.expect_code(2)?;
    ensure!(asked.err.contains("there is no terminal to ask in") && asked.err.contains("--yes"), "{asked:?}");
    Ok(())
}
