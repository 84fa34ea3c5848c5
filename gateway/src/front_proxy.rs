//! Authentication of the API server's front proxy, which forwards the requests of users.
//!
//! The cluster publishes in one ConfigMap the CA of the front proxy's client certificate, and the headers that carry the user. A request
//! without such a certificate has no user, whatever its headers contain.

use std::collections::BTreeMap;

use axum::http::{HeaderMap, HeaderValue};
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use tokio::sync::watch;
use yoi_line::PeerCertificate;

pub const NAMESPACE: &str = "kube-system";
pub const CONFIG_MAP: &str = "extension-apiserver-authentication";

/// The contents of the ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrontProxy {
    /// PEM. `None` in a cluster without API aggregation, and then every request is refused.
    pub ca_pem: Option<String>,
    /// The common names that are accepted. Empty accepts any name, as in the API server.
    pub allowed_names: Vec<String>,
    pub username_headers: Vec<String>,
    pub uid_headers: Vec<String>,
    pub group_headers: Vec<String>,
    pub extra_prefixes: Vec<String>,
}

/// A user as the API server authenticated it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct User {
    pub name: String,
    pub uid: Option<String>,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

impl FrontProxy {
    fn from_config_map(map: &ConfigMap) -> Self {
        let text = |key: &str| map.data.as_ref().and_then(|data| data.get(key)).map(String::as_str);
        let list = |key: &str| -> Vec<String> {
            // A value that is no list counts as empty. Without a user header every request is refused.
            text(key).and_then(|value| serde_json::from_str(value).ok()).unwrap_or_default()
        };
        FrontProxy {
            ca_pem: text("requestheader-client-ca-file").filter(|pem| !pem.trim().is_empty()).map(str::to_owned),
            allowed_names: list("requestheader-allowed-names"),
            username_headers: list("requestheader-username-headers"),
            uid_headers: list("requestheader-uid-headers"),
            group_headers: list("requestheader-group-headers"),
            extra_prefixes: list("requestheader-extra-headers-prefix"),
        }
    }

    /// The user of a request. The TLS handshake has verified the certificate against [`FrontProxy::ca_pem`] already.
    ///
    /// The API server sends names, groups and the values of extra fields as the bytes of their UTF-8, not encoded. It percent-encodes only the
    /// keys of extra fields, because they are names of headers. A request with a value that is no UTF-8 has no user: without one of its groups
    /// it would be another user's.
    pub fn user(&self, certificate: Option<&PeerCertificate>, headers: &HeaderMap) -> Option<User> {
        self.ca_pem.as_ref()?;
        let certificate = certificate?;
        if !self.allowed_names.is_empty() && !certificate.common_name.as_ref().is_some_and(|name| self.allowed_names.contains(name)) {
            return None;
        }
        let values = |names: &[String]| -> Option<Vec<String>> {
            let values = names.iter().flat_map(|name| headers.get_all(name)).filter(|value| !value.is_empty());
            values.map(utf8).collect()
        };
        let name = values(&self.username_headers)?.into_iter().next()?;
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (header, value) in headers {
            // Header names are in lower case.
            let keys = self.extra_prefixes.iter().filter_map(|prefix| header.as_str().strip_prefix(&prefix.to_ascii_lowercase()));
            if let Some(key) = keys.into_iter().next() {
                extra.entry(percent_decode(key)).or_default().push(utf8(value)?);
            }
        }
        Some(User { name, uid: values(&self.uid_headers)?.into_iter().next(), groups: values(&self.group_headers)?, extra })
    }
}

/// Watches the ConfigMap and sends its contents when they changed. Runs until dropped.
pub async fn watch_config_map(client: Client, sender: watch::Sender<Option<FrontProxy>>) {
    let api = Api::<ConfigMap>::namespaced(client, NAMESPACE);
    let config = watcher::Config::default().fields(&format!("metadata.name={CONFIG_MAP}"));
    let mut stream = std::pin::pin!(watcher(api, config).default_backoff().applied_objects());
    // A deleted ConfigMap stays in force: the API server makes it again.
    while let Some(event) = stream.next().await {
        match event {
            Ok(map) => {
                let proxy = FrontProxy::from_config_map(&map);
                if proxy.ca_pem.is_none() {
                    tracing::error!(
                        "the cluster has no front proxy: the API server needs the --requestheader flags, or nobody can reach agents"
                    );
                }
                sender.send_if_modified(|known| {
                    let new = known.as_ref() != Some(&proxy);
                    *known = Some(proxy);
                    new
                });
            }
            Err(error) => tracing::warn!(%error, "watch of the front proxy's ConfigMap broke and is tried again"),
        }
    }
}

