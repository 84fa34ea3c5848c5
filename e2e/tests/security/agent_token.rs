//! What an agent's token allows at the API server and at the gateway.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::authentication::v1::TokenReview;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use yoi_crds::YoiPod;
use yoi_e2e::poll_until;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};
use yoi_test_support::slowness;
use yoi_wire::hub::gateway_api;

use crate::api::{ask, bearer, token};
use crate::gateway_client::{Gateway, gateway, pod_of, token_of};

const AUDIENCE: &str = "gateway.yoi.dev";
const SCRIPT: &str = "rules: [{ steps: [{ text: hello }] }]";
/// How long the gateway caches the API server's answer about a token.
const TOKEN_CACHE: Duration = Duration::from_secs(10);

async fn namespace_with_agents(test: &str, names: &[&str]) -> Result<TestNamespace> {
    let ns = TestNamespace::create(test).await?;
    ns.create_model(SCRIPT).await?;
    ns.create_empty_project("p").await?;
    for name in names {
        ns.create_agent(name, "p", json!({})).await?;
    }
    for name in names {
        ns.wait_agent_ready(name).await?;
    }
    Ok(ns)
}

/// Returns the agent that the gateway takes the bearer for, or `None` when it refuses the token.
async fn identify(gateway: &Gateway, token: &str) -> Result<Option<String>> {
    let answer = gateway.as_runtime(token, gateway_api::LIST_PODS, "{}").await?;
    match answer.code {
        200 => Ok(Some(answer.body["pods"][0]["name"].as_str().context("no name")?.to_owned())),
        401 | 403 => {
            ensure!(answer.body["reason"] == "NotAnAgent", "refused without a reason: {answer:?}");
            Ok(None)
        }
        _ => anyhow::bail!("{answer:?}"),
    }
}

async fn review(ns: &TestNamespace, token: &str, audiences: &[&str]) -> Result<bool> {
    let review: TokenReview = serde_json::from_value(json!({ "metadata": {}, "spec": { "token": token, "audiences": audiences } }))?;
    let answer = Api::<TokenReview>::all(ns.client.clone()).create(&PostParams::default(), &review).await?;
    Ok(answer.status.and_then(|s| s.authenticated).unwrap_or_default())
}

#[tokio::test]
async fn an_agents_token_is_worth_nothing_at_the_api_server() -> Result<()> {
    let ns = namespace_with_agents("token-api", &["a"]).await?;
    let mine = token_of(&ns, "a").await?;
    let pod: Pod = ns.get(&pod_of(&ns, "a").await?).await?;
    let namespace = &ns.name;
    let agent = bearer(&mine).await?;
    // The control: a token of the same account and Pod for the API server's audience.
    let control = bearer(&token(&ns, namespace, "default", &[], Some(&pod)).await?).await?;
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let me = "/apis/authentication.k8s.io/v1/selfsubjectreviews".to_owned();
    let (code, words) = ask(&control, "POST", &me, Some(&review)).await?;
    ensure!(code == 200 && words.contains("system:serviceaccount"), "the control is refused: {code} {words}");
    let yoi = format!("/apis/yoi.dev/v1alpha1/namespaces/{namespace}");
    let runtime = format!("/apis/runtime.yoi.dev/v1alpha1/namespaces/{namespace}/yoipods/a");
    let message = json!({ "messageId": "m", "text": "t" });
    let tries: Vec<(&str, String, Option<&Value>)> = vec![
        ("POST", me, Some(&review)),
        ("GET", "/api".to_owned(), None),
        ("GET", "/apis".to_owned(), None),
        ("GET", "/openapi/v2".to_owned(), None),
        ("GET", "/api/v1/nodes".to_owned(), None),
        ("GET", format!("/api/v1/namespaces/{namespace}/pods"), None),
        ("GET", format!("/api/v1/namespaces/{namespace}/secrets"), None),
        ("GET", format!("/api/v1/namespaces/{namespace}/configmaps"), None),
        ("POST", format!("/api/v1/namespaces/{namespace}/pods/{}/exec?command=id", pod_of(&ns, "a").await?), None),
        ("GET", format!("{yoi}/yoipods"), None),
        ("GET", format!("{yoi}/yoipods/a"), None),
        ("PATCH", format!("{yoi}/yoipods/a/status"), Some(&message)),
        ("DELETE", format!("{yoi}/yoipods/a"), None),
        ("GET", format!("{yoi}/agentworkspaces"), None),
        ("GET", format!("{runtime}/log"), None),
        ("GET", format!("{runtime}/diff"), None),
        ("POST", format!("{runtime}/message"), Some(&message)),
    ];
    for (method, path, body) in &tries {
        let (code, words) = ask(&agent, method, path, *body).await?;
        ensure!(code == 401, "an agent's token: {method} {path}: {code} {words}");
    }
    println!("{} tries with an agent's token at the API server", tries.len());
    // A TokenReview for another audience refuses it too.
    ensure!(self::review(&ns, &mine, &[AUDIENCE]).await?, "the control is refused");
    for other in
        ["https://kubernetes.default.svc.cluster.local", "https://kubernetes.default.svc", "vault", "runtime.yoi.dev", "GATEWAY.yoi.dev"]
    {
        ensure!(!self::review(&ns, &mine, &[other]).await?, "the token is good for {other}");
    }
    ns.remove().await
}

