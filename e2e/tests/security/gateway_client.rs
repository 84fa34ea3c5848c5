//! A client for the gateway's ports that shares no code with ours, so that it can also send what ours never sends.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{Api, ListParams, Patch, PatchParams};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use yoi_crds::YoiPod;
use yoi_e2e::poll_until;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};

pub const SERVER: &str = "yoi-gateway.yoi-system.svc";
pub const RUNTIMES: u16 = 8443;
pub const API: u16 = 6443;
const WITHIN: Duration = Duration::from_secs(20);

/// Whether a gateway says that it cannot answer yet: a busy cluster reviews no token in time, or an agent has no line to it. The plugin tries again, too.
pub fn try_again(code: u16, words: &str) -> bool {
    code == 503 && words.contains("try again")
}

/// A client certificate and its key, as PEM.
#[derive(Clone)]
pub struct ClientCertificate {
    pub certificate: String,
    pub key: String,
}

/// One gateway Pod.
#[derive(Clone)]
pub struct Gateway {
    pub pod: String,
    pub ip: std::net::IpAddr,
    ca: String,
}

/// Status code and body of an answer. A body that is not JSON is a string.
#[derive(Debug)]
pub struct Answer {
    pub code: u16,
    pub body: Value,
}

/// Returns all gateway Pods that are not in deletion.
pub async fn gateways(ns: &TestNamespace) -> Result<Vec<Gateway>> {
    let pods: Api<Pod> = Api::namespaced(ns.client.clone(), "yoi-system");
    let secrets: Api<Secret> = Api::namespaced(ns.client.clone(), "yoi-system");
    let data = secrets.get("yoi-gateway-tls").await?.data.unwrap_or_default();
    let ca = String::from_utf8(data.get("ca.crt").context("the Secret has no ca.crt")?.0.clone())?;
    let list = pods.list(&ListParams::default().labels("app.kubernetes.io/name=yoi-gateway")).await?.items;
    let mut all = Vec::new();
    for pod in list.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
        let ip = pod.status.and_then(|s| s.pod_ip).context("a gateway without an address")?;
        all.push(Gateway { pod: pod.metadata.name.unwrap_or_default(), ip: ip.parse()?, ca: ca.clone() });
    }
    ensure!(!all.is_empty(), "no gateway");
    admit_this_machine(ns, &all).await?;
    Ok(all)
}

/// Lets what is no Pod reach the port of runtimes, where the gateways' policy admits Pods of ours only: what is tried here must be refused by the gateway itself.
async fn admit_this_machine(ns: &TestNamespace, gateways: &[Gateway]) -> Result<()> {
    let nodes = Api::<Node>::all(ns.client.clone()).list(&ListParams::default()).await?.items;
    let pods: Vec<String> = nodes.into_iter().filter_map(|node| node.spec?.pod_cidr).collect();
    let policy: NetworkPolicy = serde_json::from_value(json!({
        "metadata": { "name": "e2e-no-pods" },
        "spec": { "podSelector": { "matchLabels": { "app.kubernetes.io/name": "yoi-gateway" } }, "policyTypes": ["Ingress"],
            "ingress": [{ "from": [{ "ipBlock": { "cidr": "0.0.0.0/0", "except": pods } }], "ports": [{ "port": RUNTIMES }] }] } }))?;
    let policies = Api::<NetworkPolicy>::namespaced(ns.client.clone(), "yoi-system");
    policies.patch("e2e-no-pods", &PatchParams::apply("yoi-e2e").force(), &Patch::Apply(&policy)).await?;
    for gateway in gateways {
        let reached = async || Ok(TcpStream::connect(gateway.at(RUNTIMES)).await.ok().map(drop));
        poll_until(TIMEOUT, "what enforces policies knows that this machine is admitted", reached).await?;
    }
    Ok(())
}

pub async fn gateway(ns: &TestNamespace) -> Result<Gateway> {
    Ok(gateways(ns).await?.remove(0))
}

