//! `vm` with scripts in the place of the programs that drive machines: which words they get. No machine is started.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Result, ensure};

use crate::api_server::ApiServer;
use crate::plugin::{Output, Plugin, output};

/// Keeps its words and what it reads, and lists what the file `machines` says.
const SCRIPT: &str = r#"#!/bin/sh
here=$(dirname "$0")
case "$1 $2" in
  '--version ') exit 0 ;;
  'list --json' | '--list --verbose') cat "$here/machines" ; exit 0 ;;
esac
echo "$(basename "$0") $*" >>"$here/calls"
for last; do :; done
case $last in
  *.yaml) cp "$last" "$here/template" ;;
  -s) cat >"$here/input" ;;
esac
"#;

struct Scene {
    plugin: Plugin,
    folder: std::path::PathBuf,
    _server: ApiServer,
}

impl Scene {
    async fn new(programs: &[&str], machines: &str) -> Result<Self> {
        let server = ApiServer::start().await?;
        let plugin = Plugin::new(&server)?;
        let folder = plugin.folder.path().join("bin");
        std::fs::create_dir(&folder)?;
        for program in programs {
            let file = folder.join(program);
            std::fs::write(&file, SCRIPT)?;
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755))?;
        }
        std::fs::write(folder.join("machines"), machines)?;
        Ok(Scene { plugin, folder, _server: server })
    }

    async fn run(&self, words: &[&str]) -> Result<Output> {
        let mut command = self.plugin.command(&self.plugin.program, words);
        // Not the programs of this machine.
        let path = format!("{}:/usr/bin:/bin", self.folder.display());
        command.env("PATH", path).env("HOME", &self.folder).stdout(Stdio::piped()).stderr(Stdio::piped());
        output(command).await
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.join(name)).unwrap_or_default()
    }

    fn calls(&self) -> Vec<String> {
        let calls = self.read("calls").lines().map(str::to_owned).collect();
        _ = std::fs::remove_file(self.folder.join("calls"));
        calls
    }
}

fn is_shell(text: &str, folder: &Path) -> Result<bool> {
    let file = folder.join("script");
    std::fs::write(&file, text)?;
    Ok(std::process::Command::new("sh").arg("-n").arg(&file).status()?.success())
}

#[tokio::test]
async fn a_machine_of_lima_is_made_of_the_template_started_stopped_and_deleted_and_no_other_is_touched() -> Result<()> {
    let scene = Scene::new(&["limactl", "colima"], r#"{"name":"default","status":"Running"}"#).await?;
    let up = scene.run(&["vm", "up", "--cpus", "2", "--memory", "4", "--disk", "30"]).await?.expect_code(0)?;
    ensure!(up.out.contains("yoi runs with Lima") && up.out.contains("kubectl yoi host check lima-yoi"), "{up:?}");
    let calls = scene.calls();
    ensure!(calls.len() == 1 && calls[0].starts_with("limactl start --tty=false --name=yoi /"), "{calls:?}");
    let template: serde_json::Value = serde_yaml::from_str(&scene.read("template"))?;
    ensure!(template["cpus"] == 2 && template["memory"] == "4GiB" && template["disk"] == "50GiB", "{template}");
    ensure!(template["mounts"] == serde_json::json!([]) && template["ssh"]["forwardAgent"] == false, "{template}");
    let script = template["provision"][0]["script"].as_str().unwrap_or_default();
    ensure!(script.starts_with("TREES_GIB=30\n") && script.contains("mkfs.btrfs") && is_shell(script, &scene.folder)?, "{script}");

    let listed = scene.run(&["vm", "ls"]).await?.expect_code(0)?;
    ensure!(!listed.out.contains("default"), "{listed:?}");
    let gone = scene.run(&["vm", "down"]).await?.expect_code(3)?;
    ensure!(gone.err.contains("the machine yoi does not exist") && scene.calls().is_empty(), "{gone:?}");

    std::fs::write(
        scene.folder.join("machines"),
        "{\"name\":\"yoi\",\"status\":\"Stopped\"}\n{\"name\":\"yoi-big\",\"status\":\"Running\"}\n",
    )?;
    scene.run(&["vm", "up"]).await?.expect_code(0)?;
    scene.run(&["vm", "up", "big"]).await?.expect_code(0)?;
    ensure!(scene.calls() == ["limactl start --tty=false yoi"], "one that runs is left alone");
    scene.run(&["vm", "down", "big"]).await?.expect_code(0)?;
    scene.run(&["vm", "down", "--delete"]).await?.expect_code(0)?;
    ensure!(scene.calls() == ["limactl stop yoi-big", "limactl delete --force yoi"]);
    Ok(())
}

#[tokio::test]
async fn colima_and_wsl_get_their_own_words_and_a_machine_without_either_hears_what_to_install() -> Result<()> {
    let colima = Scene::new(&["colima"], "").await?;
    colima.run(&["vm", "up", "--with", "colima", "--cpus", "3"]).await?.expect_code(0)?;
    let wanted = ["colima start --profile yoi --cpus 3 --memory 8 --disk 60 --runtime none", "colima ssh --profile yoi -- sudo sh -s"];
    ensure!(colima.calls() == wanted);
    ensure!(colima.read("input").starts_with("TREES_GIB=40\n") && is_shell(&colima.read("input"), &colima.folder)?);

    let wsl = Scene::new(&["wsl.exe"], "  NAME STATE VERSION\n* Ubuntu Running 2\n").await?;
    std::fs::create_dir(wsl.folder.join(".ssh"))?;
    std::fs::write(wsl.folder.join(".ssh/id_ed25519.pub"), "ssh-ed25519 AAAA ann@laptop\n")?;
    let up = wsl.run(&["vm", "up"]).await?.expect_code(0)?;
    ensure!(up.out.contains("host check root@localhost:2222"), "{up:?}");
    let wanted = [
        "wsl.exe --install --distribution Debian --name yoi --no-launch",
        "wsl.exe --distribution yoi --user root -- sh -s",
        "wsl.exe --terminate yoi",
        "wsl.exe --distribution yoi --user root -- true",
    ];
    ensure!(wsl.calls() == wanted);
    let input = wsl.read("input");
    ensure!(input.starts_with("KEYS='ssh-ed25519 AAAA ann@laptop'\n") && is_shell(&input, &wsl.folder)?, "{input}");

    let none = Scene::new(&[], "").await?;
    let refused = none.run(&["vm", "up"]).await?.expect_code(1)?;
    ensure!(refused.err.contains("brew install lima") && refused.err.contains("wsl --install"), "{refused:?}");
    let listed = none.run(&["vm", "ls", "-o", "json"]).await?.expect_code(0)?;
    ensure!(listed.json()?["items"] == serde_json::json!([]), "{listed:?}");
    let useless = none.run(&["vm", "ls", "-n", "ns"]).await?.expect_code(2)?;
    ensure!(useless.err.contains("would do nothing"), "{useless:?}");
    Ok(())
}
