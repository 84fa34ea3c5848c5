//! The charts: lint, schema of the values, and the objects that they render.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use yoi_e2e::program::{self, CommandOutput};
use yoi_e2e::test_namespace::TestNamespace;

fn chart_path(name: &str) -> String {
    format!("{}/../charts/{name}", env!("CARGO_MANIFEST_DIR"))
}

async fn helm(args: &[&str]) -> Result<CommandOutput> {
    program::run(&std::env::var("YOI_HELM")?, args, &[], None).await
}

async fn template(chart: &str, more: &[&str]) -> Result<CommandOutput> {
    helm(&[&["template", chart, &chart_path(chart), "--namespace", "yoi-system", "--kube-version", "1.34.0"], more].concat()).await
}

async fn render(more: &[&str]) -> Result<CommandOutput> {
    template("yoi-operator", more).await
}

#[tokio::test]
async fn both_charts_are_clean_under_strict_lint() -> Result<()> {
    for chart in ["yoi-crds", "yoi-operator"] {
        helm(&["lint", "--strict", &chart_path(chart)]).await?.exit_ok()?;
    }
    Ok(())
}

#[tokio::test]
async fn values_that_make_no_sense_are_refused_by_the_schema() -> Result<()> {
    for nonsense in [
        "operator.replicas=none",
        "shim.dataRoot=relative",
        "shim.loopBtrfs.size=big",
        "shim.zfs.dataset=tank/yoi@snapshot",
        "shim.zfs.dataset=-R",
        "logFormat=xml",
        "unknown=1",
        "image.pullPolicy=Sometimes",
    ] {
        let output = render(&["--set", nonsense]).await?;
        ensure!(output.code != 0 && output.err.contains("schema"), "{nonsense} was taken: {output:?}");
    }
    Ok(())
}

#[tokio::test]
async fn every_rendered_object_passes_the_servers_strict_dry_run() -> Result<()> {
    let ns = TestNamespace::create("charts").await?;
    let other = ["--set", "shim.loopBtrfs.enabled=true", "--set", "logFormat=text", "--set", "image.pullSecrets[0].name=s"];
    // Other ports would stand beside those that Helm has applied.
    let on_host = ["--set", "gateway.hostNetwork=true"];
    for (chart, more) in [("yoi-crds", &[][..]), ("yoi-operator", &[]), ("yoi-operator", &other), ("yoi-operator", &on_host)] {
        let objects = template(chart, more).await?.exit_ok()?.out;
        let kubectl = std::env::var("YOI_KUBECTL")?;
        let args = ["apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f", "-"];
        let output = program::run(&kubectl, &args, &[], Some(&objects)).await?.exit_ok()?;
        // The network of the node needs a namespace with Pod Security privileged, which is the administrator's to label.
        let expected = |line: &str| more == on_host && line.contains("host namespaces (hostNetwork=true)");
        let warnings: Vec<&str> = output.err.lines().filter(|line| line.to_lowercase().contains("warning") && !expected(line)).collect();
        ensure!(warnings.is_empty(), "{chart}: {warnings:?}");
    }
    ns.remove().await
}

