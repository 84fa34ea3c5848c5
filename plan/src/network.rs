//! Network policies of a namespace with agents: nothing comes in, and out go DNS, the gateway and what the chart's values allow.

use std::collections::BTreeMap;

use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use yoi_crds::name::label;
use yoi_crds::prepare::PrepareEgress;

use crate::meta;
use crate::settings::Network;
use crate::step::Step;

/// Name of the policy that selects the Pods of agents.
pub const AGENTS: &str = "yoi-agents";
/// Name of the policy that selects the Pods that read stopped agents.
pub const READERS: &str = "yoi-readers";
/// Name of the policy that selects the Pods that push commits.
pub const PUSHERS: &str = "yoi-pushers";
/// Name of the policy that selects the Pods that fill bases.
pub const POPULATORS: &str = "yoi-populators";

/// Name of the policy that selects the Pods that prepare bases. What they may reach, others add to it.
pub const PREPARE: &str = "yoi-prepare";
/// Name of the policy that selects those of them that may reach what agents may.
pub const PREPARE_AS_AGENTS: &str = "yoi-prepare-as-agents";

/// The steps that make the policies of `namespace` what they should be; none when `existing` already are.
#[must_use]
pub fn ensure(namespace: &str, network: &Network, existing: &[impl AsRef<NetworkPolicy>]) -> Vec<Step> {
    let always = [agents(namespace, network), populators(namespace, network), readers(namespace, network), pushers(namespace, network)];
    missing(always, existing)
}

/// As [`ensure`], the policies of the Pods that prepare bases. Few namespaces have such Pods.
#[must_use]
pub fn ensure_prepare(namespace: &str, network: &Network, existing: &[impl AsRef<NetworkPolicy>]) -> Vec<Step> {
    let mut as_agents = of_role(label::ROLE_PREPARE);
    as_agents.insert(label::EGRESS.to_owned(), PrepareEgress::Agents.to_string());
    let egress = std::iter::once(dns()).chain(network.agents.iter().cloned()).collect();
    let policies =
        [policy(namespace, PREPARE, of_role(label::ROLE_PREPARE), Vec::new()), policy(namespace, PREPARE_AS_AGENTS, as_agents, egress)];
    missing(policies, existing)
}

fn missing(wanted: impl IntoIterator<Item = NetworkPolicy>, existing: &[impl AsRef<NetworkPolicy>]) -> Vec<Step> {
    wanted
        .into_iter()
        .filter(|wanted| {
            let same = |p: &NetworkPolicy| p.metadata.name == wanted.metadata.name && p.spec == wanted.spec;
            !existing.iter().any(|p| same(p.as_ref()))
        })
        .map(|wanted| Step::EnsureNetworkPolicy(Box::new(wanted)))
        .collect()
}

/// `steps`, with those of [`ensure`] before the first Pod that they make. No other object of the namespace may have been reconciled yet, and a Pod that
/// starts before its policy is there is not restricted.
#[must_use]
pub fn with_network_policies(
    mut steps: Vec<Step>,
    namespace: &str,
    network: Option<&Network>,
    existing: &[impl AsRef<NetworkPolicy>],
) -> Vec<Step> {
    if let (Some(network), Some(first)) = (network, steps.iter().position(|s| matches!(s, Step::EnsurePod(_)))) {
        let prepares =
            |step: &Step| matches!(step, Step::EnsurePod(pod) if meta::label(&pod.metadata, label::ROLE) == Some(label::ROLE_PREPARE));
        let of_prepare = if steps.iter().any(prepares) { ensure_prepare(namespace, network, existing) } else { Vec::new() };
        steps.splice(first..first, ensure(namespace, network, existing).into_iter().chain(of_prepare));
    }
    steps
}

fn agents(namespace: &str, network: &Network) -> NetworkPolicy {
    let mut egress = vec![dns(), gateway(network)];
    egress.extend(network.agents.iter().cloned());
    policy(namespace, AGENTS, of_role(label::ROLE_AGENT), egress)
}

fn readers(namespace: &str, network: &Network) -> NetworkPolicy {
    policy(namespace, READERS, of_role(label::ROLE_READER), vec![dns(), gateway(network)])
}

fn pushers(namespace: &str, network: &Network) -> NetworkPolicy {
    let mut egress = vec![dns(), gateway(network)];
    egress.extend(network.populators.iter().cloned());
    policy(namespace, PUSHERS, of_role(label::ROLE_PUSHER), egress)
}

