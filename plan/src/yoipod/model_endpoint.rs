//! The model's endpoints in the manifest, and the variables of the runtime that hold their keys, headers and certificates.
//!
//! The operator cannot read Secrets, and does not watch users' ConfigMaps. The kubelet reads them, and names the one that is missing.

use k8s_openapi::api::core::v1::{ConfigMapKeySelector, EnvVar, EnvVarSource, SecretKeySelector};
use yoi_crds::pod::{ConfigMapKeyRef, Model, ModelEndpointSpec, SecretKeyRef};
use yoi_wire::identity::env;
use yoi_wire::manifest::{self as wire, SecretKeyName};

use crate::duration;

/// The model as the runtime reads it.
pub(super) fn wire_model(model: &Model) -> wire::ModelEndpoint {
    let fallbacks = (1..).zip(&model.fallbacks).map(|(place, fallback)| endpoint(place, fallback)).collect();
    wire::ModelEndpoint { fallbacks, ..endpoint(0, &model.endpoint) }
}

/// `place` is 0 for the first endpoint, and counts the fallbacks from 1.
fn endpoint(place: usize, of: &ModelEndpointSpec) -> wire::ModelEndpoint {
    let ModelEndpointSpec {
        provider,
        name,
        base_url,
        auth_secret_ref,
        api,
        max_output_tokens,
        effort,
        timeout,
        patience,
        ca_ref,
        headers,
        proxy_url,
        window,
    } = of;
    let seconds = |text: &Option<String>| text.as_deref().and_then(|text| duration::parse(text).ok()).map(|time| time.as_secs());
    let header = |(at, header): (usize, &yoi_crds::pod::ModelHeaderSpec)| wire::ModelHeader {
        name: header.name.clone(),
        value: header.value.clone(),
        value_env: header.value_from.is_some().then(|| header_variable(place, at)),
    };
    wire::ModelEndpoint {
        provider: *provider,
        name: name.clone(),
        base_url: base_url.clone(),
        key_secret: auth_secret_ref.as_ref().map(|r| SecretKeyName { secret: r.name.clone(), key: r.key.clone() }),
        key_env: auth_secret_ref.as_ref().filter(|_| place > 0).map(|_| key_variable(place)),
        api: *api,
        max_output_tokens: max_output_tokens.map(i32::unsigned_abs),
        effort: effort.clone(),
        timeout_seconds: seconds(timeout).map(|seconds| u32::try_from(seconds).unwrap_or(u32::MAX)),
        patience_seconds: seconds(patience),
        ca: None,
        ca_env: ca_ref.as_ref().map(|_| ca_variable(place)),
        headers: headers.iter().enumerate().map(header).collect(),
        proxy_url: proxy_url.clone(),
        window_tokens: window.map(i64::unsigned_abs),
        fallbacks: Vec::new(),
    }
}

/// The variables that the manifest names. The container does not start while the Secret or ConfigMap of one of them is missing.
pub(super) fn variables(model: &Model) -> Vec<EnvVar> {
    let endpoints = std::iter::once(&model.endpoint).chain(&model.fallbacks).enumerate();
    endpoints.flat_map(|(place, endpoint)| of_endpoint(place, endpoint)).collect()
}

fn of_endpoint(place: usize, endpoint: &ModelEndpointSpec) -> Vec<EnvVar> {
    let key = endpoint.auth_secret_ref.iter().map(|secret| from_secret(key_variable(place), secret));
    let ca = endpoint.ca_ref.iter().map(|map| from_config_map(ca_variable(place), map));
    let headers = endpoint.headers.iter().enumerate().filter_map(|(at, header)| {
        let secret = header.value_from.as_ref()?.secret_key_ref.as_ref()?;
        Some(from_secret(header_variable(place, at), secret))
    });
    key.chain(ca).chain(headers).collect()
}

fn key_variable(place: usize) -> String {
    if place == 0 { env::MODEL_API_KEY.to_owned() } else { format!("{}_{place}", env::MODEL_API_KEY) }
}

fn ca_variable(place: usize) -> String {
    format!("{}_{place}", env::MODEL_CA)
}

fn header_variable(place: usize, at: usize) -> String {
    format!("{}_{place}_{at}", env::MODEL_HEADER)
}

fn from_secret(variable: String, secret: &SecretKeyRef) -> EnvVar {
    let selector = SecretKeySelector { name: secret.name.clone(), key: secret.key.clone(), optional: None };
    let source = EnvVarSource { secret_key_ref: Some(selector), ..EnvVarSource::default() };
    EnvVar { name: variable, value: None, value_from: Some(source) }
}

fn from_config_map(variable: String, map: &ConfigMapKeyRef) -> EnvVar {
    let selector = ConfigMapKeySelector { name: map.name.clone(), key: map.key.clone(), optional: None };
    let source = EnvVarSource { config_map_key_ref: Some(selector), ..EnvVarSource::default() };
    EnvVar { name: variable, value: None, value_from: Some(source) }
}

/// What a missing value of this variable is for, for a sentence of the condition.
pub(super) fn purpose(variable: &str) -> String {
    match variable {
        env::MODEL_API_KEY => "with the model's key".to_owned(),
        _ if variable.starts_with(env::MODEL_API_KEY) => "with the key of a fallback of the model".to_owned(),
        _ if variable.starts_with(env::MODEL_HEADER) => "with the value of a header of the model".to_owned(),
        _ if variable.starts_with(env::MODEL_CA) => "with certificates of the model's endpoint (caRef)".to_owned(),
        env::PRESET => "with the preset (presetFrom)".to_owned(),
        env::CREDENTIAL => "with the program's login (credentialsSecretRef)".to_owned(),
        _ => format!("for variable {variable} of spec.pod.env"),
    }
}
