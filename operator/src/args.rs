//! Flags and environment variables; nothing else reads them.

use clap::{Parser, ValueEnum};
use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::api::networking::v1::NetworkPolicyEgressRule;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use yoi_crds::assets::{AssetSource, MAX_SETS};
use yoi_crds::pod::ImagePullPolicy;
use yoi_plan::settings::{GitProxy, MOST_WARM_SESSIONS, Network, SCRATCH_LIMIT, Settings, agent_resources, populator_resources};
use yoi_wire::manifest::Gateway;
use yoi_wire::preset::Preset;

/// Watches Yoi's objects and makes the cluster agree with them.
#[derive(Clone, Debug, Parser)]
#[command(name = "yoi-operator", version)]
pub struct OperatorArgs {
    /// The operator's own namespace: its Lease, and the gateway's certificate.
    #[arg(long, env = "YOI_NAMESPACE", default_value = "yoi-system")]
    pub namespace: String,
    /// Look after this namespace only; after all of them when absent. Two operators must never look after the same one.
    #[arg(long, env = "YOI_WATCH_NAMESPACE")]
    pub watch_namespace: Option<String>,
    /// Namespace of the shims' Pods.
    #[arg(long, env = "YOI_SHIM_NAMESPACE", default_value = "yoi-node")]
    pub shim_namespace: String,
    /// Identity in the Lease and in Events; must differ between replicas.
    #[arg(long, env = "YOI_POD_NAME", default_value = "yoi-operator")]
    pub identity: String,
    /// Term of the Lease in seconds: how long another replica waits for one that does not answer. The leader ends when it could not renew the Lease for two
    /// thirds of it.
    #[arg(long, env = "YOI_LEASE_SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(6..=120))]
    pub lease_seconds: u64,
    #[arg(long, env = "YOI_LOG_FORMAT", value_enum, default_value_t = LogFormat::Json)]
    pub log_format: LogFormat,
    /// As in tracing's directives, e.g. `info,yoi_operator=debug`.
    #[arg(long, env = "RUST_LOG", default_value = "info")]
    pub log_filter: String,
    /// Address of `/healthz`, `/readyz` and `/metrics`.
    #[arg(long, env = "YOI_HEALTH_ADDR", default_value = "0.0.0.0:8080")]
    pub health_addr: SocketAddr,
    /// Image of agents that name none.
    #[arg(long, env = "YOI_AGENT_IMAGE")]
    pub agent_image: String,
    /// Image of the Pods that fill bases from git; the agents' when absent.
    #[arg(long, env = "YOI_POPULATOR_IMAGE")]
    pub populator_image: Option<String>,
    /// JSON of the requests and limits of those Pods, as in a container's `resources`.
    #[arg(long, env = "YOI_POPULATOR_RESOURCES", value_parser = resources)]
    pub populator_resources: Option<ResourceRequirements>,
    /// JSON of the requests and limits of agents of which nobody says any.
    #[arg(long, env = "YOI_AGENT_RESOURCES", value_parser = resources)]
    pub agent_resources: Option<ResourceRequirements>,
    /// Limit of /tmp, and of HOME, of every Pod that the operator makes. No limit when empty.
    #[arg(long, env = "YOI_SCRATCH_LIMIT", default_value = SCRATCH_LIMIT)]
    pub scratch_limit: String,
    #[arg(long, env = "YOI_AGENT_IMAGE_PULL_POLICY", value_enum)]
    pub agent_image_pull_policy: Option<PullPolicy>,
    /// Hex SHA-256 of the yoi-runtime that agents must run; when absent, one that the nodes offer.
    #[arg(long, env = "YOI_RUNTIME_DIGEST")]
    pub runtime_digest: Option<String>,
    /// StorageClass of session claims that name none; the cluster's default when absent.
    #[arg(long, env = "YOI_DEFAULT_SESSION_CLASS")]
    pub default_session_class: Option<String>,
    /// How many session claims may stand ready in the whole cluster, for projects that ask for them. None when 0.
    #[arg(long, env = "YOI_WARM_SESSIONS", default_value_t = MOST_WARM_SESSIONS)]
    pub warm_sessions: usize,
    /// JSON list of sets of skills and commands that every agent reads, as in `spec.assets.from` of a project; none when absent.
    #[arg(long, env = "YOI_ASSETS_FROM", value_parser = asset_sets)]
    pub assets_from: Option<AssetSets>,
    /// Folder with the presets of programs, `NAME.yaml` each; none when absent.
    #[arg(long, env = "YOI_PRESETS")]
    pub presets: Option<PathBuf>,
    /// Service of the gateway, in the operator's namespace.
    #[arg(long, env = "YOI_GATEWAY_SERVICE", default_value = "yoi-gateway")]
    pub gateway_service: String,
    /// Headless Service of the gateway: one address per replica.
    #[arg(long, env = "YOI_GATEWAY_LINES", default_value = "yoi-gateway-lines")]
    pub gateway_lines: String,
    #[arg(long, env = "YOI_GATEWAY_PORT", default_value_t = 8443)]
    pub gateway_port: u16,
    /// Whether the gateway's Pods use the network of their nodes, where no NetworkPolicy can select them.
    #[arg(long, env = "YOI_GATEWAY_ON_HOST", default_value_t = false, action = clap::ArgAction::Set)]
    pub gateway_on_host: bool,
    /// Secret of the gateway's certificate, in the operator's namespace.
    #[arg(long, env = "YOI_GATEWAY_SECRET", default_value = "yoi-gateway-tls")]
    pub gateway_secret: String,
    /// APIService whose caBundle is kept.
    #[arg(long, env = "YOI_APISERVICE", default_value = "v1alpha1.runtime.yoi.dev")]
    pub apiservice: String,
    /// Value of the label app.kubernetes.io/name of the gateway's Pods, for the network policies.
    #[arg(long, env = "YOI_GATEWAY_APP", default_value = "yoi-gateway")]
    pub gateway_app: String,
    /// JSON list of NetworkPolicy egress rules for agents, beside DNS and the gateway. Without it, no network policies are made.
    #[arg(long, env = "YOI_AGENT_EGRESS", value_parser = egress)]
    pub agent_egress: Option<Egress>,
    /// The same for the Pods that fill bases.
    #[arg(long, env = "YOI_POPULATOR_EGRESS", value_parser = egress)]
    pub populator_egress: Option<Egress>,
    /// URL of the HTTP proxy of the Pods that fill bases from git, without user and password.
    #[arg(long, env = "YOI_GIT_PROXY")]
    pub git_proxy: Option<String>,
    /// Hosts and domains that those Pods reach without the proxy, separated by commas.
    #[arg(long, env = "YOI_GIT_NO_PROXY")]
    pub git_no_proxy: Option<String>,
    /// Reconciles at the same time, of each kind.
    #[arg(long, env = "YOI_CONCURRENCY", default_value_t = 16)]
    pub concurrency: u16,
    /// Seconds that reconciles under way may take after SIGTERM.
    #[arg(long, env = "YOI_STOP_SECONDS", default_value_t = 20)]
    pub stop_seconds: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Json,
    Text,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum PullPolicy {
    Always,
    IfNotPresent,
    Never,
}

/// One value for clap, which would take a plain `Vec` as a repeated flag.
#[derive(Clone, Debug, PartialEq)]
pub struct Egress(pub Vec<NetworkPolicyEgressRule>);

/// As [`Egress`].
#[derive(Clone, Debug, PartialEq)]
pub struct AssetSets(pub Vec<AssetSource>);

/// The schema of the chart's values checks the rest.
fn asset_sets(text: &str) -> Result<AssetSets, String> {
    let sets: Vec<AssetSource> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if sets.len() > MAX_SETS {
        return Err(format!("there are {} sets, and {MAX_SETS} is the most", sets.len()));
    }
    match sets.iter().position(AssetSource::is_unknown) {
        Some(place) => Err(format!("set {place} is not one of configMap, git with name, and image with name")),
        None => Ok(AssetSets(sets)),
    }
}

fn resources(text: &str) -> Result<ResourceRequirements, serde_json::Error> {
    serde_json::from_str(text)
}

fn egress(text: &str) -> Result<Egress, serde_json::Error> {
    serde_json::from_str(text).map(Egress)
}

impl OperatorArgs {
    /// Names that the gateway is reached under, and that its certificate bears.
    #[must_use]
    pub fn gateway_names(&self) -> Vec<String> {
        let both = [&self.gateway_service, &self.gateway_lines];
        both.iter().flat_map(|s| [format!("{s}.{}.svc", self.namespace), format!("{s}.{}", self.namespace)]).collect()
    }

