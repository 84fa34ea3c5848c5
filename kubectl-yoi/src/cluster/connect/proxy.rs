//! Which proxy leads to the API server, as kubectl chooses it: `proxy-url` of the kubeconfig's cluster, else the variables of the environment unless
//! NO_PROXY names the API server's host. (kube compares NO_PROXY with the proxy's host.)

use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use kube::config::Kubeconfig;

use crate::args::ClusterOptions;

/// `proxy-url` of the cluster that is used.
pub fn of_kubeconfig(file: &Kubeconfig, options: &ClusterOptions) -> Option<String> {
    let context = options.context.as_ref().or(file.current_context.as_ref());
    let of_context = || {
        let named = file.contexts.iter().find(|known| Some(&known.name) == context)?;
        Some(named.context.as_ref()?.cluster.clone())
    };
    let cluster = options.cluster.clone().or_else(of_context)?;
    let named = file.clusters.iter().find(|known| known.name == cluster)?;
    named.cluster.as_ref()?.proxy_url.clone().filter(|url| !url.is_empty())
}

/// The proxy that the environment names for this API server.
///
/// # Errors
/// The variable holds no URL.
pub fn of_environment(server: &Uri, variable: impl Fn(&str) -> Option<String>) -> Result<Option<Uri>, String> {
    let either = |name: &str| {
        let of = |name: String| variable(&name).map(|value| (name, value)).filter(|(_, value)| !value.is_empty());
        of(name.to_uppercase()).or_else(|| of(name.to_lowercase()))
    };
    let is_https = server.scheme_str() != Some("http");
    let Some((name, value)) = either(if is_https { "https_proxy" } else { "http_proxy" }) else { return Ok(None) };
    if is_this_machine(server) {
        return Ok(None);
    }
    let exceptions = either("no_proxy").map(|(_, value)| value).unwrap_or_default();
    let url = if value.contains("://") { value } else { format!("http://{value}") };
    let proxy: Uri = url.parse().map_err(|error| format!("the proxy of {name} is no URL: {error}"))?;
    // Which hosts are excepted, does not depend on what kind of proxy it is.
    let is_proxied = Matcher::builder().all("http://proxy").no(exceptions).build().intercept(server).is_some();
    Ok(is_proxied.then_some(proxy))
}

/// No proxy leads to a loopback address.
fn is_this_machine(server: &Uri) -> bool {
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_names_a_proxy_as_for_kubectl() {
        for (server, variables, expected) in [
            ("https://10.0.0.1:6443", &[("HTTPS_PROXY", "http://p:3128")][..], Some("http://p:3128/")),
            ("https://10.0.0.1:6443", &[("https_proxy", "p:3128")], Some("http://p:3128/")),
            ("https://10.0.0.1:6443", &[("HTTPS_PROXY", "socks5://p:1080")], Some("socks5://p:1080/")),
            ("https://10.0.0.1:6443", &[("HTTP_PROXY", "http://p:3128")], None),
            ("http://10.0.0.1:8080", &[("HTTP_PROXY", "http://p:3128")], Some("http://p:3128/")),
            ("https://10.0.0.1:6443", &[("HTTPS_PROXY", "http://p:3128"), ("NO_PROXY", "10.0.0.1")], None),
            ("https://10.0.0.1:6443", &[("HTTPS_PROXY", "http://p:3128"), ("NO_PROXY", "10.0.0.0/8,.svc")], None),
            ("https://api.example.com", &[("HTTPS_PROXY", "http://p:3128"), ("no_proxy", ".example.com")], None),
            ("https://api.example.com", &[("HTTPS_PROXY", "http://p:3128"), ("NO_PROXY", "p")], Some("http://p:3128/")),
            ("https://api.example.com", &[("HTTPS_PROXY", "http://p:3128"), ("NO_PROXY", "*")], None),
            ("https://127.0.0.1:6443", &[("HTTPS_PROXY", "http://p:3128")], None),
            ("https://[::1]:6443", &[("HTTPS_PROXY", "http://p:3128")], None),
            ("https://10.0.0.1:6443", &[("HTTPS_PROXY", ""), ("https_proxy", "http://p:1")], Some("http://p:1/")),
        ] {
            let of = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
            let found = of_environment(&server.parse().unwrap(), of).unwrap();
            assert_eq!(found.map(|url| url.to_string()).as_deref(), expected, "{server} {variables:?}");
        }
        let error = of_environment(&"https://10.0.0.1".parse().unwrap(), |_| Some("http://a b".to_owned())).unwrap_err();
        assert!(error.starts_with("the proxy of HTTPS_PROXY is no URL"), "{error}");
    }

    #[test]
    fn the_kubeconfig_names_the_proxy_of_the_cluster_that_is_used() {
        let file: Kubeconfig = serde_yaml::from_str(
            "current-context: a
contexts: [{ name: a, context: { cluster: one, user: u } }, { name: b, context: { cluster: two, user: u } }]
clusters: [{ name: one, cluster: { server: 'https://s', proxy-url: 'socks5://p:1' } }, { name: two, cluster: { server: 'https://s' } }]",
        )
        .unwrap();
        let options = |context: Option<&str>, cluster: Option<&str>| ClusterOptions {
            context: context.map(str::to_owned),
            cluster: cluster.map(str::to_owned),
            ..ClusterOptions::default()
        };
        assert_eq!(of_kubeconfig(&file, &options(None, None)).as_deref(), Some("socks5://p:1"));
        assert_eq!(of_kubeconfig(&file, &options(Some("b"), None)), None);
        assert_eq!(of_kubeconfig(&file, &options(Some("b"), Some("one"))).as_deref(), Some("socks5://p:1"));
    }
}
