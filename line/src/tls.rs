//! TLS configurations for both ends. The crypto provider is always ring, passed explicitly.

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::sync::Arc;

pub(crate) const HTTP1: &[u8] = b"http/1.1";
pub(crate) const HTTP2: &[u8] = b"h2";

/// Whether clients may send a certificate. The handshake refuses a client whose certificate does not verify.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClientAuth {
    /// The server requests no certificate.
    #[default]
    None,
    /// A client may send a certificate that one of these CAs signed. A client without a certificate is served as well.
    OptionalVerifiedBy {
        /// One or more CA certificates, PEM.
        ca_pem: String,
    },
}

/// Why a TLS configuration could not be built.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The text is not PEM.
    #[error("failed to read the {what} as PEM")]
    Pem {
        /// Which text, for people, as in "client CA".
        what: &'static str,
        /// The cause.
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    /// The PEM holds no certificate.
    #[error("failed to find a certificate in the {what}")]
    Empty {
        /// Which text, for people, as in "client CA".
        what: &'static str,
    },
    /// rustls does not accept a CA certificate.
    #[error("failed to take a certificate of the {what}")]
    Root {
        /// Which text, for people, as in "client CA".
        what: &'static str,
        /// The cause.
        #[source]
        source: rustls::Error,
    },
    /// The CA certificates give no verifier.
    #[error("failed to make a verifier of client certificates")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
    /// The name is neither a DNS name nor an IP address.
    #[error("failed to use the server name {name:?}")]
    ServerName {
        /// The name as configured.
        name: String,
        /// The cause.
        #[source]
        source: rustls::pki_types::InvalidDnsNameError,
    },
    /// Certificate and key do not belong together, or rustls does not accept them.
    #[error("failed to make a TLS configuration")]
    Config(#[from] rustls::Error),
}

/// A server's TLS configuration from its certificate chain (PEM, leaf first) and key (PEM). It offers HTTP/2 and HTTP/1.1 by ALPN.
///
/// To reload, send a new configuration into the watch that [`serve_tls`](crate::serve_tls) reads: it holds from the next handshake on.
/// TLS sessions are not resumed across configurations, so a client of a removed CA cannot come back by resumption.
///
/// # Errors
/// When a PEM holds no certificate or key, or when certificate and key do not belong together.
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
