//! The aggregated API: whether it is registered, has a valid CA, answers, and is fast.

use std::time::Duration;

use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use x509_parser::pem::Pem;

use super::super::API_SERVICE;
use super::super::finding::Finding;
use super::super::observed::{ObservedCluster, display_name};
use super::or_ok;

const SLOW: Duration = Duration::from_secs(2);
/// The operator makes a new CA this many days before the old one ends.
const RENEW_DAYS: i64 = 30;

pub fn check(observed: &ObservedCluster) -> Vec<Finding> {
    let mut found = Vec::new();
    if observed.api_services.is_ok() {
        match observed.api_service() {
            None => {
                let what = "it is missing: log, diff and send do not work";
                found.push(Finding::error(format!("APIService {API_SERVICE}"), what, observed.reapply_command("yoi-operator")));
            }
            Some(service) => found.extend(registration_findings(observed, service)),
        }
    }
    if found.is_empty() {
        found.extend(call_finding(observed));
    }
    let complete = observed.api_services.is_ok() && observed.gateway_slices.is_ok() && observed.api_call.is_ok();
    let took = observed.api_call.as_ref().map(|c| c.took.as_millis()).unwrap_or_default();
    let ready = ready_endpoints(observed).unwrap_or_default();
    or_ok(found, complete, API_SERVICE, || format!("it answered in {took} ms; {ready} gateways stand behind it"))
}

/// Returns what is wrong with the APIService: its CA, or that the API server cannot reach the gateway.
fn registration_findings(observed: &ObservedCluster, service: &APIService) -> Vec<Finding> {
    let mut found: Vec<Finding> = ca_finding(observed, service).into_iter().collect();
    let available = service.status.iter().flat_map(|s| s.conditions.iter().flatten()).find(|c| c.type_ == "Available");
    if let Some(c) = available.filter(|c| c.status != "True") {
        let reason = c.reason.as_deref().unwrap_or("Unknown");
        let no_gateway = if ready_endpoints(observed) == Some(0) { "no gateway is ready; " } else { "" };
        let what = format!("the API server cannot reach the gateway ({reason}): {no_gateway}{}", c.message.as_deref().unwrap_or_default());
        let command = if what.contains("x509") { operator_rollout_command(observed) } else { observed.fix_gateway_command() };
        found.push(Finding::error(display_name(service), what, command));
    }
    found
}

/// Returns how many endpoints of the gateway's Service are ready.
fn ready_endpoints(observed: &ObservedCluster) -> Option<usize> {
    let slices = observed.gateway_slices.as_ref().ok()?;
    let ready = |e: &&k8s_openapi::api::discovery::v1::Endpoint| e.conditions.as_ref().is_none_or(|c| c.ready != Some(false));
    Some(slices.iter().flat_map(|s| &s.endpoints).filter(ready).count())
}

const OPERATOR_SETS_IT: &str = "the operator sets it within a minute; does it run?";

fn operator_rollout_command(observed: &ObservedCluster) -> String {
    format!("kubectl rollout status deployment yoi-operator -n {} --timeout=60s", observed.operator_namespace)
}

fn ca_finding(observed: &ObservedCluster, service: &APIService) -> Option<Finding> {
    let command = operator_rollout_command(observed);
    let Some(bundle) = service.spec.as_ref().and_then(|s| s.ca_bundle.as_ref()) else {
        return Some(Finding::error(display_name(service), format!("it has no CA bundle: {OPERATOR_SETS_IT}"), command));
    };
    let mut last: Option<i64> = None;
    for pem in Pem::iter_from_buffer(&bundle.0) {
        let end = pem.ok().and_then(|pem| pem.parse_x509().ok().map(|certificate| certificate.validity().not_after.timestamp()));
        let Some(end) = end else {
            return Some(Finding::error(
                display_name(service),
                format!("its CA bundle holds no valid certificate: {OPERATOR_SETS_IT}"),
                command,
            ));
        };
        last = last.max(Some(end));
    }
    let Some(end) = last else {
        return Some(Finding::error(display_name(service), format!("its CA bundle holds no certificate: {OPERATOR_SETS_IT}"), command));
    };
    let days = (end - observed.now.as_second()) / 86_400;
    let restart = format!("kubectl rollout restart deployment yoi-operator -n {}", observed.operator_namespace);
    match days {
        ..0 => Some(Finding::error(display_name(service), "its CA is no longer valid", restart)),
        0..RENEW_DAYS => Some(Finding::warning(display_name(service), format!("its CA ends in {days} days, and was not renewed"), restart)),
        _ => None,
    }
}