#[tokio::test]
async fn only_a_token_of_the_agents_own_pod_acts_for_the_agent() -> Result<()> {
    let ns = namespace_with_agents("token-pod", &["a"]).await?;
    let (gateway, namespace) = (gateway(&ns).await?, ns.name.clone());
    let mine: Pod = ns.get(&pod_of(&ns, "a").await?).await?;
    ensure!(identify(&gateway, &token_of(&ns, "a").await?).await?.as_deref() == Some("a"), "the agent's own token is refused");
    let control = token(&ns, &namespace, "default", &[AUDIENCE], Some(&mine)).await?;
    ensure!(identify(&gateway, &control).await?.as_deref() == Some("a"), "a token bound to the agent's Pod is refused");

    // Pods of an attacker: a plain one, ones with the agent's labels and annotations, and one of the same name in another namespace.
    let other = ns.create_other().await?;
    let labels = mine.metadata.labels.clone().unwrap_or_default();
    let annotations = mine.metadata.annotations.clone().unwrap_or_default();
    let pod = |name: &str, meta: Value| {
        let mut metadata = json!({ "name": name });
        if let (Some(metadata), Value::Object(meta)) = (metadata.as_object_mut(), meta) {
            metadata.extend(meta);
        }
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {
            "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0,
            "securityContext": { "runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": { "type": "RuntimeDefault" } },
            "containers": [{ "name": "c", "image": "$image(agent)", "imagePullPolicy": "Never", "command": ["sleep", "600"],
                "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
                "volumeMounts": [{ "name": "token", "mountPath": "/var/run/yoi" }] }],
            "volumes": [{ "name": "token", "projected": { "sources": [{ "serviceAccountToken": { "audience": AUDIENCE, "path": "token" } }] } }] } })
        .to_string()
    };
    let same_metadata = json!({ "labels": labels, "annotations": annotations });
    let same_name = mine.metadata.name.clone().unwrap_or_default();
    ns.apply(&pod("plain", json!({}))).await?;
    // The admission policy refuses these labels to everybody but the operator. The gateway does not rely on that.
    ns.apply_as_operator(&pod("disguised", same_metadata.clone())).await?;
    ns.apply_as_operator(&pod("a-99", same_metadata.clone())).await?;
    other.apply_as_operator(&pod(&same_name, same_metadata)).await?;
    for name in ["plain", "disguised", "a-99"] {
        ns.wait_pod_ready(name).await?;
        let projected = ns.kubectl(&["exec", name, "--", "cat", "/var/run/yoi/token"]).await?.exit_ok()?.out;
        ensure!(identify(&gateway, projected.trim()).await?.is_none(), "the Pod {name} is taken for an agent");
        let made = token(&ns, &namespace, "default", &[AUDIENCE], Some(&ns.get(name).await?)).await?;
        ensure!(identify(&gateway, &made).await?.is_none(), "a token bound to {name} is taken for the agent's");
    }
    let elsewhere = token(&other, &other.name, "default", &[AUDIENCE], Some(&other.get(&same_name).await?)).await?;
    ensure!(identify(&gateway, &elsewhere).await?.is_none(), "a Pod of the same name in another namespace is taken for the agent");
    for (what, audiences, bound) in [
        ("bound to nothing", &[AUDIENCE][..], None),
        ("for the API server", &[], Some(&mine)),
        ("for another audience", &["vault"], Some(&mine)),
    ] {
        let token = token(&ns, &namespace, "default", audiences, bound).await?;
        ensure!(identify(&gateway, &token).await?.is_none(), "a token {what} is taken for the agent's");
    }
    // None of these Pods became the agent's.
    let now: YoiPod = ns.get("a").await?;
    ensure!(now.status.and_then(|s| s.pod).map(|p| p.uid) == mine.metadata.uid, "another Pod became the agent");
    other.remove().await?;
    ns.remove().await
}

