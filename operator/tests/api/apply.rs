//! Every delete and patch names the UID, and each answer of the API server has its meaning.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use yoi_operator::apply::{Error, apply};
use yoi_operator::log_subject::LogSubject;
use yoi_plan::step::{Kind, Step, Target};

use crate::server::{ApiRequest, conflict, made, not_found, refusal, server};

fn subject() -> LogSubject {
    LogSubject { kind: "YoiPod".into(), namespace: "ns".into(), name: "a".into(), uid: "u".into(), run_generation: Some(1) }
}

fn target(kind: Kind) -> Target {
    let cluster = matches!(kind, Kind::Volume | Kind::WorkspaceNode);
    Target { kind, namespace: if cluster { String::new() } else { "ns".into() }, name: "x".into(), uid: "the-uid".into() }
}

const KINDS: [Kind; 8] =
    [Kind::Project, Kind::YoiPod, Kind::Workspace, Kind::Claim, Kind::Volume, Kind::ConfigMap, Kind::Pod, Kind::WorkspaceNode];

async fn apply_to_server(
    step: &Step,
    answer: impl Fn(&ApiRequest) -> (u16, Value) + Send + Sync + 'static,
) -> (Result<(), Error>, Vec<ApiRequest>) {
    let (client, requests) = server(answer);
    let outcome = apply(&client, &subject(), step).await;
    let requests = requests.lock().expect("the lock").clone();
    (outcome, requests)
}

