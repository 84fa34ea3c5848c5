//! Planted faults that this harness must find.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, PostParams};
use kube::runtime::conditions::is_crd_established;
use kube::runtime::wait::await_condition;
use yoi_e2e::poll_until;
use yoi_e2e::test_namespace::{TestNamespace, client_as_operator};
use yoi_test_support::limit;

use crate::api_server::{ApiServer, Response};
use crate::case::{Case, Expected, KINDS, Kind};
use crate::compare::Report;
use crate::dry_run::{create_specimens, send_all};
use crate::{decisions, handwritten, schema};

/// API group of copies of our CRDs without their rules.
const GROUP: &str = "planted.yoi.example";

/// Compares all cases with an API server that accepts everything.
pub fn accept_everything() -> Report {
    let mut report = Report::default();
    for case in crate::CASES.iter().filter(|c| c.expected == Expected::Refused) {
        report.compare(case, &Response::Accepted(case.text.clone()), |_, _| Ok(()), |_, _| Ok(decisions::Decision::default()));
    }
    report
}

/// Reads as [`decisions::read`], with two faults: it refuses one enum value of the schema, and panics at another.
pub fn read_with_faults(kind: Kind, text: &str) -> Result<(), String> {
    assert!(!text.contains("\"binding\":\"Immediate\""), "a word that nobody thought of");
    if text.contains("\"provider\":\"Copy\"") {
        return Err("unknown variant `Copy`, expected `Auto` or `Btrfs`".to_owned());
    }
    decisions::read(kind, text)
}

/// Rules that other rules imply, with the reason. They exist for their better message, or for whoever may pass the other one.
pub const IMPLIED: [(Kind, &str, &str); 11] = [
    (
        Kind::YoiPod,
        "spawnedBy is immutable",
        "an admission policy lets the gateway alone write spawnedBy, and cases are sent as the operator",
    ),
    (Kind::YoiPeer, "members are immutable: make another YoiPeer", "a name never changes, and the name is made of the members"),
    (Kind::YoiPod, MOVING_REF, FETCHED_ONCE),
    (Kind::AgentWorkspace, MOVING_REF, FETCHED_ONCE),
    (Kind::YoiPod, SYNC_OR_REFRESH, NEVER_SYNCED),
    (Kind::AgentWorkspace, SYNC_OR_REFRESH, NEVER_SYNCED),
    (Kind::YoiPod, WHOLE_HISTORY, NEVER_SYNCED),
    (Kind::AgentWorkspace, WHOLE_HISTORY, NEVER_SYNCED),
    (Kind::AgentWorkspace, PLAIN_PATH, CHECKED_BEFORE),
    (Kind::AgentWorkspace, MOST_RULES, CHECKED_BEFORE),
    (Kind::AgentWorkspace, HIDDEN_WHOLE, CHECKED_BEFORE),
];
const PLAIN_PATH: &str =
    "a path is relative to the tree and has plain names, e.g. src/parser, or it is . for the whole tree; git's own folder has no rules";
const MOST_RULES: &str = "at most 64 rules are taken, allowed and denied together";
const HIDDEN_WHOLE: &str = "what is denied to be read is hidden with all below it: recursive must be true there";
const CHECKED_BEFORE: &str =
    "the gateway alone writes claims, after it has checked their rules, and cases that are written by hand change specs";
const MOVING_REF: &str = "refresh needs a ref that can move: a commit id never does";
const SYNC_OR_REFRESH: &str = "of sync and refresh only one: trees are made from what was synced last, or from where the branch is";
const WHOLE_HISTORY: &str = "sync needs the whole history: what is synced goes on from any commit of it";
const NEVER_SYNCED: &str = "a source of a workspace has no sync at all";
const FETCHED_ONCE: &str = "a source of a workspace has no refresh at all";

pub struct DroppedRules {
    /// Rules of all kinds, and those whose absence was found.
    pub all: BTreeSet<(Kind, String)>,
    pub seen: BTreeSet<(Kind, String)>,
    /// Message of one fault that was found.
    pub sentence: String,
}

