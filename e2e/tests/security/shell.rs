//! What a shell inside an agent can do to its node and to other Pods.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use yoi_e2e::poll_until;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};
use yoi_wire::entry::Body;

use crate::gateway_client::{pod_of, token_of};

/// Name and command of each attempt. The script prints `name=yes` when the command succeeds.
const ATTEMPTS: &[(&str, &str)] = &[
    ("mount-tmpfs", "mkdir -p /tmp/m && /tmp/try mount /tmp/m tmpfs"),
    ("mount-proc", "mkdir -p /tmp/p && /tmp/try mount /tmp/p proc"),
    ("trace-init", "/tmp/try trace 1"),
    ("open-by-handle", "/tmp/try handle /tmp"),
    ("load-bpf", "/tmp/try bpf"),
    ("user-namespace", "unshare -Ur true"),
    ("mount-namespace", "unshare -m true"),
    ("enter-init", "nsenter -t 1 -m true"),
    ("make-device", "mknod /tmp/disk b 8 0"),
    ("read-memory", "head -c 1 /dev/mem"),
    ("kernel-log", "dmesg | head -1 | grep ."),
    ("write-sysctl", "cat /proc/sys/kernel/core_pattern > /proc/sys/kernel/core_pattern"),
    ("sysrq", "echo h > /proc/sysrq-trigger"),
    ("write-cgroup", "mkdir /sys/fs/cgroup/mine || mkdir /sys/fs/cgroup/memory/mine"),
    ("change-owner", "touch /tmp/o && chown 0 /tmp/o"),
    ("become-root", "setpriv --reuid=0 true"),
    ("set-clock", "date -s @1000000000"),
    ("see-neighbours", "cat /proc/[0-9]*/comm 2>/dev/null | grep -E '^(kubelet|containerd|etcd|yoi-operator)$'"),
    (
        "containerd-socket",
        "test -S /run/containerd/containerd.sock || timeout 10 find / -xdev -name 'containerd.sock*' 2>/dev/null | grep .",
    ),
    ("kubelet-folder", "ls /var/lib/kubelet/pods"),
    ("mounter-socket", "test -S /run/yoi/mounter.sock || timeout 10 find / -xdev -name mounter.sock 2>/dev/null | grep ."),
    ("api-token", "cat /var/run/secrets/kubernetes.io/serviceaccount/token"),
    ("write-root", "touch /etc/x"),
];

/// A C program for system calls for which the agent's image has no program. The image has a C compiler.
const PROGRAM: &str = r#"
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int n, char **word) {
  char room[512];
  memset(room, 0, sizeof room);
  if (!strcmp(word[1], "nothing")) return 3;
  if (!strcmp(word[1], "mount")) return mount("none", word[2], word[3], 0, "") != 0;
  if (!strcmp(word[1], "trace")) {
    int pid = atoi(word[2]);
    if (ptrace(16 /* PTRACE_ATTACH */, pid, 0, 0) != 0) return 1;
    waitpid(pid, 0, 0x40000000 /* __WALL */);
    return ptrace(17 /* PTRACE_DETACH */, pid, 0, 0) != 0;
  }
  if (!strcmp(word[1], "handle")) {
    int mount_id;
    *(unsigned *)room = 128;
    if (syscall(SYS_name_to_handle_at, -100, word[2], room, &mount_id, 0) != 0) return 1;
    int at = open(word[2], 0);
    return syscall(SYS_open_by_handle_at, at, room, 0) < 0;
  }
  if (!strcmp(word[1], "bpf")) { *(int *)room = 2; *(int *)(room + 4) = 4; *(int *)(room + 8) = 8; *(int *)(room + 12) = 1; return syscall(SYS_bpf, 0, room, 72) < 0; }
  return 1;
}
"#;

