//! The aggregated API: registered, trusted, answered, and quick.

use std::time::Duration;

use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use x509_parser::pem::Pem;

use super::super::API_SERVICE;
use super::super::finding::Finding;
use super::super::world::{World, called};
use super::or_ok;

const SLOW: Duration = Duration::from_secs(2);
/// The operator makes a new CA with this much left.
const RENEW_DAYS: i64 = 30;

pub fn check(world: &World) -> Vec<Finding> {
    let mut found = Vec::new();
    if world.api_services.is_ok() {
        match world.api_service() {
            None => {
                let what = "it is missing: log, diff and send do not work";
                found.push(Finding::error(format!("APIService {API_SERVICE}"), what, world.reapply("yoi-operator")));
            }
            Some(service) => found.extend(registered(world, service)),
        }
    }
    if found.is_empty() {
        found.extend(answered(world));
    }
    let complete = world.api_services.is_ok() && world.gateway_slices.is_ok() && world.called.is_ok();
    let took = world.called.as_ref().map(|c| c.took.as_millis()).unwrap_or_default();
    let ready = endpoints(world).unwrap_or_default();
    or_ok(found, complete, API_SERVICE, || format!("it answered in {took} ms; {ready} gateways stand behind it"))
}

fn registered(world: &World, service: &APIService) -> Vec<Finding> {
    let mut found: Vec<Finding> = trusted(world, service).into_iter().collect();
    let available = service.status.iter().flat_map(|s| s.conditions.iter().flatten()).find(|c| c.type_ == "Available");
    if let Some(c) = available.filter(|c| c.status != "True") {
        let reason = c.reason.as_deref().unwrap_or("Unknown");
        let none = if endpoints(world) == Some(0) { "no gateway is ready; " } else { "" };
        let what = format!("the API server cannot reach the gateway ({reason}): {none}{}", c.message.as_deref().unwrap_or_default());
        let command = if what.contains("x509") { look_at_operator(world) } else { world.mend_gateway() };
        found.push(Finding::error(called(service), what, command));
    }
    found
}

/// Ready addresses behind the gateway's Service.
fn endpoints(world: &World) -> Option<usize> {
    let slices = world.gateway_slices.as_ref().ok()?;
    let ready = |e: &&k8s_openapi::api::discovery::v1::Endpoint| e.conditions.as_ref().is_none_or(|c| c.ready != Some(false));
    Some(slices.iter().flat_map(|s| &s.endpoints).filter(ready).count())
}

const OPERATOR: &str = "the operator sets it within a minute; does it run?";

fn look_at_operator(world: &World) -> String {
    format!("kubectl rollout status deployment yoi-operator -n {} --timeout=60s", world.home)
}

fn trusted(world: &World, service: &APIService) -> Option<Finding> {
    let look = look_at_operator(world);
    let Some(bundle) = service.spec.as_ref().and_then(|s| s.ca_bundle.as_ref()) else {
        return Some(Finding::error(called(service), format!("it has no CA bundle: {OPERATOR}"), look));
    };
    let mut last: Option<i64> = None;
    for pem in Pem::iter_from_buffer(&bundle.0) {
        let end = pem.ok().and_then(|pem| pem.parse_x509().ok().map(|certificate| certificate.validity().not_after.timestamp()));
        let Some(end) = end else {
            return Some(Finding::error(called(service), format!("its CA bundle holds no valid certificate: {OPERATOR}"), look));
        };
        last = last.max(Some(end));
    }
    let Some(end) = last else {
        return Some(Finding::error(called(service), format!("its CA bundle holds no certificate: {OPERATOR}"), look));
    };
    let days = (end - world.now.as_second()) / 86_400;
    let restart = format!("kubectl rollout restart deployment yoi-operator -n {}", world.home);
    match days {
        ..0 => Some(Finding::error(called(service), "its CA is no longer valid", restart)),
        0..RENEW_DAYS => Some(Finding::warning(called(service), format!("its CA ends in {days} days, and was not renewed"), restart)),
        _ => None,
    }
}

fn answered(world: &World) -> Option<Finding> {
    let call = world.called.as_ref().ok()?;
    match &call.failure {
        Some(words) if words.contains("x509") => {
            let what = format!("its CA bundle is not the gateway's: {OPERATOR}: {words}");
            Some(Finding::error(API_SERVICE, what, look_at_operator(world)))
        }
        Some(words) => Some(Finding::error(API_SERVICE, format!("a call of it failed: {words}"), world.mend_gateway())),
        None if call.took > SLOW => {
            let what = format!("a call of it took {} ms", call.took.as_millis());
            Some(Finding::warning(API_SERVICE, what, format!("kubectl top pods -n {}", world.home)))
        }
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{found, healthy};
    use k8s_openapi::ByteString;

    fn bundle(text: &str) -> crate::commands::doctor::world::World {
        let mut world = healthy();
        world.api_services.as_mut().unwrap()[0].spec.as_mut().unwrap().ca_bundle = Some(ByteString(text.as_bytes().to_vec()));
        world
    }

    #[test]
    fn a_ca_bundle_that_is_broken_empty_or_at_its_end_is_told() {
        found(&bundle("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), "aggregation", "no valid certificate");
        found(&bundle("nothing"), "aggregation", "certificate");
        let mut world = healthy();
        world.now += jiff::SignedDuration::from_hours(24 * 3630);
        found(&world, "aggregation", "was not renewed");
        world.now += jiff::SignedDuration::from_hours(24 * 365);
        found(&world, "aggregation", "no longer valid");
    }

    #[test]
    fn an_api_that_is_not_available_names_the_gateway_that_is_scaled_to_nothing() {
        let mut world = healthy();
        let condition = &mut world.api_services.as_mut().unwrap()[0].status.as_mut().unwrap().conditions.as_mut().unwrap()[0];
        condition.status = "False".to_owned();
        condition.reason = Some("MissingEndpoints".to_owned());
        world.gateway_slices.as_mut().unwrap().clear();
        let gateway = world.deployments.as_mut().unwrap().iter_mut().find(|d| d.metadata.name.as_deref() == Some("yoi-gateway")).unwrap();
        gateway.spec.as_mut().unwrap().replicas = Some(0);
        let finding = found(&world, "aggregation", "MissingEndpoints");
        assert!(finding.message.contains("no gateway is ready"), "{finding:?}");
        assert_eq!(finding.command.unwrap(), "kubectl scale deployment yoi-gateway -n yoi-system --replicas=2");
    }

    #[test]
    fn a_call_that_fails_or_is_slow_is_told_though_the_api_says_that_it_is_available() {
        let mut world = healthy();
        world.called.as_mut().unwrap().failure = Some("x509: unknown authority".to_owned());
        found(&world, "aggregation", "x509");
        let mut world = healthy();
        world.called.as_mut().unwrap().took = std::time::Duration::from_secs(3);
        found(&world, "aggregation", "took 3000 ms");
    }
}
