//! A namespace whose Pods may run only as users of its own range, by an admission policy that copies the rule of OpenShift's `restricted-v2`.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use serde_json::{Value, json};
use yoi_crds::YoiProject;
use yoi_crds::condition::ConditionStatus;
use yoi_e2e::poll_until;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};

use crate::tool_output;

const FIRST: i64 = 1_000_660_000;
const LAST: i64 = 1_000_669_999;
const REFUSED: &str = "runs as a user outside of the range of its namespace";
const SCRIPT: &str = "
rules:
- steps:
  - toolCalls:
    - { tool: Shell, args: { command: 'id -u && echo mine > own.txt && git add own.txt && git commit -qm own && stat -c %u own.txt' } }
  - text: Done.
";

/// The rule, for Pods of this namespace but those that the test made before it. It goes with the namespace.
async fn allow_only_the_range(ns: &TestNamespace) -> Result<()> {
    let namespace = Api::<Namespace>::all(ns.client.clone()).get(&ns.name).await?;
    let owner = json!([{ "apiVersion": "v1", "kind": "Namespace", "name": ns.name, "uid": namespace.metadata.uid.context("a namespace without a UID")? }]);
    let metadata = json!({ "name": format!("{}-uid-range", ns.name), "ownerReferences": owner });
    let within = |value: &str| format!("({value} >= {FIRST} && {value} <= {LAST})");
    let of_container = |of: &str| {
        let user = within("c.securityContext.runAsUser");
        format!("object.spec.{of}.all(c, !has(c.securityContext) || !has(c.securityContext.runAsUser) || {user})")
    };
    let pod = "has(object.spec.securityContext) && has(object.spec.securityContext.runAsUser)";
    let group = within("object.spec.securityContext.fsGroup");
    let rules = [
        format!("{pod} && {}", within("object.spec.securityContext.runAsUser")),
        of_container("containers"),
        format!("!has(object.spec.initContainers) || {}", of_container("initContainers")),
        format!("!has(object.spec.securityContext.fsGroup) || {group}"),
    ];
    let validations: Vec<Value> = rules.iter().map(|rule| json!({ "expression": rule, "message": REFUSED })).collect();
    let api = "admissionregistration.k8s.io/v1";
    let policy = json!({
        "apiVersion": api, "kind": "ValidatingAdmissionPolicy", "metadata": metadata,
        "spec": { "validations": validations, "matchConstraints": {
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": ns.name } },
            "resourceRules": [{ "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"] }],
        } },
    });
    let binding = json!({
        "apiVersion": api, "kind": "ValidatingAdmissionPolicyBinding", "metadata": metadata,
        "spec": { "policyName": metadata["name"], "validationActions": ["Deny"] },
    });
    ns.apply(&format!("{policy}\n---\n{binding}")).await?;
    let other = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "other" }, "spec": {
        "securityContext": { "runAsUser": 1000, "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
        "containers": [{ "name": "c", "image": "registry.invalid/c", "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } } }],
    } });
    let look = async || {
        let made = ns.kubectl_with_input(&["create", "--dry-run=server", "-f", "-"], &other.to_string()).await?;
        Ok((made.code != 0 && made.err.contains(REFUSED)).then_some(()))
    };
    poll_until(TIMEOUT, "the rule is in force", look).await.map(drop)
}

#[tokio::test]
async fn where_only_users_of_a_range_may_run_an_agent_works_as_an_owner_of_it_and_another_owner_is_told_why_not() -> Result<()> {
    let ns = TestNamespace::create("uid-range").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_git_server().await?;
    allow_only_the_range(&ns).await?;
    let source = json!({ "git": { "url": format!("git://git.{}.svc:9418/project.git", ns.name) } });
    ns.create_project_with("outside", json!({ "source": source })).await?;
    ns.create_project_with("within", json!({ "source": source, "owner": { "uid": FIRST, "gid": FIRST } })).await?;

    ns.wait_for::<YoiProject, ()>("outside", "a condition with the rule's own words", |project| {
        let conditions = &project?.status.as_ref()?.conditions;
        conditions.iter().any(|condition| condition.message.contains(REFUSED)).then_some(())
    })
    .await?;
    ns.wait_condition::<YoiProject>("within", "Ready", ConditionStatus::True).await?;
    ns.create_agent("a", "within", json!({ "task": "work", "completion": "Stop" })).await?;
    ns.wait_task_complete("a").await?;
    let output = tool_output::last(&ns, "a").await?;
    ensure!(output.matches(&FIRST.to_string()).count() == 2, "its user and the owner of its file: {output}");
    // The reader of a stopped agent is such a Pod, too.
    let diff = ns.yoi(&["diff", "a"]).await?.exit_ok()?.out;
    ensure!(diff.contains("+mine"), "{diff}");
    ns.remove().await
}