impl Gateway {
    pub fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.ip, port)
    }

    /// Opens a TLS connection, without Nagle's algorithm, which would delay a body by 40 ms.
    pub async fn connect(&self, port: u16, pair: Option<&ClientCertificate>, http2: bool) -> Result<TlsStream<TcpStream>> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(self.ca.as_bytes()) {
            roots.add(certificate?)?;
        }
        let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let config = config.with_root_certificates(roots);
        let mut config = match pair {
            Some(pair) => config.with_client_auth_cert(
                CertificateDer::pem_slice_iter(pair.certificate.as_bytes()).collect::<Result<_, _>>()?,
                PrivateKeyDer::from_pem_slice(pair.key.as_bytes())?,
            )?,
            None => config.with_no_client_auth(),
        };
        config.alpn_protocols = vec![if http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
        let tcp = tokio::time::timeout(WITHIN, TcpStream::connect(self.at(port))).await??;
        tcp.set_nodelay(true)?;
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        Ok(tokio::time::timeout(WITHIN, connector.connect(ServerName::try_from(SERVER)?, tcp)).await??)
    }

    /// Sends one HTTP/1.1 request over a new connection.
    pub async fn ask(
        &self,
        port: u16,
        pair: Option<&ClientCertificate>,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<Answer> {
        let asking = async || {
            let stream = self.connect(port, pair, false).await?;
            let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
            let driver = tokio::spawn(connection);
            let mut request = Request::builder().method(method).uri(path);
            if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
                request = request.header("host", SERVER);
            }
            for (name, value) in headers {
                request = request.header(HeaderName::from_bytes(name.as_bytes())?, HeaderValue::from_bytes(value.as_bytes())?);
            }
            let response = sender.send_request(request.body(Full::new(Bytes::from(body.to_owned())))?).await?;
            let code = response.status().as_u16();
            let text = response.into_body().collect().await?.to_bytes();
            driver.abort();
            let body = serde_json::from_slice(&text).unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&text).into_owned()));
            anyhow::Ok(Answer { code, body })
        };
        let (answer, _) = poll_until(TIMEOUT, &format!("another answer to {method} {path} than to try again"), async || {
            match tokio::time::timeout(WITHIN, asking()).await {
                Ok(answer) => Ok(Some(answer?).filter(|answer| !try_again(answer.code, &answer.body.to_string()))),
                Err(_) => bail!("no answer to {method} {path} within {WITHIN:?}"),
            }
        })
        .await?;
        Ok(answer)
    }

    /// Sends a request as a runtime does: `POST` with a bearer token and a JSON body.
    pub async fn as_runtime(&self, token: &str, path: &str, body: &str) -> Result<Answer> {
        self.as_runtime_with(token, path, &[], body).await
    }

    pub async fn as_runtime_with(&self, token: &str, path: &str, more: &[(&str, &str)], body: &str) -> Result<Answer> {
        let bearer = format!("Bearer {token}");
        let headers = [&[("authorization", bearer.as_str()), ("content-type", "application/json")], more].concat();
        self.ask(RUNTIMES, None, "POST", path, &headers, body).await
    }

    /// Opens an HTTP/2 connection that stays open.
    pub async fn http2(&self, port: u16) -> Result<hyper::client::conn::http2::SendRequest<Full<Bytes>>> {
        let stream = self.connect(port, None, true).await?;
        let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }
}

/// Returns the name of the Pod that runs an agent now.
pub async fn pod_of(ns: &TestNamespace, agent: &str) -> Result<String> {
    let yoipod: YoiPod = ns.get(agent).await?;
    Ok(yoipod.status.and_then(|s| s.pod).context("the agent has no Pod")?.name)
}

/// Returns the token that the kubelet mounted into an agent's container.
pub async fn token_of(ns: &TestNamespace, agent: &str) -> Result<String> {
    let pod = pod_of(ns, agent).await?;
    let token = ns.kubectl(&["exec", &pod, "--", "cat", "/var/run/yoi/token"]).await?.exit_ok()?.out;
    ensure!(token.split('.').count() == 3, "that is no token");
    Ok(token.trim().to_owned())
}
