//! Who reaches whom, tried by packets. What a policy forbids is refused, and somebody whom no policy holds reaches each of the same places.

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Error, Result, bail, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use yoi_crds::YoiProject;
use yoi_crds::condition::ConditionStatus;
use yoi_e2e::local_cluster::LocalCluster;
use yoi_e2e::test_namespace::TestNamespace;
use yoi_test_support::eventually_in;

/// Somewhere that is tried: `name`, and `address port`, or a name for the resolver.
type Place = (&'static str, String);

/// Prints the names of those that were reached, and with a word those from which no answer came. Arguments: name and place in turns.
const TRY: &str = r#"
try() {
    case $2 in
        *" "*) timeout 20 bash -c "exec 3<> /dev/tcp/${2% *}/${2#* }" 2> /dev/null ;;
        *) timeout 60 getent hosts "$2" > /dev/null ;;
    esac
    case $? in
        0) echo "$1" ;;
        124) echo "$1: silence" ;;
    esac
}
while [ $# -gt 0 ]; do
    try "$1" "$2" &
    shift 2
done
wait"#;

/// Which of the places the Pod reaches. What is refused is not in the list; what does not answer is, with a word.
async fn reached(ns: &TestNamespace, pod: &str, places: &[Place]) -> Result<BTreeSet<String>> {
    let words: Vec<&str> = places.iter().flat_map(|(name, place)| [*name, place]).collect();
    let output = ns.kubectl(&[&["exec", pod, "--", "bash", "-c", TRY, "try"], &words[..]].concat()).await?.exit_ok()?;
    Ok(output.out.lines().map(str::to_owned).collect())
}

/// Waits until the Pod reaches exactly these: a policy holds a moment after it was made, and ends a moment after it is gone.
async fn wait_reached(ns: &TestNamespace, pod: &str, places: &[Place], expected: &[&str]) -> Result<()> {
    let expected: BTreeSet<String> = expected.iter().copied().map(str::to_owned).collect();
    let mut last = BTreeSet::new();
    let goal = format!("{pod} reaches {expected:?}");
    let same = eventually_in(Duration::from_secs(60), Duration::from_millis(200), goal, Error::msg, async || {
        last = reached(ns, pod, places).await?;
        Ok((last == expected).then_some(()))
    });
    let same = same.await;
    same.with_context(|| format!("{pod} reaches {last:?} of {places:?}"))
}

/// A Pod that accepts connections on these ports.
fn pod(name: &str, labels: &Value, node: Option<&str>, ports: &[u16]) -> String {
    let listen: String = ports.iter().map(|port| format!("git daemon --reuseaddr --base-path=/tmp --port={port} & ")).collect();
    let on_node = node.map(|node| json!({ "kubernetes.io/hostname": node }));
    let probe = ports.first().map(|port| json!({ "tcpSocket": { "port": port }, "periodSeconds": 1 }));
    let restricted = json!({ "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": { "drop": ["ALL"] } });
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "labels": labels }, "spec": {
        "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 1, "nodeSelector": on_node,
        "securityContext": { "runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": { "type": "RuntimeDefault" },
            // One of the ports is that of https.
            "sysctls": [{ "name": "net.ipv4.ip_unprivileged_port_start", "value": "0" }] },
        "containers": [{ "name": "pod", "image": "$image(agent)", "imagePullPolicy": "Never", "securityContext": restricted,
            "command": ["bash", "-c", format!("{listen} sleep infinity & wait -n")], "readinessProbe": probe }] } })
    .to_string()
}

async fn address(ns: &TestNamespace, name: &str) -> Result<String> {
    ns.get::<Pod>(name).await?.status.and_then(|status| status.pod_ip).with_context(|| format!("{name} has no address"))
}