fn utf8(value: &HeaderValue) -> Option<String> {
    std::str::from_utf8(value.as_bytes()).ok().map(str::to_owned)
}

/// The key without percent encoding. A key that is no UTF-8 after decoding is returned unchanged.
fn percent_decode(key: &str) -> String {
    let mut bytes = Vec::with_capacity(key.len());
    let mut rest = key.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let hex = tail.get(..2).filter(|_| first == b'%').and_then(|two| std::str::from_utf8(two).ok());
        match hex.and_then(|two| u8::from_str_radix(two, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| key.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn proxy() -> FrontProxy {
        let map = json!({"data": {
            "requestheader-client-ca-file": "PEM",
            "requestheader-allowed-names": r#"["front-proxy-client"]"#,
            "requestheader-username-headers": r#"["X-Remote-User"]"#,
            "requestheader-group-headers": r#"["X-Remote-Group"]"#,
            "requestheader-extra-headers-prefix": r#"["X-Remote-Extra-"]"#,
        }});
        FrontProxy::from_config_map(&serde_json::from_value(map).unwrap())
    }

    fn certificate(name: &str) -> PeerCertificate {
        PeerCertificate { common_name: Some(name.into()), der: Vec::new().into() }
    }

    fn headers() -> HeaderMap {
        let pairs = [
            ("x-remote-user", "alice"),
            ("x-remote-group", "dev"),
            ("x-remote-group", "system:authenticated"),
            ("x-remote-extra-example.org%2fscope", "a"),
        ];
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn the_user_is_read_from_the_configured_headers() {
        let user = proxy().user(Some(&certificate("front-proxy-client")), &headers()).unwrap();
        assert_eq!(user.name, "alice");
        assert_eq!(user.groups, ["dev", "system:authenticated"]);
        assert_eq!(user.extra["example.org/scope"], ["a"]);
    }

    #[test]
    fn a_user_whose_name_is_not_ascii_is_read_as_the_api_server_sends_it() {
        // What `transport.SetAuthProxyHeaders` of client-go 0.34.4 sends: values as they are, keys of extra fields percent-encoded.
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("x-remote-user", "jürgen@例え.jp"),
            ("x-remote-group", "Entwickler/Köln 100%41"),
            ("x-remote-extra-%e9%83%a8%e7%bd%b2", "開発"),
        ] {
            headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        let user = proxy().user(Some(&certificate("front-proxy-client")), &headers).unwrap();
        assert_eq!((user.name.as_str(), user.groups.as_slice()), ("jürgen@例え.jp", ["Entwickler/Köln 100%41".to_owned()].as_slice()));
        assert_eq!(user.extra["部署"], ["開発"]);
    }

    #[test]
    fn a_request_with_a_value_that_is_no_utf8_has_no_user() {
        for name in ["x-remote-user", "x-remote-group", "x-remote-extra-scope"] {
            let mut headers = headers();
            headers.insert(name, HeaderValue::from_bytes(b"a\xff").unwrap());
            assert_eq!(proxy().user(Some(&certificate("front-proxy-client")), &headers), None, "{name}");
        }
    }

    #[test]
    fn a_request_without_the_certificate_has_no_user() {
        assert_eq!(proxy().user(None, &headers()), None);
        assert_eq!(proxy().user(Some(&certificate("kubelet")), &headers()), None);
        assert_eq!(proxy().user(Some(&certificate("front-proxy-client")), &HeaderMap::new()), None);
        let none = FrontProxy { ca_pem: None, ..proxy() };
        assert_eq!(none.user(Some(&certificate("front-proxy-client")), &headers()), None);
        let any = FrontProxy { allowed_names: Vec::new(), ..proxy() };
        assert!(any.user(Some(&certificate("kubelet")), &headers()).is_some());
    }
}
