//! Looks for credentials wherever a program, a command or a reader of the namespace could find them.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, LogParams};
use kube::{Client, ResourceExt};
use tokio::sync::RwLock;

use crate::test_namespace::TestNamespace;

/// Reads words, one on a line, and prints where in the Pod one of them stands. They are in no argument and in no variable of the environment here; with
/// the argument `control` they are in that of another process, which the search must find.
const SEARCH: &str = r#"
words=$(cat)
if [ "$1" = control ]; then
    env -i "words=$words" sleep 60 &
    tries=0
    # Until then it is a copy of this shell.
    until grep -q words= "/proc/$!/environ" || [ "$tries" -ge 100 ]; do
        tries=$((tries + 1))
        sleep 0.1
    done
fi
look() { printf '%s\n' "$words" | grep -aFls -D skip "$@" -f -; }
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

/// Runs its argument without the environment that the kubelet gives to whoever may exec: that of the container, in which a model's key is.
const WITHOUT_ENVIRONMENT: &str = r#"exec env -i PATH="$PATH" HOME="$HOME" /bin/sh -c "$0" sh "$1""#;

/// A command that is run in a Pod has the environment of its container, and so a model's key: a search beside it would find that one. Who runs a command
/// reads; who searches writes. Both are of one test, and so of one process: no other test runs a command in its Pods.
pub static EXEC: RwLock<()> = RwLock::const_new(());

/// Kinds whose objects and messages people of the namespace read.
const KINDS: &str = "yoipods,yoipeers,yoiprojects,agentworkspaces,configmaps,persistentvolumeclaims,events";

/// Namespaces of the charts, with the logs of operator, gateway and shim.
const CHARTS: [&str; 2] = ["yoi-system", "yoi-node"];

/// What the search of a Pod found.
#[derive(Debug)]
pub struct Found {
    /// Files in which one of the words stands.
    pub places: Vec<String>,
    /// Processes beside the search whose environment was read.
    pub processes: usize,
}

/// Looks for the words in the Pod of an agent: in its files, and in the environment and the arguments of its processes.
///
/// # Errors
/// When the search does not come to its end, for example because the Pod is gone.
pub async fn search_pod(ns: &TestNamespace, pod: &str, words: &[&str]) -> Result<Found> {
    search(ns, pod, words, "").await
}

/// As [`search_pod`], with the words in the environment of a process that the search starts: it must find them.
///
/// # Errors
/// As [`search_pod`], and when it does not find them.
pub async fn expect_found(ns: &TestNamespace, pod: &str, words: &[&str]) -> Result<()> {
    let Found { places, processes } = search(ns, pod, words, "control").await?;
    ensure!(processes > 0 && places.iter().any(|place| place.ends_with("/environ")), "the search finds nothing: {places:?}");
    Ok(())
}

async fn search(ns: &TestNamespace, pod: &str, words: &[&str], mode: &str) -> Result<Found> {
    // An empty line would be found everywhere.
    ensure!(words.iter().all(|word| !word.is_empty() && !word.contains('\n')), "not one word on a line");
    let _alone = EXEC.write().await;
    let command = ["exec", "-i", pod, "--", "/bin/sh", "-c", WITHOUT_ENVIRONMENT, SEARCH, mode];
    let output = ns.kubectl_with_input(&command, &format!("{}\n", words.join("\n"))).await?;
    let mut places: Vec<String> = output.out.lines().map(str::to_owned).collect();
    let last = places.pop().and_then(|line| line.strip_prefix("processes: ")?.parse().ok());
    Ok(Found { places, processes: last.with_context(|| format!("the search did not end: {output:?}"))? })
}

/// Fails when one of the words stands in an object, in an Event, in the log of one of these Pods, or in a log of the installation.
///
/// # Errors
/// Also when objects, Pods or logs cannot be read.
pub async fn expect_in_no_object(ns: &TestNamespace, pods: &[&str], words: &[&str]) -> Result<()> {
    let objects = ns.kubectl(&["get", KINDS, "-o", "yaml"]).await?.exit_ok()?.out;
    ensure!(objects.contains("kind: YoiProject"), "no objects: {objects}");
    // The Pods of servers that tests create name their keys in their arguments; they have a label that other Pods do not have.
    let others = ns.kubectl(&["get", "pods", "-l", "!app", "-o", "yaml"]).await?.exit_ok()?.out;
    ensure!(others.contains("kind: Pod"), "no Pods: {others}");
    let mut texts = vec![("the objects".to_owned(), objects), ("the Pods".to_owned(), others)];
    for pod in pods {
        texts.push((format!("the log of {pod}"), ns.kubectl(&["logs", pod]).await?.exit_ok()?.out));
    }
    for namespace in CHARTS {
        texts.extend(logs(&ns.client, namespace).await?);
    }
    for (what, text) in texts {
        let line = text.lines().find(|line| words.iter().any(|word| line.contains(word)));
        ensure!(line.is_none(), "a word that is looked for stands in {what}: {line:?}");
    }
    Ok(())
}

/// The logs of all containers of a namespace that run.
async fn logs(client: &Client, namespace: &str) -> Result<Vec<(String, String)>> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let mut logs = vec![];
    for pod in api.list(&ListParams::default()).await? {
        let name = pod.name_any();
        for container in pod.spec.iter().flat_map(|spec| &spec.containers) {
            let params = LogParams { container: Some(container.name.clone()), ..LogParams::default() };
            // A Pod that another test has replaced meanwhile has none.
            if let Ok(log) = api.logs(&name, &params).await {
                logs.push((format!("the log of {} in {namespace}/{name}", container.name), log));
            }
        }
    }
    ensure!(!logs.is_empty(), "no log of {namespace} can be read");
    Ok(logs)
}
