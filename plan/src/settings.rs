//! The operator's settings that plans depend on.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::api::networking::v1::NetworkPolicyEgressRule;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use yoi_crds::assets::AssetSource;
use yoi_crds::pod::ImagePullPolicy;
use yoi_wire::manifest::Gateway;
use yoi_wire::preset::Preset;

/// Settings that stay the same while the operator runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Image of agents that name none.
    pub agent_image: String,
    /// Image of the Pods that fill bases from git.
    pub populator_image: String,
    /// Requests and limits of the Pods that fill bases. A namespace with a quota refuses Pods without.
    pub populator_resources: ResourceRequirements,
    /// Requests and limits of agents, for each resource of which neither the agent nor its project says anything.
    pub agent_resources: ResourceRequirements,
    /// Limit of each folder that a Pod of ours has of its own: `/tmp`, and HOME. None when absent.
    pub scratch_limit: Option<String>,
    /// Pull policy of Pods with one of these two images; Kubernetes decides by the image's tag when absent.
    pub image_pull_policy: Option<ImagePullPolicy>,
    /// Lower-case hex SHA-256 of the runtime that agents run; when absent, one that the nodes offer.
    pub runtime_digest: Option<String>,
    /// StorageClass of session claims that name none; the cluster's default when absent.
    pub default_session_class: Option<String>,
    /// How many warm session claims there may be in the whole cluster; none are made when 0.
    pub most_warm_sessions: usize,
    /// How agents reach the gateway; part of every manifest.
    pub gateway: Gateway,
    /// The presets of the chart, by their names.
    pub presets: BTreeMap<String, Preset>,
    /// Sets of skills and commands for every agent, below those of its project. What they name is of the agent's namespace.
    pub assets_from: Vec<AssetSource>,
    /// The HTTP proxy of the Pods that fill bases from git; they connect directly when absent.
    pub git_proxy: Option<GitProxy>,
    /// What the network policies allow; when absent, plans make no policies.
    pub network: Option<Network>,
}

impl Settings {
    /// One image for all Pods; every other setting is absent.
    #[must_use]
    pub fn new(image: &str, gateway: Gateway) -> Self {
        Self {
            agent_image: image.to_owned(),
            populator_image: image.to_owned(),
            populator_resources: populator_resources(),
            agent_resources: agent_resources(),
            scratch_limit: Some(SCRATCH_LIMIT.to_owned()),
            image_pull_policy: None,
            runtime_digest: None,
            default_session_class: None,
            most_warm_sessions: MOST_WARM_SESSIONS,
            gateway,
            presets: BTreeMap::new(),
            assets_from: Vec::new(),
            git_proxy: None,
            network: None,
        }
    }
}

/// [`Settings::most_warm_sessions`], where nobody says otherwise. Only projects that ask for warm claims have any, so this only bounds a mistake.
pub const MOST_WARM_SESSIONS: usize = 50;

/// [`Settings::scratch_limit`], where nobody says otherwise.
pub const SCRATCH_LIMIT: &str = "10Gi";

fn quantities<const N: usize>(pairs: [(&str, &str); N]) -> Option<BTreeMap<String, Quantity>> {
    Some(pairs.into_iter().map(|(key, value)| (key.to_owned(), Quantity(value.to_owned()))).collect())
}

/// Requests and limits of the Pods that fill bases, where nobody says otherwise.
#[must_use]
pub fn populator_resources() -> ResourceRequirements {
    // git needs memory in proportion to the largest objects of a repository.
    ResourceRequirements {
        requests: quantities([("cpu", "50m"), ("memory", "64Mi")]),
        limits: quantities([("cpu", "2"), ("memory", "2Gi")]),
        claims: None,
    }
}

/// Requests and limits of agents, where nobody says otherwise: what an agent takes that waits for its model, and what keeps one of them from taking its
/// whole node. A request that is absent would be as high as its limit.
#[must_use]
pub fn agent_resources() -> ResourceRequirements {
    ResourceRequirements {
        requests: quantities([("cpu", "10m"), ("memory", "64Mi"), ("ephemeral-storage", "64Mi")]),
        limits: quantities([("memory", "4Gi"), ("ephemeral-storage", "20Gi")]),
        claims: None,
    }
}

/// An HTTP proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitProxy {
    /// Without user and password.
    pub url: String,
    /// Hosts and domains that are reached without it, separated by commas.
    pub except: String,
}

/// What the network policies of users' namespaces let agents and populators reach, beside DNS.
#[derive(Clone, Debug, Default)]
pub struct Network {
    /// Name of the gateway's namespace.
    pub gateway_namespace: String,
    /// Labels of the gateway's Pods.
    pub gateway_pod: BTreeMap<String, String>,
    /// TCP port of the gateway's Pods.
    pub gateway_port: i32,
    /// Whether the gateway's Pods use the network of their nodes. Then agents may reach this port of any address.
    pub gateway_on_host: bool,
    /// What agents may reach beside the gateway.
    pub agents: Vec<NetworkPolicyEgressRule>,
    /// What populators may reach; they never reach the gateway.
    pub populators: Vec<NetworkPolicyEgressRule>,
}
