//! Sends every case to the API server as a dry run and compares the answer with Rust's.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::{StreamExt, stream};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use serde_json::Value;
use yoi_e2e::poll_until;
use yoi_e2e::test_namespace::{TestNamespace, client_as_operator};

use crate::api_server::{ApiServer, Response};
use crate::case::{Case, Expected, KINDS, Method, object};
use crate::compare::Report;
use crate::{decisions, schema, specimen};

/// Number of requests at the same time.
const AT_ONCE: usize = 6;

/// Sends these cases and, of those that are accepted, what the operator would make.
pub async fn run(cases: &Arc<Vec<Case>>) -> Result<Report> {
    let ns = TestNamespace::create("manifests").await?;
    same_schema(&ns).await?;
    let server = ApiServer::new(&client_as_operator().await?, &ns.name);
    create_specimens(&server).await?;
    let responses = send_all(&server, cases).await?;
    let mut report = Report::default();
    let mut made = BTreeSet::new();
    let mut tried = Vec::new();
    for (case, response) in cases.iter().zip(&responses) {
        let decision = report.compare(case, response, decisions::read, decisions::decide);
        for object in decision.objects {
            // Objects that differ only in their names are tried once.
            if made.insert(without_name(&object)) {
                tried.push((case, object));
            }
        }
    }
    let answers: Vec<(&Case, Value, Response)> = stream::iter(tried)
        .map(|(case, object)| {
            let server = server.clone();
            async move {
                let response = server.would_make(&without_references(object.clone())).await?;
                anyhow::Ok((case, object, response))
            }
        })
        .buffered(AT_ONCE)
        .collect::<Vec<_>>()
        .await
        .into_iter()
        .collect::<Result<_>>()?;
    report.checked += answers.len();
    println!("{} objects that the operator would make were tried", answers.len());
    for (case, object, response) in answers {
        if let Response::Refused(refusal) = response
            && refusal.code != 409
        {
            let kind = object["kind"].as_str().unwrap_or_default();
            report.fault(case, format!("taken at apply, and then the operator's {kind} is refused: {}", refusal.message));
        }
    }
    ns.remove().await?;
    Ok(report)
}

pub async fn send_all(server: &ApiServer, cases: &Arc<Vec<Case>>) -> Result<Vec<Response>> {
    stream::iter(0..cases.len())
        .map(|i| {
            let (server, cases) = (server.clone(), Arc::clone(cases));
            async move { server.send(&cases[i], true).await }
        })
        .buffered(AT_ONCE)
        .collect::<Vec<_>>()
        .await
        .into_iter()
        .collect()
}

/// Creates the specimens that updates and patches change. A kind is served a moment after it is established.
pub async fn create_specimens(server: &ApiServer) -> Result<()> {
    for specimen in specimen::all().into_iter().filter(|s| !s.existing.is_empty()) {
        let case = Case {
            kind: specimen.kind,
            class: "specimen",
            title: specimen.label.to_owned(),
            method: Method::Create,
            strict: true,
            name: specimen.existing.to_owned(),
            text: object(specimen.kind, specimen.existing, &specimen.existing_spec()).to_string(),
            expected: Expected::Accepted,
            names: String::new(),
            label: specimen.label,
        };
        let served = poll_until(Duration::from_secs(60), "the kind is served", async || {
            let response = server.send(&case, false).await?;
            Ok(Some(response).filter(|response| !matches!(response, Response::Refused(refusal) if refusal.code == 404)))
        });
        let (response, _) = served.await?;
        ensure!(matches!(response, Response::Accepted(_)), "{} is not a valid specimen: {response:?}", case.description());
    }
    Ok(())
}

/// Checks that the cluster's schemas are those of this source tree, from which the cases are generated.
async fn same_schema(ns: &TestNamespace) -> Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(ns.client.clone());
    for kind in KINDS {
        let there = serde_json::to_value(&crds.get(&format!("{}.yoi.dev", kind.plural())).await?.spec.versions[0].schema)?;
        let differs = there["openAPIV3Schema"] != schema::of(kind);
        ensure!(!differs, "the cluster's {} is not of this tree: install the charts again", kind.as_str());
    }
    Ok(())
}

/// Removes a field that names another object of the cluster, which no schema can check.
fn without_references(mut object: Value) -> Value {
    if object["kind"] == "Pod"
        && let Some(spec) = object["spec"].as_object_mut()
    {
        spec.remove("runtimeClassName");
    }
    object
}

fn without_name(object: &Value) -> String {
    let mut object = object.clone();
    if let Some(meta) = object["metadata"].as_object_mut() {
        for field in ["name", "labels", "annotations", "ownerReferences"] {
            meta.remove(field);
        }
    }
    object.to_string()
}
