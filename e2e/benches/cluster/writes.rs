//! Counts writes by two sources: the API server's metrics and the operator's.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};

#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Writes {
    /// Requests of all clients that changed or tried to change an object of yoi.dev, from the API server's metrics.
    pub ours: u64,
    /// Requests of the operator to change an object of any kind, from its own metrics, without its Lease.
    pub operators: u64,
}

impl Writes {
    pub fn since(self, before: Writes) -> Writes {
        Writes { ours: self.ours - before.ours, operators: self.operators - before.operators }
    }
}

fn sum(text: &str, wanted: impl Fn(&str) -> bool) -> u64 {
    let lines = text.lines().filter(|line| wanted(line));
    lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum::<f64>() as u64
}

pub async fn count_writes(ns: &TestNamespace) -> Result<Writes> {
    let get = |path: String| ns.client.request_text(http::Request::get(path).body(vec![]).expect("a path without odd characters"));
    let server = get("/metrics".into()).await?;
    let ours = sum(&server, |line| {
        let changes = ["POST", "PUT", "PATCH", "APPLY", "DELETE"].iter().any(|verb| line.contains(&format!("verb=\"{verb}\"")));
        line.starts_with("apiserver_request_total{") && line.contains("group=\"yoi.dev\"") && changes
    });
    let pods: Api<Pod> = Api::namespaced(ns.client.clone(), "yoi-system");
    let mut operators = 0;
    for pod in pods.list(&ListParams::default().labels("app.kubernetes.io/name=yoi-operator")).await? {
        let text = get(format!("/api/v1/namespaces/yoi-system/pods/{}:8080/proxy/metrics", pod.name_any())).await?;
        ensure!(text.contains("yoi_operator_api_writes"), "the operator does not count its writes");
        operators += sum(&text, |line| line.starts_with("yoi_operator_api_writes_total{") && !line.contains("resource=\"leases\""));
    }
    ensure!(operators > 0, "the operator has written nothing so far");
    Ok(Writes { ours, operators })
}

/// Returns the count once two counts, ten seconds apart, are equal.
pub async fn count_writes_when_quiet(ns: &TestNamespace) -> Result<Writes> {
    let began = std::time::Instant::now();
    let mut last = count_writes(ns).await.context("failed to count what is written")?;
    loop {
        tokio::time::sleep(Duration::from_secs(10)).await;
        let now = count_writes(ns).await?;
        if now == last {
            return Ok(now);
        }
        ensure!(began.elapsed() < 4 * TIMEOUT, "objects are written again and again");
        last = now;
    }
}
