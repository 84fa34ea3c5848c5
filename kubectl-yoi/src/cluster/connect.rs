//! From the flags and the kubeconfig to a client.

mod proxy;

use std::path::Path;
use std::time::Duration;

use kube::Config;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};

use super::Cluster;
use crate::args::ClusterOptions;
use crate::error::Error;

/// For the headers of an answer. Streams may last longer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

impl Cluster {
    /// Reads the kubeconfig and makes a client. It does not connect yet.
    ///
    /// # Errors
    /// [`Error::Config`] when there is no configuration or it is wrong.
    pub async fn connect(options: &ClusterOptions) -> Result<Self, Error> {
        let config = config(options).await?;
        let namespace = options.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let timeout = options.request_timeout.filter(|timeout| !timeout.is_zero()).unwrap_or(REQUEST_TIMEOUT);
        let client = kube::client::ClientBuilder::try_from(config)
            .map_err(config_error)?
            .with_layer(&tower::timeout::TimeoutLayer::new(timeout))
            .build();
        Ok(Cluster { client, namespace, dry_run: None, patience_percent: options.patience_percent(), conversation: None })
    }
}

/// The context of the kubeconfig that a command line is about; `None` where there is no kubeconfig, or the line names a server.
pub fn context_name(options: &ClusterOptions) -> Option<String> {
    place(options).0
}

/// Whether the kubeconfig of a command line has a context.
pub fn has_context(options: &ClusterOptions, name: &str) -> bool {
    kubeconfig(options).ok().flatten().is_some_and(|file| file.contexts.iter().any(|context| context.name == name))
}

/// The context and the namespace that a command line is about.
pub fn place(options: &ClusterOptions) -> (Option<String>, Option<String>) {
    let file = kubeconfig(options).ok().flatten().filter(|_| options.server.is_none());
    let context =
        file.as_ref().and_then(|file| options.context.clone().or_else(|| file.current_context.clone())).filter(|name| !name.is_empty());
    let of_context = || {
        let named = file.as_ref()?.contexts.iter().find(|named| Some(&named.name) == context.as_ref())?;
        named.context.as_ref()?.namespace.clone()
    };
    let namespace = options.namespace.clone().or_else(of_context);
    (context, namespace)
}

fn config_error(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Config { source: source.into() }
}

async fn config(options: &ClusterOptions) -> Result<Config, Error> {
    let server: Option<http::Uri> = options.server.as_ref().map(|url| url.parse().map_err(config_error)).transpose()?;
    let mut proxy_url = None;
    let mut config = match kubeconfig(options)? {
        Some(mut file) => {
            proxy_url = proxy::of_kubeconfig(&file, options);
            let chosen =
                KubeConfigOptions { context: options.context.clone(), cluster: options.cluster.clone(), user: options.user.clone() };
            check_names(&file, options)?;
            override_user(&mut file, options);
            let mut config = Config::from_custom_kubeconfig(file, &chosen).await.map_err(config_error)?;
            // kube's own debugging aid stays as it is.
            config.apply_debug_overrides();
            config
        }
        None => {
            let mut config = match &server {
                Some(server) => Config::new(server.clone()),
                None => Config::infer().await.map_err(config_error)?,
            };
            override_auth(&mut config.auth_info, options);
            config
        }
    };
    if let Some(server) = server {
        config.cluster_url = server;
    }
    config.proxy_url = match proxy_url {
        Some(url) => Some(url.parse().map_err(|error| config_error(format!("proxy-url of the kubeconfig is no URL: {error}")))?),
        None => proxy::of_environment(&config.cluster_url, |name| std::env::var(name).ok()).map_err(config_error)?,
    };
    if let Some(file) = &options.certificate_authority {
        config.root_cert = Some(certificates(file)?);
        config.root_cert_file = None;
    }
    if let Some(name) = &options.tls_server_name {
        config.tls_server_name = Some(name.clone());
    }
    config.accept_invalid_certs |= options.insecure_skip_tls_verify;
    // The gateway answers 503 for an agent that it cannot reach now. The user sees that answer at once, without retries.
    config.default_retry = false;
    Ok(config)
}

/// The kubeconfig; `None` where there is none and none is asked for, as in a Pod.
fn kubeconfig(options: &ClusterOptions) -> Result<Option<Kubeconfig>, Error> {
    if let Some(path) = &options.kubeconfig {
        return Kubeconfig::read_from(path).map(Some).map_err(config_error);
    }
    let named = options.context.is_some() || options.cluster.is_some() || options.user.is_some();
    match Kubeconfig::read() {
        // A server needs no context.
        Ok(file) if options.server.is_some() && !named && file.current_context.as_deref().is_none_or(str::is_empty) => Ok(None),
        Ok(file) => Ok(Some(file)),
        Err(error) if named => Err(config_error(error)),
        // `infer` says more of it, when a Pod's own account is no way either.
        Err(_) => Ok(None),
    }
}

/// A name that the kubeconfig does not have. kube takes a missing user for nobody.
fn check_names(file: &Kubeconfig, options: &ClusterOptions) -> Result<(), Error> {
    let missing = |kind: &str, name: &str| config_error(format!("the kubeconfig has no {kind} {name}"));
    if let Some(user) = options.user.as_ref().filter(|user| !file.auth_infos.iter().any(|known| known.name == **user)) {
        return Err(missing("user", user));
    }
    if let Some(cluster) = options.cluster.as_ref().filter(|cluster| !file.clusters.iter().any(|known| known.name == **cluster)) {
        return Err(missing("cluster", cluster));
    }
    Ok(())
}

/// Sets the flags about the user in each user of the file: only the chosen one is read.
fn override_user(file: &mut Kubeconfig, options: &ClusterOptions) {
    for user in &mut file.auth_infos {
        override_auth(user.auth_info.get_or_insert_default(), options);
    }
}

fn override_auth(auth: &mut AuthInfo, options: &ClusterOptions) {
    let path = |path: &Path| Some(path.to_string_lossy().into_owned());
    if let Some(token) = &options.token {
        *auth = AuthInfo { token: Some(token.clone().into()), ..AuthInfo::default() };
    }
    if let Some(file) = &options.client_certificate {
        (auth.client_certificate, auth.client_certificate_data) = (path(file), None);
    }
    if let Some(file) = &options.client_key {
        (auth.client_key, auth.client_key_data) = (path(file), None);
    }
    if options.as_user.is_some() {
        auth.impersonate.clone_from(&options.as_user);
        (auth.impersonate_groups, auth.impersonate_uid, auth.impersonate_user_extra) = (None, None, None);
    }
    if !options.as_group.is_empty() {
        auth.impersonate_groups = Some(options.as_group.clone());
    }
    if options.as_uid.is_some() {
        auth.impersonate_uid.clone_from(&options.as_uid);
    }
}

/// The certificates of a PEM file, in DER.
fn certificates(file: &Path) -> Result<Vec<Vec<u8>>, Error> {
    let unreadable = |error: std::io::Error| config_error(format!("{}: {error}", file.display()));
    let text = std::fs::read(file).map_err(unreadable)?;
    let blocks = x509_parser::pem::Pem::iter_from_buffer(&text).collect::<Result<Vec<_>, _>>();
    let blocks = blocks.map_err(|error| config_error(format!("{}: {error}", file.display())))?;
    Ok(blocks.into_iter().map(|block| block.contents).collect())
}
