//! What users do, on purpose and by mistake.

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use yoi_crds::name::annotation::{NEW_TREE, REFRESH, RESOLVED};
use yoi_crds::pod::{Completion, DesiredState, SessionRetain};
use yoi_crds::policy::Policy;
use yoi_crds::source::{EmptySource, GitSource, NamedRef, ProjectRevision, ProjectSource, WorkspaceSource};
use yoi_crds::workspace::{BaseRef, Binding};
use yoi_crds::{AgentWorkspace, YoiPeer, YoiPeerSpec, YoiPod, YoiProject};
use yoi_plan::meta::name;
use yoi_plan::step::Kind;

use crate::cluster::{Cluster, Object};
use crate::kubernetes::{LOCAL, is_agent, phase};
use crate::{host_sources, loans, looks, prepared, pushes, quotas};

/// splitmix64: the same seed gives the same simulation.
pub struct Random(pub u64);

impl Random {
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % sides
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.roll(n) == 0
    }

    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        if all.is_empty() { None } else { all.get(usize::try_from(self.roll(all.len() as u64)).expect("small")) }
    }
}

/// The first objects, so that most simulations have something to reconcile.
pub fn begin(c: &mut Cluster, random: &mut Random) {
    if !random.one_in(5) {
        project(c, random);
    }
    for _ in 0..=random.roll(3) {
        match random.roll(4) {
            0 => workspace(c, random),
            1 => peer(c, random),
            _ => yoipod(c, random),
        }
    }
}

/// One action of one user.
pub fn act(c: &mut Cluster, random: &mut Random) {
    match random.roll(36) {
        0 => project(c, random),
        1..=3 => yoipod(c, random),
        4..=6 => workspace(c, random),
        7 => peer(c, random),
        8..=10 => change(c, random),
        11..=16 => delete(c, random),
        17 => again(c, random),
        18 => job(c, random),
        19 => job_ends(c, random),
        20..=23 => read(c, random),
        26 | 27 => quotas::change(c, random),
        28 | 29 => quotas::write(c, random),
        30 | 31 => looks::change(c, random),
        32..=35 => pushes::change(c, random),
        _ => foreign_object(c, random),
    }
}

fn git(n: u64) -> GitSource {
    GitSource { url: format!("https://example.invalid/{n}"), ..GitSource::default() }
}

fn project(c: &mut Cluster, random: &mut Random) {
    let title = *random.pick(&["p", "p", "p", "q"]).expect("names");
    let (source, feature) = match random.roll(11) {
        8..=10 => (ProjectSource { host: Some(host_sources::any(random)), ..Default::default() }, "project: host source"),
        0 | 1 => (ProjectSource { empty: Some(EmptySource::default()), ..Default::default() }, "project: empty source"),
        2 => (ProjectSource::default(), "project: no source at all"),
        n => (ProjectSource { git: Some(Box::new(git(n % 2))), ..Default::default() }, "project: git source"),
    };
    c.coverage.feature(feature);
    let model = !random.one_in(8);
    let mut defaults = if model { json!({"model": {"provider": "OpenAI", "name": "m"}}) } else { json!({}) };
    if !model {
        c.coverage.feature("project: no model");
    }
    if let Some(quota) = quotas::any(random) {
        c.coverage.feature("project: quota");
        defaults["quota"] = json!(quota);
    }
    let path = path(c, random, "project: path");
    let prepare = prepared::any(random);
    let mut object = YoiProject::new(title, made(json!({"source": source, "path": path, "defaults": defaults})));
    object.spec.prepare.clone_from(&prepare);
    object.spec.warm = crate::warm::any(random);
    if prepare.is_some() {
        c.coverage.feature("project: prepare");
    }
    if c.create(object).is_some() {
        return;
    }
    let former = c.get::<YoiProject>(title).map(|p| p.spec.source.clone()).filter(|former| *former != source);
    if let Some(former) = former {
        let name = |source: &ProjectSource| source.host.as_ref().map(|host| host.name.clone());
        let is_taken_anew = name(&former).is_some() && name(&former) == name(&source);
        c.coverage.feature(if is_taken_anew { "project: taken anew" } else { "project: new source" });
        c.edit::<YoiProject>(title, |p| (p.spec.source, p.spec.path, p.spec.prepare) = (source, path, prepare));
    }
}

