//! Direct requests to the aggregated API. Only the API server's front proxy may make them.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use serde_json::json;
use yoi_e2e::test_namespace::TestNamespace;

use crate::gateway_client::{API, ClientCertificate, gateways};

const FRONT_PROXY: &str = "front-proxy-client";

/// Returns a certificate for this name that an unknown CA signed.
fn self_signed(name: &str) -> Result<ClientCertificate> {
    let mut ca = CertificateParams::new(Vec::<String>::new())?;
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = Issuer::new(ca, KeyPair::generate()?);
    let mut params = CertificateParams::new(Vec::<String>::new())?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate()?;
    Ok(ClientCertificate { certificate: params.signed_by(&key, &issuer)?.pem(), key: key.serialize_pem() })
}

/// Returns the client certificate of the kubeconfig. The cluster's CA for users signed it, not the front proxy's CA.
fn cluster_user_certificate() -> Result<Option<ClientCertificate>> {
    let config: serde_json::Value = serde_yaml::from_str(&std::fs::read_to_string(std::env::var("KUBECONFIG")?)?)?;
    let user = &config["users"][0]["user"];
    let inline = |field: &str| -> Option<String> {
        let text = user[field].as_str()?;
        let bytes = decode_base64(text)?;
        String::from_utf8(bytes).ok()
    };
    Ok(match (inline("client-certificate-data"), inline("client-key-data")) {
        (Some(certificate), Some(key)) => Some(ClientCertificate { certificate, key }),
        _ => None,
    })
}

/// Decodes base64 as a Secret's `data` is decoded.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    serde_json::from_value::<k8s_openapi::ByteString>(json!(text)).ok().map(|bytes| bytes.0)
}

/// Returns the front proxy's certificate, where the cluster's keys are on this machine.
fn front_proxy_certificate() -> Option<ClientCertificate> {
    let root = std::env::var("YOI_DATA_ROOT").ok()?;
    let keys = Path::new(&root).parent()?.join("pki");
    let read = |name: &str| std::fs::read_to_string(keys.join(name)).ok();
    Some(ClientCertificate { certificate: read("front-proxy-client.crt")?, key: read("front-proxy-client.key")? })
}

#[tokio::test]
async fn only_the_front_proxy_is_believed_whatever_the_headers_say() -> Result<()> {
    let ns = TestNamespace::create("front").await?;
    ns.create_model("rules: [{ steps: [{ text: hello }] }]").await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", json!({})).await?;
    ns.wait_agent_ready("a").await?;
    let path = |what: &str| format!("/apis/runtime.yoi.dev/v1alpha1/namespaces/{}/yoipods/a/{what}", ns.name);
    let admin = [("x-remote-user", "system:admin"), ("x-remote-group", "system:masters"), ("content-type", "application/json")];
    let message = json!({ "messageId": "m1", "text": "from nobody" }).to_string();
    let requests = [
        ("GET", path("log")),
        ("GET", path("diff")),
        ("POST", path("message")),
        ("GET", "/apis/runtime.yoi.dev/v1alpha1".to_owned()),
        ("GET", "/readyz".to_owned()),
    ];
    let wrong = [("of our own making", Some(self_signed(FRONT_PROXY)?)), ("of the cluster's users", cluster_user_certificate()?)];
    let (mut attempts, mut controls) = (0, 0);
    for gateway in gateways(&ns).await? {
        for (method, path) in &requests {
            let answer = gateway.ask(API, None, method, path, &admin, &message).await?;
            ensure!(answer.code == 401 && answer.body["reason"] == "Unauthorized", "{method} {path} without a certificate: {answer:?}");
            attempts += 1;
            for (what, pair) in &wrong {
                let pair = pair.as_ref().with_context(|| format!("no certificate {what} to try with"))?;
                // Refused in the TLS handshake, or by its common name.
                match gateway.ask(API, Some(pair), method, path, &admin, &message).await {
                    Ok(answer) => ensure!(answer.code == 401, "{method} {path} with a certificate {what}: {answer:?}"),
                    Err(error) => {
                        let words = format!("{error:?}").to_lowercase();
                        ensure!(words.contains("alert") || words.contains("certificate") || words.contains("closed"), "{words}");
                    }
                }
                attempts += 1;
            }
        }
        // The control: the same request with the front proxy's certificate.
        if let Some(pair) = front_proxy_certificate() {
            let answer = gateway.ask(API, Some(&pair), "GET", &path("log"), &admin, "").await?;
            ensure!(answer.code == 200, "the front proxy is refused: {answer:?}");
            // Then the user in its headers counts: a user without rights is refused.
            let nobody = [("x-remote-user", "nobody"), ("x-remote-group", "system:authenticated")];
            let answer = gateway.ask(API, Some(&pair), "GET", &path("log"), &nobody, "").await?;
            ensure!(answer.code == 403, "a user without rights reads through the front proxy: {answer:?}");
            controls += 1;
        }
    }
    // The control on every cluster: the same request through the API server.
    ns.kubectl(&["get", "--raw", &path("log")]).await?.exit_ok()?;
    let log = ns.log("a").await?;
    let received = log.iter().any(|l| matches!(l.entry.body, yoi_wire::entry::Body::Input(_)));
    ensure!(!received, "a message without a valid certificate got through");
    println!("{attempts} direct requests refused; {controls} controls with the front proxy's own certificate");
    ns.remove().await
}
