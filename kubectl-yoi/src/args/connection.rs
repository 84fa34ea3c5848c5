//! Which cluster, and as whom: the flags that kubectl has for it, under the same names.

use std::path::PathBuf;

use clap::Args;

use super::values::{duration, namespace_name};

#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Cluster")]
pub struct ClusterOptions {
    /// Context of the kubeconfig.
    #[arg(long, global = true)]
    pub context: Option<String>,
    /// Kubeconfig file; $KUBECONFIG or ~/.kube/config when absent.
    #[arg(long, global = true)]
    pub kubeconfig: Option<PathBuf>,
    /// Namespace; the context's when absent.
    #[arg(short, long, global = true, value_parser = namespace_name)]
    pub namespace: Option<String>,
    /// Cluster of the kubeconfig.
    #[arg(long, global = true)]
    pub cluster: Option<String>,
    /// User of the kubeconfig.
    #[arg(long, global = true)]
    pub user: Option<String>,
    /// URL of the API server.
    #[arg(short, long, global = true, value_name = "URL")]
    pub server: Option<String>,
    /// Bearer token for the API server.
    #[arg(long, global = true)]
    pub token: Option<String>,
    /// User to act as.
    #[arg(long = "as", global = true, value_name = "USER")]
    pub as_user: Option<String>,
    /// Group to act as; may be given again.
    #[arg(long, global = true, value_name = "GROUP")]
    pub as_group: Vec<String>,
    /// UID to act as.
    #[arg(long, global = true, value_name = "UID")]
    pub as_uid: Option<String>,
    /// File with the certificate of the API server's authority.
    #[arg(long, global = true, value_name = "FILE")]
    pub certificate_authority: Option<PathBuf>,
    /// File with the client's certificate.
    #[arg(long, global = true, value_name = "FILE")]
    pub client_certificate: Option<PathBuf>,
    /// File with the key of the client's certificate.
    #[arg(long, global = true, value_name = "FILE")]
    pub client_key: Option<PathBuf>,
    /// Name that the API server's certificate must have.
    #[arg(long, global = true, value_name = "NAME")]
    pub tls_server_name: Option<String>,
    /// Do not check the API server's certificate. Others may then read and change what is sent.
    #[arg(long, global = true)]
    pub insecure_skip_tls_verify: bool,
    /// How long one answer of the API server may take to begin, e.g. 30s.
    #[arg(long, global = true, value_parser = duration, value_name = "DURATION")]
    pub request_timeout: Option<std::time::Duration>,
    /// Percent of the usual time for which a wait goes on although only a person can help, completion waits for the cluster, and the doctor takes what is
    /// under way for healthy. Only tests set it.
    #[arg(long, global = true, hide = true, env = "YOI_PATIENCE_PERCENT", value_parser = clap::value_parser!(u32).range(1..=1000), value_name = "PERCENT")]
    pub patience_percent: Option<u32>,
}

impl ClusterOptions {
    /// Percent of the time for which the plugin is usually patient.
    pub fn patience_percent(&self) -> u32 {
        self.patience_percent.unwrap_or(100)
    }
}