/// Where the tree shall show, if the user says it.
fn path(c: &mut Cluster, random: &mut Random, feature: &'static str) -> Option<String> {
    let path = random.one_in(3).then(|| "/src/tree".to_owned());
    if path.is_some() {
        c.coverage.feature(feature);
    }
    path
}

pub fn made<T: serde::de::DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).expect("an object of the kind")
}

fn source(c: &mut Cluster, random: &mut Random, own: &str) -> WorkspaceSource {
    let revision = random.one_in(3).then(|| looks::any(c, random));
    let project = Some(Box::new(ProjectRevision { name: "p".to_owned(), revision: revision.clone() }));
    let named = |n: &str| Some(NamedRef { name: n.to_owned() });
    let none = WorkspaceSource::default();
    let (source, feature) = match random.roll(14) {
        12 | 13 => (WorkspaceSource { host: Some(host_sources::any(random)), ..none }, "workspace: host source"),
        0 | 1 => (WorkspaceSource { git: Some(Box::new(git(7))), ..none }, "workspace: git source"),
        2 | 3 => (WorkspaceSource { empty: Some(EmptySource::default()), ..none }, "workspace: empty source"),
        4..=6 => {
            let parent = *random.pick(&["a", "b", "v", "w"]).expect("names");
            let feature = if parent == own { "workspace: fork of itself" } else { "workspace: fork" };
            (WorkspaceSource { workspace: named(parent), ..none }, feature)
        }
        7 if random.one_in(2) => (WorkspaceSource { project, empty: Some(EmptySource::default()), ..none }, "workspace: two sources"),
        7 => (none, "workspace: no source at all"),
        _ if revision.is_some() => (WorkspaceSource { project, ..none }, "workspace: of a commit of a project"),
        _ => (WorkspaceSource { project, ..none }, "workspace: of a project"),
    };
    c.coverage.feature(feature);
    source
}

fn workspace(c: &mut Cluster, random: &mut Random) {
    let title = *random.pick(&["v", "w", "w", "a"]).expect("names");
    let source = source(c, random, title);
    let mut workspace = AgentWorkspace::new(title, made(json!({"source": source})));
    let spec = &mut workspace.spec;
    spec.claim = !random.one_in(3);
    spec.binding = if random.one_in(2) { Binding::Immediate } else { Binding::WaitForConsumer };
    let feature = match (spec.claim, spec.binding) {
        (false, _) => "workspace: without claim",
        (true, Binding::WaitForConsumer | Binding::Unknown) => "workspace: claim bound late",
        (true, Binding::Immediate) => "workspace: claim bound at once",
    };
    c.coverage.feature(feature);
    if spec.claim && random.one_in(2) {
        c.coverage.feature("workspace: ttlAfterRelease");
        spec.ttl_after_release = random.pick(&["0s", "5s", "1m", "99999999h", "nonsense"]).map(|t| (*t).to_owned());
    }
    spec.quota = quotas::any(random);
    if spec.quota.is_some() {
        c.coverage.feature("workspace: quota");
    }
    spec.path = path(c, random, "workspace: path");
    if !spec.claim && random.one_in(6) {
        c.coverage.feature("workspace: a base that a user made");
        spec.base = Some(BaseRef {
            generation: "g".into(),
            node: random.pick(&["n1", "n9"]).map(|n| (*n).to_owned()).expect("names"),
            prepare: None,
            revision: None,
            bundle: None,
        });
    }
    // A Pod that is created together with the fork may get a node before the parent has its tree, on another node.
    let with_pod = workspace.spec.claim && workspace.spec.source.workspace.is_some() && random.one_in(2);
    c.create(workspace);
    if with_pod {
        take(c, title);
    }
}

