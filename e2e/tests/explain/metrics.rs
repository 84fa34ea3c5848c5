//! Every metric that our processes serve is in `docs/metrics.md` with the same type and help text. The processes' own tests check that every row
//! has its metric, because a metric that was never counted is not served.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use yoi_e2e::test_namespace::TestNamespace;

/// Returns name, type and help text of each metric in an OpenMetrics text.
fn families(text: &str) -> Result<Vec<(String, String, String)>> {
    let mut found = Vec::new();
    for line in text.lines() {
        let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) else { continue };
        let kind = text.lines().find_map(|l| l.strip_prefix(&format!("# TYPE {name} "))).with_context(|| format!("{name} has no type"))?;
        found.push((name.to_owned(), kind.to_owned(), help.to_owned()));
    }
    let samples = text.lines().filter(|l| !l.starts_with('#') && !l.is_empty());
    for sample in samples {
        ensure!(found.iter().any(|(name, _, _)| sample.starts_with(name.as_str())), "a sample without a help text: {sample}");
    }
    Ok(found)
}

#[tokio::test]
async fn every_metric_is_documented_with_its_meaning_and_unit() -> Result<()> {
    let ns = TestNamespace::create("metrics").await?;
    let page = include_str!("../../../docs/metrics.md");
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    let stray = rows.iter().find(|row| !["operator", "gateway", "shim"].iter().any(|who| row.starts_with(&format!("| `yoi_{who}_"))));
    ensure!(stray.is_none(), "a row of no process: {stray:?}");
    let mut seen = BTreeSet::new();
    for (namespace, app, port) in
        [("yoi-system", "yoi-operator", 8080), ("yoi-system", "yoi-gateway", 8080), ("yoi-node", "yoi-agent-shim", 8081)]
    {
        let api: Api<Pod> = Api::namespaced(ns.client.clone(), namespace);
        let pods = api.list(&ListParams::default().labels(&format!("app.kubernetes.io/name={app}"))).await?.items;
        ensure!(!pods.is_empty(), "no {app}");
        // One that does not lead, or whose node makes no trees, has counted little.
        for pod in pods {
            let path = format!("/api/v1/namespaces/{namespace}/pods/{}:{port}/proxy/metrics", pod.name_any());
            let text = ns.kubectl(&["get", "--raw", &path]).await?.exit_ok()?.out;
            for (name, kind, help) in families(&text)? {
                ensure!(help.split_whitespace().count() >= 3, "{name} does not say what it means: {help}");
                ensure!(!name.ends_with("_seconds") || help.contains("in seconds"), "{name} does not say its unit: {help}");
                let row = format!("| `{name}` | {kind} | {} |", help.trim_end_matches('.'));
                ensure!(rows.contains(&row.as_str()), "docs/metrics.md lacks or words otherwise:\n{row}");
                seen.insert(name);
            }
        }
    }
    ensure!(seen.len() * 2 >= rows.len(), "only {} of {} metrics were seen", seen.len(), rows.len());
    ns.remove().await
}
