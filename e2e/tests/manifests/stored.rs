//! Odd objects that are really stored: each reports what is wrong with it, none delays another object, and no process panics or restarts.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{Api, DeleteParams, ListParams, LogParams, PostParams};
use kube::core::DynamicObject;
use kube::discovery::ApiResource;
use serde_json::{Value, json};
use yoi_crds::{AgentWorkspace, ConditionStatus, YoiPod};
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace, client_as_operator, uid};
use yoi_e2e::{poll_seen, poll_until};
use yoi_test_support::limit;

use crate::api_server::{ApiServer, Response};
use crate::case::{Case, Expected, KINDS, Kind, Method};
use crate::compare::{condition_problem, conditions};

/// How long an object may exist without a condition, on a quiet machine.
const CONDITION_LIMIT: Duration = Duration::from_secs(30);

/// How many writes all odd objects together may get in 20 seconds.
pub const QUIET_WRITES: usize = 20;

#[derive(Default)]
pub struct Outcome {
    pub made: usize,
    pub refused: usize,
    pub slowest: Duration,
    pub before: Duration,
    pub after: Duration,
    pub writes: usize,
    pub reasons: BTreeMap<String, usize>,
}

pub async fn run() -> Result<Outcome> {
    let ns = TestNamespace::create("oddities").await?;
    let processes = processes(&ns).await?;
    let server = ApiServer::new(&client_as_operator().await?, &ns.name);
    let mut outcome = Outcome { before: time_agent(&ns, "before").await?, ..Outcome::default() };

    // Objects of every kind and class, as many as a small cluster can hold.
    let cases = choose_cases();
    let answers: Vec<(&Case, Response)> = stream::iter(&cases)
        .map(|case| {
            let server = server.clone();
            async move { anyhow::Ok((case, server.send(case, false).await?)) }
        })
        .buffered(4)
        .collect::<Vec<_>>()
        .await
        .into_iter()
        .collect::<Result<_>>()?;
    let mut expected = BTreeMap::new();
    for (case, response) in &answers {
        match response {
            Response::Accepted(_) => {
                outcome.made += 1;
                expected.insert((case.kind, case.name.clone()), case.description());
            }
            Response::Refused(r) => {
                outcome.refused += 1;
                ensure!(case.expected != Expected::Accepted, "{} is refused: {}", case.description(), r.message);
            }
        }
    }
    outcome.made += create_related_objects(&ns).await?;
    outcome.slowest = wait_conditions(&ns, &expected, &mut outcome.reasons).await?;
    check_related_objects(&ns).await?;

    // The kubelet may pause before it mounts again, so the faster of two agents counts.
    outcome.after = time_agent(&ns, "after").await?.min(time_agent(&ns, "after-2").await?);
    // Agents that are odd but run may still be starting.
    let (quiet, start) = (Duration::from_secs(20), Instant::now());
    outcome.writes = writes(&ns, quiet).await?;
    while outcome.writes > QUIET_WRITES && start.elapsed() < limit(TIMEOUT) {
        println!("{} writes in {quiet:?}, while some may still be starting", outcome.writes);
        outcome.writes = writes(&ns, quiet).await?;
    }
    check_processes(&ns, &processes).await?;
    ns.remove().await?;
    Ok(outcome)
}

