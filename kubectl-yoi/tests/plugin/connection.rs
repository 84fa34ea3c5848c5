//! The flags about cluster and user, as kubectl has them.

use anyhow::{Result, ensure};

use crate::api_server::ApiServer;
use crate::plugin::{Plugin, agent, output};

#[tokio::test]
async fn a_user_acts_as_another_one_with_groups() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(agent("a", &[]));
    plugin.run(&["ls", "agents", "--as", "jane", "--as-group", "dev", "--as-group", "ops", "--as-uid", "7"]).await?.expect_code(0)?;
    let requests = server.requests();
    ensure!(!requests.is_empty());
    for request in requests {
        let of = |name: &str| request.headers.get_all(name).iter().map(|v| v.to_str().unwrap_or_default().to_owned()).collect::<Vec<_>>();
        ensure!(
            of("impersonate-user") == ["jane"] && of("impersonate-group") == ["dev", "ops"] && of("impersonate-uid") == ["7"],
            "{request:?}"
        );
        ensure!(of("authorization") == ["Bearer of-u"], "{request:?}");
    }
    Ok(())
}

#[tokio::test]
async fn cluster_user_server_and_token_replace_those_of_the_context() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(agent("a", &[]));
    let bearer =
        || server.requests().last().and_then(|r| r.headers.get("authorization")?.to_str().ok().map(str::to_owned)).unwrap_or_default();
    plugin.run(&["--context", "nowhere", "ls", "agents", "--cluster", "k", "--user", "other"]).await?.expect_code(0)?;
    ensure!(bearer() == "Bearer of-other", "{}", bearer());
    plugin.run(&["--context", "nowhere", "-s", &server.url, "ls", "agents", "--token", "mine"]).await?.expect_code(0)?;
    ensure!(bearer() == "Bearer mine", "{}", bearer());
    plugin.run(&["--context", "nowhere", "ls", "agents"]).await?.expect_code(5)?;
    let mut without = plugin.command(&plugin.program, &["ls", "agents", "-n", "ns", "--server", &server.url, "--token", "alone"]);
    without.env("KUBECONFIG", "/dev/null").stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    output(without).await?.expect_code(0)?;
    ensure!(bearer() == "Bearer alone", "{}", bearer());
    for (flag, name) in [("--user", "nobody"), ("--cluster", "none"), ("--context", "absent")] {
        let missing = plugin.run(&["ls", flag, name]).await?.expect_code(1)?;
        ensure!(missing.err.contains(name) && missing.err.contains("\n  next: "), "{missing:?}");
    }
    Ok(())
}

#[tokio::test]
async fn versions_of_client_and_server_are_told() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    let labels = serde_json::json!({ "app.kubernetes.io/part-of": "yoi", "app.kubernetes.io/version": "9.9.9" });
    for (kind, name) in [("Deployment", "yoi-operator"), ("DaemonSet", "yoi-agent-shim")] {
        let template = serde_json::json!({ "metadata": {}, "spec": { "containers": [{ "name": "c", "image": format!("reg/{name}:1") }] } });
        server.put(serde_json::json!({ "apiVersion": "apps/v1", "kind": kind, "metadata": { "name": name, "labels": labels },
            "spec": { "selector": {}, "template": template } }));
    }
    let told = plugin.run(&["version"]).await?.expect_code(0)?;
    for word in [env!("CARGO_PKG_VERSION"), "v1.34.4", "yoi-operator", "yoi-agent-shim", "9.9.9", "reg/yoi-operator:1"] {
        ensure!(told.out.contains(word), "{word}: {told:?}");
    }
    let json = plugin.run(&["version", "-o", "json"]).await?.json()?;
    ensure!(json["clientVersion"] == env!("CARGO_PKG_VERSION") && json["components"][1]["version"] == "9.9.9", "{json}");
    let before = server.requests().len();
    plugin.run(&["version", "--client"]).await?.expect_code(0)?;
    ensure!(server.requests().len() == before, "a cluster was asked");
    let closed = plugin.run(&["version", "--context", "nowhere"]).await?.expect_code(5)?;
    ensure!(closed.out.contains(env!("CARGO_PKG_VERSION")), "{closed:?}");
    Ok(())
}
