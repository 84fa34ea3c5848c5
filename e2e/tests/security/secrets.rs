//! Keys, tokens and messages are in no object, Event, log or metric.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{Api, ListParams};
use serde_json::json;
use yoi_crds::condition::ConditionStatus;
use yoi_crds::{YoiPeer, YoiPod};
use yoi_e2e::test_namespace::TestNamespace;
use yoi_wire::entry::{Body, ToolOutcome};

use crate::gateway_client::token_of;

const KINDS: &str = "yoiprojects,yoipods,yoipeers,agentworkspaces,workspacenodes,pods,configmaps,events,events.events.k8s.io,\
    persistentvolumeclaims,persistentvolumes,networkpolicies,leases,deployments,daemonsets,services,serviceaccounts,apiservices,jobs";
/// Namespace, label and metrics port of each of our processes.
const METRICS: [(&str, &str, u16); 3] =
    [("yoi-system", "yoi-operator", 8080), ("yoi-system", "yoi-gateway", 8080), ("yoi-node", "yoi-agent-shim", 8081)];

fn random_word() -> Result<String> {
    Ok(format!("mark{}", std::fs::read_to_string("/proc/sys/kernel/random/uuid")?.trim().replace('-', "")))
}

/// Returns all objects, logs and metrics that a reader of the cluster gets, by their location.
async fn readable_texts(ns: &TestNamespace) -> Result<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    let objects = ns.kubectl(&["get", KINDS, "-A", "-o", "json"]).await?.exit_ok()?.out;
    let list: serde_json::Value = serde_json::from_str(&objects)?;
    let items = list["items"].as_array().context("no list")?;
    ensure!(items.len() > 30, "only {} objects were read", items.len());
    for item in items {
        let meta = &item["metadata"];
        // The scripted model gets its key as an argument, and its answers from a ConfigMap.
        let own_fixtures = [("Pod", "scripted-model"), ("ConfigMap", "script")];
        if own_fixtures.iter().any(|(kind, name)| item["kind"] == *kind && meta["name"] == *name) {
            continue;
        }
        all.insert(format!("{} {}/{}", item["kind"], meta["namespace"], meta["name"]), item.to_string());
    }
    for namespace in ["yoi-system", "yoi-node", ns.name.as_str()] {
        let pods: Api<Pod> = Api::namespaced(ns.client.clone(), namespace);
        for pod in pods.list(&ListParams::default()).await?.items {
            let name = pod.metadata.name.unwrap_or_default();
            if name == "scripted-model" {
                continue;
            }
            // kubectl uses the last `-n`.
            let log = ns.kubectl(&["-n", namespace, "logs", &name, "--all-containers", "--since=15m"]).await?;
            if log.code == 0 {
                all.insert(format!("log of {namespace}/{name}"), log.out);
            }
        }
    }
    for (namespace, app, port) in METRICS {
        let pods: Api<Pod> = Api::namespaced(ns.client.clone(), namespace);
        for pod in pods.list(&ListParams::default().labels(&format!("app.kubernetes.io/name={app}"))).await?.items {
            let path = format!("/api/v1/namespaces/{namespace}/pods/{}:{port}/proxy/metrics", pod.metadata.name.unwrap_or_default());
            let text = ns.kubectl(&["get", "--raw", &path]).await?;
            if text.code == 0 {
                all.insert(path, text.out);
            }
        }
    }
    let (logs, metrics) = (all.keys().filter(|k| k.starts_with("log of")).count(), all.keys().filter(|k| k.ends_with("/metrics")).count());
    ensure!(logs >= 6 && metrics >= 4, "only {logs} logs and {metrics} metrics were read");
    Ok(all)
}

