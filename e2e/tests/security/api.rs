//! Requests to the API server with a given token.

use anyhow::{Context, Result};
use http::Request;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::{Api, PostParams};
use kube::{Client, Config};
use serde_json::{Value, json};
use yoi_e2e::poll_until;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};

use crate::gateway_client::try_again;

/// Returns a client that uses this token and no certificate.
pub async fn bearer(token: &str) -> Result<Client> {
    let mut config = Config::infer().await?;
    config.auth_info = kube::config::AuthInfo { token: Some(token.to_owned().into()), ..Default::default() };
    Ok(Client::try_from(config)?)
}

/// Sends a request and returns the answer's status code and its text or message.
pub async fn ask(client: &Client, method: &str, path: &str, body: Option<&Value>) -> Result<(u16, String)> {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let body = body.map(serde_json::to_vec).transpose()?.unwrap_or_default();
    let (answer, _) = poll_until(TIMEOUT, &format!("another answer to {method} {path} than to try again"), async || {
        let request = Request::builder().method(method).uri(path).header("content-type", kind).body(body.clone())?;
        match client.request_text(request).await {
            Ok(text) => Ok(Some((200, text))),
            Err(kube::Error::Api(status)) => {
                Ok(Some((status.code, status.message.clone())).filter(|(code, words)| !try_again(*code, words)))
            }
            Err(error) => Err(error).context(format!("{method} {path}")),
        }
    })
    .await?;
    Ok(answer)
}

/// Creates a token of a service account, bound to `pod` when it is given.
pub async fn token(ns: &TestNamespace, namespace: &str, account: &str, audiences: &[&str], pod: Option<&Pod>) -> Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(ns.client.clone(), namespace);
    let bound = pod.map(|pod| json!({ "kind": "Pod", "apiVersion": "v1", "name": pod.metadata.name, "uid": pod.metadata.uid }));
    let request: TokenRequest =
        serde_json::from_value(json!({ "spec": { "audiences": audiences, "expirationSeconds": 3600, "boundObjectRef": bound } }))?;
    let answer = accounts.create_token_request(account, &PostParams::default(), &request).await?;
    Ok(answer.status.context("no token")?.token)
}

/// Returns a Pod of one of our processes.
pub async fn our_pod(ns: &TestNamespace, namespace: &str, app: &str) -> Result<Pod> {
    let pods: Api<Pod> = Api::namespaced(ns.client.clone(), namespace);
    let list = pods.list(&kube::api::ListParams::default().labels(&format!("app.kubernetes.io/name={app}"))).await?;
    list.items.into_iter().find(|pod| pod.metadata.deletion_timestamp.is_none()).with_context(|| format!("no {app}"))
}
