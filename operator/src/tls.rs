//! The gateway's certificate and the CA that signs it: one Secret in the operator's own namespace, and the CA in the APIService.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, date_time_ymd};
use serde_json::json;
use tracing::info;
use yoi_crds::name::field_manager;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to make a certificate for the gateway")]
    Make(#[from] rcgen::Error),
    #[error("failed to make a certificate for the gateway: {0} is no date")]
    Date(jiff::Timestamp),
    #[error("failed to {operation} Secret {name}")]
    Secret { operation: &'static str, name: String, source: Box<kube::Error> },
    #[error("failed to {operation} APIService {name}")]
    ApiService { operation: &'static str, name: String, source: Box<kube::Error> },
}

const CA_DAYS: i64 = 3650;
const SERVING_DAYS: i64 = 90;
/// A certificate is renewed when less than this is left.
const RENEW_DAYS: i64 = 30;
/// Annotations with the end of each certificate, RFC 3339, so that no certificate needs to be parsed.
const CA_UNTIL: &str = "yoi.dev/ca-not-after";
const SERVING_UNTIL: &str = "yoi.dev/serving-not-after";
const NAMES: &str = "yoi.dev/names";

/// CA and serving certificate with their keys, in PEM, and when each ends.
#[derive(Clone)]
pub struct Bundle {
    ca: String,
    ca_key: String,
    cert: String,
    key: String,
    ca_until: jiff::Timestamp,
    serving_until: jiff::Timestamp,
    names: Vec<String>,
}

fn ymd(at: jiff::Timestamp) -> Result<(i32, u8, u8), Error> {
    let date = at.to_zoned(jiff::tz::TimeZone::UTC).date();
    match (u8::try_from(date.month()), u8::try_from(date.day())) {
        (Ok(month), Ok(day)) => Ok((i32::from(date.year()), month, day)),
        _ => Err(Error::Date(at)),
    }
}

fn add_days(now: jiff::Timestamp, days: i64) -> Result<jiff::Timestamp, Error> {
    now.checked_add(jiff::SignedDuration::from_hours(24 * days)).map_err(|_| Error::Date(now))
}

/// Makes the certificate valid for `days` from yesterday, since clocks differ. Returns the end.
fn set_validity(params: &mut CertificateParams, now: jiff::Timestamp, days: i64) -> Result<jiff::Timestamp, Error> {
    let until = add_days(now, days)?;
    let (y, m, d) = ymd(add_days(now, -1)?)?;
    params.not_before = date_time_ymd(y, m, d);
    let (y, m, d) = ymd(until)?;
    params.not_after = date_time_ymd(y, m, d);
    // The certificate ends at the start of a day: the end that is stored must not be later.
    add_days(until, -1)
}

fn ca_params() -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, "yoi-gateway-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

impl Bundle {
    pub fn generate(names: &[String], now: jiff::Timestamp) -> Result<Self, Error> {
        let key = KeyPair::generate()?;
        let mut params = ca_params()?;
        let ca_until = set_validity(&mut params, now, CA_DAYS)?;
        let ca = params.self_signed(&key)?.pem();
        Self::sign(ca, key.serialize_pem(), ca_until, names, now)
    }

    /// A new serving certificate of the same CA, so that agents with the CA still connect.
    fn sign(ca: String, ca_key: String, ca_until: jiff::Timestamp, names: &[String], now: jiff::Timestamp) -> Result<Self, Error> {
        let issuer = Issuer::new(ca_params()?, KeyPair::from_pem(&ca_key)?);
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(names.to_vec())?;
        params.distinguished_name.push(DnType::CommonName, names.first().map_or("yoi-gateway", String::as_str));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let serving_until = set_validity(&mut params, now, SERVING_DAYS)?;
        let cert = params.signed_by(&key, &issuer)?.pem();
        Ok(Bundle { ca, ca_key, cert, key: key.serialize_pem(), ca_until, serving_until, names: names.to_vec() })
    }

    /// Renews what ends soon, and returns whether anything was renewed.
    fn renew(self, names: &[String], now: jiff::Timestamp) -> Result<(Self, bool), Error> {
        let soon = add_days(now, RENEW_DAYS)?;
        if self.ca_until < soon {
            return Ok((Self::generate(names, now)?, true));
        }
        if self.serving_until < soon || self.names != names {
            return Ok((Self::sign(self.ca, self.ca_key, self.ca_until, names, now)?, true));
        }
        Ok((self, false))
    }

    fn from_secret(secret: &Secret) -> Option<Self> {
        let data = secret.data.as_ref()?;
        let text = |key: &str| data.get(key).and_then(|b| String::from_utf8(b.0.clone()).ok()).filter(|t| !t.is_empty());
        let note = |key: &str| secret.metadata.annotations.as_ref()?.get(key).cloned();
        Some(Bundle {
            ca: text("ca.crt")?,
            ca_key: text("ca.key")?,
            cert: text("tls.crt")?,
            key: text("tls.key")?,
            ca_until: note(CA_UNTIL)?.parse().ok()?,
            serving_until: note(SERVING_UNTIL)?.parse().ok()?,
            names: note(NAMES)?.split(',').map(str::to_owned).collect(),
        })
    }

    fn to_secret(&self, name: &str, resource_version: Option<String>) -> Secret {
        let notes = [(CA_UNTIL, self.ca_until.to_string()), (SERVING_UNTIL, self.serving_until.to_string()), (NAMES, self.names.join(","))];
        let data = [("ca.crt", &self.ca), ("ca.key", &self.ca_key), ("tls.crt", &self.cert), ("tls.key", &self.key)];
        Secret {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                annotations: Some(notes.map(|(k, v)| (k.to_owned(), v)).into()),
                labels: Some(BTreeMap::from([("app.kubernetes.io/managed-by".to_owned(), field_manager::OPERATOR.to_owned())])),
                resource_version,
                ..ObjectMeta::default()
            },
            type_: Some("Opaque".to_owned()),
            data: Some(data.map(|(k, v)| (k.to_owned(), ByteString(v.clone().into_bytes()))).into()),
            ..Secret::default()
        }
    }
}

/// Creates or renews the Secret with the gateway's certificate if needed. Returns the CA in PEM.
pub async fn ensure(client: &Client, namespace: &str, secret: &str, names: &[String], now: jiff::Timestamp) -> Result<String, Error> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let failed =
        |operation: &'static str| move |source: kube::Error| Error::Secret { operation, name: secret.to_owned(), source: Box::new(source) };
    let params = PostParams { field_manager: Some(field_manager::OPERATOR.to_owned()), ..PostParams::default() };
    let Some(existing) = api.get_opt(secret).await.map_err(failed("read"))? else {
        let bundle = Bundle::generate(names, now)?;
        api.create(&params, &bundle.to_secret(secret, None)).await.map_err(failed("create"))?;
        info!(secret, "certificate made");
        return Ok(bundle.ca);
    };
    let (bundle, changed) = match Bundle::from_secret(&existing) {
        Some(bundle) => bundle.renew(names, now)?,
        None => (Bundle::generate(names, now)?, true),
    };
    if changed {
        api.replace(secret, &params, &bundle.to_secret(secret, existing.metadata.resource_version)).await.map_err(failed("replace"))?;
        info!(secret, "certificate renewed");
    }
    Ok(bundle.ca)
}

