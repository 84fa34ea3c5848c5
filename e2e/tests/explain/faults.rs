//! Faults that a person must fix: each is made, named by the doctor, fixed by the command of the finding, and gone.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams};
use serde_json::json;
use std::future::Future;
use std::time::Duration;
use yoi_crds::AgentWorkspace;
use yoi_e2e::locks::{self, Lock};
use yoi_e2e::poll_until;
use yoi_e2e::processes::wait_all_ready;
use yoi_e2e::program::CommandOutput;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace, wait_removed};

use super::RESTORE_GATEWAYS;
use super::doctor::{Finding, doctor, run, wait_finding};
use super::errors::check_error;
use super::fix::{run_fix, wait_resolved};

const SCRIPT: &str = "rules: [{ steps: [{ text: hello }] }]";

/// Makes a fault, runs `trial`, and undoes the fault even if the trial failed, because other tests follow.
async fn with_fault(fault: &str, restore: &str, trial: impl Future<Output = Result<()>>) -> Result<()> {
    run(fault).await?.exit_ok()?;
    let tried = trial.await;
    let restored = run(restore).await.and_then(CommandOutput::exit_ok);
    tried.and(restored.map(drop))
}

#[tokio::test]
async fn a_healthy_cluster_has_neither_an_error_nor_a_warning() -> Result<()> {
    // Nothing is changed here, and whatever another test changes would be found.
    let _alone = locks::exclusive(&[Lock::Installation]).await?;
    let ns = TestNamespace::create("healthy").await?;
    // The doctor names a deletion that takes more than a minute.
    wait_removed(&ns.client).await?;
    ns.create_model(SCRIPT).await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", json!({})).await?;
    ns.wait_agent_ready("a").await?;
    // On a busy machine the doctor may rightly report a late answer. It must never report anything else.
    let late = |f: &Finding| {
        f.severity == "unknown" || (f.check == "aggregation" && (f.severity == "warning" || f.message.contains("no answer in")))
    };
    let mut bad = Vec::new();
    let healthy = poll_until(TIMEOUT, "no finding that is bad", async || {
        let findings = doctor(&ns, &[]).await?;
        bad = findings.iter().filter(|f| ["error", "warning", "unknown"].contains(&&*f.severity)).cloned().collect();
        ensure!(bad.iter().all(late), "{bad:#?}");
        Ok(bad.is_empty().then_some(findings))
    });
    let (findings, _) = healthy.await.with_context(|| format!("{bad:#?}"))?;
    for check in ["versions", "charts", "aggregation", "tokens", "nodes", "classes", "dns", "policies", "agents", "stuck", "rights"] {
        ensure!(findings.iter().any(|f| f.check == check && f.severity == "ok"), "{check} does not say that all is well: {findings:#?}");
    }
    poll_until(TIMEOUT, "the same in a table", async || {
        let table = ns.yoi(&["doctor"]).await?;
        // A late answer is counted as unknown, as a warning or as an error.
        let quiet = table.out.contains("0 unknown, 0 warning, 0 error");
        ensure!(quiet == (table.code == 0) && (quiet || table.out.contains(" 0 error") || table.out.contains("no answer in")), "{table:?}");
        Ok(quiet.then_some(()))
    })
    .await?;
    ns.remove().await
}

#[tokio::test]
async fn a_gateway_that_is_scaled_to_zero_and_the_namespace_that_cannot_end_are_named() -> Result<()> {
    let _alone = locks::exclusive(&[Lock::Gateways]).await?;
    let (ns, used) = (TestNamespace::create("nogateway").await?, TestNamespace::create("nogateway-used").await?);
    used.create_model(SCRIPT).await?;
    for ns in [&ns, &used] {
        ns.create_empty_project("p").await?;
    }
    ns.create_agent("a", "p", json!({ "desiredState": "Stopped" })).await?;
    used.create_agent("a", "p", json!({})).await?;
    used.wait_agent_ready("a").await?;
    with_fault("kubectl scale deployment yoi-gateway -n yoi-system --replicas=0", RESTORE_GATEWAYS, without_gateway(&ns, &used)).await?;
    wait_all_ready(&ns.client).await?;
    ns.remove().await
}