/// Attempts in the agent only, because a privileged Pod has no runtime.
const ATTEMPTS_IN_AGENT: &[(&str, &str)] = &[
    ("trace-runtime", "/tmp/try trace 1"),
    ("runtime-environment", "cat /proc/1/environ"),
    ("runtime-memory", "head -c 1 /proc/1/mem"),
    ("runtime-files", "ls /proc/1/fd/"),
    ("stop-runtime", "kill -STOP 1 && sleep 1 && grep -q '^State:.T' /proc/1/status"),
    ("write-runtime", "touch /yoi/x /yoi/bin/x"),
    ("write-manifest", "touch /etc/yoi/x"),
    ("write-token", "touch /var/run/yoi/token"),
];

fn script(attempts: &[&[(&str, &str)]]) -> String {
    let made = format!(
        "cat > /tmp/try.c <<'END'\n#include <fcntl.h>{PROGRAM}END\ntcc -o /tmp/try /tmp/try.c && /tmp/try nothing; test $? = 3 && echo compiled\n"
    );
    let tries = attempts
        .concat()
        .into_iter()
        .map(|(name, command)| format!("if ( {command} ) >/dev/null 2>&1; then echo {name}=yes; else echo {name}=no; fi; "));
    made + &tries.collect::<String>()
}

fn succeeded(output: &str) -> Vec<&str> {
    output.lines().filter_map(|line| line.strip_suffix("=yes")).collect()
}

#[tokio::test]
async fn an_agents_shell_can_do_nothing_to_its_node_or_to_other_pods() -> Result<()> {
    let ns = TestNamespace::create("shell").await?;
    let rights = "grep -E '^(CapInh|CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs|Seccomp|Uid):' /proc/self/status; cat /proc/self/mountinfo; ";
    let command = format!("{rights}{}true", script(&[ATTEMPTS, ATTEMPTS_IN_AGENT]));
    let rules =
        json!({ "rules": [{ "steps": [{ "toolCalls": [{ "tool": "Shell", "args": { "command": command } }] }, { "text": "Tried." }] }] });
    ns.create_model(&serde_yaml::to_string(&rules)?).await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", json!({ "task": "try it", "limits": { "toolSeconds": 120 } })).await?;
    ns.wait_task_complete("a").await?;
    let output = ns
        .log("a")
        .await?
        .into_iter()
        .find_map(|l| match l.entry.body {
            Body::ToolEnded(t) => Some(t.output),
            _ => None,
        })
        .context("the shell said nothing")?;
    let tried = output.lines().filter(|l| l.ends_with("=yes") || l.ends_with("=no")).count();
    ensure!(tried == ATTEMPTS.len() + ATTEMPTS_IN_AGENT.len(), "{tried} of the attempts were tried:\n{output}");
    ensure!(output.contains("compiled"), "the tries were not compiled:\n{output}");
    ensure!(succeeded(&output).is_empty(), "an agent's shell can {:?}", succeeded(&output));
    for line in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        let none = output.lines().any(|l| l.starts_with(line) && l.ends_with("0000000000000000"));
        ensure!(none, "the shell has capabilities: {output}");
    }
    ensure!(output.contains("NoNewPrivs:\t1") && output.contains("Seccomp:\t2") && output.contains("Uid:\t1000"), "{output}");
    // No folder of another Pod is mounted.
    let mounted: Vec<_> =
        output.lines().filter(|l| l.contains(" - ")).filter(|l| l.contains("/pods/") && l.contains("/volumes/")).collect();
    let uid = ns.get::<k8s_openapi::api::core::v1::Pod>(&pod_of(&ns, "a").await?).await?.metadata.uid.unwrap_or_default();
    ensure!(mounted.iter().all(|l| l.contains(&uid)), "a folder of another Pod is mounted: {mounted:?}");

    // The control: most of the same attempts succeed in a privileged Pod, so the script really tries what it says.
    let other = ns.create_other().await?;
    let free = json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "privileged" } } });
    Api::<Namespace>::all(ns.client.clone()).patch(&other.name, &PatchParams::default(), &Patch::Merge(&free)).await?;
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "free" }, "spec": {
        "hostPID": true, "terminationGracePeriodSeconds": 0, "restartPolicy": "Never",
        "containers": [{ "name": "free", "image": "$image(agent)", "imagePullPolicy": "Never", "command": ["sleep", "600"],
            "securityContext": { "privileged": true, "runAsUser": 0 },
            "volumeMounts": [{ "name": "kubelet", "mountPath": "/var/lib/kubelet" }] }],
        "volumes": [{ "name": "kubelet", "hostPath": { "path": "/var/lib/kubelet" } }] } });
    other.apply(&pod.to_string()).await?;
    other.wait_pod_ready("free").await?;
    let harmless: Vec<_> = ATTEMPTS
        .iter()
        .filter(|(name, _)| !["trace-init", "set-clock", "sysrq", "write-cgroup", "write-sysctl"].contains(name))
        .copied()
        .collect();
    let control = other.kubectl(&["exec", "free", "--", "/bin/bash", "-c", &script(&[&harmless])]).await?.out;
    ensure!(control.contains("compiled"), "the control was not compiled:\n{control}");
    let succeeded_in_control = succeeded(&control);
    for command in [
        "mount-tmpfs",
        "mount-namespace",
        "enter-init",
        "make-device",
        "change-owner",
        "see-neighbours",
        "kubelet-folder",
        "api-token",
        "write-root",
    ] {
        ensure!(succeeded_in_control.contains(&command), "a privileged Pod cannot {command}, so the try proves nothing:\n{control}");
    }
    println!("{tried} attempts tried in an agent's shell, {} of {} done by a privileged Pod", succeeded_in_control.len(), harmless.len());
    other.remove().await?;
    ns.remove().await
}