/// Chooses cases that create objects and may be accepted, spread over kinds and classes, with few that cause work on the node.
fn choose_cases() -> Vec<Case> {
    let mut left = BTreeMap::from([(Kind::YoiProject, 24), (Kind::YoiPod, 120), (Kind::AgentWorkspace, 60)]);
    let mut of_class: BTreeMap<(Kind, &str), usize> = BTreeMap::new();
    let mut fetching = 3;
    let mut chosen = Vec::new();
    for case in crate::CASES.iter() {
        let whole = matches!(case.method, Method::Create | Method::Apply) && case.expected != Expected::Refused;
        // The garbage collector deletes an object with an unknown owner, and nobody takes a foreign finalizer off a project.
        let owned = matches!(case.class, "owners" | "dates") || case.class == "finalizers" && case.kind == Kind::YoiProject;
        let Some(left) = left.get_mut(&case.kind).filter(|n| whole && !owned && **n > 0) else { continue };
        let seen = of_class.entry((case.kind, case.class)).or_default();
        if *seen >= 9 {
            continue;
        }
        // A git source starts a Pod that clones.
        let fetches = matches!(case.label, "git" | "git tree");
        if fetches && fetching == 0 {
            continue;
        }
        fetching -= usize::from(fetches);
        *seen += 1;
        *left -= 1;
        chosen.push(case.clone());
    }
    chosen
}

/// Creates a project and an agent, and returns the time until the agent is Ready.
async fn time_agent(ns: &TestNamespace, name: &str) -> Result<Duration> {
    let start = Instant::now();
    ns.create_empty_project(name).await?;
    ns.create_agent(name, name, json!({})).await?;
    ns.wait_agent_ready(name).await?;
    Ok(start.elapsed())
}

fn agent(name: &str, more: &Value) -> Value {
    let mut spec = json!({ "projectRef": { "name": "before" }, "agent": { "builtin": {} }, "desiredState": "Stopped" });
    spec.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
    json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPod", "metadata": { "name": name }, "spec": spec })
}

fn tree(name: &str, spec: &Value) -> Value {
    json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "AgentWorkspace", "metadata": { "name": name }, "spec": spec })
}

fn pair(a: &str, b: &str) -> Value {
    json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPeer", "metadata": { "name": format!("{a}.{b}") }, "spec": { "members": [a, b] } })
}

/// Creates objects that are odd because of the objects that they name. Returns their number.
async fn create_related_objects(ns: &TestNamespace) -> Result<usize> {
    // One workspace that exists only in another namespace, and one that was deleted.
    let beside = ns.create_other().await?;
    beside.apply(&tree("elsewhere", &json!({ "source": { "empty": {} } })).to_string()).await?;
    ns.apply(&tree("gone", &json!({ "source": { "empty": {} } })).to_string()).await?;
    ns.delete::<AgentWorkspace>("gone").await?;
    ns.wait_gone::<AgentWorkspace>("gone").await?;
    let claim = |name: &str| {
        json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": name }, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "none-such", "resources": { "requests": { "storage": "1Gi" } } } })
    };
    let fork = |of: &str| json!({ "source": { "workspace": { "name": of } } });
    let objects = [
        agent("no-project", &json!({ "projectRef": { "name": "nobody" }, "desiredState": "Running" })),
        agent("no-tree", &json!({ "workspace": { "ref": { "name": "nobody" } } })),
        agent("gone-tree", &json!({ "workspace": { "ref": { "name": "gone" } } })),
        agent("their-tree", &json!({ "workspace": { "ref": { "name": "elsewhere" } } })),
        agent("no-claim", &json!({ "session": { "claimName": "nobody" } })),
        agent(
            "no-parent",
            &json!({ "workspace": { "template": { "source": { "workspace": { "name": "nobody" } } } }, "desiredState": "Running" }),
        ),
        tree("orphan", &fork("nobody")),
        tree("fork-of-gone", &fork("gone")),
        tree("fork-of-theirs", &fork("elsewhere")),
        tree("narcissus", &fork("narcissus")),
        tree("hen", &fork("egg")),
        tree("egg", &fork("hen")),
        tree("of-nothing", &json!({ "source": { "project": { "name": "nobody" } } })),
        agent("on-a-base", &json!({ "workspace": { "ref": { "name": "based-nowhere" } } })),
        tree("claimed", &json!({ "source": { "empty": {} }, "claim": true })),
        agent("on-a-claim", &json!({ "workspace": { "ref": { "name": "claimed" } } })),
        tree("shared", &json!({ "source": { "empty": {} } })),
        agent("first-there", &json!({ "workspace": { "ref": { "name": "shared" } } })),
        claim("taken-name"),
        tree("taken-name", &json!({ "source": { "empty": {} }, "claim": true })),
        claim("squatter-session"),
        agent("squatter", &json!({})),
        pair("before", "nobody"),
        pair("nobody", "nothing"),
    ];
    for object in &objects {
        ns.apply(&object.to_string()).await?;
    }
    let base = tree("based-nowhere", &json!({ "source": { "empty": {} }, "base": { "generation": "0123456789", "node": "none" } }));
    let as_operator: Api<AgentWorkspace> = Api::namespaced(client_as_operator().await?, &ns.name);
    as_operator.create(&PostParams::default(), &serde_json::from_value(base)?).await?;
    ns.wait_condition::<YoiPod>("first-there", "Accepted", ConditionStatus::True).await?;
    let second = agent("second-there", &json!({ "workspace": { "ref": { "name": "shared" } } }));
    later_than(ns, "first-there", &second).await?;
    ns.apply(&second.to_string()).await?;
    create_forgeries(ns).await?;
    beside.remove().await?;
    Ok(objects.len() + 5)
}

