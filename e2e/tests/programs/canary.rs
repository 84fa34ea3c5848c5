//! Looks for the model's key wherever a program, a command or a reader of the namespace could find it.

use anyhow::{Context, Result, ensure};
use tokio::sync::RwLock;
use yoi_e2e::test_namespace::TestNamespace;

/// Reads a word, and prints where in the Pod it stands. The word is in no argument and in no variable of the environment here; with the argument
/// `control` it is in that of another process, which the search must find.
const SEARCH: &str = r#"
read -r word
[ "$1" != control ] || env -i "word=$word" sleep 60 &
look() { printf '%s\n' "$word" | grep -aFls -D skip "$@" -f -; }
processes=0
for process in /proc/[0-9]*; do
    [ "$process" != "/proc/$$" ] || continue
    [ -r "$process/environ" ] && processes=$((processes + 1))
    look "$process/environ" "$process/cmdline"
done
look -r /session /workspace /tmp /etc/yoi /var/run/yoi "$HOME"
kill $! 2>/dev/null
echo "processes: $processes"
"#;

/// Runs its argument without the environment that the kubelet gives to whoever may exec: that of the container, in which the key is.
const WITHOUT_ENVIRONMENT: &str = r#"exec env -i PATH="$PATH" HOME="$HOME" /bin/sh -c "$0" sh "$1""#;

/// A command that is run in a Pod has the environment of its container, and so the key: a search beside it would find that one. Who runs a command
/// reads; who searches writes.
pub static EXEC: RwLock<()> = RwLock::const_new(());

/// Kinds whose objects and messages people of the namespace read.
const KINDS: &str = "yoipods,yoipeers,yoiprojects,agentworkspaces,configmaps,persistentvolumeclaims,events";

/// Where in the Pod of an agent the word stands, and how many processes beside the search were looked at.
pub async fn places_in_pod(ns: &TestNamespace, pod: &str, word: &str) -> Result<(Vec<String>, usize)> {
    search(ns, pod, word, "").await
}

/// As [`places_in_pod`], with the word in the environment of a process that the search starts.
pub async fn places_of_control(ns: &TestNamespace, pod: &str, word: &str) -> Result<(Vec<String>, usize)> {
    search(ns, pod, word, "control").await
}

async fn search(ns: &TestNamespace, pod: &str, word: &str, mode: &str) -> Result<(Vec<String>, usize)> {
    let _alone = EXEC.write().await;
    let output =
        ns.kubectl_with_input(&["exec", "-i", pod, "--", "/bin/sh", "-c", WITHOUT_ENVIRONMENT, SEARCH, mode], &format!("{word}\n")).await?;
    let mut places: Vec<String> = output.out.lines().map(str::to_owned).collect();
    let last = places.pop().and_then(|line| line.strip_prefix("processes: ")?.parse().ok());
    Ok((places, last.with_context(|| format!("the search did not end: {output:?}"))?))
}

/// Fails when the word stands in an object, an Event or the log of a Pod.
pub async fn expect_in_no_object(ns: &TestNamespace, pods: &[&str], word: &str) -> Result<()> {
    let objects = ns.kubectl(&["get", KINDS, "-o", "yaml"]).await?.exit_ok()?.out;
    ensure!(objects.contains("kind: YoiPod"), "no objects: {objects}");
    // The Pod of the scripted model names its key in its arguments; it has a label that agents do not have.
    let agents = ns.kubectl(&["get", "pods", "-l", "!app", "-o", "yaml"]).await?.exit_ok()?.out;
    ensure!(agents.contains("yoi-runtime") || agents.contains("kind: Pod"), "no Pods: {agents}");
    for (what, text) in [("objects", &objects), ("Pods", &agents)] {
        let line = text.lines().find(|line| line.contains(word));
        ensure!(line.is_none(), "the key stands in the {what}: {line:?}");
    }
    for pod in pods {
        let log = ns.kubectl(&["logs", pod]).await?.exit_ok()?.out;
        ensure!(!log.contains(word), "the key stands in the log of {pod}");
    }
    Ok(())
}
