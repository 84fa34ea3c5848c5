//! What the server knows about a client. Each request carries it in its extensions.

use rustls::pki_types::CertificateDer;
use std::net::SocketAddr;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The client's certificate. A request carries it only when the client sent one, and the handshake has verified it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerCertificate {
    /// The subject's common name. `None` when the subject has none or several: several could be read in two ways.
    pub common_name: Option<String>,
    /// The certificate, DER.
    pub der: CertificateDer<'static>,
}

/// The remote address of the connection. Behind a proxy it is the proxy's.
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