fn yoipod(c: &mut Cluster, random: &mut Random) {
    let title = *random.pick(&["a", "b", "c"]).expect("names");
    let mut spec = json!({"projectRef": {"name": if random.one_in(12) { "q" } else { "p" }}, "agent": {"builtin": {}}});
    match random.roll(6) {
        0 => {
            c.coverage.feature("yoipod: workspace by name");
            spec["workspace"] = json!({"ref": {"name": random.pick(&["w", "v", "a"]).expect("names")}});
        }
        1 | 2 => {
            let source = source(c, random, title);
            c.coverage.feature(if source.workspace.is_some() { "yoipod: template that forks" } else { "yoipod: workspace by template" });
            spec["workspace"] = json!({"template": {"source": source}});
        }
        _ => c.coverage.feature("yoipod: workspace of the project"),
    }
    let mut session = json!({});
    let retain = if random.one_in(2) { "Retain" } else { "Delete" };
    c.coverage.feature(if retain == "Retain" { "yoipod: session kept" } else { "yoipod: session goes along" });
    session["retain"] = json!(retain);
    match random.roll(8) {
        0 | 1 => {
            c.coverage.feature("yoipod: claimTemplate");
            session["claimTemplate"] = json!({"storageClassName": LOCAL, "size": "2Gi"});
        }
        2 => {
            c.coverage.feature("yoipod: claimName");
            session["claimName"] = json!(random.pick(&["old", "a-session", "none"]).expect("names"));
            if c.create(claim("old", Some(LOCAL))).is_some() && random.one_in(2) {
                bound_before(c, random);
            }
        }
        _ => {}
    }
    spec["session"] = session;
    if random.one_in(5) {
        c.coverage.feature("yoipod: nodeSelector");
        spec["pod"] = json!({"nodeSelector": {"zone": random.pick(&["z-n1", "z-n2", "z-n3"]).expect("names")}});
    }
    let (agent, feature) = match title {
        "a" => (json!({"builtin": {}}), "yoipod: the runtime's own loop"),
        "b" => (json!({"cli": {"preset": "claude", "credentialsSecretRef": {"name": "login"}}}), "yoipod: a program"),
        _ if spec["session"]["claimTemplate"].is_object() => (json!({"cli": {"preset": "gone"}}), "yoipod: a program of no preset"),
        _ => (json!({"command": ["true"]}), "yoipod: a command"),
    };
    c.coverage.feature(feature);
    spec["agent"] = agent;
    if let Some(delegation) = loans::delegation(c) {
        spec["delegation"] = delegation;
    }
    let mut yoipod = YoiPod::new(title, made(spec));
    match random.roll(6) {
        0 | 1 => {
            c.coverage.feature("yoipod: task, Stop");
            yoipod.spec.task = Some("do".into());
            yoipod.spec.completion = Completion::Stop;
            yoipod.spec.push = pushes::any(random);
            if yoipod.spec.push.is_some() {
                c.coverage.feature("yoipod: push");
            }
        }
        2 => {
            c.coverage.feature("yoipod: task, Keep");
            yoipod.spec.task = Some("do".into());
        }
        _ => {}
    }
    let kept = c.get::<PersistentVolumeClaim>(&format!("{title}-session")).is_some();
    if c.create(yoipod).is_some() && kept {
        c.coverage.feature("yoipod: made again while its former session is kept");
    }
}

fn claim(title: &str, class: Option<&str>) -> PersistentVolumeClaim {
    let spec = json!({"storageClassName": class, "accessModes": ["ReadWriteOnce"]});
    made(json!({"metadata": {"name": title, "finalizers": ["kubernetes.io/pvc-protection"]}, "spec": spec}))
}

/// The claim of a former agent's session, bound on one node.
fn bound_before(c: &mut Cluster, random: &mut Random) {
    let claim = c.now.claims["old"].clone();
    let node = *random.pick(&["n1", "n2", "n3"]).expect("names");
    crate::kubernetes::provision(c, &claim, node);
    crate::kubernetes::volumes(c);
}

fn peer(c: &mut Cluster, random: &mut Random) {
    let (members, feature): (&[&str], _) = match random.roll(8) {
        0 => (&["a", "a"], "peer: of one with itself"),
        1 => (&["a", "b", "c"], "peer: of three"),
        2 => (&["b", "c"], "peer: made"),
        _ => (&["a", "b"], "peer: made"),
    };
    c.coverage.feature(feature);
    let members: Vec<String> = members.iter().map(|m| (*m).to_owned()).collect();
    c.create(YoiPeer::new(&members.join("."), YoiPeerSpec { members }));
}