#[tokio::test]
async fn an_agents_token_is_refused_by_the_kubelet() -> Result<()> {
    let ns = TestNamespace::create("kubelet").await?;
    // The chart's policy lets no packet through to a kubelet. Here one may pass, to see that the token is refused as well.
    let policy = json!({ "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": { "name": "to-kubelets" },
        "spec": { "podSelector": {}, "policyTypes": ["Egress"], "egress": [{ "ports": [{ "port": 10250 }] }] } });
    ns.apply(&policy.to_string()).await?;
    ns.create_model("rules: [{ steps: [{ text: hello }] }]").await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", json!({})).await?;
    ns.wait_agent_ready("a").await?;
    let (pod, token) = (pod_of(&ns, "a").await?, token_of(&ns, "a").await?);
    // The node of that Pod, because another test creates a Node that does not exist.
    let name = ns.get::<Pod>(&pod).await?.spec.and_then(|spec| spec.node_name).context("the agent's Pod is on no node")?;
    let node = Api::<Node>::all(ns.client.clone()).get(&name).await?;
    let addresses = node.status.and_then(|s| s.addresses).unwrap_or_default();
    let address = addresses.into_iter().find(|a| a.type_ == "InternalIP").context("a node without an address")?.address;
    let ask = |auth: &str, url: &str| format!("curl -sk -m 20 -o /dev/null -w '%{{http_code}}' {auth} {url}");
    for path in ["pods", "runningpods/", "metrics", "configz", "logs/", "run/x/y/z", "exec/x/y/z"] {
        for auth in [String::new(), format!("-H 'Authorization: Bearer {token}'")] {
            let line = ask(&auth, &format!("https://{address}:10250/{path}"));
            // No answer or a 5xx proves nothing: the kubelet itself asks the API server who the caller is.
            let answered = poll_until(TIMEOUT, "an answer of the kubelet", async || {
                let output = ns.kubectl(&["exec", &pod, "--", "/bin/sh", "-c", &line]).await?;
                let code = output.out.trim();
                Ok((!code.is_empty() && code != "000" && !code.starts_with('5')).then(|| code.to_owned()))
            });
            let (code, _) = answered.await?;
            ensure!(["401", "403"].contains(&code.as_str()), "the kubelet's {path} answers an agent {code}");
        }
    }
    // The control: the kubelet answers the API server, which is allowed.
    ns.kubectl(&["get", "--raw", &format!("/api/v1/nodes/{name}/proxy/configz")]).await?.exit_ok()?;
    ns.remove().await
}