#[tokio::test]
async fn a_policy_holds_for_packets_on_a_node_between_nodes_and_by_service_and_lets_probes_through() -> Result<()> {
    let ns = TestNamespace::create("packets").await?;
    let workers = LocalCluster::from_environment()?.workers().await?;
    let (first, last) = (workers.first().map(String::as_str), workers.last().map(String::as_str));
    let plain = json!({});
    for pod in [
        pod("server", &json!({ "app": "server" }), first, &[9418, 7000]),
        pod("near", &json!({ "who": "near" }), first, &[]),
        pod("far", &plain, last, &[]),
    ] {
        ns.apply(&pod).await?;
    }
    let port = |port: u16| json!({ "name": format!("p{port}"), "port": port });
    let service = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "server" },
        "spec": { "selector": { "app": "server" }, "ports": [port(9418), port(7000)] } });
    ns.apply(&service.to_string()).await?;
    let empty = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "empty" },
        "spec": { "selector": { "app": "nobody" }, "ports": [port(9418)] } });
    ns.apply(&empty.to_string()).await?;
    for name in ["server", "near", "far"] {
        ns.wait_pod_ready(name).await?;
    }
    let server = address(&ns, "server").await?;
    let service = format!("server.{}.svc.cluster.local", ns.name);
    let places = [
        ("pod", format!("{server} 9418")),
        ("service", format!("{service} 9418")),
        ("other port", format!("{server} 7000")),
        ("other port of the service", format!("{service} 7000")),
        // It must be refused as everywhere, and not be silent.
        ("service without Pods", format!("empty.{}.svc.cluster.local 9418", ns.name)),
    ];
    let all = ["pod", "service", "other port", "other port of the service"];
    let both_reach = async |of_near: &[&str], of_far: &[&str]| {
        wait_reached(&ns, "near", &places, of_near).await?;
        wait_reached(&ns, "far", &places, of_far).await
    };
    both_reach(&all, &all).await.context("without a policy")?;

    let policy = |ingress: Value| {
        json!({ "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": { "name": "server" },
            "spec": { "podSelector": { "matchLabels": { "app": "server" } }, "policyTypes": ["Ingress"], "ingress": ingress } })
        .to_string()
    };
    ns.apply(&policy(json!([]))).await?;
    both_reach(&[], &[]).await.context("with a policy that allows nothing")?;
    // It is Ready when the kubelet has connected.
    ns.apply(&pod("late", &json!({ "app": "server" }), last, &[9418])).await?;
    ns.wait_pod_ready("late").await.context("the kubelet's probe")?;
    let late = [("late", format!("{} 9418", address(&ns, "late").await?))];
    wait_reached(&ns, "near", &late, &[]).await.context("a Pod that came after its policy")?;
    ns.delete::<Pod>("late").await?;

    ns.apply(&policy(json!([{ "from": [{ "podSelector": { "matchLabels": { "who": "near" } } }], "ports": [{ "port": 9418 }] }]))).await?;
    both_reach(&["pod", "service"], &[]).await.context("with a policy that allows one Pod and one port")?;
    ns.wait_gone::<Pod>("late").await?;
    ns.kubectl(&["delete", "networkpolicy", "server"]).await?.exit_ok()?;
    both_reach(&all, &all).await.context("without the policy again")?;
    ns.remove().await
}

/// What each Pod of Yoi's may reach with the chart's values as they come, by the value of its label `yoi.dev/role`, and where there is one of `yoi.dev/egress`.
const ALLOWED: [(&str, &str, &[&str]); 6] = [
    ("agent", "", &["names", "gateway", "model", "https"]),
    ("reader", "", &["names", "gateway"]),
    ("pusher", "", &["names", "gateway", "https", "git"]),
    ("populator", "", &["names", "https", "git"]),
    ("prepare", "Agents", &["names", "model", "https"]),
    ("prepare", "None", &[]),
];

/// Of nobody is it said that they may reach these.
const FORBIDDEN: [&str; 4] = ["other port", "model's port elsewhere", "gateway for the API server", "API server"];

/// One address of what a Service of another namespace leads to.
async fn endpoint(ns: &TestNamespace, namespace: &str, service: &str) -> Result<String> {
    let slices: Api<EndpointSlice> = Api::namespaced(ns.client.clone(), namespace);
    let slices = slices.list(&ListParams::default().labels(&format!("kubernetes.io/service-name={service}"))).await?;
    let addresses = slices.items.into_iter().flat_map(|slice| slice.endpoints).flat_map(|endpoint| endpoint.addresses);
    addresses.into_iter().next().with_context(|| format!("{namespace}/{service} leads nowhere"))
}

