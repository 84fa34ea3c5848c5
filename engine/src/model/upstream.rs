//! What all requests to one endpoint have in common: client, address, headers, and what must be shown nowhere.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Url, redirect};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use yoi_wire::manifest::{ModelEndpoint, ModelHeader};

use super::failure::CallContext;
use super::format::WireFormat;
use super::secrets::{ModelSecrets, Redaction};
use super::{CONNECT_TIMEOUT, ModelError, ModelTimeouts};

const MAX_REDIRECTS: usize = 5;

/// An endpoint that can be called.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub http: reqwest::Client,
    /// The URL up to and including the version segment.
    pub base: Url,
    /// Key, version and the user's headers.
    pub headers: HeaderMap,
    pub format: WireFormat,
    pub context: CallContext,
    pub redaction: Redaction,
}

impl Upstream {
    pub fn new(endpoint: &ModelEndpoint, secrets: &ModelSecrets, timeouts: ModelTimeouts) -> Result<Self, ModelError> {
        let format = WireFormat::of(endpoint)
            .ok_or_else(|| ModelError::Endpoint("the model's provider or api is of another version of Yoi".to_owned()))?;
        let base = endpoint.base_url.as_deref().unwrap_or(format.default_base());
        let base = Url::parse(base).map_err(|_| ModelError::Endpoint("the model's baseUrl is no URL".to_owned()))?;
        let key = secrets.key.as_ref().map(super::ApiKey::expose);
        let user_headers = user_headers(&endpoint.headers, secrets)?;
        let mut headers =
            format.headers(key).map_err(|_| ModelError::Endpoint("the model's key has characters that no header takes".to_owned()))?;
        for (name, value) in &user_headers {
            headers.insert(name, value.clone());
        }
        let proxy = endpoint.proxy_url.as_deref().map(Url::parse).transpose();
        let proxy = proxy.map_err(|_| ModelError::Endpoint("the model's proxyUrl is no URL".to_owned()))?;
        let values = user_headers.iter().filter_map(|(_, value)| Some(value.to_str().ok()?.to_owned()));
        let redaction = Redaction::new(key, values, proxy.as_ref().and_then(Url::password));
        let context = CallContext {
            endpoint: host_and_port(&base),
            proxy: proxy.as_ref().map(host_and_port),
            has_secret: takes_secret(endpoint, secrets),
            timeouts: timeouts.for_endpoint(endpoint),
        };
        let mut http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls_config(endpoint.ca.as_deref())?)
            .connect_timeout(CONNECT_TIMEOUT)
            // Elsewhere, a redirect would take the key with it.
            .redirect(redirect::Policy::custom(|attempt| {
                let origin = attempt.previous().first().map(Url::origin);
                if attempt.previous().len() <= MAX_REDIRECTS && origin == Some(attempt.url().origin()) {
                    attempt.follow()
                } else {
                    attempt.stop()
                }
            }));
        if let Some(proxy) = &proxy {
            http = http.proxy(reqwest::Proxy::all(proxy.clone())?);
        }
        Ok(Self { http: http.build()?, base, headers, format, context, redaction })
    }
}

/// Whether a Secret holds the endpoint's key or one of its headers, even an empty one.
pub(super) fn takes_secret(endpoint: &ModelEndpoint, secrets: &ModelSecrets) -> bool {
    secrets.key.is_some() || endpoint.key_secret.is_some() || endpoint.headers.iter().any(|header| header.value_env.is_some())
}

fn user_headers(headers: &[ModelHeader], secrets: &ModelSecrets) -> Result<Vec<(HeaderName, HeaderValue)>, ModelError> {
    let invalid =
        |header: &ModelHeader, what: &str| ModelError::Endpoint(format!("the header {:?} in the model's headers {what}", header.name));
    let mut all = Vec::new();
    for header in headers {
        let value = match (&header.value, &header.value_env) {
            (_, Some(variable)) => {
                secrets.headers.get(variable).map(super::ApiKey::expose).ok_or_else(|| invalid(header, "has no value"))?
            }
            (Some(value), None) => value,
            (None, None) => "",
        };
        let name = HeaderName::from_bytes(header.name.as_bytes()).map_err(|_| invalid(header, "has no valid name"))?;
        let mut value = HeaderValue::from_str(value).map_err(|_| invalid(header, "has a value that no header takes"))?;
        value.set_sensitive(true);
        all.push((name, value));
    }
    Ok(all)
}

/// Host and port of a URL, for messages. A user name or password in the URL is left out.
fn host_and_port(url: &Url) -> String {
    match (url.host_str(), url.port()) {
        (Some(host), Some(port)) => format!("{host}:{port}"),
        (Some(host), None) => host.to_owned(),
        (None, _) => "(the model's baseUrl has no host)".to_owned(),
    }
}

/// Trusts public roots, because users' images may have none, and the user's.
fn tls_config(ca: Option<&str>) -> Result<rustls::ClientConfig, ModelError> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().cloned());
    let (mut found, invalid) = (0, || ModelError::Endpoint("the model's caRef names no certificate in PEM".to_owned()));
    for certificate in CertificateDer::pem_slice_iter(ca.unwrap_or_default().as_bytes()) {
        roots.add(certificate.map_err(|_| invalid())?).map_err(|_| invalid())?;
        found += 1;
    }
    if ca.is_some() && found == 0 {
        return Err(invalid());
    }
    Ok(rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

impl ModelTimeouts {
    /// What `spec.model.timeout` makes of them.
    fn for_endpoint(self, endpoint: &ModelEndpoint) -> Self {
        let Some(silence) = endpoint.timeout_seconds.map(|seconds| Duration::from_secs(seconds.into())) else { return self };
        Self { head: silence, idle: silence, total: self.total.max(silence) }
    }
}