fn call_finding(observed: &ObservedCluster) -> Option<Finding> {
    let call = observed.api_call.as_ref().ok()?;
    match &call.failure {
        Some(words) if words.contains("x509") => {
            let what = format!("its CA bundle is not the gateway's: {OPERATOR_SETS_IT}: {words}");
            Some(Finding::error(API_SERVICE, what, operator_rollout_command(observed)))
        }
        Some(words) => Some(Finding::error(API_SERVICE, format!("a call of it failed: {words}"), observed.fix_gateway_command())),
        None if call.took > SLOW => {
            let what = format!("a call of it took {} ms", call.took.as_millis());
            Some(Finding::warning(API_SERVICE, what, format!("kubectl top pods -n {}", observed.operator_namespace)))
        }
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{expect_finding, healthy};
    use k8s_openapi::ByteString;

    fn bundle(text: &str) -> crate::commands::doctor::observed::ObservedCluster {
        let mut observed = healthy();
        observed.api_services.as_mut().unwrap()[0].spec.as_mut().unwrap().ca_bundle = Some(ByteString(text.as_bytes().to_vec()));
        observed
    }

    #[test]
    fn a_ca_bundle_that_is_broken_empty_or_at_its_end_is_told() {
        expect_finding(&bundle("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), "aggregation", "no valid certificate");
        expect_finding(&bundle("nothing"), "aggregation", "certificate");
        let mut observed = healthy();
        observed.now += jiff::SignedDuration::from_hours(24 * 3630);
        expect_finding(&observed, "aggregation", "was not renewed");
        observed.now += jiff::SignedDuration::from_hours(24 * 365);
        expect_finding(&observed, "aggregation", "no longer valid");
    }

    #[test]
    fn an_api_that_is_not_available_names_the_gateway_that_is_scaled_to_nothing() {
        let mut observed = healthy();
        let condition = &mut observed.api_services.as_mut().unwrap()[0].status.as_mut().unwrap().conditions.as_mut().unwrap()[0];
        condition.status = "False".to_owned();
        condition.reason = Some("MissingEndpoints".to_owned());
        observed.gateway_slices.as_mut().unwrap().clear();
        let gateway =
            observed.deployments.as_mut().unwrap().iter_mut().find(|d| d.metadata.name.as_deref() == Some("yoi-gateway")).unwrap();
        gateway.spec.as_mut().unwrap().replicas = Some(0);
        let finding = expect_finding(&observed, "aggregation", "MissingEndpoints");
        assert!(finding.message.contains("no gateway is ready"), "{finding:?}");
        assert_eq!(finding.command.unwrap(), "kubectl scale deployment yoi-gateway -n yoi-system --replicas=2");
    }

    #[test]
    fn a_call_that_fails_or_is_slow_is_told_though_the_api_says_that_it_is_available() {
        let mut observed = healthy();
        observed.api_call.as_mut().unwrap().failure = Some("x509: unknown authority".to_owned());
        expect_finding(&observed, "aggregation", "x509");
        let mut observed = healthy();
        observed.api_call.as_mut().unwrap().took = std::time::Duration::from_secs(3);
        expect_finding(&observed, "aggregation", "took 3000 ms");
    }
}