/// Asks until the gateway refuses the token, and returns how much later than this call the last request began that it still let in: how long the machine
/// takes for a request does not count.
async fn wait_token_rejected(gateway: &Gateway, token: &str) -> Result<Duration> {
    let (start, mut last) = (Instant::now(), Duration::ZERO);
    poll_until(TIMEOUT, "the token of a Pod that is gone is refused", async || {
        let begun = start.elapsed();
        let refused = identify(gateway, token).await?.is_none();
        if !refused {
            last = begun;
        }
        Ok(refused.then_some(()))
    })
    .await?;
    Ok(last)
}

#[tokio::test]
async fn a_token_is_worth_nothing_after_its_pod_or_its_agent_is_gone() -> Result<()> {
    let ns = namespace_with_agents("token-gone", &["stopped", "killed", "replaced"]).await?;
    let gateway = gateway(&ns).await?;
    let mut old = Vec::new();
    for name in ["stopped", "killed", "replaced"] {
        let token = token_of(&ns, name).await?;
        ensure!(identify(&gateway, &token).await?.as_deref() == Some(name), "the token of {name} is refused while it runs");
        old.push((name, token, pod_of(&ns, name).await?));
    }
    ns.yoi(&["stop", "stopped"]).await?.exit_ok()?;
    ns.delete::<Pod>(&old[1].2).await?;
    ns.delete::<YoiPod>("replaced").await?;
    ns.wait_gone::<YoiPod>("replaced").await?;
    ns.delete::<PersistentVolumeClaim>("replaced-session").await?;
    ns.wait_gone::<PersistentVolumeClaim>("replaced-session").await?;
    ns.create_agent("replaced", "p", json!({})).await?;
    for (name, token, pod) in &old {
        // The new agent's Pod may have the same name, because its runs are counted from one again.
        let gone = ns.wait_for::<Pod, ()>(pod, "gone or new", |found| match found {
            Some(found) if found.metadata.deletion_timestamp.is_some() => None,
            Some(_) if *name != "replaced" => None,
            _ => Some(()),
        });
        gone.await?;
        let took = wait_token_rejected(&gateway, token).await?;
        ensure!(
            took <= TOKEN_CACHE + Duration::from_secs(1).mul_f64(slowness()),
            "{name}: {took:?} after its Pod was gone, its token still opened the gateway"
        );
        println!("{name}: the token was worth nothing {took:?} after its Pod was gone");
    }
    ns.wait_agent_ready("replaced").await?;
    ensure!(
        identify(&gateway, &token_of(&ns, "replaced").await?).await?.as_deref() == Some("replaced"),
        "the new agent's token is refused"
    );
    ensure!(identify(&gateway, &old[2].1).await?.is_none(), "the old agent's token is accepted for the new one");
    ns.remove().await
}
