//! Users of the cluster.

use std::path::PathBuf;

use anyhow::Result;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use crate::test_namespace::TestNamespace;

impl TestNamespace {
    /// Creates a service account, binds it to the cluster role `role` in this namespace, and returns the path of a kubeconfig for it. The caller
    /// removes the file.
    ///
    /// # Errors
    /// When the API server refuses, or the file cannot be written.
    pub async fn kubeconfig_for(&self, name: &str, role: Option<&str>) -> Result<PathBuf> {
        self.apply(&json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name } }).to_string()).await?;
        if let Some(role) = role {
            let account = format!("{}:{name}", self.name);
            self.kubectl(&["create", "rolebinding", name, "--clusterrole", role, "--serviceaccount", &account]).await?.exit_ok()?;
        }
        let accounts: Api<ServiceAccount> = self.api();
        let request: TokenRequest = serde_json::from_value(json!({ "spec": { "audiences": [], "expirationSeconds": 3600 } }))?;
        let made = accounts.create_token_request(name, &PostParams::default(), &request).await?;
        let token = made.status.map(|status| status.token).unwrap_or_default();
        let mut config: Value = serde_yaml::from_str(&std::fs::read_to_string(std::env::var("KUBECONFIG")?)?)?;
        config["users"] = json!([{ "name": name, "user": { "token": token } }]);
        config["contexts"] = json!([{ "name": "c", "context": { "cluster": config["clusters"][0]["name"], "user": name } }]);
        config["current-context"] = json!("c");
        let path = std::env::temp_dir().join(format!("{}-{name}.kubeconfig", self.name));
        std::fs::write(&path, config.to_string())?;
        Ok(path)
    }
}