/// Without a gateway no namespace can be deleted, not even one without agents. Both the namespace and the doctor say why, and they end soon after its
/// return.
async fn without_gateway(ns: &TestNamespace, used: &TestNamespace) -> Result<()> {
    let gateway = wait_finding(ns, &[], "charts", "Deployment yoi-system/yoi-gateway", "scaled to 0").await?;
    let api = wait_finding(ns, &[], "aggregation", "APIService", "cannot reach the gateway").await?;
    ensure!(api.command == gateway.command, "{api:?}");
    check_error(&ns.yoi(&["log", "a"]).await?, 5, &[&format!("YoiPod {}/a", ns.name), "\n  next: ", "kubectl yoi doctor"])?;

    let namespaces: Api<Namespace> = Api::all(ns.client.clone());
    let empty = TestNamespace::create("nogateway-empty").await?;
    let deleted = [&used.name, &empty.name];
    for name in deleted {
        namespaces.delete(name, &DeleteParams::default()).await?;
    }
    let mut findings = vec![gateway, api];
    for name in deleted {
        poll_until(TIMEOUT, "the namespace says what holds it", async || {
            let namespace = namespaces.get_opt(name).await?.context("the namespace ended without a gateway: nothing was tried")?;
            let mut held = namespace.status.and_then(|status| status.conditions).into_iter().flatten().filter(|c| c.status == "True");
            let by_us = held.any(|c| c.type_.contains("Discovery") && c.message.is_some_and(|message| message.contains("runtime.yoi.dev")));
            Ok(by_us.then_some(()))
        })
        .await?;
        let object = format!("Namespace {name}");
        let words = "cannot end while the aggregated API runtime.yoi.dev does not answer";
        let stuck = wait_finding(ns, &[], "stuck", &object, words).await?;
        ensure!(stuck.object == object && stuck.severity == "error", "{stuck:?}");
        ensure!(stuck.command == "kubectl scale deployment yoi-gateway -n yoi-system --replicas=2", "{stuck:?}");
        findings.push(stuck);
    }
    run_fix(&findings[0]).await?;
    for name in deleted {
        // The namespace controller tries again once a minute at the latest; the rest is what a busy cluster takes.
        let gone = poll_until(Duration::from_secs(90), "the namespace is gone after the gateway's return", async || {
            Ok(namespaces.get_opt(name).await?.is_none().then_some(()))
        });
        println!("{name} ended {:?} after the command", gone.await?.1);
    }
    for finding in &findings {
        wait_resolved(ns, &[], finding).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_broken_ca_is_named_until_the_operator_has_set_it_again() -> Result<()> {
    let _alone = locks::exclusive(&[Lock::Gateways]).await?;
    let ns = TestNamespace::create("badca").await?;
    // The cluster's own CA, which did not sign the gateway's certificate.
    let patch = "kubectl patch apiservice v1alpha1.runtime.yoi.dev --type=merge -p \
        \"{\\\"spec\\\":{\\\"caBundle\\\":\\\"$(kubectl get configmap kube-root-ca.crt -n default -o jsonpath='{.data.ca\\.crt}' | base64 -w0)\\\"}}\"";
    // The operator checks the CA once a minute and may undo the fault before the doctor runs.
    let named_after = async |fault: &str, words: &str| -> Result<Finding> {
        let looked = poll_until(TIMEOUT, "the doctor names the CA", async || {
            run(fault).await?.exit_ok()?;
            let findings = doctor(&ns, &[]).await?;
            Ok(findings.into_iter().find(|f| f.check == "aggregation" && f.object.contains("runtime.yoi.dev") && f.message.contains(words)))
        });
        Ok(looked.await?.0)
    };
    let finding = named_after(patch, "x509").await?;
    ensure!(finding.severity == "error", "{finding:?}");
    // The operator undoes the fault without a person.
    wait_resolved(&ns, &[], &finding).await?;
    let remove = "kubectl patch apiservice v1alpha1.runtime.yoi.dev --type=merge -p '{\"spec\":{\"caBundle\":null}}'";
    let finding = named_after(remove, "no CA bundle").await?;
    run_fix(&finding).await?;
    wait_resolved(&ns, &[], &finding).await?;
    ns.remove().await
}

#[tokio::test]
async fn an_operator_that_is_scaled_to_zero_is_named() -> Result<()> {
    let _alone = locks::exclusive(&[Lock::Operator]).await?;
    let ns = TestNamespace::create("nooperator").await?;
    let scale = |replicas: u8| format!("kubectl scale deployment yoi-operator -n yoi-system --replicas={replicas}");
    with_fault(&scale(0), &scale(1), async {
        let finding = wait_finding(&ns, &[], "charts", "Deployment yoi-system/yoi-operator", "scaled to 0").await?;
        run_fix(&finding).await?;
        wait_resolved(&ns, &[], &finding).await
    })
    .await?;
    wait_all_ready(&ns.client).await?;
    // The operator leads again before the next test.
    ns.create_empty_project("p").await?;
    ns.remove().await
}

#[tokio::test]
async fn a_shim_that_no_node_matches_is_named() -> Result<()> {
    let _alone = locks::exclusive(&[Lock::Nodes]).await?;
    let ns = TestNamespace::create("noshim").await?;
    let select = |value: &str| {
        let selector = format!(r#"{{"spec":{{"template":{{"spec":{{"nodeSelector":{{"yoi.example/disk":{value}}}}}}}}}}}"#);
        format!("kubectl patch daemonset yoi-agent-shim -n yoi-node --type=merge -p '{selector}'")
    };
    with_fault(&select("\"fast\""), &select("null"), async {
        let finding = wait_finding(&ns, &[], "charts", "DaemonSet yoi-node/yoi-agent-shim", "yoi.example/disk=fast").await?;
        ensure!(finding.severity == "error", "{finding:?}");
        run_fix(&finding).await?;
        wait_resolved(&ns, &[], &finding).await
    })
    .await?;
    wait_all_ready(&ns.client).await?;
    ns.remove().await
}

#[tokio::test]
async fn missing_storage_classes_are_named_and_restored_by_the_command() -> Result<()> {
    let _alone = locks::exclusive(&[Lock::Installation]).await?;
    let ns = TestNamespace::create("classes").await?;
    let release = "helm get manifest yoi-operator -n yoi-system | kubectl apply --server-side --force-conflicts --field-manager=helm -f -";
    with_fault("kubectl delete storageclass yoi", release, async {
        let finding = wait_finding(&ns, &[], "classes", "StorageClass yoi", "it is missing").await?;
        run_fix(&finding).await?;
        wait_resolved(&ns, &[], &finding).await
    })
    .await?;

    let default = "storageclass.kubernetes.io/is-default-class";
    let before = run(&format!(
        "kubectl get storageclass -o jsonpath='{{.items[?(@.metadata.annotations.{}==\"true\")].metadata.name}}'",
        default.replace('.', "\\.")
    ))
    .await?
    .exit_ok()?
    .out;
    ensure!(!before.trim().is_empty(), "this cluster has no default class to take away");
    // Only the class that was the default before is the default again.
    let restore = format!("kubectl annotate storageclass --all {default}- && kubectl annotate storageclass {before} {default}=true");
    with_fault(&format!("kubectl annotate storageclass {before} {default}-"), &restore, async {
        let finding = wait_finding(&ns, &[], "classes", "StorageClass", "is the default").await?;
        run_fix(&finding).await?;
        wait_resolved(&ns, &[], &finding).await
    })
    .await?;
    ns.remove().await
}

#[tokio::test]
async fn a_crd_that_lacks_a_field_is_named_with_the_field() -> Result<()> {
    let _alone = locks::exclusive(&[Lock::Schemas]).await?;
    let ns = TestNamespace::create("oldcrd").await?;
    let path = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/observedGeneration";
    let fault = format!(r#"kubectl patch crd yoipeers.yoi.dev --type=json -p '[{{"op":"remove","path":"{path}"}}]'"#);
    with_fault(&fault, "kubectl yoi crds | kubectl apply --server-side --force-conflicts -f -", async {
        let finding = wait_finding(&ns, &[], "versions", "yoipeers.yoi.dev", "status.observedGeneration is missing").await?;
        run_fix(&finding).await?;
        wait_resolved(&ns, &[], &finding).await
    })
    .await?;
    ns.remove().await
}

#[tokio::test]
async fn a_missing_secret_is_made_by_the_command_and_a_missing_project_is_named() -> Result<()> {
    let ns = TestNamespace::create("missing").await?;
    ns.create_model_with_key(SCRIPT, "a-key").await?;
    let url = format!("http://scripted-model.{}.svc:8080/v1/", ns.name);
    let model = json!({ "provider": "OpenAI", "name": "scripted", "baseUrl": url, "authSecretRef": { "name": "model", "key": "token" } });
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", json!({ "model": model })).await?;
    let finding = wait_finding(&ns, &[], "agents", "YoiPod", "SecretMissing").await?;
    ensure!(finding.command.contains("create secret generic model") && finding.command.contains("--from-literal=token="), "{finding:?}");
    run_fix(&finding).await?;
    wait_resolved(&ns, &[], &finding).await?;
    ns.wait_agent_ready("a").await?;

    ns.create_agent("b", "absent", json!({ "model": model })).await?;
    let finding = wait_finding(&ns, &[], "agents", &format!("YoiPod {}/b", ns.name), "YoiProject absent does not exist").await?;
    ensure!(finding.severity == "error" && finding.command.starts_with("kubectl apply"), "{finding:?}");
    ns.create_empty_project("absent").await?;
    wait_resolved(&ns, &[], &finding).await?;
    ns.remove().await
}

#[tokio::test]
async fn a_foreign_finalizer_is_named_and_taken_off() -> Result<()> {
    let ns = TestNamespace::create("finalizer").await?;
    ns.create_empty_project("p").await?;
    ns.yoi(&["workspace", "create", "w", "--project", "p", "--claim", "--immediate", "--wait"]).await?.exit_ok()?;
    let add = format!(
        r#"kubectl patch agentworkspace w -n {} --type=json -p '[{{"op":"add","path":"/metadata/finalizers/-","value":"example.com/backup"}}]'"#,
        ns.name
    );
    run(&add).await?.exit_ok()?;
    ns.yoi(&["workspace", "rm", "w", "--force"]).await?.exit_ok()?;
    // The doctor names a deletion only after a minute.
    let finding = wait_finding(&ns, &[], "stuck", "AgentWorkspace", "example.com/backup").await?;
    run_fix(&finding).await?;
    ns.wait_gone::<AgentWorkspace>("w").await?;
    wait_resolved(&ns, &[], &finding).await?;
    ns.remove().await
}