/// Creates copies of our CRDs without rules and returns which of the dropped rules the cases find missing.
pub async fn without_rules() -> Result<DroppedRules> {
    let ns = TestNamespace::create("planted").await?;
    remove(&ns).await?;
    let found = find_dropped_rules(&ns).await;
    remove(&ns).await?;
    ns.remove().await?;
    found
}

async fn find_dropped_rules(ns: &TestNamespace) -> Result<DroppedRules> {
    let crds: Api<CustomResourceDefinition> = Api::all(ns.client.clone());
    for crd in crds_without_rules()? {
        let made = crds.create(&PostParams::default(), &crd).await?;
        let name = made.metadata.name.context("a name")?;
        tokio::time::timeout(limit(Duration::from_secs(60)), await_condition(crds.clone(), &name, is_crd_established())).await??;
    }
    let cases: Vec<Case> = handwritten::all().into_iter().filter(|c| c.expected == Expected::Refused).collect();
    let cases = Arc::new(cases);
    let real = ApiServer::new(&client_as_operator().await?, &ns.name);
    let copy = ApiServer { group: GROUP.to_owned(), ..real.clone() };
    create_specimens(&real).await?;
    create_specimens(&copy).await?;
    let (with_rules, without_rules) = (send_all(&real, &cases).await?, send_all(&copy, &cases).await?);
    let rules: BTreeMap<Kind, BTreeSet<String>> =
        KINDS.into_iter().map(|kind| (kind, schema::rules(&schema::of(kind)).into_iter().map(|(_, message)| message).collect())).collect();
    let mut dropped = DroppedRules { all: BTreeSet::new(), seen: BTreeSet::new(), sentence: String::new() };
    for (kind, messages) in &rules {
        dropped.all.extend(messages.iter().map(|m| (*kind, m.clone())));
    }
    for ((case, with), without) in cases.iter().zip(&with_rules).zip(&without_rules) {
        // Only cases that a single rule refuses show that this rule is missing.
        let Response::Refused(refusal) = with else { continue };
        let [(_, only)] = refusal.causes.as_slice() else { continue };
        let Some(rule) = rules[&case.kind].iter().find(|r| only.contains(r.as_str())) else { continue };
        let mut report = Report::default();
        report.compare(case, without, |_, _| Ok(()), |_, _| Ok(decisions::Decision::default()));
        if let Some(fault) = report.faults.iter().find(|f| f.what.contains("takes what must be refused")) {
            dropped.seen.insert((case.kind, rule.clone()));
            dropped.sentence = format!("{}: {}", fault.case, fault.what);
        }
    }
    Ok(dropped)
}

fn crds_without_rules() -> Result<Vec<CustomResourceDefinition>> {
    yoi_crds::all()
        .into_iter()
        .filter(|c| c.spec.scope == "Namespaced")
        .map(|crd| {
            let mut copy = serde_json::to_value(crd)?;
            let plural = copy["spec"]["names"]["plural"].as_str().unwrap_or_default().to_owned();
            copy["metadata"]["name"] = format!("{plural}.{GROUP}").into();
            copy["spec"]["group"] = GROUP.into();
            for field in ["shortNames", "categories"] {
                copy["spec"]["names"].as_object_mut().context("names")?.remove(field);
            }
            schema::without_rules(&mut copy, &|_| true);
            Ok(serde_json::from_value(copy)?)
        })
        .collect()
}

async fn remove(ns: &TestNamespace) -> Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(ns.client.clone());
    let names: Vec<String> = KINDS.into_iter().filter(|k| k.namespaced()).map(|k| format!("{}.{GROUP}", k.plural())).collect();
    for name in &names {
        match crds.delete(name, &DeleteParams::default()).await {
            Ok(_) => {}
            Err(kube::Error::Api(s)) if s.is_not_found() => {}
            Err(e) => return Err(e.into()),
        }
    }
    poll_until(Duration::from_secs(60), "the copies of the CRDs are gone", async || {
        for name in &names {
            if crds.get_opt(name).await?.is_some() {
                return Ok(None);
            }
        }
        Ok(Some(()))
    })
    .await
    .map(drop)
}
