//! A person's clone and the cluster: its working tree becomes that of agents, and what they commit comes onto it, beside work of the person's own.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use yoi_e2e::poll_until;
use yoi_e2e::program::{self, CommandOutput};
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};

const SCRIPT: &str = r#"
rules:
- name: work
  when: { lastUserContains: work }
  steps:
  - toolCalls:
    - { tool: Shell, args: { command: "echo agent > kept.txt && echo agent > theirs.txt && git add -A && git commit -qm 'a commit of the agent'" } }
    - { tool: Write, args: { path: open.txt, content: "agent\n" } }
  - text: All done.
"#;

/// Runs a line of shell in this folder; `$1` is the namespace.
async fn shell(ns: &TestNamespace, folder: &Path, line: &str) -> Result<CommandOutput> {
    program::run("bash", &["-c", &format!("cd \"$0\" && {line}"), &folder.to_string_lossy(), &ns.name], &[], None).await
}

#[tokio::test]
async fn an_agents_commits_are_laid_beside_work_of_the_persons_own() -> Result<()> {
    let ns = TestNamespace::create("laptop").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_git_project("p").await?;
    ns.yoi(&["run", "a", "-p", "p", "-t", "work", "--wait", "--timeout", "3m"]).await?.exit_ok()?;
    let laptop = tempfile::tempdir()?;
    let fetched = "\"$YOI_KUBECTL\" -n \"$1\" exec git -c git -- git -c safe.directory='*' -C /srv/git/project.git bundle create --quiet - --all \
        > project.bundle && git clone -q -b main project.bundle clone";
    shell(&ns, laptop.path(), fetched).await?.exit_ok()?;
    let clone = laptop.path().join("clone");
    shell(&ns, &clone, "echo person > own.txt && echo person > staged.txt && git add staged.txt && echo person > kept.txt")
        .await?
        .exit_ok()?;
    let index = std::fs::read(clone.join(".git/index"))?;

    let pull = "\"$YOI_KUBECTL_YOI\" -n \"$1\" pull a --apply";
    let dry = shell(&ns, &clone, &format!("{pull} --dry-run")).await?;
    ensure!(dry.code == 8 && dry.out.contains("1 path would be laid") && !clone.join("theirs.txt").exists(), "{dry:?}");
    let laid = shell(&ns, &clone, &format!("{pull} -o json")).await?;
    let result: Value = serde_json::from_str(&laid.out).with_context(|| format!("{laid:?}"))?;
    ensure!(laid.code == 8 && result["leftAlone"] == 1 && result["uncommitted"]["count"] == 1, "{laid:?}");
    let read = |name: &str| std::fs::read_to_string(clone.join(name)).with_context(|| name.to_owned());
    ensure!(read("kept.txt")? == "person\n" && read("theirs.txt")? == "agent\n" && read("own.txt")? == "person\n");
    let kept = result["paths"].as_array().into_iter().flatten().find_map(|path| path["kept"].as_str()).context("nothing is kept")?;
    ensure!(std::fs::read_to_string(kept)? == "agent\n", "{kept}");

    std::fs::remove_file(clone.join("kept.txt"))?;
    let whole = shell(&ns, &clone, &format!("{pull} --commit -m left")).await?.exit_ok()?;
    ensure!(read("kept.txt")? == "agent\n" && read("open.txt")? == "agent\n", "{whole:?}");
    ensure!(std::fs::read(clone.join(".git/index"))? == index, "the person's index was written");
    let refs = shell(&ns, &clone, "git for-each-ref --format='%(refname)' refs/heads refs/stash").await?.exit_ok()?;
    ensure!(refs.out == "refs/heads/main\n", "{refs:?}");
    ns.remove().await
}

const SYNC_SCRIPT: &str = r#"
rules:
- name: look
  when: { lastUserContains: look }
  steps:
  - toolCalls:
    - { tool: Shell, args: { command: "git status --porcelain; git rev-parse HEAD; git ls-files; cat staged.txt open.txt new.txt; echo agent > of-agent.txt && git add -A && git commit -qm 'of the agent'" } }
  - text: All done.
"#;

