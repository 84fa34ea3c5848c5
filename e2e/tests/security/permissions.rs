//! Compares the permissions of our service accounts, as the API server reports them, with a committed list, so that a new permission is noticed.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::authorization::v1::SelfSubjectRulesReview;
use kube::api::{Api, PostParams};
use serde_json::json;
use yoi_e2e::test_namespace::TestNamespace;

use crate::api::{bearer, our_pod, token};

/// Returns one line for each rule: groups, resources, names, verbs.
async fn permissions(ns: &TestNamespace, token: &str, namespace: &str) -> Result<BTreeSet<String>> {
    let client = bearer(token).await?;
    let review: SelfSubjectRulesReview = serde_json::from_value(json!({ "spec": { "namespace": namespace } }))?;
    let answer = Api::<SelfSubjectRulesReview>::all(client).create(&PostParams::default(), &review).await?;
    let status = answer.status.with_context(|| format!("no rules in {}", ns.name))?;
    ensure!(!status.incomplete, "the API server cannot tell all rules: {:?}", status.evaluation_error);
    let sorted = |words: Option<Vec<String>>| {
        let words: BTreeSet<String> = words.unwrap_or_default().into_iter().collect();
        words.into_iter().map(|w| if w.is_empty() { "core".to_owned() } else { w }).collect::<Vec<_>>().join(",")
    };
    let resources = status.resource_rules.into_iter().map(|rule| {
        let names = sorted(rule.resource_names);
        let names = if names.is_empty() { String::new() } else { format!(" named {names}") };
        format!("{} {}{names}: {}", sorted(rule.api_groups), sorted(rule.resources), sorted(Some(rule.verbs)))
    });
    let others =
        status.non_resource_rules.into_iter().map(|rule| format!("{}: {}", sorted(rule.non_resource_urls), sorted(Some(rule.verbs))));
    Ok(resources.chain(others).collect())
}

/// Returns the lines of a committed list without its comments.
fn parse_list(text: &str) -> BTreeSet<String> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

#[tokio::test]
async fn our_accounts_have_the_permissions_of_the_committed_list_and_no_more() -> Result<()> {
    let ns = TestNamespace::create("powers").await?;
    let plain = self::token(&ns, &ns.name, "default", &[], None).await?;
    let baseline = permissions(&ns, &plain, &ns.name).await?;
    let mut wrong = Vec::new();
    for (namespace, app, list) in [
        ("yoi-node", "yoi-agent-shim", include_str!("permissions/shim.txt")),
        ("yoi-system", "yoi-gateway", include_str!("permissions/gateway.txt")),
        ("yoi-system", "yoi-operator", include_str!("permissions/operator.txt")),
    ] {
        let pod = our_pod(&ns, namespace, app).await?;
        let token = token(&ns, namespace, app, &[], Some(&pod)).await?;
        // In any namespace and in its own one, without what every account may do.
        let mut has = permissions(&ns, &token, &ns.name).await?;
        has.extend(permissions(&ns, &token, namespace).await?);
        has.retain(|line| !baseline.contains(line));
        let (listed, lines) = (parse_list(list), has.iter().cloned().collect::<Vec<_>>().join("\n"));
        let more: Vec<_> = has.difference(&listed).collect();
        let less: Vec<_> = listed.difference(&has).collect();
        if !more.is_empty() || !less.is_empty() {
            wrong.push(format!("{app} may do more: {more:#?}, less: {less:#?}. All:\n{lines}\n"));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    ns.remove().await
}