fn change(c: &mut Cluster, random: &mut Random) {
    let Some(title) = random.pick(&c.names::<YoiPod>()).cloned() else { return };
    let former = c.get::<YoiPod>(&title).and_then(|y| y.status.as_ref()?.workspace.as_ref()?.uid.clone());
    if let Some(former) = former.filter(|_| random.one_in(4)) {
        c.coverage.feature("yoipod: may go on in a new tree");
        return c.change::<YoiPod>(&title, |y| {
            y.metadata.annotations.get_or_insert_default().insert(NEW_TREE.to_owned(), former);
        });
    }
    let feature = match random.roll(12) {
        0 | 1 => {
            c.edit::<YoiPod>(&title, |y| y.spec.desired_state = DesiredState::Stopped);
            "yoipod: stopped"
        }
        2 | 3 => {
            c.edit::<YoiPod>(&title, |y| y.spec.desired_state = DesiredState::Running);
            "yoipod: started"
        }
        4 => {
            c.edit::<YoiPod>(&title, |y| y.spec.desired_state = DesiredState::Suspended);
            "yoipod: suspended"
        }
        5 => {
            let text = format!("do {}", random.roll(3));
            c.edit::<YoiPod>(&title, |y| y.spec.task = Some(text));
            "yoipod: task changed"
        }
        7 => {
            let tokens = random.one_in(3).then_some(1000).or(Some(2000)).filter(|_| !random.0.is_multiple_of(5));
            c.edit::<YoiPod>(&title, |y| y.spec.limits.tokens = tokens);
            "yoipod: another limit of tokens"
        }
        8 => {
            let at = c.seconds.to_string();
            c.change::<YoiPod>(&title, |y| {
                y.metadata.annotations.get_or_insert_default().insert(REFRESH.to_owned(), at);
            });
            "yoipod: refreshed"
        }
        9 => {
            let model = format!("m{}", random.roll(3));
            let Some(project) = random.pick(&c.names::<YoiProject>()).cloned() else { return };
            let edit = |p: &mut YoiProject| p.spec.defaults.model.iter_mut().for_each(|m| m.endpoint.name.clone_from(&model));
            c.edit::<YoiProject>(&project, edit);
            "project: another model"
        }
        10 => {
            let Some(map) = random.pick(&c.names::<ConfigMap>()).cloned() else { return };
            c.change::<ConfigMap>(&map, |m| {
                m.metadata.annotations.get_or_insert_default().insert(RESOLVED.to_owned(), "{".to_owned());
            });
            "manifest: altered"
        }
        11 => {
            // The third has a line that is none.
            let denied = random.pick(&[None, Some("Write"), Some("Edit"), Some("Wriet")]).copied().flatten();
            let policy = denied.map(|tool| made::<Box<Policy>>(json!({"deny": [tool]})));
            match random.pick(&c.names::<YoiProject>()).filter(|_| random.0.is_multiple_of(2)).cloned() {
                Some(project) => {
                    c.edit::<YoiProject>(&project, |p| p.spec.policy = policy);
                    "project: another policy"
                }
                None => {
                    c.edit::<YoiPod>(&title, |y| y.spec.policy = policy);
                    "yoipod: another policy"
                }
            }
        }
        _ => {
            let retain = if random.one_in(2) { SessionRetain::Retain } else { SessionRetain::Delete };
            c.edit::<YoiPod>(&title, |y| y.spec.session.retain = retain);
            "yoipod: session's fate changed"
        }
    };
    c.coverage.feature(feature);
}

/// Somebody reads an agent: the gateway asks for its reader, now or a while ago; and a clock may be wrong.
pub fn read(c: &mut Cluster, random: &mut Random) {
    let Some(title) = random.pick(&c.names::<YoiPod>()).cloned() else { return };
    let (seconds, feature) = match random.roll(6) {
        0 => (-600, "reader: asked for long ago"),
        1 => (86_400, "reader: asked for tomorrow"),
        2 => (-100, "reader: asked for a while ago"),
        _ => (0, "reader: asked for now"),
    };
    c.coverage.feature(feature);
    let at = yoi_plan::conditions::format_time(c.now().saturating_add(jiff::SignedDuration::from_secs(seconds)).expect("a time"));
    let at = if random.one_in(20) { "yesterday".to_owned() } else { at };
    c.change::<YoiPod>(&title, |y| y.status.get_or_insert_default().reader.get_or_insert_default().requested_at = Some(at));
}

