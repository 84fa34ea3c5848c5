//! Two authorities and the certificates of every part, made once per instance; the certificates of a kubelet, made once per node. What an instance that is there
//! lacks, because the part came later, is made when it is started again.

use crate::instance::{Instance, Node};
use anyhow::{Context, Result};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Who a certificate speaks for, and in which groups.
struct Identity {
    file: &'static str,
    name: String,
    group: Option<&'static str>,
    /// Empty for a client.
    addresses: Vec<String>,
}

const CLUSTER_AUTHORITY: &str = "yoi local cluster";

/// The first node's are made before those of any other, which the same authority signs.
pub fn make(node: Node) -> Result<()> {
    let folder = node.folder().join("pki");
    let complete = folder.join("complete").exists();
    if !complete {
        fs::create_dir_all(&folder)?;
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700))?;
        if node.is_first() {
            make_authorities(&folder)?;
        }
    }
    let key = fs::read_to_string(node.instance.path("pki/ca.key"))?;
    let cluster = Issuer::new(authority_params(CLUSTER_AUTHORITY), KeyPair::from_pem(&key)?);
    let of_instance = if node.is_first() { identities(node.instance) } else { vec![] };
    for identity in of_instance.into_iter().chain(node_identities(node)) {
        // The key is written after its certificate.
        if !complete || !folder.join(format!("{}.key", identity.file)).exists() {
            issue(&folder, &cluster, &identity)?;
        }
    }
    if complete { Ok(()) } else { write(&folder, "complete", "") }
}

fn make_authorities(folder: &Path) -> Result<()> {
    authority(folder, "ca", CLUSTER_AUTHORITY)?;
    let front = authority(folder, "front-proxy-ca", "yoi local front proxy")?;
    issue(folder, &front, &client("front-proxy-client", "front-proxy-client", None))?;
    let accounts = KeyPair::generate()?;
    write(folder, "service-accounts.key", &accounts.serialize_pem())?;
    write(folder, "service-accounts.pub", &accounts.public_key_pem())
}

fn identities(instance: Instance) -> Vec<Identity> {
    let own =
        ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost", "127.0.0.1"];
    let mut addresses: Vec<String> = own.map(str::to_owned).to_vec();
    addresses.extend([Node::first(instance).address(), instance.api_service_address()]);
    vec![
        Identity { file: "apiserver", name: "kube-apiserver".into(), group: None, addresses },
        client("apiserver-kubelet", "kube-apiserver-kubelet-client", Some("system:masters")),
        client("admin", "yoi-admin", Some("system:masters")),
        client("controller-manager", "system:kube-controller-manager", None),
        client("scheduler", "system:kube-scheduler", None),
        client("proxy", "system:kube-proxy", None),
        client("netpol", "yoi:netpol", None),
    ]
}

fn node_identities(node: Node) -> [Identity; 2] {
    let name = node.name();
    [
        Identity { file: "kubelet-server", name: name.clone(), group: None, addresses: vec![name.clone(), node.address()] },
        client("kubelet", &format!("system:node:{name}"), Some("system:nodes")),
    ]
}

fn client(file: &'static str, name: &str, group: Option<&'static str>) -> Identity {
    Identity { file, name: name.to_owned(), group, addresses: vec![] }
}

fn authority(folder: &Path, file: &str, name: &str) -> Result<Issuer<'static, KeyPair>> {
    let params = authority_params(name);
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key).context("failed to sign an authority")?;
    write(folder, &format!("{file}.crt"), &certificate.pem())?;
    write(folder, &format!("{file}.key"), &key.serialize_pem())?;
    Ok(Issuer::new(params, key))
}

fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    lifetime(&mut params);
    params
}

fn issue(folder: &Path, issuer: &Issuer<'static, KeyPair>, identity: &Identity) -> Result<()> {
    let mut params = CertificateParams::new(identity.addresses.clone())?;
    params.distinguished_name.push(DnType::CommonName, identity.name.as_str());
    if let Some(group) = identity.group {
        params.distinguished_name.push(DnType::OrganizationName, group);
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    let server = !identity.addresses.is_empty();
    params.extended_key_usages = vec![if server { ExtendedKeyUsagePurpose::ServerAuth } else { ExtendedKeyUsagePurpose::ClientAuth }];
    params.use_authority_key_identifier_extension = true;
    lifetime(&mut params);
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, issuer).with_context(|| format!("failed to sign the certificate {}", identity.file))?;
    write(folder, &format!("{}.crt", identity.file), &certificate.pem())?;
    write(folder, &format!("{}.key", identity.file), &key.serialize_pem())
}

fn lifetime(params: &mut CertificateParams) {
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2050, 1, 1);
}

fn write(folder: &Path, file: &str, text: &str) -> Result<()> {
    let path = folder.join(file);
    fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))?;
    Ok(fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?)
}
