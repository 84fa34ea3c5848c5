//! Reads a manifest with Rust's types, and runs the operator's plans for it in this process.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use yoi_crds::{AgentWorkspace, Condition, WorkspaceNode, YoiPeer, YoiPod, YoiProject};
use yoi_plan::nodes::{Node, Nodes};
use yoi_plan::settings::Settings;
use yoi_plan::step::Step;
use yoi_plan::{peer, project, workspace, yoipod};

use crate::case::Kind;

/// Reads a text as an object of a kind, as a watch does with every object.
pub type ReadFn = fn(Kind, &str) -> Result<(), String>;

pub fn read(kind: Kind, text: &str) -> Result<(), String> {
    fn parse<T: DeserializeOwned>(text: &str) -> Result<(), String> {
        serde_json::from_str::<T>(text).map(drop).map_err(|e| e.to_string())
    }
    match kind {
        Kind::YoiProject => parse::<YoiProject>(text),
        Kind::YoiPod => parse::<YoiPod>(text),
        Kind::YoiPeer => parse::<YoiPeer>(text),
        Kind::AgentWorkspace => parse::<AgentWorkspace>(text),
        Kind::WorkspaceNode => parse::<WorkspaceNode>(text),
    }
}

/// Runs `action`. Returns the message of its panic as an error.
pub fn catch_panic<T>(action: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(action)).map_err(|panic| format!("it panics: {}", words(&*panic)))
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_else(|| "without words".to_owned())
}

/// Conditions that the operator would set and objects that it would create: once when every object that the manifest names exists, and once when
/// none does.
#[derive(Default)]
pub struct Decision {
    pub conditions: Vec<Condition>,
    pub objects: Vec<Value>,
}

pub type DecideFn = fn(Kind, &str) -> Result<Decision, String>;

pub fn decide(kind: Kind, text: &str) -> Result<Decision, String> {
    let read = |e: serde_json::Error| e.to_string();
    let mut all = Decision::default();
    match kind {
        Kind::YoiProject => {
            let object: YoiProject = serde_json::from_str(text).map_err(read)?;
            catch_panic(|| plan_project(object, &mut all))?;
        }
        Kind::YoiPod => {
            let object: YoiPod = serde_json::from_str(text).map_err(read)?;
            catch_panic(|| {
                plan_yoipod(object.clone(), false, &mut all);
                plan_yoipod(object, true, &mut all);
            })?;
        }
        Kind::YoiPeer => {
            let object: YoiPeer = serde_json::from_str(text).map_err(read)?;
            catch_panic(|| plan_peer(object, &mut all))?;
        }
        Kind::AgentWorkspace => {
            let object: AgentWorkspace = serde_json::from_str(text).map_err(read)?;
            catch_panic(|| {
                plan_workspace(object.clone(), false, &mut all);
                plan_workspace(object, true, &mut all);
            })?;
        }
        // There is no plan for a WorkspaceNode; it is only read.
        Kind::WorkspaceNode => self::read(kind, text)?,
    }
    Ok(all)
}

const ROUNDS: usize = 6;
const NODE: &str = "n1";

fn from_json<T: DeserializeOwned>(object: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(object).expect("an object of this file"))
}

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).expect("a time")
}

fn settings() -> Settings {
    let gateway = yoi_wire::manifest::Gateway { lines: "l".into(), service: "s".into(), server_name: "s".into(), ca: "ca".into() };
    let claude = json!({ "name": "claude", "program": "claude", "firstArgs": ["-p"], "speaks": ["Anthropic", "ChatCompletions"], "parser": "Claude",
        "credentials": [{ "key": ".credentials.json", "path": ".claude/.credentials.json" }] });
    let claude = serde_json::from_value(claude).expect("a preset of this file");
    Settings { presets: BTreeMap::from([("claude".to_owned(), claude)]), ..Settings::new("agent", gateway) }
}