fn delete(c: &mut Cluster, random: &mut Random) {
    fn any<K: Object>(c: &mut Cluster, random: &mut Random, feature: &'static str) {
        if let Some(title) = random.pick(&c.names::<K>()).cloned() {
            c.coverage.feature(feature);
            if random.one_in(12) {
                c.coverage.feature("foreign finalizer");
                c.change::<K>(&title, |o| o.meta_mut().finalizers.get_or_insert_default().push("example.com/keep".to_owned()));
            }
            c.remove::<K>(&title);
        }
    }
    match random.roll(16) {
        0 => {
            any::<YoiProject>(c, random, "deleted: project");
            if let Some(title) = c.names::<YoiProject>().first().filter(|_| random.0.is_multiple_of(9)).cloned() {
                c.coverage.feature("deleted: project, by force");
                c.purge::<YoiProject>(&title);
            }
        }
        1..=3 => any::<AgentWorkspace>(c, random, "deleted: workspace"),
        4..=7 => any::<YoiPod>(c, random, "deleted: yoipod"),
        8 => any::<YoiPeer>(c, random, "deleted: peer"),
        9..=11 => any::<Pod>(c, random, "deleted: pod"),
        12 | 13 => any::<PersistentVolumeClaim>(c, random, "deleted: claim"),
        14 => {
            any::<PersistentVolume>(c, random, "deleted: volume");
            let sessions: Vec<String> = c.names::<PersistentVolume>().into_iter().filter(|v| v.starts_with("pvc-")).collect();
            if let Some(title) = random.pick(&sessions).filter(|_| random.0.is_multiple_of(3)).cloned() {
                c.coverage.feature("session volume: lost");
                c.purge::<PersistentVolume>(&title);
            }
        }
        _ => any::<ConfigMap>(c, random, "deleted: manifest"),
    }
}

/// Deletes an object by force and makes it again at once: the same name, another UID.
fn again(c: &mut Cluster, random: &mut Random) {
    fn recreate<K: Object>(c: &mut Cluster, title: &str) {
        let Some(former) = c.get::<K>(title).map(|o| (**o).clone()) else { return };
        c.purge::<K>(title);
        let mut next = former;
        let meta = next.meta_mut();
        *meta = ObjectMeta {
            name: meta.name.clone(),
            labels: meta.labels.clone(),
            annotations: meta.annotations.clone(),
            ..ObjectMeta::default()
        };
        if c.create(next).is_some() {
            c.coverage.feature("deleted: and made again under the name");
        }
    }
    let all: [Vec<String>; 4] =
        [c.names::<YoiPod>(), c.names::<AgentWorkspace>(), c.names::<YoiProject>(), c.names::<PersistentVolumeClaim>()];
    let kind = usize::try_from(random.roll(4)).expect("small");
    let Some(title) = random.pick(&all[kind]).cloned() else { return };
    match kind {
        // Nobody but the gateway makes an agent that works by a loan.
        0 if c.get::<YoiPod>(&title).is_some_and(|y| loans::has_loan(y)) => c.purge::<YoiPod>(&title),
        0 => {
            if c.now.peers.values().any(|p| p.spec.members.contains(&title) && p.status.as_ref().is_some_and(|s| !s.members.is_empty())) {
                c.coverage.feature("peer: member made again");
            }
            recreate::<YoiPod>(c, &title);
            c.change::<YoiPod>(&title, |y| y.status = None);
        }
        1 => {
            recreate::<AgentWorkspace>(c, &title);
            c.change::<AgentWorkspace>(&title, |w| w.status = None);
        }
        2 => {
            recreate::<YoiProject>(c, &title);
            c.change::<YoiProject>(&title, |p| p.status = None);
        }
        _ => {
            recreate::<PersistentVolumeClaim>(c, &title);
            c.change::<PersistentVolumeClaim>(&title, |x| {
                x.status = None;
                x.spec.get_or_insert_default().volume_name = None;
            });
        }
    }
}

/// A Pod that is not Yoi's uses a workspace's claim.
fn job(c: &mut Cluster, random: &mut Random) {
    let claims: Vec<String> = c.now.workspaces.values().filter(|w| w.spec.claim).map(|w| name(&w.metadata).to_owned()).collect();
    if let Some(claim) = random.pick(&claims) {
        take(c, claim);
    }
}

fn take(c: &mut Cluster, claim: &str) {
    let spec = json!({"containers": [], "volumes": [{"name": "work", "persistentVolumeClaim": {"claimName": claim}}]});
    let pod: Pod = made(json!({"metadata": {"name": format!("job-{claim}"), "finalizers": ["kubelet"]}, "spec": spec}));
    if c.create(pod).is_some() {
        c.coverage.feature("pod: a job takes a claim");
    }
}

fn job_ends(c: &mut Cluster, random: &mut Random) {
    let running: Vec<String> =
        c.now.pods.iter().filter(|(n, p)| n.starts_with("job-") && phase(p) == "Running").map(|(n, _)| n.clone()).collect();
    if let Some(title) = random.pick(&running) {
        c.coverage.feature("pod: a job ends");
        c.change::<Pod>(title, |p| p.status.get_or_insert_default().phase = Some("Succeeded".into()));
    }
}