#[tokio::test]
async fn each_pod_of_ours_reaches_what_the_chart_allows_and_nothing_reaches_an_agent() -> Result<()> {
    let (ns, elsewhere) = (TestNamespace::create("reach").await?, TestNamespace::create("elsewhere").await?);
    elsewhere.create_model("rules: [{ steps: [{ text: hello }] }]").await?;
    elsewhere.apply(&pod("server", &json!({}), None, &[7000, 443, 9418, 8080])).await?;
    // Its policies are made for projects that have one.
    let prepare = json!({ "image": ns.image("agent")?, "command": ["true"] });
    ns.create_project_with("p", json!({ "source": { "empty": {} }, "prepare": prepare })).await?;
    ns.create_agent("a", "p", json!({})).await?;
    ns.apply(&pod("free", &json!({}), None, &[])).await?;
    ns.wait_condition::<YoiProject>("p", "Ready", ConditionStatus::True).await?;
    for (role, egress, _) in ALLOWED {
        let labels =
            if egress.is_empty() { json!({ "yoi.dev/role": role }) } else { json!({ "yoi.dev/role": role, "yoi.dev/egress": egress }) };
        ns.apply_as_operator(&pod(&name(role, egress), &labels, None, &[])).await?;
    }
    elsewhere.wait_pod_ready("server").await?;
    let (server, model) = (address(&elsewhere, "server").await?, address(&elsewhere, "scripted-model").await?);
    let gateway = endpoint(&ns, "yoi-system", "yoi-gateway").await?;
    let places = [
        ("names", "kubernetes.default.svc.cluster.local".to_owned()),
        ("gateway", format!("{gateway} 8443")),
        ("gateway for the API server", format!("{gateway} 6443")),
        ("model", format!("{model} 8080")),
        ("model's port elsewhere", format!("{server} 8080")),
        ("https", format!("{server} 443")),
        ("git", format!("{server} 9418")),
        ("other port", format!("{server} 7000")),
        ("API server", format!("{} 6443", endpoint(&ns, "default", "kubernetes").await?)),
    ];
    ns.wait_pod_ready("free").await?;
    // The gateway has a policy of its own, which lets agents, readers and pushers to that port.
    let all_but_gateway: Vec<&str> = places.iter().map(|(name, _)| *name).filter(|name| *name != "gateway").collect();
    wait_reached(&ns, "free", &places, &all_but_gateway).await.context("whom no policy holds")?;
    let each = ALLOWED.iter().map(async |(role, egress, allowed)| {
        ensure!(allowed.iter().all(|place| !FORBIDDEN.contains(place)), "{role} may reach what nobody may");
        let name = name(role, egress);
        ns.wait_pod_ready(&name).await?;
        wait_reached(&ns, &name, &places, allowed).await
    });
    try_join_all(each).await?;
    ns.wait_agent_ready("a").await?;
    let agent = ns.list::<Pod>("yoi.dev/yoipod=a").await?.pop().context("the agent has no Pod")?;
    let agent = agent.metadata.name.context("a Pod without a name")?;
    wait_reached(&ns, &agent, &places, ALLOWED[0].2).await.context("the agent's own Pod")?;

    let listen = ["exec", &agent, "--", "git", "daemon", "--reuseaddr", "--base-path=/tmp", "--port=7000"];
    tokio::select! {
        ended = ns.kubectl(&listen) => bail!("nothing listens in the agent's Pod: {ended:?}"),
        checked = nothing_comes_in(&ns, &elsewhere, &agent, &server) => checked?,
    }
    elsewhere.remove().await?;
    ns.remove().await
}

fn name(role: &str, egress: &str) -> String {
    if egress.is_empty() { role.to_owned() } else { format!("{role}-{}", egress.to_lowercase()) }
}

/// Port 7000 of the agent's Pod accepts connections, and of `server`, whom no policy holds.
async fn nothing_comes_in(ns: &TestNamespace, elsewhere: &TestNamespace, agent: &str, server: &str) -> Result<()> {
    let pod: Pod = ns.get(agent).await?;
    let (node, address) =
        pod.spec.and_then(|spec| spec.node_name).zip(pod.status.and_then(|status| status.pod_ip)).context("no address")?;
    // A node reaches its own Pods, or no probe would.
    let cluster = LocalCluster::from_environment()?;
    let connect = format!("timeout 5 bash -c 'exec 3<> /dev/tcp/{address}/7000'");
    let listening = async || Ok((cluster.run_on_node(&node, &connect).await?.code == 0).then_some(()));
    eventually_in(Duration::from_secs(60), Duration::from_millis(200), "a listener in the agent's Pod", Error::msg, listening).await?;

    let places = [("agent", format!("{address} 7000")), ("server", format!("{server} 7000"))];
    for (ns, pod) in [(ns, "free"), (elsewhere, "server")] {
        let reached = reached(ns, pod, &places).await?;
        ensure!(reached == BTreeSet::from(["server".to_owned()]), "{pod} in {} reaches {reached:?}", ns.name);
    }
    // This machine is outside of the cluster: it routes to Pods, and is none and no node.
    let from_here = |address: &str| -> Result<bool> {
        let place: SocketAddr = format!("{address}:7000").parse()?;
        Ok(TcpStream::connect_timeout(&place, Duration::from_secs(5)).is_ok())
    };
    ensure!(from_here(server)?, "the server is not reached from outside");
    ensure!(!from_here(&address)?, "the agent is reached from outside");
    Ok(())
}