fn gateway(network: &Network) -> NetworkPolicyEgressRule {
    let pods = || NetworkPolicyPeer {
        namespace_selector: Some(labels(BTreeMap::from([("kubernetes.io/metadata.name".to_owned(), network.gateway_namespace.clone())]))),
        pod_selector: Some(labels(network.gateway_pod.clone())),
        ip_block: None,
    };
    NetworkPolicyEgressRule {
        // No selector matches a Pod in its node's network.
        to: (!network.gateway_on_host).then(|| vec![pods()]),
        ports: Some(vec![port("TCP", network.gateway_port)]),
    }
}

fn populators(namespace: &str, network: &Network) -> NetworkPolicy {
    let mut egress = vec![dns()];
    egress.extend(network.populators.iter().cloned());
    policy(namespace, POPULATORS, of_role(label::ROLE_POPULATOR), egress)
}

/// To any address, because the resolver may be a Pod, a Service or a link-local cache. On some clusters it listens on port 5353.
fn dns() -> NetworkPolicyEgressRule {
    NetworkPolicyEgressRule { to: None, ports: Some(vec![port("UDP", 53), port("TCP", 53), port("UDP", 5353), port("TCP", 5353)]) }
}

fn port(protocol: &str, number: i32) -> NetworkPolicyPort {
    NetworkPolicyPort { protocol: Some(protocol.to_owned()), port: Some(IntOrString::Int(number)), end_port: None }
}

fn labels(match_labels: BTreeMap<String, String>) -> LabelSelector {
    LabelSelector { match_labels: Some(match_labels), match_expressions: None }
}

/// The rules as the API server returns them: the protocol filled in, and no empty list or map, because its types leave these out. A policy that
/// differs from the stored one only in this would be applied again in every round.
fn as_stored(rules: Vec<NetworkPolicyEgressRule>) -> Vec<NetworkPolicyEgressRule> {
    let rule = |NetworkPolicyEgressRule { to, ports }| NetworkPolicyEgressRule {
        to: non_empty(to).map(|to| to.into_iter().map(stored_peer).collect()),
        ports: non_empty(ports).map(|ports| ports.into_iter().map(stored_port).collect()),
    };
    rules.into_iter().map(rule).collect()
}

fn stored_port(NetworkPolicyPort { protocol, port, end_port }: NetworkPolicyPort) -> NetworkPolicyPort {
    NetworkPolicyPort { protocol: protocol.or_else(|| Some("TCP".to_owned())), port, end_port }
}

/// An empty selector stays: it selects all.
fn stored_peer(NetworkPolicyPeer { ip_block, namespace_selector, pod_selector }: NetworkPolicyPeer) -> NetworkPolicyPeer {
    NetworkPolicyPeer {
        ip_block: ip_block.map(|IPBlock { cidr, except }| IPBlock { cidr, except: non_empty(except) }),
        namespace_selector: namespace_selector.map(stored_selector),
        pod_selector: pod_selector.map(stored_selector),
    }
}

fn stored_selector(LabelSelector { match_labels, match_expressions }: LabelSelector) -> LabelSelector {
    let requirement =
        |LabelSelectorRequirement { key, operator, values }| LabelSelectorRequirement { key, operator, values: non_empty(values) };
    LabelSelector {
        match_labels: match_labels.filter(|labels| !labels.is_empty()),
        match_expressions: non_empty(match_expressions).map(|all| all.into_iter().map(requirement).collect()),
    }
}

fn non_empty<T>(list: Option<Vec<T>>) -> Option<Vec<T>> {
    list.filter(|list| !list.is_empty())
}

fn of_role(role: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(label::ROLE.to_owned(), role.to_owned())])
}

fn policy(namespace: &str, name: &str, selector: BTreeMap<String, String>, egress: Vec<NetworkPolicyEgressRule>) -> NetworkPolicy {
    NetworkPolicy {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            labels: Some(selector.clone()),
            ..ObjectMeta::default()
        },
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(labels(selector)),
            policy_types: Some(vec!["Ingress".to_owned(), "Egress".to_owned()]),
            ingress: None,
            // The types of the API server leave an empty list out.
            egress: non_empty(Some(as_stored(egress))),
        }),
    }
}
