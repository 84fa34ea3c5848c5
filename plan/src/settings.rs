//! What the operator was told at its start and every plan may need.

use std::collections::BTreeMap;

use k8s_openapi::api::networking::v1::NetworkPolicyEgressRule;
use yoi_crds::pod::ImagePullPolicy;
use yoi_wire::manifest::Gateway;

#[derive(Clone, Debug)]
pub struct Settings {
    /// Image of agents that name none.
    pub agent_image: String,
    /// Image of the Pods that fill bases from git.
    pub populator_image: String,
    /// Of Pods with one of these two images; the cluster's rule by tag when absent.
    pub image_pull_policy: Option<ImagePullPolicy>,
    /// Hex SHA-256 that agents must run; when absent, one that the nodes offer.
    pub runtime_digest: Option<String>,
    /// Class of session claims that name none; the cluster's default when absent.
    pub default_session_class: Option<String>,
    pub gateway: Gateway,
    pub network: Option<Network>,
}

impl Settings {
    /// One image for all Pods, and nothing else chosen.
    #[must_use]
    pub fn new(image: &str, gateway: Gateway) -> Self {
        Self {
            agent_image: image.to_owned(),
            populator_image: image.to_owned(),
            image_pull_policy: None,
            runtime_digest: None,
            default_session_class: None,
            gateway,
            network: None,
        }
    }
}

/// What the network policies of users' namespaces let agents and populators reach beside DNS and the gateway.
#[derive(Clone, Debug, Default)]
pub struct Network {
    /// Labels of the gateway's namespace and Pods.
    pub gateway_namespace: String,
    pub gateway_pod: BTreeMap<String, String>,
    pub gateway_port: i32,
    pub agents: Vec<NetworkPolicyEgressRule>,
    pub populators: Vec<NetworkPolicyEgressRule>,
}
