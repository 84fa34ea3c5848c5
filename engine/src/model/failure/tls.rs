//! Failures of TLS, in words.

use std::error::Error;
use std::io;

/// The TLS error in a cause. rustls wraps its errors in I/O errors, whose `source` skips them.
pub(super) fn error_in<'a>(cause: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    if let Some(error) = cause.downcast_ref() {
        return Some(error);
    }
    error_in(cause.downcast_ref::<io::Error>()?.get_ref()?)
}

pub(super) fn summary(endpoint: &str, error: &rustls::Error) -> String {
    use rustls::CertificateError as Certificate;
    let why = match error {
        rustls::Error::InvalidCertificate(Certificate::UnknownIssuer) => {
            "its certificate is not signed by a public CA, nor by one that the model's caRef names"
        }
        rustls::Error::InvalidCertificate(Certificate::Expired | Certificate::ExpiredContext { .. }) => "its certificate has expired",
        rustls::Error::InvalidCertificate(Certificate::NotValidForName | Certificate::NotValidForNameContext { .. }) => {
            "its certificate is for another name"
        }
        rustls::Error::InvalidCertificate(_) => "its certificate is not valid",
        _ => "it does not agree on TLS",
    };
    let what = match error {
        rustls::Error::InvalidCertificate(Certificate::UnknownIssuer) => "name the ConfigMap with its CA in the model's caRef",
        rustls::Error::InvalidCertificate(Certificate::Expired | Certificate::ExpiredContext { .. }) => "renew it at the endpoint",
        _ => "check the model's baseUrl",
    };
    format!("the model endpoint {endpoint} is not trusted: {why}; {what}")
}