fn nodes() -> Arc<Nodes> {
    let offer = json!({ "metadata": { "name": NODE }, "spec": {}, "status": { "runtimeDigests": ["d"], "providers": [
        { "name": "Btrfs", "available": true, "reason": "here" }, { "name": "Copy", "available": true, "reason": "here" }] } });
    Arc::new(Nodes(BTreeMap::from([(NODE.to_owned(), Node { offer: Some(from_json(offer)), ..Node::default() })])))
}

fn true_condition(type_: &str) -> Value {
    json!({ "type": type_, "status": "True", "reason": "Is", "message": "It is.", "lastTransitionTime": "2026-01-01T00:00:00Z" })
}

/// Sets metadata as the API server does, and our finalizers, as the second round of a plan sees them.
fn set_server_metadata(meta: &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta, uid: &str) {
    meta.uid.get_or_insert_with(|| uid.to_owned());
    meta.namespace.get_or_insert_with(|| "ns".to_owned());
    meta.resource_version.get_or_insert_with(|| "1".to_owned());
    meta.deletion_timestamp = None;
    for finalizer in ["yoi.dev/operator", "yoi.dev/node-data"] {
        let all = meta.finalizers.get_or_insert_default();
        if !all.iter().any(|f| f == finalizer) {
            all.push(finalizer.to_owned());
        }
    }
}

fn collect_objects(steps: &[Step], all: &mut Decision) {
    fn value<T: serde::Serialize>(object: &T) -> Value {
        serde_json::to_value(object).expect("objects are JSON")
    }
    for step in steps {
        // Only that it does not panic: errors and logs contain it.
        let _ = step.description();
        match step {
            Step::EnsureWorkspace(o) => all.objects.push(value(o)),
            Step::EnsureClaim(o) => all.objects.push(value(o)),
            Step::EnsureVolume(o) => all.objects.push(value(o)),
            Step::EnsureConfigMap(o) => all.objects.push(value(o)),
            Step::EnsurePod(o) => all.objects.push(value(o)),
            Step::EnsureNetworkPolicy(o) => all.objects.push(value(o)),
            // Other steps create nothing.
            _ => {}
        }
    }
}

/// Returns a workspace whose tree exists and, if it is a base, is sealed.
fn with_ready_status(mut object: AgentWorkspace, uid: &str) -> AgentWorkspace {
    set_server_metadata(&mut object.metadata, uid);
    let conditions = ["Accepted", "Scheduled", "ProviderSelected", "Provisioned", "Populated", "Sealed", "Ready"].map(true_condition);
    object.status = Some(
        serde_json::from_value(json!({ "nodeName": NODE, "origin": { "kind": "Empty" }, "conditions": conditions })).expect("a status"),
    );
    object
}

fn named_workspace(name: &str) -> Arc<AgentWorkspace> {
    let plain = json!({ "metadata": { "name": name }, "spec": { "source": { "empty": {} } } });
    Arc::new(with_ready_status(serde_json::from_value(plain).expect("a workspace"), "77777777-0000-4000-8000-000000000000"))
}

fn named_project(name: &str, namespace: Option<&String>) -> Arc<YoiProject> {
    let model = json!({ "provider": "OpenAI", "name": "m" });
    let namespace = namespace.map_or("ns", String::as_str);
    let plain = json!({ "metadata": { "name": name, "namespace": namespace, "uid": "66666666-0000-4000-8000-000000000000" },
        "spec": { "source": { "empty": {} }, "defaults": { "model": model } } });
    from_json(plain)
}

fn base_of(steps: &[Step]) -> Option<AgentWorkspace> {
    steps.iter().find_map(|s| if let Step::EnsureWorkspace(w) = s { Some((**w).clone()) } else { None })
}

