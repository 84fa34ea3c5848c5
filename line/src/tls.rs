//! TLS for both ends, always with ring and always said so.

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::sync::Arc;

pub(crate) const HTTP1: &[u8] = b"http/1.1";
pub(crate) const HTTP2: &[u8] = b"h2";

/// Whether clients may show a certificate. A client that shows one which does not verify is refused in the handshake.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClientAuth {
    /// None is asked for.
    #[default]
    None,
    /// A client may show one, verified by one of these CAs (PEM, one or more); a client without any is served all the same.
    OptionalVerifiedBy { ca_pem: String },
}

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("failed to read the {what} as PEM")]
    Pem {
        what: &'static str,
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    #[error("failed to find a certificate in the {what}")]
    Empty { what: &'static str },
    #[error("failed to take a certificate of the {what}")]
    Root {
        what: &'static str,
        #[source]
        source: rustls::Error,
    },
    #[error("failed to make a verifier of client certificates")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
    #[error("failed to use the server name {name:?}")]
    ServerName {
        name: String,
        #[source]
        source: rustls::pki_types::InvalidDnsNameError,
    },
    #[error("failed to make a TLS configuration")]
    Config(#[from] rustls::Error),
}

/// A server's TLS: its certificate chain (leaf first) and key as PEM, and what it asks of clients. Offers HTTP/2 and HTTP/1.1 by ALPN.
///
/// To reload, make a new one and send it into the watch that [`serve_tls`](crate::serve_tls) reads: it holds from the next handshake on.
/// Sessions are not resumed across configurations, so a CA that was taken away lets nobody back in.
pub fn tls_server_config(cert_pem: &str, key_pem: &str, client_auth: &ClientAuth) -> Result<Arc<ServerConfig>, TlsError> {
    let chain = certificates(cert_pem, "server certificate")?;
    let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).map_err(|source| TlsError::Pem { what: "server key", source })?;
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let builder = match client_auth {
        ClientAuth::None => builder.with_no_client_auth(),
        ClientAuth::OptionalVerifiedBy { ca_pem } => {
            let roots = Arc::new(roots(ca_pem, "client CA")?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).allow_unauthenticated().build()?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_single_cert(chain, key)?;
    config.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec()];
    Ok(Arc::new(config))
}

pub(crate) fn client_config(ca_pem: &str, alpn: &[u8]) -> Result<Arc<ClientConfig>, TlsError> {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots(ca_pem, "CA")?)
        .with_no_client_auth();
    config.alpn_protocols = vec![alpn.to_vec()];
    Ok(Arc::new(config))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn roots(pem: &str, what: &'static str) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem, what)? {
        roots.add(certificate).map_err(|source| TlsError::Root { what, source })?;
    }
    Ok(roots)
}

fn certificates(pem: &str, what: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Vec<_> =
        CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().map_err(|source| TlsError::Pem { what, source })?;
    if found.is_empty() { Err(TlsError::Empty { what }) } else { Ok(found) }
}