#[tokio::test]
async fn no_key_no_token_and_no_message_is_in_an_object_an_event_a_log_or_a_metric() -> Result<()> {
    let ns = TestNamespace::create("secrets").await?;
    let (key, wrong, message, answer, password) = (random_word()?, random_word()?, random_word()?, random_word()?, random_word()?);
    let calls = json!([{ "tool": "SendToPeerPod", "args": { "to": "b", "message": message } }, { "tool": "Shell", "args": { "command": "env; cat /proc/1/environ" } }]);
    let rules = json!({ "rules": [
        { "when": { "lastUserContains": "tell b" }, "steps": [{ "toolCalls": calls }, { "text": format!("I say {answer}") }] },
        { "steps": [{ "text": "heard" }] } ] });
    ns.create_model_with_key(&serde_yaml::to_string(&rules)?, &key).await?;
    for (name, value) in [("right", &key), ("wrong", &wrong)] {
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "stringData": { "apiKey": value } });
        // Created, not applied: `kubectl apply` would write the value into an annotation of the Secret.
        ns.kubectl(&["create", "secret", "generic", name, &format!("--from-literal=apiKey={value}")])
            .await?
            .exit_ok()
            .or_else(|_| anyhow::bail!("{} was not made", secret["metadata"]["name"]))?;
    }
    ns.create_empty_project("p").await?;
    let model = |secret: &str| json!({ "provider": "OpenAI", "name": "scripted", "baseUrl": format!("http://scripted-model.{}.svc:8080/v1/", ns.name), "authSecretRef": { "name": secret } });
    ns.create_agent("a", "p", json!({ "model": model("right") })).await?;
    ns.create_agent("b", "p", json!({ "model": model("right") })).await?;
    // Its key is refused, and its conditions report the refusal.
    ns.create_agent("refused", "p", json!({ "model": model("wrong"), "task": "try it" })).await?;
    // The schema refuses a password in a URL, with a message that does not repeat it.
    for url in [
        format!("https://user:{password}@git.example/x.git"),
        format!("https://{password}@git.example/x.git"),
        format!("http://u:{password}@git:80/x"),
    ] {
        for spec in [
            json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "YoiProject", "metadata": { "name": "q" }, "spec": { "source": { "git": { "url": url } } } }),
            json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "AgentWorkspace", "metadata": { "name": "q" }, "spec": { "source": { "git": { "url": url } } } }),
        ] {
            let tried = ns.try_apply(&spec.to_string()).await?;
            ensure!(
                tried.code != 0 && tried.err.contains("must not hold a user, password or token"),
                "a password in a URL was taken: {tried:?}"
            );
        }
    }
    ns.wait_agent_ready("a").await?;
    ns.wait_agent_ready("b").await?;
    ns.yoi(&["peer", "a", "b"]).await?.exit_ok()?;
    ns.wait_condition::<YoiPeer>("a.b", "Ready", ConditionStatus::True).await?;
    ns.yoi(&["send", "a", &format!("tell b {message}")]).await?.exit_ok()?;
    let ended = |l: &&yoi_wire::people::LogLine| matches!(&l.entry.body, Body::RunEnded(_));
    let log = ns.wait_log("a", "a run's end", |log| (log.iter().filter(ended).count() == 1).then(|| log.to_vec())).await?;
    // Without this, a message that was refused would be seen as a silence of b.
    let sent =
        log.iter().find_map(|l| if let Body::ToolEnded(end) = &l.entry.body { Some((end.outcome, end.output.clone())) } else { None });
    ensure!(sent.as_ref().is_some_and(|(outcome, _)| *outcome == ToolOutcome::Succeeded), "a could not send: {sent:?}");
    ns.wait_log("b", "a run's end", |log| (log.iter().filter(ended).count() == 1).then_some(())).await?;
    ns.wait_reason::<YoiPod>("refused", "Ready", "ModelRefused").await?;
    // The control: message and answer are in the agent's own log.
    let own = serde_json::to_string(&log.iter().map(|l| format!("{:?}", l.entry.body)).collect::<Vec<_>>())?;
    ensure!(own.contains(&message) && own.contains(&answer), "the message and the answer are not in the log");
    ensure!(!own.contains(&key), "the agent's shell read the model's key");

    let secrets: Api<Secret> = Api::namespaced(ns.client.clone(), "yoi-system");
    let tls = secrets.get("yoi-gateway-tls").await?.data.unwrap_or_default();
    let mut marks: Vec<(String, String)> = vec![
        ("the model's key".into(), key),
        ("a refused key".into(), wrong),
        ("a message".into(), message),
        ("an answer".into(), answer),
        ("a password in a URL".into(), password),
        ("the token of a".into(), token_of(&ns, "a").await?),
    ];
    for (name, value) in &tls {
        // Only keys: certificates are public.
        if name.ends_with(".key") {
            let pem = String::from_utf8(value.0.clone())?;
            let line = pem.lines().find(|l| !l.starts_with("-----") && l.len() > 40).context("a key without lines")?;
            marks.push((format!("the key {name}"), line.to_owned()));
        }
    }
    ensure!(marks.len() >= 8, "the keys of the gateway and its CA were not found: {:?}", tls.keys());
    let all = readable_texts(&ns).await?;
    // The control: the metrics that were read count and time that message.
    let in_gateway = |word: &str| all.iter().any(|(place, text)| place.contains("yoi-gateway") && text.contains(word));
    for word in
        ["yoi_gateway_deliveries_total{from=\"agent\",outcome=\"Sent\"}", "yoi_gateway_delivery_seconds_bucket", "yoi_gateway_lines "]
    {
        ensure!(in_gateway(word), "no gateway tells {word}");
    }
    for (what, mark) in &marks {
        let encoded = serde_json::to_value(k8s_openapi::ByteString(mark.clone().into_bytes()))?;
        let encoded = encoded.as_str().unwrap_or_default().trim_end_matches('=');
        // The last characters of a base64 text depend on what follows.
        let encoded = &encoded[..encoded.len().saturating_sub(2)];
        for (place, text) in &all {
            ensure!(!text.contains(mark.as_str()) && !text.contains(encoded), "{what} stands in {place}");
        }
    }
    println!("{} secret words looked for in {} places", marks.len(), all.len());
    ns.remove().await
}
