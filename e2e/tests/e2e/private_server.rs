//! A git server of a test whose repository is private: https with a user, a token and a CA of its own, by lighttpd, and ssh with a key, by sshd.

use anyhow::{Context, Result};
use base64::Engine as _;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use yoi_e2e::program;
use yoi_e2e::test_namespace::TestNamespace;

const USER: &str = "reader";
/// The repository in the Pod, and so its path by ssh.
const REPOSITORY: &str = "/srv/git/project.git";

/// The names of Secrets and the ConfigMap that projects refer to.
pub const TOKEN: &str = "clone-token";
pub const KEY: &str = "clone-key";
const CA: &str = "private-ca";

pub struct PrivateServer<'a> {
    ns: &'a TestNamespace,
    host: String,
    token: String,
    /// The private key of whom sshd lets in.
    key: String,
    known_hosts: String,
}

impl<'a> PrivateServer<'a> {
    /// Creates the server, the Secrets with which it can be asked, and the ConfigMap with its CA.
    pub async fn create(ns: &'a TestNamespace) -> Result<Self> {
        let keys = tempfile::tempdir()?;
        for name in ["host", "client"] {
            ssh_key(&keys.path().join(name).display().to_string()).await?;
        }
        let read = |name: &str| std::fs::read_to_string(keys.path().join(name)).with_context(|| format!("ssh-keygen made no {name}"));
        let (host, token) = (format!("private-git.{}.svc", ns.name), format!("canary-token-{}", ns.name));
        let known_hosts = format!("{host} {}", read("host.pub")?);
        let server = PrivateServer { ns, host, token, key: read("client")?, known_hosts };
        let Certificate { ca, certificate, key } = Certificate::issue(&server.host)?;
        let parts = json!({
            "tls.crt": certificate, "tls.key": key, "users": format!("{USER}:{}\n", server.token),
            "ssh_host_key": read("host")?, "authorized_keys": read("client.pub")?,
        });
        secret(ns, "private-git", parts).await?;
        let ca = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": CA }, "data": { "ca.crt": ca } });
        ns.apply(&ca.to_string()).await?;
        server.create_secret_with_token(TOKEN, &server.token).await?;
        server.create_secret_with_key(KEY, &server.key).await?;
        ns.apply(include_str!("private_server.yaml")).await?;
        ns.wait_pod_ready("private-git").await?;
        Ok(server)
    }

    /// Creates a Secret with the user and this token.
    pub async fn create_secret_with_token(&self, name: &str, token: &str) -> Result<()> {
        secret(self.ns, name, json!({ "username": USER, "password": token })).await
    }

    /// Creates a Secret with a key that the server does not know, and returns that key.
    pub async fn create_secret_with_another_key(&self, name: &str) -> Result<String> {
        let keys = tempfile::tempdir()?;
        let path = keys.path().join("other");
        ssh_key(&path.display().to_string()).await?;
        let key = std::fs::read_to_string(path)?;
        self.create_secret_with_key(name, &key).await?;
        Ok(key)
    }

    async fn create_secret_with_key(&self, name: &str, key: &str) -> Result<()> {
        secret(self.ns, name, json!({ "ssh-privatekey": key, "known_hosts": self.known_hosts })).await
    }

    /// The source of a project that is fetched over https with the user and the token of a Secret.
    pub fn by_token(&self, secret: &str) -> Value {
        let ca = json!({ "name": CA, "key": "ca.crt" });
        json!({ "git": { "url": self.https_url(), "credentialsSecretRef": { "name": secret }, "caRef": ca } })
    }

    /// The source of a project that is fetched over ssh with the key of a Secret.
    pub fn by_key(&self, secret: &str) -> Value {
        json!({ "git": { "url": self.ssh_url(), "credentialsSecretRef": { "name": secret } } })
    }

    pub fn https_url(&self) -> String {
        format!("https://{}/project.git", self.host)
    }

    pub fn ssh_url(&self) -> String {
        format!("git@{}:{REPOSITORY}", self.host)
    }

    /// What nobody but the Pods that fetch and push may have, one on a line: the token, how it is sent, and the key.
    pub fn canaries(&self) -> Vec<String> {
        [token_canaries(&self.token), key_canaries(&self.key)].concat()
    }

    /// The commit of a branch, or nothing.
    pub async fn branch(&self, name: &str) -> Result<String> {
        let command = ["exec", "private-git", "-c", "https", "--", "git", "-C", REPOSITORY, "for-each-ref", "--format=%(objectname)"];
        let found = self.ns.kubectl(&[&command[..], &[&format!("refs/heads/{name}")]].concat()).await?.exit_ok()?;
        Ok(found.out.trim().to_owned())
    }
}

/// The token, and how it is sent.
pub fn token_canaries(token: &str) -> Vec<String> {
    vec![token.to_owned(), base64::engine::general_purpose::STANDARD.encode(format!("{USER}:{token}"))]
}

/// The lines of a private key between its first and its last.
pub fn key_canaries(key: &str) -> Vec<String> {
    key.lines().filter(|line| !line.is_empty() && !line.starts_with('-')).map(str::to_owned).collect()
}

async fn ssh_key(path: &str) -> Result<()> {
    program::run("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", path], &[], None).await?.exit_ok().map(drop)
}

async fn secret(ns: &TestNamespace, name: &str, data: Value) -> Result<()> {
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "stringData": data });
    ns.apply(&secret.to_string()).await
}

/// What an https server shows, and what its clients must trust; in PEM.
struct Certificate {
    ca: String,
    certificate: String,
    key: String,
}

impl Certificate {
    fn issue(host: &str) -> Result<Self> {
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.distinguished_name.push(DnType::CommonName, "private CA of a test");
        let authority_key = KeyPair::generate()?;
        let ca = authority.self_signed(&authority_key)?.pem();
        let key = KeyPair::generate()?;
        let issued = CertificateParams::new(vec![host.to_owned()])?.signed_by(&key, &Issuer::new(authority, authority_key))?;
        Ok(Certificate { ca, certificate: issued.pem(), key: key.serialize_pem() })
    }
}