/// Waits until `agent` would be created at a later second than the agent `former`: the API server's timestamps have no parts of one.
async fn later_than(ns: &TestNamespace, former: &str, agent: &Value) -> Result<()> {
    let former = ns.get::<YoiPod>(former).await?.metadata.creation_timestamp.context("it was created")?;
    let (dry, agent) = (PostParams { dry_run: true, ..PostParams::default() }, serde_json::from_value::<YoiPod>(agent.clone())?);
    poll_until(TIMEOUT, "the API server's clock shows another second", async || {
        let now = ns.api::<YoiPod>().create(&dry, &agent).await?.metadata.creation_timestamp;
        Ok(now.filter(|now| now.0 > former.0).map(drop))
    })
    .await
    .map(drop)
}

/// Writes what a user with rights to Pods, claims or a status can forge.
async fn create_forgeries(ns: &TestNamespace) -> Result<()> {
    ns.apply(&agent("forged", &json!({})).to_string()).await?;
    let forged: YoiPod = ns.get("forged").await?;
    let owner = json!([{ "apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPod", "name": "forged", "uid": uid(&forged), "controller": true }]);
    let pod: Pod = serde_json::from_value(json!({
        "metadata": { "name": "forged-1", "ownerReferences": owner, "labels": { "yoi.dev/role": "agent", "yoi.dev/yoipod": "forged" },
            "annotations": { "yoi.dev/run-generation": "9223372036854775807" } },
        "spec": { "nodeSelector": { "none": "such" }, "automountServiceAccountToken": false,
            "securityContext": { "runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": { "type": "RuntimeDefault" } },
            "containers": [{ "name": "agent", "image": "none", "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } } }] },
    }))?;
    ns.merge_patch::<YoiPod>("forged", &json!({ "spec": { "desiredState": "Running" } })).await?;
    create_forged_pod(&Api::namespaced(client_as_operator().await?, &ns.name), &pod).await?;
    // A workspace that is its own owner, and a claim with its label that is not its own.
    let shared: AgentWorkspace = ns.get("shared").await?;
    let own =
        json!([{ "apiVersion": "yoi.dev/v1alpha1", "kind": "AgentWorkspace", "name": "shared", "uid": uid(&shared), "controller": false }]);
    ns.merge_patch::<AgentWorkspace>(
        "shared",
        &json!({ "metadata": { "ownerReferences": own, "labels": { "yoi.dev/yoipod": "nobody" } } }),
    )
    .await?;
    let claims = ns.api::<PersistentVolumeClaim>();
    let claim: PersistentVolumeClaim = serde_json::from_value(
        json!({ "metadata": { "name": "stray", "labels": { "yoi.dev/workspace": "shared", "yoi.dev/yoipod": "nobody" } },
        "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "none-such", "resources": { "requests": { "storage": "1Gi" } } } }),
    )?;
    claims.create(&PostParams::default(), &claim).await?;
    // A status that our processes would never write.
    let status = json!({ "status": { "runGeneration": 999_999_999, "pod": { "name": "none", "uid": "none" },
        "report": { "podUID": "none", "runGeneration": -7, "ready": true, "reason": "Ünsinn", "message": "" },
        "live": { "podUID": "", "activity": "💥", "observedAt": "yesterday" }, "task": { "id": "", "state": "Nonsense" } } });
    let api = ns.api::<YoiPod>();
    api.patch_status("squatter", &Default::default(), &kube::api::Patch::Merge(&status)).await?;
    Ok(())
}

/// Creates `pod`. If the operator was faster and has a Pod of that name, that one is deleted first: its successor gets another name.
async fn create_forged_pod(pods: &Api<Pod>, pod: &Pod) -> Result<()> {
    let name = pod.metadata.name.as_deref().context("a forged Pod has a name")?;
    poll_until(TIMEOUT, "the forged Pod is created", async || match pods.create(&PostParams::default(), pod).await {
        Ok(_) => Ok(Some(())),
        Err(kube::Error::Api(status)) if status.is_already_exists() => match pods.delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
            deleted => Ok(deleted.map(|_| None)?),
        },
        Err(error) => Err(error.into()),
    })
    .await?;
    Ok(())
}

/// Checks the conditions of the objects of [`create_related_objects`].
async fn check_related_objects(ns: &TestNamespace) -> Result<()> {
    for (name, reason) in [
        ("no-project", "SourceNotFound"),
        ("no-tree", "SourceNotFound"),
        ("gone-tree", "SourceNotFound"),
        ("their-tree", "SourceNotFound"),
        ("no-claim", "SourceNotFound"),
        ("no-parent", "SourceNotFound"),
        ("on-a-base", "InvalidSpec"),
        ("on-a-claim", "InvalidSpec"),
        ("second-there", "InvalidSpec"),
        ("squatter", "InvalidSpec"),
    ] {
        ns.wait_reason::<YoiPod>(name, "Accepted", reason).await?;
    }
    for (name, reason) in [
        ("orphan", "SourceNotFound"),
        ("fork-of-gone", "SourceNotFound"),
        ("fork-of-theirs", "SourceNotFound"),
        ("narcissus", "InvalidSpec"),
        ("of-nothing", "SourceNotFound"),
        ("taken-name", "InvalidSpec"),
    ] {
        let accepted = ns.wait_reason::<AgentWorkspace>(name, "Accepted", reason).await?;
        ensure!(name != "orphan" || accepted.message.contains("nobody"), "{accepted:?}");
    }
    for name in ["hen", "egg"] {
        ns.wait_reason::<AgentWorkspace>(name, "Ready", "SourceNotSealed").await?;
    }
    ns.wait_reason::<AgentWorkspace>("based-nowhere", "Ready", "NodeLost").await?;
    for name in ["before.nobody", "nobody.nothing"] {
        ns.wait_reason::<yoi_crds::YoiPeer>(name, "Ready", "MemberMissing").await?;
    }
    Ok(())
}

fn api(ns: &TestNamespace, kind: Kind) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: "yoi.dev".into(),
        version: "v1alpha1".into(),
        api_version: "yoi.dev/v1alpha1".into(),
        kind: kind.as_str().into(),
        plural: kind.plural(),
    };
    Api::namespaced_with(ns.client.clone(), &ns.name, &resource)
}

/// Waits until every object of the namespace has a Ready condition, and checks that all messages are readable. Returns the time that took.
async fn wait_conditions(
    ns: &TestNamespace,
    known: &BTreeMap<(Kind, String), String>,
    reasons: &mut BTreeMap<String, usize>,
) -> Result<Duration> {
    let waited = poll_seen(CONDITION_LIMIT, "every object has a condition", async || {
        let mut silent = Vec::new();
        reasons.clear();
        for kind in KINDS.into_iter().filter(|k| k.namespaced()) {
            for object in api(ns, kind).list(&ListParams::default()).await? {
                let name = object.metadata.name.clone().unwrap_or_default();
                let what = known.get(&(kind, name.clone())).cloned().unwrap_or_else(|| format!("{} {name}", kind.as_str()));
                let value = serde_json::to_value(&object)?;
                let conditions = conditions(&value);
                let Some(ready) = conditions.iter().find(|c| c.type_ == "Ready") else {
                    silent.push(what);
                    continue;
                };
                *reasons.entry(format!("{} {}", kind.as_str(), ready.reason)).or_default() += 1;
                for condition in &conditions {
                    if let Some(wrong) = condition_problem(condition) {
                        anyhow::bail!("{what}: {wrong}");
                    }
                }
            }
        }
        Ok(silent.first().map_or(Ok(()), |first| Err(format!("{} objects have none, such as {first}", silent.len()))))
    });
    Ok(waited.await?.1)
}

/// Counts the changes of our objects in this namespace for a while in which this test does nothing.
async fn writes(ns: &TestNamespace, during: Duration) -> Result<usize> {
    let mut count = 0;
    let versions = async || -> Result<BTreeMap<String, String>> {
        let mut all = BTreeMap::new();
        for kind in KINDS.into_iter().filter(|k| k.namespaced()) {
            for object in api(ns, kind).list(&ListParams::default()).await? {
                let name = format!("{} {}", kind.as_str(), object.metadata.name.unwrap_or_default());
                all.insert(name, object.metadata.resource_version.unwrap_or_default());
            }
        }
        Ok(all)
    };
    let (start, mut before) = (Instant::now(), versions().await?);
    while start.elapsed() < during {
        // Only time shows how often is written.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let now = versions().await?;
        count += now.iter().filter(|(name, version)| before.get(*name) != Some(version)).count();
        before = now;
    }
    Ok(count)
}

type Processes = BTreeMap<String, i32>;

/// Returns our running Pods with the number of restarts of their containers. One of a Node that another test makes and takes away runs nowhere.
async fn processes(ns: &TestNamespace) -> Result<Processes> {
    let mut all = BTreeMap::new();
    for namespace in ["yoi-system", "yoi-node"] {
        let pods: Api<Pod> = Api::namespaced(ns.client.clone(), namespace);
        for pod in pods.list(&ListParams::default().fields("status.phase=Running")).await? {
            let restarts =
                pod.status.as_ref().and_then(|s| s.container_statuses.as_ref()).into_iter().flatten().map(|c| c.restart_count).sum();
            all.insert(format!("{namespace}/{}", pod.metadata.name.unwrap_or_default()), restarts);
        }
    }
    Ok(all)
}

async fn check_processes(ns: &TestNamespace, before: &Processes) -> Result<()> {
    let now = processes(ns).await?;
    ensure!(&now == before, "our Pods and their restarts were {before:?} and are {now:?}");
    for (pod, _) in now {
        let (namespace, name) = pod.split_once('/').context("a namespace")?;
        let pods: Api<Pod> = Api::namespaced(ns.client.clone(), namespace);
        let containers = pods.get(name).await?.spec.map(|s| s.containers).unwrap_or_default();
        for container in containers {
            let params = LogParams { container: Some(container.name.clone()), since_seconds: Some(600), ..LogParams::default() };
            let log = pods.logs(name, &params).await?;
            if let Some(line) = log.lines().find(|l| l.contains("panicked at") || l.contains("PANIC")) {
                anyhow::bail!("{pod} {}: {line}", container.name);
            }
        }
    }
    Ok(())
}