/// Sets the CA in the APIService. Does nothing if the chart installed no APIService.
pub async fn set_ca_bundle(client: &Client, name: &str, ca: &str) -> Result<(), Error> {
    let api: Api<APIService> = Api::all(client.clone());
    let failed = |operation: &'static str| {
        move |source: kube::Error| Error::ApiService { operation, name: name.to_owned(), source: Box::new(source) }
    };
    let Some(existing) = api.get_opt(name).await.map_err(failed("read"))? else { return Ok(()) };
    let bundle = ByteString(ca.as_bytes().to_vec());
    if existing.spec.as_ref().and_then(|s| s.ca_bundle.as_ref()) == Some(&bundle) {
        return Ok(());
    }
    let params = PatchParams { field_manager: Some(field_manager::OPERATOR.to_owned()), ..PatchParams::default() };
    let patch = json!({"spec": {"caBundle": bundle, "insecureSkipTLSVerify": null}});
    api.patch(name, &params, &Patch::Merge(&patch)).await.map_err(failed("patch"))?;
    info!(apiservice = name, "CA set");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> jiff::Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_certificate_is_renewed_by_the_same_ca_before_it_ends() {
        let names = vec!["yoi-gateway.yoi-system.svc".to_owned()];
        let start = at("2026-01-01T00:00:00Z");
        let first = Bundle::generate(&names, start).unwrap();
        let read = Bundle::from_secret(&first.to_secret("s", None)).expect("what was written can be read");
        let (same, changed) = read.clone().renew(&names, at("2026-02-01T00:00:00Z")).unwrap();
        assert!(!changed && same.cert == first.cert);
        let (next, changed) = read.clone().renew(&names, at("2026-03-15T00:00:00Z")).unwrap();
        assert!(changed && next.cert != first.cert && next.ca == first.ca);
        let (named, changed) = read.clone().renew(&["other".to_owned()], start).unwrap();
        assert!(changed && named.ca == first.ca);
        let (anew, changed) = read.renew(&names, at("2035-12-20T00:00:00Z")).unwrap();
        assert!(changed && anew.ca != first.ca);
    }
}