#[tokio::test]
async fn w45_an_agent_works_on_the_working_tree_that_a_person_has_synced() -> Result<()> {
    let ns = TestNamespace::create("sync").await?;
    ns.create_model(SYNC_SCRIPT).await?;
    ns.create_git_project("p").await?;
    let laptop = tempfile::tempdir()?;
    let fetched = "\"$YOI_KUBECTL\" -n \"$1\" exec git -c git -- git -c safe.directory='*' -C /srv/git/project.git bundle create --quiet - --all \
        > project.bundle && git clone -q -b main project.bundle clone";
    shell(&ns, laptop.path(), fetched).await?.exit_ok()?;
    let clone = laptop.path().join("clone");
    // What is staged, not staged, not tracked and gone, on top of a commit that nobody has pushed.
    let work = "export GIT_AUTHOR_NAME=o GIT_AUTHOR_EMAIL=o@o GIT_COMMITTER_NAME=o GIT_COMMITTER_EMAIL=o@o && echo one > open.txt && echo one > gone.txt \
        && git add -A && git commit -qm 'not pushed' && echo staged > staged.txt && git add staged.txt && echo open > open.txt && echo new > new.txt && rm gone.txt";
    shell(&ns, &clone, work).await?.exit_ok()?;
    let state = "git status --porcelain; git for-each-ref; git stash list; sha256sum .git/index";
    let before = shell(&ns, &clone, state).await?.exit_ok()?.out;

    let sync = "\"$YOI_KUBECTL_YOI\" -n \"$1\" sync p --machine laptop --timeout 3m";
    let refused = shell(&ns, &clone, sync).await?;
    ensure!(refused.code != 0 && refused.err.contains("it takes no working trees"), "{refused:?}");
    let takes = r#"{"spec":{"source":{"git":{"sync":{}}}}}"#;
    ns.kubectl(&["patch", "yoiproject", "p", "--type", "merge", "-p", takes]).await?.exit_ok()?;
    let synced = shell(&ns, &clone, &format!("{sync} -o json")).await?.exit_ok()?;
    let result: Value = serde_json::from_str(&synced.out).with_context(|| format!("{synced:?}"))?;
    let commit = result["commit"].as_str().context("no commit")?;
    ensure!(shell(&ns, &clone, state).await?.exit_ok()?.out == before, "something of the person's has changed");

    ns.yoi(&["run", "a", "-p", "p", "-t", "look", "--wait", "--timeout", "3m"]).await?.exit_ok()?;
    let seen = crate::tool_output::last(&ns, "a").await?;
    ensure!(seen.starts_with(commit), "the agent's tree is not clean, or of another commit than {commit}: {seen}");
    let lines: Vec<&str> = seen.lines().collect();
    ensure!(lines.windows(3).any(|three| three == ["staged", "open", "new"]) && !lines.contains(&"gone.txt"), "{seen}");
    ensure!(lines.contains(&"new.txt") && lines.contains(&"staged.txt"), "{seen}");

    shell(&ns, &clone, "\"$YOI_KUBECTL_YOI\" -n \"$1\" pull a --apply").await?.exit_ok()?;
    ensure!(std::fs::read_to_string(clone.join("of-agent.txt"))? == "agent\n");
    ensure!(std::fs::read_to_string(clone.join("open.txt"))? == "open\n" && !clone.join("gone.txt").exists());

    // The next state takes its place, and what was sent before is not kept.
    shell(&ns, &clone, "echo later > open.txt").await?.exit_ok()?;
    shell(&ns, &clone, sync).await?.exit_ok()?;
    let gone = async || {
        let maps = ns.kubectl(&["get", "configmaps", "-o", "name"]).await?.exit_ok()?.out;
        Ok((maps.lines().filter(|name| name.contains("p.sync-")).count() == 1).then_some(()))
    };
    poll_until(TIMEOUT, "the former bundle is deleted", gone).await?;
    ns.remove().await
}

const WATCH_SCRIPT: &str = r#"
rules:
- name: look
  when: { lastUserContains: look }
  steps:
  - toolCalls:
    - { tool: Shell, args: { command: "git rev-parse HEAD; cat watched.txt" } }
  - text: All done.
"#;

/// A line of standard output of the watch, whose files are in this folder.
async fn said_line(watch: &mut tokio::process::Child, folder: &Path, number: usize) -> Result<String> {
    let look = async || {
        if let Some(ended) = watch.try_wait()? {
            anyhow::bail!("the watch has ended with {ended}: {}", std::fs::read_to_string(folder.join("errors"))?);
        }
        Ok(std::fs::read_to_string(folder.join("said"))?.lines().nth(number).map(str::to_owned))
    };
    Ok(poll_until(TIMEOUT, "a state of the tree is said", look).await?.0)
}