    /// `presets` are those of the folder.
    #[must_use]
    pub fn settings(&self, ca: String, presets: BTreeMap<String, Preset>) -> Settings {
        let (ns, port) = (&self.namespace, self.gateway_port);
        Settings {
            agent_image: self.agent_image.clone(),
            populator_image: self.populator_image.clone().unwrap_or_else(|| self.agent_image.clone()),
            populator_resources: self.populator_resources.clone().unwrap_or_else(populator_resources),
            agent_resources: self.agent_resources.clone().unwrap_or_else(agent_resources),
            scratch_limit: Some(self.scratch_limit.clone()).filter(|limit| !limit.is_empty()),
            image_pull_policy: self.agent_image_pull_policy.map(|p| match p {
                PullPolicy::Always => ImagePullPolicy::Always,
                PullPolicy::IfNotPresent => ImagePullPolicy::IfNotPresent,
                PullPolicy::Never => ImagePullPolicy::Never,
            }),
            // A chart writes an empty value for one that is not set.
            runtime_digest: self.runtime_digest.clone().filter(|d| !d.is_empty()),
            default_session_class: self.default_session_class.clone().filter(|c| !c.is_empty()),
            most_warm_sessions: self.warm_sessions,
            gateway: Gateway {
                lines: format!("{}.{ns}.svc:{port}", self.gateway_lines),
                service: format!("{}.{ns}.svc:{port}", self.gateway_service),
                server_name: format!("{}.{ns}.svc", self.gateway_service),
                ca,
            },
            presets,
            assets_from: self.assets_from.clone().map(|sets| sets.0).unwrap_or_default(),
            git_proxy: self
                .git_proxy
                .clone()
                .filter(|url| !url.is_empty())
                .map(|url| GitProxy { url, except: self.git_no_proxy.clone().unwrap_or_default() }),
            network: self.agent_egress.clone().map(|agents| Network {
                gateway_namespace: ns.clone(),
                gateway_pod: BTreeMap::from([("app.kubernetes.io/name".to_owned(), self.gateway_app.clone())]),
                gateway_port: i32::from(port),
                gateway_on_host: self.gateway_on_host,
                agents: agents.0,
                populators: self.populator_egress.clone().map(|e| e.0).unwrap_or_default(),
            }),
        }
    }
}
