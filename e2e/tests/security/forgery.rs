//! A hostile runtime: what it can achieve at the gateway with its own valid token.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use yoi_crds::condition::ConditionStatus;
use yoi_crds::{YoiPeer, YoiPod};
use yoi_e2e::test_namespace::{TestNamespace, uid};
use yoi_wire::entry::Body;
use yoi_wire::hub::gateway_api;

use crate::gateway_client::{API, RUNTIMES, gateway, token_of};

const SCRIPT: &str = "rules: [{ steps: [{ text: heard }] }]";

/// Creates agents: a and b are peers, c is in the same namespace and nobody's peer, stranger is in another namespace.
async fn peers_and_outsider(test: &str) -> Result<(TestNamespace, TestNamespace)> {
    let (ns, other) = (TestNamespace::create(test).await?, TestNamespace::create("stranger").await?);
    for (ns, names) in [(&ns, &["a", "b", "c"][..]), (&other, &["stranger"])] {
        ns.create_model(SCRIPT).await?;
        ns.create_empty_project("p").await?;
        for name in names {
            ns.create_agent(name, "p", json!({})).await?;
        }
    }
    for name in ["a", "b", "c"] {
        ns.wait_agent_ready(name).await?;
    }
    other.wait_agent_ready("stranger").await?;
    ns.yoi(&["peer", "a", "b"]).await?.exit_ok()?;
    ns.wait_condition::<YoiPeer>("a.b", "Ready", ConditionStatus::True).await?;
    Ok((ns, other))
}

/// Returns sender's name, sender's UID and text of each peer message in an agent's log.
async fn peer_messages(ns: &TestNamespace, agent: &str) -> Result<Vec<(String, String, String)>> {
    let log = ns.log(agent).await?;
    Ok(log
        .into_iter()
        .filter_map(|line| match line.entry.body {
            Body::PeerMessage(m) => Some((m.from.name, m.from.uid, m.text)),
            _ => None,
        })
        .collect())
}

