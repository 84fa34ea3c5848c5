//! What is known of the other end of a connection, put into the extensions of each of its requests.

use rustls::pki_types::CertificateDer;
use std::net::SocketAddr;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The client's certificate. Present only when the client showed one, and then it was verified in the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerCertificate {
    /// The subject's common name, if it has exactly one: a name that could be read in two ways is no name.
    pub common_name: Option<String>,
    /// The certificate as it came.
    pub der: CertificateDer<'static>,
}

/// Where the connection came from; behind a proxy, the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddress(pub SocketAddr);

impl PeerCertificate {
    pub(crate) fn of(der: &CertificateDer<'_>) -> Self {
        Self { common_name: common_name(der), der: der.clone().into_owned() }
    }
}

fn common_name(der: &[u8]) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let mut names = certificate.subject().iter_common_name();
    let name = names.next()?.as_str().ok()?.to_owned();
    names.next().is_none().then_some(name)
}