fn success() -> (u16, Value) {
    (200, json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
}

#[tokio::test]
async fn every_delete_names_the_uid_that_it_means() {
    for kind in KINDS {
        let (outcome, requests) = apply_to_server(&Step::Delete(target(kind)), |_| success()).await;
        outcome.expect("it is deleted");
        let [request] = &requests[..] else { panic!("one request for {kind:?}: {requests:?}") };
        assert_eq!(request.method, "DELETE");
        assert!(request.path.ends_with("/x"), "{}", request.path);
        assert_eq!(request.body["preconditions"]["uid"], "the-uid", "{kind:?}: {}", request.body);
    }
}

#[tokio::test]
async fn a_delete_of_what_is_gone_or_another_by_now_is_done() {
    for kind in KINDS {
        assert!(apply_to_server(&Step::Delete(target(kind)), |_| not_found()).await.0.is_ok());
        assert!(apply_to_server(&Step::Delete(target(kind)), |_| conflict()).await.0.is_ok());
        let refused = apply_to_server(&Step::Delete(target(kind)), |_| refusal(403, "Forbidden", "no")).await.0;
        assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
    }
}

/// Steps that patch, with what their patch must say beside the UID.
fn patches() -> Vec<(Step, Value)> {
    let of = target(Kind::Workspace);
    let version = "41".to_owned();
    vec![
        (
            Step::AddFinalizers { of: of.clone(), resource_version: version.clone(), all: vec!["f".into()] },
            json!({"resourceVersion": "41", "finalizers": ["f"]}),
        ),
        (
            Step::RemoveFinalizer {
                of: target(Kind::YoiPod),
                resource_version: version,
                finalizer: "yoi.dev/operator",
                left: vec!["g".into()],
            },
            json!({"resourceVersion": "41", "finalizers": ["g"]}),
        ),
        (Step::OwnClaim { claim: target(Kind::Claim), owners: Vec::new() }, json!({"ownerReferences": []})),
        (
            Step::UnselectNode { claim: target(Kind::Claim), times: 2 },
            json!({"annotations": {"volume.kubernetes.io/selected-node": null, "yoi.dev/given-back": "2"}}),
        ),
        (Step::NudgeClaim { claim: target(Kind::Claim), times: 3 }, json!({"annotations": {"yoi.dev/reminded": "3"}})),
        (Step::RetainVolume { volume: target(Kind::Volume) }, json!({})),
    ]
}

#[tokio::test]
async fn every_patch_names_the_uid_and_finalizers_the_version_that_was_seen() {
    for (step, wanted) in patches() {
        let (outcome, requests) =
            apply_to_server(&step, |request| (200, json!({"metadata": {"name": "x"}, "spec": spec_of(&request.path)}))).await;
        outcome.unwrap_or_else(|e| panic!("{step:?}: {e}"));
        let [request] = &requests[..] else { panic!("one request for {step:?}: {requests:?}") };
        assert_eq!(request.method, "PATCH");
        assert!(request.headers.starts_with("application/merge-patch+json"), "{}", request.headers);
        assert_eq!(request.body["metadata"]["uid"], "the-uid", "{step:?}");
        for (key, value) in wanted.as_object().expect("an object") {
            assert_eq!(&request.body["metadata"][key], value, "{step:?}");
        }
        assert!(request.query.contains("fieldManager=yoi-operator"), "{}", request.query);
    }
}

fn spec_of(path: &str) -> Value {
    if path.contains("agentworkspaces") {
        json!({"source": {"empty": {}}})
    } else if path.contains("yoipods") {
        json!({"projectRef": {"name": "p"}, "agent": {"builtin": {}}})
    } else {
        json!({})
    }
}

#[tokio::test]
async fn a_patch_of_another_object_by_now_is_looked_at_again_and_one_of_what_is_gone_is_done() {
    for (step, _) in patches() {
        let outdated = apply_to_server(&step, |_| conflict()).await.0;
        assert!(matches!(&outdated, Err(e @ Error::Outdated { .. }) if e.is_quiet()), "{step:?}: {outdated:?}");
        assert!(apply_to_server(&step, |_| not_found()).await.0.is_ok(), "{step:?}");
    }
}

fn pod() -> Step {
    let owner = json!([{"apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPod", "name": "a", "uid": "u", "controller": true}]);
    Step::EnsurePod(Box::new(made::<Pod>(
        json!({"metadata": {"name": "a-1", "namespace": "ns", "ownerReferences": owner}, "spec": {"containers": []}}),
    )))
}

/// A name that is taken: `there` stands under it.
fn taken(there: Value) -> impl Fn(&ApiRequest) -> (u16, Value) {
    move |request| if request.method == "POST" { refusal(409, "AlreadyExists", "it exists") } else { (200, there.clone()) }
}

#[tokio::test]
async fn a_name_that_is_taken_is_ours_or_refused_and_nothing_is_touched() {
    let owned = |uid: &str| json!([{"apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPod", "name": "a", "uid": uid, "controller": true}]);
    let there = |uid: &str| json!({"metadata": {"name": "a-1", "ownerReferences": owned(uid)}, "spec": {"containers": []}});
    let (mine, requests) = apply_to_server(&pod(), taken(there("u"))).await;
    assert!(mine.is_ok());
    assert_eq!(requests.iter().map(|a| a.method.as_str()).collect::<Vec<_>>(), ["POST", "GET"]);
    let (theirs, requests) = apply_to_server(&pod(), taken(there("another"))).await;
    assert!(matches!(&theirs, Err(e @ Error::Foreign { .. }) if !e.is_quiet()), "{theirs:?}");
    assert!(requests.iter().all(|a| ["POST", "GET"].contains(&a.method.as_str())), "{requests:?}");
    let mut going = there("u");
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert!(matches!(apply_to_server(&pod(), taken(going.clone())).await.0, Err(Error::Outdated { .. })));
    // An object of another owner stays foreign until it is gone.
    going["metadata"]["ownerReferences"] = json!([]);
    assert!(matches!(apply_to_server(&pod(), taken(going)).await.0, Err(Error::Foreign { .. })));
}

#[tokio::test]
async fn a_namespace_that_goes_ends_the_round_in_silence() {
    let words = "pods \"a-1\" is forbidden: unable to create new content in namespace ns because it is being terminated";
    let (outcome, _) = apply_to_server(&pod(), move |_| refusal(403, "Forbidden", words)).await;
    assert!(matches!(&outcome, Err(e @ Error::Terminating { .. }) if e.is_quiet()), "{outcome:?}");
}

#[tokio::test]
async fn what_the_view_lacks_is_asked_for_before_a_finalizer_goes() {
    let step = |kind: Kind| Step::ConfirmGone { kind, namespace: "ns".into(), name: "x".into(), of: "u".into() };
    for kind in KINDS {
        let (outcome, requests) = apply_to_server(&step(kind), |_| not_found()).await;
        assert!(outcome.is_ok(), "{kind:?}: {outcome:?}");
        assert!(requests.iter().all(|a| a.method == "GET"), "a look changes nothing");
    }
    let owner = json!([{"apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPod", "name": "a", "uid": "u", "controller": true}]);
    let meta = |more: Value| {
        let mut meta = json!({"name": "x"});
        meta.as_object_mut().expect("an object").extend(more.as_object().cloned().expect("an object"));
        (200, json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": meta}))
    };
    let owned = meta(json!({"ownerReferences": owner}));
    let session = meta(json!({"annotations": {"yoi.dev/yoipod-uid": "u"}}));
    let strange = meta(json!({"labels": {"yoi.dev/yoipod": "a"}}));
    for (kind, answer, gone) in [
        (Kind::Pod, owned.clone(), false),
        (Kind::Claim, owned, false),
        (Kind::Claim, session, false),
        (Kind::Pod, strange.clone(), true),
        (Kind::Claim, strange, true),
    ] {
        let outcome = apply_to_server(&step(kind), move |_| answer.clone()).await.0;
        assert_eq!(outcome.is_ok(), gone, "{kind:?}: {outcome:?}");
    }
    let volume = |of: &str| {
        (200, json!({"metadata": {"name": "x"}, "spec": {"csi": {"driver": yoi_wire::identity::CSI_DRIVER, "volumeHandle": of}}}))
    };
    let (mine, theirs) = (volume("u"), volume("another"));
    assert!(apply_to_server(&step(Kind::Volume), move |_| mine.clone()).await.0.is_err());
    assert!(apply_to_server(&step(Kind::Volume), move |_| theirs.clone()).await.0.is_ok());
}

/// The Pod of the next step needs the claim, and a session that somebody took meanwhile must stay.
#[tokio::test]
async fn a_warm_claim_is_taken_and_given_back_only_as_it_was_seen() {
    let owners = Vec::new();
    let take =
        Step::TakeWarmClaim { claim: target(Kind::Claim), resource_version: "41".into(), yoipod: "a".into(), made_for: "u".into(), owners };
    let (outcome, requests) = apply_to_server(&take, |_| (200, json!({"metadata": {"name": "x"}}))).await;
    outcome.expect("it is taken");
    let [request] = &requests[..] else { panic!("one request: {requests:?}") };
    let wanted = json!({"metadata": {"uid": "the-uid", "resourceVersion": "41", "labels": {"yoi.dev/warm": null, "yoi.dev/yoipod": "a"},
        "annotations": {"yoi.dev/yoipod-uid": "u"}, "ownerReferences": []}});
    assert_eq!((request.method.as_str(), &request.body), ("PATCH", &wanted));
    for outdated in [apply_to_server(&take, |_| conflict()).await.0, apply_to_server(&take, |_| not_found()).await.0] {
        assert!(matches!(&outdated, Err(e @ Error::Outdated { .. }) if e.is_quiet()), "{outdated:?}");
    }

    let give_back = Step::DeleteUnchanged { of: target(Kind::Claim), resource_version: "41".into() };
    let (outcome, requests) = apply_to_server(&give_back, |_| success()).await;
    outcome.expect("it is deleted");
    let [request] = &requests[..] else { panic!("one request: {requests:?}") };
    assert_eq!(request.body["preconditions"], json!({"uid": "the-uid", "resourceVersion": "41"}));
    assert!(apply_to_server(&give_back, |_| conflict()).await.0.is_ok(), "an agent has taken it");
}