#[tokio::test]
async fn w46_a_change_of_a_watched_tree_is_in_the_next_agents_tree_and_its_moment_was_said() -> Result<()> {
    let ns = TestNamespace::create("watch").await?;
    ns.create_model(WATCH_SCRIPT).await?;
    ns.create_git_project("p").await?;
    let takes = r#"{"spec":{"source":{"git":{"sync":{}}}}}"#;
    ns.kubectl(&["patch", "yoiproject", "p", "--type", "merge", "-p", takes]).await?.exit_ok()?;
    let laptop = tempfile::tempdir()?;
    let fetched = "\"$YOI_KUBECTL\" -n \"$1\" exec git -c git -- git -c safe.directory='*' -C /srv/git/project.git bundle create --quiet - --all \
        > project.bundle && git clone -q -b main project.bundle clone";
    shell(&ns, laptop.path(), fetched).await?.exit_ok()?;
    let clone = laptop.path().join("clone");
    let program = std::env::var("YOI_KUBECTL_YOI").context("YOI_KUBECTL_YOI is not set")?;
    let mut watch = tokio::process::Command::new(program);
    watch.args(["-n", &ns.name, "sync", "p", "--machine", "laptop", "--watch"]).current_dir(&clone);
    watch.stdout(std::fs::File::create(laptop.path().join("said"))?).stderr(std::fs::File::create(laptop.path().join("errors"))?);
    let mut watch = watch.kill_on_drop(true).spawn()?;
    said_line(&mut watch, laptop.path(), 0).await?;
    std::fs::write(clone.join("watched.txt"), "watched\n")?;
    let second = said_line(&mut watch, laptop.path(), 1).await?;
    ensure!(second.contains("makes trees from laptop as it was at "), "{second}");

    ns.yoi(&["run", "a", "-p", "p", "-t", "look", "--wait", "--timeout", "3m"]).await?.exit_ok()?;
    let seen = crate::tool_output::last(&ns, "a").await?;
    let commit = seen.lines().next().and_then(|commit| commit.get(..12)).context("no commit")?;
    ensure!(second.contains(commit) && seen.lines().any(|line| line == "watched"), "{second} is not of {seen}");
    watch.kill().await?;
    ns.remove().await
}

const FOLDER_SCRIPT: &str = r#"
rules:
- name: look
  when: { lastUserContains: look }
  steps:
  - toolCalls:
    - { tool: Shell, args: { command: "git status --porcelain; git ls-files; cat plain.txt; wc -c < noise; echo agent > of-agent.txt && echo agent > plain.txt && git add -A && git -c user.name=a -c user.email=a@a commit -qm 'of the agent'" } }
  - text: All done.
"#;

#[tokio::test]
async fn w45_a_folder_without_git_becomes_an_agents_tree_and_what_is_committed_comes_back_onto_it() -> Result<()> {
    let ns = TestNamespace::create("folder").await?;
    ns.create_model(FOLDER_SCRIPT).await?;
    let laptop = tempfile::tempdir()?;
    // A bundle of three parts, and an ignored file.
    let made = "mkdir -p plain/sub && cd plain && echo person > plain.txt && echo '*.log' > .gitignore && echo no > x.log && echo person > sub/b \
        && head -c 2200000 /dev/urandom > noise";
    shell(&ns, laptop.path(), made).await?.exit_ok()?;
    let folder = laptop.path().join("plain");
    let yoi = format!("export XDG_CACHE_HOME='{}' && \"$YOI_KUBECTL_YOI\"", laptop.path().join("cache").display());
    let model = format!("--model-provider openai --model scripted --model-url http://scripted-model.{}.svc:8080/v1/", ns.name);
    shell(&ns, &folder, &format!("{yoi} init --apply --name f -n \"$1\" --path /workspace {model}")).await?.exit_ok()?;
    let state = "find . -type f | sort | xargs sha256sum; find . -name .git";
    let before = shell(&ns, &folder, state).await?.exit_ok()?.out;

    // Neither project nor namespace is named from here on.
    let sub = folder.join("sub");
    let dry = shell(&ns, &sub, &format!("{yoi} sync --dry-run")).await?.exit_ok()?;
    ensure!(dry.out.contains("would be sent"), "{dry:?}");
    shell(&ns, &sub, &format!("{yoi} sync --machine laptop --yes --timeout 3m")).await?.exit_ok()?;
    let maps = ns.kubectl(&["get", "configmaps", "-o", "name"]).await?.exit_ok()?.out;
    ensure!(maps.lines().filter(|name| name.contains("f.sync-")).count() == 3, "{maps}");
    shell(&ns, &sub, &format!("{yoi} run a -t look --no-sync --wait --timeout 3m")).await?.exit_ok()?;
    ensure!(shell(&ns, &folder, state).await?.exit_ok()?.out == before, "something of the folder has changed");
    let seen = crate::tool_output::last(&ns, "a").await?;
    let lines: Vec<&str> = seen.lines().map(str::trim).collect();
    ensure!(lines == [".gitignore", "noise", "plain.txt", "sub/b", "person", "2200000", "[exit code 0]"], "{seen}");

    let diff = shell(&ns, &sub, &format!("{yoi} diff a")).await?.exit_ok()?;
    ensure!(diff.out.contains("of-agent.txt") && !diff.out.contains("noise"), "{diff:?}");
    let applied = shell(&ns, &sub, &format!("{yoi} pull a --apply")).await?.exit_ok()?;
    ensure!(applied.out.contains("2 paths laid on the working tree"), "{applied:?}");
    ensure!(std::fs::read_to_string(folder.join("of-agent.txt"))? == "agent\n" && !folder.join(".git").exists());
    ensure!(
        std::fs::read_to_string(folder.join("plain.txt"))? == "agent\n" && std::fs::read_to_string(folder.join("sub/b"))? == "person\n"
    );
    ns.remove().await
}