fn plan_project(mut object: YoiProject, all: &mut Decision) {
    set_server_metadata(&mut object.metadata, "55555555-0000-4000-8000-000000000000");
    let mut seen = project::Observed {
        warm: yoi_plan::warm::Observed::default(),
        looks: Vec::new(),
        project: Arc::new(object),
        terminating: false,
        bases: Vec::new(),
        origins: BTreeSet::new(),
        agents: Vec::new(),
        trees: Vec::new(),
        nodes: nodes(),
        network_policies: Vec::new(),
    };
    for _ in 0..ROUNDS {
        let plan = project::plan(&seen, &settings(), now());
        collect_objects(&plan.steps, all);
        let mut next = (*seen.project).clone();
        if let Some(status) = plan.status {
            all.conditions.extend(status.conditions.clone());
            next.status = Some(status);
        }
        if let Some(base) = base_of(&plan.steps) {
            // The plan of the base itself, which may have to fill it.
            let mut unsealed = base.clone();
            set_server_metadata(&mut unsealed.metadata, "44444444-0000-4000-8000-000000000000");
            plan_workspace(unsealed, true, all);
            seen.bases.push(Arc::new(with_ready_status(base, "44444444-0000-4000-8000-000000000000")));
        }
        seen.project = Arc::new(next);
    }
}

fn plan_workspace(mut object: AgentWorkspace, full: bool, all: &mut Decision) {
    let uid = "33333333-0000-4000-8000-000000000000";
    set_server_metadata(&mut object.metadata, uid);
    let source = object.spec.source.clone();
    let project = source.project.filter(|_| full).map(|p| named_project(&p.name, object.metadata.namespace.as_ref()));
    let parent = source.workspace.filter(|_| full).map(|w| named_workspace(&w.name));
    let mut bases = Vec::new();
    if let Some(project) = &project {
        let first = project::plan(
            &project::Observed {
                warm: yoi_plan::warm::Observed::default(),
                looks: Vec::new(),
                project: Arc::clone(project),
                terminating: false,
                bases: Vec::new(),
                origins: BTreeSet::new(),
                agents: Vec::new(),
                trees: Vec::new(),
                nodes: nodes(),
                network_policies: Vec::new(),
            },
            &settings(),
            now(),
        );
        bases.extend(base_of(&first.steps).map(|b| Arc::new(with_ready_status(b, "44444444-0000-4000-8000-000000000000"))));
    }
    let mut seen = workspace::Observed {
        workspace: Arc::new(object),
        terminating: false,
        project,
        parent,
        bases,
        users: Vec::new(),
        agents: Vec::new(),
        populators: Vec::new(),
        claim: None,
        volume: None,
        nodes: nodes(),
        network_policies: Vec::new(),
    };
    for _ in 0..ROUNDS {
        let plan = workspace::plan(&seen, &settings(), now());
        collect_objects(&plan.steps, all);
        let mut next = (*seen.workspace).clone();
        for step in &plan.steps {
            match step {
                Step::EnsureClaim(claim) if full => {
                    let mut claim = (**claim).clone();
                    set_server_metadata(&mut claim.metadata, "22222222-0000-4000-8000-000000000000");
                    claim.metadata.annotations.get_or_insert_default().insert("volume.kubernetes.io/selected-node".into(), NODE.into());
                    seen.claim = Some(Arc::new(claim));
                }
                Step::EnsureVolume(volume) if full => {
                    let mut volume = (**volume).clone();
                    volume.metadata.uid = Some("23232323-0000-4000-8000-000000000000".into());
                    seen.volume = Some(Arc::new(volume));
                }
                Step::EnsureWorkspace(base) if full => {
                    seen.bases.push(Arc::new(with_ready_status((**base).clone(), "44444444-0000-4000-8000-000000000000")));
                }
                _ => {}
            }
        }
        if let Some(mut status) = plan.status {
            all.conditions.extend(status.conditions.clone());
            if full && status.node_name.is_some() {
                // The shim sets this condition.
                status.conditions.push(serde_json::from_value(true_condition("Provisioned")).expect("a condition"));
            }
            next.status = Some(status);
        }
        seen.workspace = Arc::new(next);
    }
}