#[tokio::test]
async fn no_body_header_or_path_changes_who_sends_and_who_receives() -> Result<()> {
    let (ns, other) = peers_and_outsider("forgery").await?;
    let gateway = gateway(&ns).await?;
    let token = token_of(&ns, "a").await?;
    let (a, b): (YoiPod, YoiPod) = (ns.get("a").await?, ns.get("b").await?);
    let (namespace, elsewhere) = (ns.name.as_str(), other.name.as_str());
    let (mut attempts, mut sent) = (0, 0);

    // Names that are not a peer's. Each must be refused, as an unknown name is.
    let names = [
        "c",
        "stranger",
        "nobody",
        "a.b",
        "b.a",
        "../b",
        "b/../c",
        "/b",
        "b/",
        "%62",
        "b%00",
        "b\u{0}",
        "B",
        "b ",
        " b",
        "b\n",
        "..",
        ".",
        "",
        "b.svc",
        "*",
        "b,c",
        "b;c",
        "ｂ",
        "b\u{200b}",
        "{}",
        "null",
        "0",
    ];
    let mut names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
    names.extend([
        format!("../{elsewhere}/stranger"),
        format!("{elsewhere}/stranger"),
        format!("stranger.{elsewhere}"),
        uid(&b),
        "b".repeat(5000),
    ]);
    for name in &names {
        let body = json!({ "to": name, "messageId": format!("n{attempts}"), "text": "forged" }).to_string();
        let answer = gateway.as_runtime(&token, gateway_api::SEND, &body).await?;
        ensure!([400, 404].contains(&answer.code), "a message to {name:?} was not refused: {answer:?}");
        attempts += 1;
    }
    // Bodies that name another sender or another namespace.
    let forged = [
        json!({ "from": { "agent": { "namespace": namespace, "name": "c", "uid": "x" } } }),
        json!({ "from": "c", "agent": "c", "sender": "c", "name": "c", "uid": uid(&b) }),
        json!({ "namespace": elsewhere, "toNamespace": elsewhere }),
        json!({ "from": { "person": "system:admin" }, "person": "system:admin" }),
        json!({ "podUID": b.status.as_ref().and_then(|s| s.pod.as_ref()).map(|p| p.uid.clone()) }),
    ];
    for more in forged {
        let mut body = json!({ "to": "b", "messageId": format!("m{sent}"), "text": format!("words {sent}") });
        if let (Some(body), Value::Object(more)) = (body.as_object_mut(), more) {
            body.extend(more);
        }
        let answer = gateway.as_runtime(&token, gateway_api::SEND, &body.to_string()).await?;
        ensure!(answer.code == 200, "the control, a message to a peer, was refused: {answer:?}");
        (attempts, sent) = (attempts + 1, sent + 1);
    }
    // Headers that the API port, a proxy or a web framework might believe.
    let headers: [&[(&str, &str)]; 9] = [
        &[("x-remote-user", "system:admin"), ("x-remote-group", "system:masters")],
        &[("x-remote-extra-authentication.kubernetes.io%2fpod-uid", "x")],
        &[("impersonate-user", "system:admin"), ("impersonate-uid", "x")],
        &[("host", "b.other.svc")],
        &[("host", SERVER_OF_ANOTHER)],
        &[("x-forwarded-for", "127.0.0.1"), ("x-forwarded-host", "b"), ("forwarded", "for=127.0.0.1")],
        &[("x-original-url", "/v1/log"), ("x-http-method-override", "GET")],
        &[("x-yoi-agent", "c"), ("x-yoi-pod-uid", "x"), ("cookie", "agent=c")],
        &[("content-type", "text/plain; charset=utf-7")],
    ];
    for more in headers {
        let body = json!({ "to": "b", "messageId": format!("m{sent}"), "text": format!("words {sent}") }).to_string();
        let answer = gateway.as_runtime_with(&token, gateway_api::SEND, more, &body).await?;
        ensure!([200, 415].contains(&answer.code), "{more:?}: {answer:?}");
        sent += usize::from(answer.code == 200);
        let list = gateway
            .as_runtime_with(&token, gateway_api::LIST_PODS, more, &json!({ "namespace": elsewhere, "all": true }).to_string())
            .await?;
        let seen: Vec<_> = list.body["pods"].as_array().into_iter().flatten().map(|p| p["name"].clone()).collect();
        ensure!(seen == [json!("a"), json!("b")], "with {more:?} a sees {seen:?}");
        attempts += 2;
    }
    // Paths that only the other port, or a line, serves.
    let runtime = format!("/apis/runtime.yoi.dev/v1alpha1/namespaces/{namespace}/yoipods/b");
    let bearer = format!("Bearer {token}");
    for path in [
        "/v1/log",
        "/v1/inbox",
        "/v1/diff",
        "/v1/log?agent=b",
        "/v1/pods/../log",
        "/v1//log",
        "/v1/%6cog",
        "/v1/lines",
        "/metrics",
        "/",
        "//",
    ] {
        for method in ["GET", "POST", "PUT", "DELETE", "OPTIONS", "TRACE"] {
            let answer = gateway.ask(RUNTIMES, None, method, path, &[("authorization", &bearer)], "{}").await?;
            ensure!([400, 404, 405].contains(&answer.code), "{method} {path} on the runtimes' port: {answer:?}");
            attempts += 1;
        }
    }
    for (port, codes) in [(RUNTIMES, [404, 405]), (API, [401, 401])] {
        for (method, verb) in [("GET", "log"), ("GET", "diff"), ("POST", "message")] {
            let more = [("authorization", bearer.as_str()), ("x-remote-user", "system:admin"), ("x-remote-group", "system:masters")];
            let answer = gateway.ask(port, None, method, &format!("{runtime}/{verb}"), &more, "{}").await?;
            ensure!(codes.contains(&answer.code), "{method} {verb} of b on port {port}: {answer:?}");
            attempts += 1;
        }
    }
    // A report is recorded for the bearer of the token, whatever its body says.
    let before: YoiPod = ns.get("b").await?;
    let report = json!({ "runGeneration": 99, "ready": false, "reason": "Forged", "message": "m", "activity": "Idle",
        "agent": { "namespace": namespace, "name": "b", "uid": uid(&b) }, "name": "b", "podUID": b.status.as_ref().and_then(|s| s.pod.as_ref()).map(|p| &p.uid) });
    let answer = gateway.as_runtime(&token, gateway_api::REPORT, &report.to_string()).await?;
    ensure!(answer.code == 200 && answer.body["agent"]["name"] == "a" && answer.body["agent"]["uid"] == uid(&a), "{answer:?}");
    let after: YoiPod = ns.get("b").await?;
    ensure!(before.status.and_then(|s| s.report) == after.status.and_then(|s| s.report), "a wrote b's report");
    attempts += 1;

    // In the end b has messages of a only, and the other agents have none.
    let got = peer_messages(&ns, "b").await?;
    let wrong: Vec<_> = got.iter().filter(|(name, from, text)| name != "a" || *from != uid(&a) || !text.starts_with("words ")).collect();
    ensure!(wrong.is_empty(), "b received {wrong:?}");
    ns.wait_log("b", "all that was sent", |log| {
        (log.iter().filter(|l| matches!(l.entry.body, Body::PeerMessage(_))).count() == sent).then_some(())
    })
    .await
    .context(format!("{sent} messages were acknowledged"))?;
    for (ns, name) in [(&ns, "c"), (&ns, "a"), (&other, "stranger")] {
        ensure!(peer_messages(ns, name).await?.is_empty(), "{name} got a message of a");
    }
    println!("{attempts} forged requests, {sent} of them true messages to a peer");
    other.remove().await?;
    ns.remove().await
}

const SERVER_OF_ANOTHER: &str = "kubernetes.default.svc";

/// One token must not be checked while the other decides who sends.
#[tokio::test]
async fn a_request_with_two_tokens_acts_for_one_agent_only() -> Result<()> {
    let (ns, other) = peers_and_outsider("two-tokens").await?;
    let gateway = gateway(&ns).await?;
    let (a, c) = (format!("Bearer {}", token_of(&ns, "a").await?), format!("Bearer {}", token_of(&ns, "c").await?));
    let headers = [("authorization", a.as_str()), ("authorization", c.as_str()), ("content-type", "application/json")];
    let list = gateway.ask(RUNTIMES, None, "POST", gateway_api::LIST_PODS, &headers, "{}").await?;
    if list.code == 200 {
        let me = list.body["pods"][0]["name"].as_str().unwrap_or_default();
        let seen = list.body["pods"].as_array().map(Vec::len).unwrap_or_default();
        ensure!((me, seen) == ("a", 2) || (me, seen) == ("c", 1), "{list:?}");
    } else {
        ensure!([400, 401].contains(&list.code), "{list:?}");
    }
    other.remove().await?;
    ns.remove().await
}