/// Names that users choose by chance.
const USUAL: &[(Kind, &str)] = &[(Kind::Pod, "a-1"), (Kind::Workspace, "a"), (Kind::Claim, "w"), (Kind::Claim, "b-session")];

/// Makes an object under a name that the operator has asked for, or will.
fn foreign_object(c: &mut Cluster, random: &mut Random) {
    let mut requested: Vec<(Kind, String)> = c.requested.iter().cloned().collect();
    if random.one_in(2) {
        requested.retain(|(kind, _)| matches!(kind, Kind::Volume | Kind::ConfigMap));
    }
    let (kind, title) = match random.pick(&requested).filter(|_| random.0.is_multiple_of(2)) {
        Some(known) => known.clone(),
        None => random.pick(USUAL).map(|(k, n)| (*k, (*n).to_owned())).expect("names"),
    };
    let impostor = random.one_in(2);
    let owner = title.split('-').next().unwrap_or_default();
    let labels = if impostor { json!({"yoi.dev/role": "agent", "yoi.dev/yoipod": owner, "yoi.dev/workspace": owner}) } else { json!({}) };
    let metadata = json!({"name": title, "labels": labels});
    let feature = match kind {
        Kind::Pod => c.create::<Pod>(made(json!({"metadata": metadata, "spec": {"containers": []}}))).map(|_| "foreign: pod"),
        Kind::Workspace => {
            let object = AgentWorkspace::new(&title, made(json!({"source": {"empty": {}}})));
            c.create(AgentWorkspace { metadata: made(metadata), ..object }).map(|_| "foreign: workspace")
        }
        Kind::Claim => c.create(PersistentVolumeClaim { metadata: made(metadata), ..claim(&title, None) }).map(|_| "foreign: claim"),
        Kind::Volume => c.create::<PersistentVolume>(made(json!({"metadata": metadata, "spec": {}}))).map(|_| "foreign: volume"),
        Kind::ConfigMap => c.create::<ConfigMap>(made(json!({"metadata": metadata, "data": {"x": "y"}}))).map(|_| "foreign: config map"),
        Kind::Project | Kind::YoiPod | Kind::WorkspaceNode => None,
    };
    if let Some(feature) = feature {
        c.coverage.feature(feature);
        if impostor {
            c.coverage.feature("foreign: with our labels");
        }
    }
}

/// Objects that somebody else made under a name that the operator asks for.
pub fn foreign_objects(c: &Cluster) -> Vec<(Kind, String)> {
    let foreign = |kind: Kind, title: &str| {
        let meta = match kind {
            Kind::Pod => c.get::<Pod>(title).filter(|p| !is_agent(p) || p.metadata.owner_references.is_none()).map(|o| o.metadata.clone()),
            Kind::Workspace => c.get::<AgentWorkspace>(title).map(|o| o.metadata.clone()),
            Kind::Claim => c.get::<PersistentVolumeClaim>(title).map(|o| o.metadata.clone()),
            Kind::Volume => c.get::<PersistentVolume>(title).map(|o| o.metadata.clone()),
            Kind::ConfigMap => c.get::<ConfigMap>(title).map(|o| o.metadata.clone()),
            Kind::Project | Kind::YoiPod | Kind::WorkspaceNode => None,
        };
        meta.is_some_and(|m| !c.ours.contains_key(m.uid.as_deref().unwrap_or_default()))
    };
    let usual = USUAL.iter().map(|(k, n)| (*k, (*n).to_owned()));
    c.requested.iter().cloned().chain(usual).filter(|(k, n)| foreign(*k, n)).collect()
}

pub fn take_away(c: &mut Cluster, (kind, title): &(Kind, String)) {
    c.coverage.feature("foreign: taken away");
    match kind {
        Kind::Pod => c.purge::<Pod>(title),
        Kind::Workspace => c.remove::<AgentWorkspace>(title),
        Kind::Claim => c.purge::<PersistentVolumeClaim>(title),
        Kind::Volume => c.purge::<PersistentVolume>(title),
        Kind::ConfigMap => c.purge::<ConfigMap>(title),
        Kind::Project | Kind::YoiPod | Kind::WorkspaceNode => {}
    }
}