fn plan_yoipod(mut object: YoiPod, full: bool, all: &mut Decision) {
    set_server_metadata(&mut object.metadata, "88888888-0000-4000-8000-000000000000");
    let template = object.spec.workspace.as_ref().and_then(|w| w.template.as_ref()?.source.as_ref()?.workspace.clone());
    let by_ref = object.spec.workspace.as_ref().and_then(|w| w.ref_.clone());
    let claim = object.spec.session.claim_name.clone().filter(|_| full).map(|name| {
        from_json::<PersistentVolumeClaim>(
            json!({ "metadata": { "name": name, "namespace": "ns", "uid": "c" }, "spec": {}, "status": { "phase": "Bound" } }),
        )
    });
    // The project exists in both cases: without one the plan ends at once, which a test on the cluster covers.
    let project = named_project(&object.spec.project_ref.name, object.metadata.namespace.as_ref());
    if full {
        object.spec.desired_state = yoi_crds::pod::DesiredState::Running;
    }
    let mut seen = yoipod::Observed {
        warm: yoi_plan::warm::Candidates::default(),
        terminating: false,
        project: Some(Arc::clone(&project)),
        workspace: by_ref.filter(|_| full).map(|w| named_workspace(&w.name)),
        users: vec![Arc::new(object.clone())],
        bases: Vec::new(),
        parent: template.filter(|_| full).map(|w| named_workspace(&w.name)),
        spawner: None,
        children: 0,
        pods: Vec::new(),
        session_claim: claim,
        session_volume: None,
        manifests: Vec::new(),
        nodes: nodes(),
        network_policies: Vec::new(),
        yoipod: Arc::new(object),
    };
    for _ in 0..ROUNDS {
        let plan = yoipod::plan(&seen, &settings(), now());
        collect_objects(&plan.steps, all);
        let mut next = (*seen.yoipod).clone();
        for step in plan.steps.iter().filter(|_| full) {
            match step {
                Step::EnsureWorkspace(w) => {
                    seen.workspace = Some(Arc::new(with_ready_status((**w).clone(), "33333333-0000-4000-8000-000000000000")));
                }
                Step::EnsureClaim(c) => {
                    let mut claim = (**c).clone();
                    set_server_metadata(&mut claim.metadata, "22222222-0000-4000-8000-000000000000");
                    seen.session_claim = Some(Arc::new(claim));
                }
                Step::EnsureConfigMap(m) => {
                    let mut map = (**m).clone();
                    map.metadata.uid = Some("89898989-0000-4000-8000-000000000000".into());
                    seen.manifests.push(Arc::new(map));
                }
                Step::EnsurePod(pod) => {
                    let mut pod = (**pod).clone();
                    set_server_metadata(&mut pod.metadata, "99999999-0000-4000-8000-000000000000");
                    seen.pods = vec![Arc::new(pod.into())];
                }
                _ => {}
            }
        }
        if let Some(mut status) = plan.status {
            all.conditions.extend(status.conditions.clone());
            let before = next.status.take().unwrap_or_default();
            status.session = before.session;
            status.task = before.task;
            status.live = before.live;
            status.report = before.report;
            next.status = Some(status);
        }
        seen.yoipod = Arc::new(next);
        seen.users = vec![Arc::clone(&seen.yoipod)];
    }
}

fn plan_peer(mut object: YoiPeer, all: &mut Decision) {
    set_server_metadata(&mut object.metadata, "11111111-0000-4000-8000-000000000000");
    let agent = |name: &String| {
        let plain = json!({ "metadata": { "name": name, "namespace": "ns", "uid": format!("uid-{name}") }, "spec": { "projectRef": { "name": "p" }, "agent": { "builtin": {} } } });
        serde_json::from_value::<YoiPod>(plain).ok().map(Arc::new)
    };
    let members = [object.spec.members.first().and_then(agent), object.spec.members.get(1).and_then(agent)];
    let object = Arc::new(object);
    for members in [[None, None], members] {
        let plan = peer::plan(&peer::Observed { peer: Arc::clone(&object), terminating: false, members }, now());
        collect_objects(&plan.steps, all);
        all.conditions.extend(plan.status.map(|s| s.conditions).unwrap_or_default());
    }
}