#[tokio::test]
async fn no_role_of_ours_has_a_wildcard() -> Result<()> {
    let objects = render(&[]).await?.exit_ok()?.out;
    for document in objects.split("\n---") {
        let object: serde_json::Value = serde_yaml::from_str(document)?;
        if object["kind"] == "ClusterRole" || object["kind"] == "Role" {
            let rules = object["rules"].to_string();
            ensure!(!rules.contains("\"*\""), "{} has a wildcard: {rules}", object["metadata"]["name"]);
            let secrets = object["rules"].as_array().into_iter().flatten().filter(|r| r["resources"].to_string().contains("\"secrets\""));
            for rule in secrets {
                let makes = rule["verbs"] == serde_json::json!(["create"]);
                ensure!(object["kind"] == "Role" && (makes || rule["resourceNames"].is_array()), "{rule} reads users' Secrets");
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn openshifts_constraints_are_for_each_account_that_has_pods_and_only_where_a_value_says_so() -> Result<()> {
    ensure!(!render(&[]).await?.exit_ok()?.out.contains("openshift:scc"), "a cluster without OpenShift has no such roles");
    let more = ["--set", "openshift.enabled=true", "--set", "openshift.anyUserNamespaces={team-a,team-b}"];
    let objects = render(&more).await?.exit_ok()?.out;
    let documents = objects.split("\n---").map(serde_yaml::from_str::<serde_json::Value>).collect::<Result<Vec<_>, _>>()?;
    let constraint = |account: &str, namespace: &str| {
        let subject = serde_json::json!([{ "kind": "ServiceAccount", "name": account, "namespace": namespace }]);
        let bound = documents.iter().find(|object| {
            let role = object["roleRef"]["name"].as_str().unwrap_or_default();
            object["kind"] == "RoleBinding" && role.starts_with("system:openshift:") && object["subjects"] == subject
        })?;
        (bound["metadata"]["namespace"] == namespace).then(|| bound["roleRef"]["name"].as_str().map(str::to_owned))?
    };
    for (kind, wanted) in [("Deployment", "system:openshift:scc:nonroot-v2"), ("DaemonSet", "system:openshift:scc:privileged")] {
        let all: Vec<_> = documents.iter().filter(|object| object["kind"] == kind).collect();
        ensure!(!all.is_empty(), "no {kind}");
        for object in all {
            let account = object["spec"]["template"]["spec"]["serviceAccountName"].as_str().context("no account")?;
            let namespace = object["metadata"]["namespace"].as_str().context("no namespace")?;
            ensure!(constraint(account, namespace).as_deref() == Some(wanted), "{kind} {namespace}/{account}");
        }
    }
    for namespace in ["team-a", "team-b"] {
        ensure!(constraint("default", namespace).as_deref() == Some("system:openshift:scc:nonroot-v2"), "{namespace}");
    }
    let refused = render(&["--set", "openshift.enabled=true", "--set", "gateway.hostNetwork=true"]).await?;
    ensure!(refused.code != 0 && refused.err.contains("gateway.hostNetwork"), "{refused:?}");
    Ok(())
}

#[tokio::test]
async fn runtimes_find_gateways_that_are_not_ready_and_the_api_server_only_those_that_are() -> Result<()> {
    let objects = render(&[]).await?.exit_ok()?.out;
    let documents = objects.split("\n---").map(serde_yaml::from_str::<serde_json::Value>).collect::<Result<Vec<_>, _>>()?;
    let of = |kind: &str, name: &str| documents.iter().find(|o| o["kind"] == kind && o["metadata"]["name"] == name).cloned();
    let lines = of("Service", "yoi-gateway-lines").context("no Service of the lines")?;
    ensure!(lines["spec"]["publishNotReadyAddresses"] == true && lines["spec"]["clusterIP"] == "None", "{lines}");
    let service = of("Service", "yoi-gateway").context("no Service of the gateway")?;
    ensure!(service["spec"]["publishNotReadyAddresses"].is_null(), "{service}");
    let gateway = of("Deployment", "yoi-gateway").context("no gateway")?;
    let pod = &gateway["spec"]["template"]["spec"];
    ensure!(pod["terminationGracePeriodSeconds"].as_i64() > Some(20), "a gateway is killed while it serves on");
    // The probes have a port of their own, which no NetworkPolicy opens.
    let policy = of("NetworkPolicy", "yoi-gateway").context("no NetworkPolicy of the gateway")?;
    let ports = pod["containers"][0]["ports"].as_array().cloned().unwrap_or_default();
    for (name, open) in [("runtimes", true), ("api", true), ("metrics", true), ("health", false)] {
        let port = ports.iter().find(|p| p["name"] == name).with_context(|| format!("no port {name}"))?;
        let named = policy["spec"]["ingress"].to_string().contains(&port["containerPort"].to_string());
        ensure!(named == open, "port {name} is open: {named}");
    }
    for probe in ["livenessProbe", "readinessProbe"] {
        ensure!(pod["containers"][0][probe]["httpGet"]["port"] == "health", "{probe}: {}", pod["containers"][0][probe]);
    }
    Ok(())
}

#[tokio::test]
async fn a_gateway_in_the_network_of_its_node_has_settable_ports_and_agents_may_reach_it() -> Result<()> {
    let more = ["--set", "gateway.hostNetwork=true", "--set", "gateway.ports.api=16443", "--set", "gateway.ports.runtimes=18443"];
    let objects = render(&more).await?.exit_ok()?.out;
    let documents = objects.split("\n---").map(serde_yaml::from_str::<serde_json::Value>).collect::<Result<Vec<_>, _>>()?;
    let pod = |name: &str| documents.iter().find(|o| o["kind"] == "Deployment" && o["metadata"]["name"] == name).map(|o| &o["spec"]);
    let gateway = pod("yoi-gateway").context("no gateway")?;
    let spec = &gateway["template"]["spec"];
    ensure!(spec["hostNetwork"] == true && spec["dnsPolicy"] == "ClusterFirstWithHostNet", "{spec}");
    // On a node whose ports the former replica has, no new one can start.
    ensure!(gateway["strategy"]["rollingUpdate"]["maxSurge"] == 0, "{}", gateway["strategy"]);
    let args = spec["containers"][0]["args"].to_string();
    ensure!(args.contains("--api-listen=0.0.0.0:16443") && args.contains("--runtimes-listen=0.0.0.0:18443"), "{args}");
    let lines = documents.iter().find(|o| o["kind"] == "Service" && o["metadata"]["name"] == "yoi-gateway-lines").context("no Service")?;
    ensure!(lines["spec"]["ports"][0]["port"] == 18443, "runtimes dial another port: {lines}");
    let env = pod("yoi-operator").context("no operator")?["template"]["spec"]["containers"][0]["env"].to_string();
    for told in [r#"{"name":"YOI_GATEWAY_ON_HOST","value":"true"}"#, r#"{"name":"YOI_GATEWAY_PORT","value":"18443"}"#] {
        ensure!(env.contains(told), "the operator is not told {told}: {env}");
    }
    Ok(())
}

/// Returns the host paths that a container mounts, each with its path in the container.
fn host_mounts<'a>(pod: &'a PodSpec, container: &'a Container) -> BTreeMap<&'a str, &'a str> {
    let paths = pod.volumes.iter().flatten().filter_map(|v| Some((v.name.as_str(), v.host_path.as_ref()?.path.as_str())));
    let paths: BTreeMap<_, _> = paths.collect();
    let mounts = container.volume_mounts.iter().flatten();
    mounts.filter_map(|m| Some((*paths.get(m.name.as_str())?, m.mount_path.as_str()))).collect()
}

/// Returns the names of the volumes of a container that hold a service account token.
fn token_volumes<'a>(pod: &'a PodSpec, container: &'a Container) -> Vec<&'a str> {
    let holds = |name: &str| {
        let volume = pod.volumes.iter().flatten().find(|v| v.name == name);
        let sources = volume.and_then(|v| v.projected.as_ref()).and_then(|p| p.sources.as_ref());
        sources.into_iter().flatten().any(|s| s.service_account_token.is_some())
    };
    container.volume_mounts.iter().flatten().map(|m| m.name.as_str()).filter(|name| holds(name)).collect()
}

#[tokio::test]
async fn the_shim_is_unprivileged_and_the_privileged_mounter_has_no_token_and_no_port() -> Result<()> {
    for more in [&[][..], &["--set", "shim.loopBtrfs.enabled=true", "--set", "shim.dataRoot=/srv/yoi"]] {
        let objects = render(more).await?.exit_ok()?.out;
        let documents = objects.split("\n---").map(serde_yaml::from_str::<serde_json::Value>).collect::<Result<Vec<_>, _>>()?;
        let sets: Vec<DaemonSet> =
            documents.into_iter().filter(|o| o["kind"] == "DaemonSet").map(serde_json::from_value).collect::<Result<_, _>>()?;
        let [set] = sets.as_slice() else { anyhow::bail!("{} DaemonSets", sets.len()) };
        let pod = set.spec.as_ref().and_then(|s| s.template.spec.as_ref()).context("a DaemonSet without a Pod")?;
        ensure!(pod.host_network != Some(true) && pod.host_pid != Some(true) && pod.host_ipc != Some(true), "the Pod shares the host's");
        // Otherwise every container would get the token.
        ensure!(pod.automount_service_account_token == Some(false), "the token is mounted into all");
        ensure!(pod.init_containers.is_none(), "there is an init container");
        let [shim, mounter] = pod.containers.as_slice() else { anyhow::bail!("{} containers", pod.containers.len()) };
        ensure!((shim.name.as_str(), mounter.name.as_str()) == ("shim", "mounter"), "{} and {}", shim.name, mounter.name);

        let rights = shim.security_context.clone().unwrap_or_default();
        let capabilities = rights.capabilities.unwrap_or_default();
        ensure!(capabilities.add.is_none_or(|added| added.is_empty()), "shim is given capabilities");
        ensure!(capabilities.drop == Some(vec!["ALL".to_owned()]), "shim keeps some of {:?}", capabilities.drop);
        ensure!(rights.privileged != Some(true) && rights.allow_privilege_escalation == Some(false), "shim is or may get privileged");
        ensure!(rights.read_only_root_filesystem == Some(true), "shim may write its image");
        // Only the driver's plugin folder, which holds the journal, and the plugin registry.
        let folders = ["/var/lib/kubelet/plugins/csi.yoi.dev", "/var/lib/kubelet/plugins_registry"];
        let mounted = host_mounts(pod, shim);
        ensure!(mounted == folders.map(|path| (path, path)).into(), "shim mounts of the host: {mounted:?}");
        let shared = shim.volume_mounts.iter().flatten().find(|m| m.mount_propagation.is_some());
        ensure!(shared.is_none() && shim.volume_devices.is_none(), "{shared:?}");
        ensure!(token_volumes(pod, shim) == ["api"], "shim cannot speak to the API server");

        ensure!(token_volumes(pod, mounter).is_empty(), "mounter has a token");
        ensure!(mounter.ports.is_none(), "mounter has a port");
        let root = if more.is_empty() { "/var/lib/yoi" } else { "/srv/yoi" };
        let mounted = host_mounts(pod, mounter);
        ensure!(mounted == ["/var/lib/kubelet", root].map(|path| (path, path)).into(), "mounter mounts of the host: {mounted:?}");
    }
    Ok(())
}

#[tokio::test]
async fn only_where_a_dataset_is_named_the_mounter_sees_the_hosts_root_and_cannot_write_there() -> Result<()> {
    let mut rendered = Vec::new();
    for dataset in ["", "tank/yoi"] {
        let objects = render(&["--set", &format!("shim.zfs.dataset={dataset}")]).await?.exit_ok()?.out;
        let documents = objects.split("\n---").map(serde_yaml::from_str::<serde_json::Value>).collect::<Result<Vec<_>, _>>()?;
        let set = documents.into_iter().find(|o| o["kind"] == "DaemonSet").context("no DaemonSet")?;
        rendered.push(serde_json::from_value::<DaemonSet>(set)?.spec.and_then(|s| s.template.spec).context("a DaemonSet without a Pod")?);
    }
    let [without, with] = rendered.as_slice() else { anyhow::bail!("{} DaemonSets", rendered.len()) };
    let of_root = |pod: &PodSpec, nth: usize| host_mounts(pod, &pod.containers[nth]).get("/").map(|at| (*at).to_owned());
    ensure!(of_root(without, 0).is_none() && of_root(without, 1).is_none(), "the host's root is shown to what needs it not");
    ensure!(of_root(with, 0).is_none() && of_root(with, 1).as_deref() == Some("/host"), "{:?}", of_root(with, 1));
    let mounter = &with.containers[1];
    let root = mounter.volume_mounts.iter().flatten().find(|m| m.mount_path == "/host").context("no mount of the host's root")?;
    ensure!(root.read_only == Some(true) && root.mount_propagation.is_none(), "{root:?}");
    let args = |container: &Container| container.args.clone().unwrap_or_default();
    for arg in ["--zfs-dataset=tank/yoi", "--host-root=/host"] {
        ensure!(args(mounter).iter().any(|a| a == arg) && !args(&without.containers[1]).iter().any(|a| a == arg), "{arg}");
    }
    Ok(())
}

#[tokio::test]
async fn agents_are_denied_all_but_dns_the_gateway_and_what_the_chart_says() -> Result<()> {
    let ns = TestNamespace::create("network").await?;
    ns.create_model("rules: [{ steps: [{ text: hello }] }]").await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", serde_json::json!({})).await?;
    ns.wait_agent_ready("a").await?;
    let policies: Vec<NetworkPolicy> = ns.list("").await?;
    let agents = policies.iter().filter_map(|p| p.spec.as_ref()).find(|s| {
        let labels = s.pod_selector.as_ref().and_then(|p| p.match_labels.as_ref());
        labels.and_then(|l| l.get("yoi.dev/role")).map(String::as_str) == Some("agent")
    });
    let Some(agents) = agents else { anyhow::bail!("no NetworkPolicy selects agents") };
    let types = agents.policy_types.clone().unwrap_or_default();
    ensure!(types.contains(&"Ingress".to_owned()) && types.contains(&"Egress".to_owned()), "{types:?}");
    ensure!(agents.ingress.as_ref().is_none_or(Vec::is_empty), "something may come in");
    let egress = serde_json::to_string(&agents.egress)?;
    for port in [53, 8443, 443] {
        let named = |p: &NetworkPolicyPort| p.port == Some(IntOrString::Int(port)) && p.end_port.is_none();
        ensure!(agents.egress.iter().flatten().flat_map(|r| r.ports.iter().flatten()).any(named), "no rule for port {port}: {egress}");
    }
    // The policy must select this agent.
    let selected = agents.pod_selector.as_ref().and_then(|p| p.match_labels.clone()).unwrap_or_default();
    let pod: Vec<Pod> = ns.list("yoi.dev/yoipod=a").await?;
    let labels_of_pod = pod.first().and_then(|p| p.metadata.labels.clone()).unwrap_or_default();
    ensure!(selected.iter().all(|(key, value)| labels_of_pod.get(key) == Some(value)), "{selected:?} does not select {labels_of_pod:?}");
    ensure!(agents.egress.iter().flatten().all(|r| r.ports.as_ref().is_some_and(|p| !p.is_empty())), "a rule without ports: {egress}");
    ns.remove().await
}
