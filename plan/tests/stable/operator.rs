//! What `yoi-operator` does around a plan: one cache per kind, which may be old; one round per object; the steps in their order; then the status, with the
//! resource version that the plan was made from.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use yoi_crds::name::label;
use yoi_crds::pod::{PushStatus, ReaderStatus};
use yoi_crds::reason::condition;
use yoi_crds::{AgentWorkspace, AgentWorkspaceStatus, YoiPeer, YoiPod, YoiPodStatus, YoiProject};
use yoi_plan::conditions::{Conditions, set_apply_failed};
use yoi_plan::meta::{controlled_by, deleting, label as label_of, name, uid};
use yoi_plan::nodes::Nodes;
use yoi_plan::nodes::heartbeat::{self, Silence};
use yoi_plan::settings::{Network, Settings};
use yoi_plan::step::{Kind, Plan, Step};
use yoi_plan::tree::base_set::base_parent_uid;
use yoi_plan::yoipod::{session_claim_name, workspace_name};
use yoi_plan::{ObservedPod, names, nudge_deleting_claims, peer, project, workspace, yoipod};

use crate::cluster::{Answer, Cluster, Object, Objects, Violation, at};
use crate::faults::Fault;
use crate::invariants::{self, About};
use crate::kubernetes::nodes;
use crate::{loans, warm};

/// Kinds that are reconciled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reconciled {
    Project,
    Workspace,
    YoiPod,
    Peer,
    Offer,
    Claim,
}

/// What a round of one object did.
#[derive(Debug, PartialEq)]
pub enum RoundResult {
    Nothing,
    Something(String),
}

pub struct Operator {
    pub seen: Objects,
    /// What plans read of the Pods that are seen.
    pods: BTreeMap<String, Arc<ObservedPod>>,
    nodes: Arc<Nodes>,
    pub fault: Fault,
    settings: Settings,
    /// When each object is to be reconciled again.
    pub due: BTreeMap<(Reconciled, String), jiff::Timestamp>,
    /// The process crashed in its last round.
    pub crashed: bool,
}

fn settings() -> Settings {
    let gateway = yoi_wire::manifest::Gateway { lines: "l".into(), service: "s".into(), server_name: "s".into(), ca: "ca".into() };
    let claude = serde_json::json!({"name": "claude", "program": "claude", "firstArgs": ["-p"], "speaks": ["Anthropic"], "parser": "Claude",
        "credentials": [{"key": "login", "path": "login"}]});
    let claude = serde_json::from_value(claude).expect("a preset");
    Settings { network: Some(network()), presets: BTreeMap::from([("claude".to_owned(), claude)]), ..Settings::new("agent", gateway) }
}

/// What the network policies allow.
pub fn network() -> Network {
    Network { gateway_namespace: "yoi".into(), gateway_port: 8443, ..Network::default() }
}

pub const KINDS: usize = 12;

impl Operator {
    pub fn new(fault: Fault) -> Self {
        Operator {
            seen: Objects::default(),
            pods: BTreeMap::new(),
            nodes: Arc::default(),
            fault,
            settings: settings(),
            due: BTreeMap::new(),
            crashed: false,
        }
    }

    /// The cache of one kind is brought up to date.
    pub fn catch_up(&mut self, c: &Cluster, kind: usize) {
        fn take<K: Object>(seen: &mut Objects, now: &Objects, watched: impl Fn(&K) -> bool) -> bool {
            if seen.revisions[K::INDEX] == now.revisions[K::INDEX] {
                return false;
            }
            seen.revisions[K::INDEX] = now.revisions[K::INDEX];
            *K::all_mut(seen) = K::all(now).iter().filter(|(_, o)| watched(o)).map(|(n, o)| (n.clone(), Arc::clone(o))).collect();
            true
        }
        let (seen, now) = (&mut self.seen, &c.now);
        let labelled = |meta: &ObjectMeta, key: &str| label_of(meta, key).is_some();
        match kind {
            0 => drop(take::<YoiProject>(seen, now, |_| true)),
            1 => drop(take::<AgentWorkspace>(seen, now, |_| true)),
            2 => drop(take::<YoiPod>(seen, now, |_| true)),
            3 => drop(take::<YoiPeer>(seen, now, |_| true)),
            4 => {
                if take::<Pod>(seen, now, |p| labelled(&p.metadata, label::ROLE)) {
                    self.pods = seen.pods.iter().map(|(name, pod)| (name.clone(), Arc::new(ObservedPod::from((**pod).clone())))).collect();
                }
            }
            5 => drop(take::<k8s_openapi::api::core::v1::PersistentVolumeClaim>(seen, now, |_| true)),
            6 => drop(take::<k8s_openapi::api::core::v1::PersistentVolume>(seen, now, |_| true)),
            7 => drop(take::<k8s_openapi::api::core::v1::ConfigMap>(seen, now, |m| labelled(&m.metadata, label::YOIPOD))),
            8 | 9 => {
                let machines = kind == 8 && take::<crate::cluster::Machine>(seen, now, |_| true);
                if machines || kind == 9 && take::<yoi_crds::WorkspaceNode>(seen, now, |_| true) {
                    self.nodes = Arc::new(nodes(&seen.machines, &seen.offers));
                }
            }
            10 => drop(take::<k8s_openapi::api::networking::v1::NetworkPolicy>(seen, now, |_| true)),
            _ => seen.terminating = now.terminating,
        }
    }

    /// The caches of the reconciled kinds are brought up to date, and not those of the objects that they own.
    pub fn catch_up_reconciled(&mut self, c: &Cluster) {
        (0..4).for_each(|kind| self.catch_up(c, kind));
    }

    pub fn catch_up_all(&mut self, c: &Cluster) {
        (0..KINDS).for_each(|kind| self.catch_up(c, kind));
    }

    /// Every object that can be reconciled.
    pub fn all(&self) -> Vec<(Reconciled, String)> {
        let of = |kind: Reconciled, names: Vec<&String>| names.into_iter().map(move |n| (kind, n.clone())).collect::<Vec<_>>();
        let mut all = of(Reconciled::Project, self.seen.projects.keys().collect());
        all.extend(of(Reconciled::Workspace, self.seen.workspaces.keys().collect()));
        all.extend(of(Reconciled::YoiPod, self.seen.yoipods.keys().collect()));
        all.extend(of(Reconciled::Peer, self.seen.peers.keys().collect()));
        all.extend(of(Reconciled::Offer, self.seen.offers.keys().collect()));
        let going = self.seen.claims.iter().filter(|(_, c)| deleting(&c.metadata));
        all.extend(of(Reconciled::Claim, going.map(|(title, _)| title).collect()));
        all
    }

    /// One round. With `crash`, the process may crash before any step or before the status, as the number says. Long plans are rare, so it always crashes
    /// in those.
    pub fn round(&mut self, c: &mut Cluster, kind: Reconciled, title: &str, crash: Option<u64>) -> Result<RoundResult, Violation> {
        let did = match kind {
            Reconciled::Project => self.project(c, title, crash),
            Reconciled::Workspace => self.workspace(c, title, crash),
            Reconciled::YoiPod => self.yoipod(c, title, crash),
            Reconciled::Peer => self.peer(c, title, crash),
            Reconciled::Offer => self.offer(c, title, crash),
            Reconciled::Claim => self.claim(c, title, crash),
        }?;
        let at = c.seconds;
        if did != RoundResult::Nothing {
            c.coverage.record(|| format!("  {at} s: {kind:?} {did:?}"));
        }
        Ok(did)
    }

    fn is_fresh(&self, c: &Cluster) -> bool {
        self.seen.revisions == c.now.revisions && self.seen.terminating == c.now.terminating
    }

    /// Carries out the steps and returns the status to be written, if any, and what was done.
    fn carry_out<S: Conditions + Clone>(
        &mut self,
        c: &mut Cluster,
        (kind, object): (Reconciled, &ObjectMeta),
        mut plan: Plan<S>,
        before: &[yoi_crds::Condition],
        crash: Option<u64>,
    ) -> Result<(Option<S>, String), Violation> {
        let step_kind = match kind {
            Reconciled::Peer => None,
            Reconciled::Project => Some(Kind::Project),
            Reconciled::Workspace => Some(Kind::Workspace),
            Reconciled::YoiPod => Some(Kind::YoiPod),
            Reconciled::Offer => Some(Kind::WorkspaceNode),
            Reconciled::Claim => Some(Kind::Claim),
        };
        let about = About { kind: step_kind, uid: uid(object).to_owned(), fresh: self.is_fresh(c) };
        self.fault.steps(c, &about, object, &mut plan.steps);
        let key = (kind, name(object).to_owned());
        match plan.requeue_after.filter(|_| self.fault != Fault::ForgetRequeue) {
            Some(after) => drop(self.due.insert(key, c.now().saturating_add(after).expect("a time"))),
            None => drop(self.due.remove(&key)),
        }
        let mut done: Vec<String> = Vec::new();
        let places = plan.steps.len() as u64 + 1;
        let dies_at = crash.filter(|n| n % 4 == 0 || places > 4).map(|n| usize::try_from(n / 4 % places).expect("small"));
        for (i, step) in plan.steps.iter().enumerate() {
            if dies_at == Some(i) {
                self.crashed = true;
                c.coverage.crash(i, false);
                return Ok((None, done.join(", ")));
            }
            c.coverage.step(step);
            invariants::step(c, &about, step)?;
            loans::set_claims(c, &about, step)?;
            match c.apply(step) {
                Answer::Done if matches!(step, Step::ConfirmGone { .. }) => {}
                Answer::Done => done.push(step.description()),
                Answer::Quiet => return Ok((None, format!("{}; {} is tried again", done.join(", "), step.description()))),
                Answer::Refused(why) => {
                    if let Some(status) = &mut plan.status {
                        set_apply_failed(status, before, &why, object.generation, c.now());
                    }
                    break;
                }
            }
        }
        if dies_at == Some(plan.steps.len()) {
            self.crashed = true;
            c.coverage.crash(plan.steps.len(), plan.status.is_some());
            return Ok((None, done.join(", ")));
        }
        Ok((plan.status, done.join(", ")))
    }

    fn did(title: &str, done: &str, wrote: bool) -> RoundResult {
        if done.is_empty() && !wrote {
            RoundResult::Nothing
        } else {
            RoundResult::Something(format!("{title}: [{done}], status written: {wrote}"))
        }
    }

    fn current<K: Object>(c: &Cluster, seen: &K) -> bool {
        let meta = seen.meta();
        c.get::<K>(name(meta)).is_some_and(|o| o.meta().resource_version == meta.resource_version)
    }

    fn project(&mut self, c: &mut Cluster, title: &str, crash: Option<u64>) -> Result<RoundResult, Violation> {
        let view = &self.seen;
        let Some(object) = view.projects.get(title).cloned() else { return Ok(RoundResult::Nothing) };
        let bases = bases(view, &[uid(&object.metadata)]);
        let origins: BTreeSet<String> = view
            .workspaces
            .values()
            .filter(|w| w.spec.base.is_none())
            .filter_map(|w| w.status.as_ref()?.origin.as_ref()?.workspace_uid.clone())
            .collect();
        let agents = view.yoipods.values().filter(|y| y.spec.project_ref.name == title).cloned().collect();
        let trees = view.workspaces.values().filter(|w| w.spec.source.project.as_ref().is_some_and(|p| p.name == title)).cloned().collect();
        let looks = self.pods.values().filter(|p| controlled_by(&p.metadata, uid(&object.metadata))).cloned().collect();
        let seen = project::Observed {
            warm: warm::observed(c, view, &object),
            looks,
            agents,
            trees,
            project: object.clone(),
            terminating: view.terminating,
            bases,
            origins,
            nodes: self.nodes.clone(),
            network_policies: view.policies.values().cloned().collect(),
        };
        let plan = project::plan(&seen, &self.settings, c.now());
        let before = object.status.clone().unwrap_or_default();
        let (status, done) = self.carry_out(c, (Reconciled::Project, &object.metadata), plan, &before.conditions, crash)?;
        let Some(mut status) = status else { return Ok(Self::did(title, &done, false)) };
        self.fault.conditions(c, &mut status.conditions);
        let wrote = sorted(status.clone()) != sorted(before.clone());
        if wrote && Self::current(c, &*object) {
            invariants::project(c, title, &before, &status)?;
            c.change::<YoiProject>(title, |p| p.status = Some(status));
        }
        Ok(Self::did(title, &done, wrote))
    }

    fn workspace(&mut self, c: &mut Cluster, title: &str, crash: Option<u64>) -> Result<RoundResult, Violation> {
        let view = &self.seen;
        let Some(object) = view.workspaces.get(title).cloned() else { return Ok(RoundResult::Nothing) };
        let project = object.spec.source.project.as_ref().and_then(|p| view.projects.get(&p.name)).cloned();
        let parent_uid = base_parent_uid(&object).map(str::to_owned).or_else(|| project.as_ref().and_then(|p| p.metadata.uid.clone()));
        let parent_uid = parent_uid.unwrap_or_else(|| uid(&object.metadata).to_owned());
        let users: Vec<_> = view.yoipods.values().filter(|y| workspace_name(y) == title).cloned().collect();
        let bears = |p: &ObservedPod, key: &str, named: &str| label_of(&p.metadata, key) == Some(named);
        let of_users = |p: &&Arc<ObservedPod>| users.iter().any(|u| bears(p, label::YOIPOD, name(&u.metadata)));
        let fills = |p: &&Arc<ObservedPod>| bears(p, label::WORKSPACE, title) && controlled_by(&p.metadata, uid(&object.metadata));
        let claimed = object.spec.claim;
        let seen = workspace::Observed {
            workspace: object.clone(),
            terminating: view.terminating,
            parent: object.spec.source.workspace.as_ref().and_then(|w| view.workspaces.get(&w.name)).cloned(),
            bases: bases(view, &[&parent_uid, uid(&object.metadata)]),
            agents: self.pods.values().filter(of_users).cloned().collect(),
            populators: self.pods.values().filter(fills).cloned().collect(),
            claim: view.claims.get(title).filter(|_| claimed).cloned(),
            volume: view.volumes.get(&names::volume(uid(&object.metadata))).filter(|_| claimed).cloned(),
            nodes: self.nodes.clone(),
            network_policies: view.policies.values().cloned().collect(),
            users,
            project,
        };
        let plan = workspace::plan(&seen, &self.settings, c.now());
        let before = own_workspace(object.status.clone().unwrap_or_default());
        let (status, done) = self.carry_out(c, (Reconciled::Workspace, &object.metadata), plan, &before.conditions, crash)?;
        let Some(mut status) = status.map(own_workspace) else { return Ok(Self::did(title, &done, false)) };
        self.fault.conditions(c, &mut status.conditions);
        self.fault.workspace(c, &object, &mut status);
        let wrote = sorted(status.clone()) != sorted(before.clone()) || self.fault == Fault::WriteUnchangedStatus;
        if wrote && Self::current(c, &*object) && self.fault != Fault::LoseStatus {
            invariants::workspace(c, &object, &sorted(before), &sorted(status.clone()))?;
            c.change::<AgentWorkspace>(title, |w| {
                let stood = w.status.take().unwrap_or_default();
                status.provider = stood.provider;
                status.volume = stood.volume;
                (status.claims, status.loans) = (stood.claims, stood.loans);
                status.conditions.extend(stood.conditions.into_iter().filter(|c| !OPERATORS.contains(&c.type_.as_str())));
                w.status = Some(status);
            });
        }
        Ok(Self::did(title, &done, wrote))
    }

    fn yoipod(&mut self, c: &mut Cluster, title: &str, crash: Option<u64>) -> Result<RoundResult, Violation> {
        let view = &self.seen;
        let Some(object) = view.yoipods.get(title).cloned() else { return Ok(RoundResult::Nothing) };
        let project = view.projects.get(&object.spec.project_ref.name).cloned();
        let works_in = workspace_name(&object);
        let workspace = view.workspaces.get(works_in).cloned();
        let template = object.spec.workspace.as_ref().and_then(|w| w.template.as_ref()?.source.as_ref()?.workspace.clone());
        let forked = workspace.as_ref().map_or(template, |w| w.spec.source.workspace.clone());
        let parents = [project.as_ref().map(|p| uid(&p.metadata)), workspace.as_ref().map(|w| uid(&w.metadata))];
        let session_claim = view.claims.get(&session_claim_name(&object)).cloned().or_else(|| warm::former(view, &object));
        let volume = session_claim.as_ref().and_then(|c| view.volumes.get(c.spec.as_ref()?.volume_name.as_ref()?));
        let mine = |meta: &ObjectMeta| label_of(meta, label::YOIPOD) == Some(title);
        let seen = yoipod::Observed {
            warm: warm::candidates(view, &object, project.as_deref()),
            terminating: view.terminating,
            users: view.yoipods.values().filter(|y| workspace_name(y) == works_in).cloned().collect(),
            bases: bases(view, &parents.into_iter().flatten().collect::<Vec<_>>()),
            parent: forked.and_then(|w| view.workspaces.get(&w.name)).cloned(),
            spawner: object.spec.spawned_by.as_ref().and_then(|by| view.yoipods.values().find(|y| uid(&y.metadata) == by.uid)).cloned(),
            children: view
                .yoipods
                .values()
                .filter(|y| y.spec.spawned_by.as_ref().is_some_and(|by| by.uid == uid(&object.metadata)))
                .count(),
            pods: self.pods.values().filter(|p| mine(&p.metadata)).cloned().collect(),
            session_volume: volume.cloned(),
            session_claim,
            manifests: view.maps.values().filter(|m| mine(&m.metadata)).cloned().collect(),
            nodes: self.nodes.clone(),
            network_policies: view.policies.values().cloned().collect(),
            yoipod: object.clone(),
            project,
            workspace,
        };
        let plan = yoipod::plan(&seen, &self.settings, c.now());
        let before = own_yoipod(object.status.clone().unwrap_or_default());
        let (status, done) = self.carry_out(c, (Reconciled::YoiPod, &object.metadata), plan, &before.conditions, crash)?;
        let Some(mut status) = status.map(own_yoipod) else { return Ok(Self::did(title, &done, false)) };
        self.fault.conditions(c, &mut status.conditions);
        self.fault.yoipod(&before, &mut status);
        let wrote = sorted(status.clone()) != sorted(before.clone());
        let mut stood = object.clone();
        if self.fault == Fault::OverwriteBlindly {
            stood = c.get::<YoiPod>(title).cloned().unwrap_or(stood);
        }
        if wrote && Self::current(c, &*stood) {
            let before = own_yoipod(stood.status.clone().unwrap_or_default());
            invariants::yoipod(c, &stood, &sorted(before), &sorted(status.clone()))?;
            c.change::<YoiPod>(title, |y| {
                let stood = y.status.take().unwrap_or_default();
                let requested_at = stood.reader.and_then(|reader| reader.requested_at);
                let pod = status.reader.as_ref().and_then(|reader| reader.pod.clone());
                let reader = (requested_at.is_some() || pod.is_some()).then_some(ReaderStatus { requested_at, pod });
                let request = stood.push.and_then(|push| push.request);
                let push = PushStatus { request, ..status.push.as_deref().cloned().unwrap_or_default() };
                let push = (push != PushStatus::default()).then(|| Box::new(push));
                let YoiPodStatus { session, task, live, report, rest, .. } = stood;
                y.status = Some(YoiPodStatus { session, task, live, report, rest, reader, push, ..status });
            });
        }
        Ok(Self::did(title, &done, wrote))
    }

    fn peer(&mut self, c: &mut Cluster, title: &str, crash: Option<u64>) -> Result<RoundResult, Violation> {
        let view = &self.seen;
        let Some(object) = view.peers.get(title).cloned() else { return Ok(RoundResult::Nothing) };
        let member = |i: usize| object.spec.members.get(i).and_then(|m| view.yoipods.get(m)).cloned();
        let seen = peer::Observed { peer: object.clone(), terminating: view.terminating, members: [member(0), member(1)] };
        let plan = peer::plan(&seen, c.now());
        let before = object.status.clone().unwrap_or_default();
        let (status, done) = self.carry_out(c, (Reconciled::Peer, &object.metadata), plan, &before.conditions, crash)?;
        let Some(mut status) = status else { return Ok(Self::did(title, &done, false)) };
        self.fault.peer(view_members(&self.seen, &object), &mut status);
        let wrote = sorted(status.clone()) != sorted(before.clone());
        if wrote && Self::current(c, &*object) {
            invariants::peer(c, title, &before, &status)?;
            c.change::<YoiPeer>(title, |p| p.status = Some(status));
        }
        Ok(Self::did(title, &done, wrote))
    }

    /// A WorkspaceNode.
    fn offer(&mut self, c: &mut Cluster, title: &str, crash: Option<u64>) -> Result<RoundResult, Violation> {
        let Some(object) = self.seen.offers.get(title).cloned() else { return Ok(RoundResult::Nothing) };
        let silent_since = self.seen.machines.get(title).and_then(|machine| machine.not_ready_since);
        let silence = silent_since.map(|since| Silence { since: at(since), pod: None });
        let plan = heartbeat::plan(&object, &self.nodes, silence.as_ref(), c.now());
        self.carry_out_steps(c, (Reconciled::Offer, &object.metadata), plan, crash)
    }

    /// A PersistentVolumeClaim that is being deleted.
    fn claim(&mut self, c: &mut Cluster, title: &str, crash: Option<u64>) -> Result<RoundResult, Violation> {
        let Some(object) = self.seen.claims.get(title).filter(|c| deleting(&c.metadata)).cloned() else { return Ok(RoundResult::Nothing) };
        self.carry_out_steps(c, (Reconciled::Claim, &object.metadata), nudge_deleting_claims::plan(&object, c.now()), crash)
    }

    fn carry_out_steps(
        &mut self,
        c: &mut Cluster,
        about: (Reconciled, &ObjectMeta),
        plan: Plan<Infallible>,
        crash: Option<u64>,
    ) -> Result<RoundResult, Violation> {
        let plan: Plan<YoiPodStatus> = Plan { steps: plan.steps, status: None, requeue_after: plan.requeue_after };
        let (_, done) = self.carry_out(c, about, plan, &[], crash)?;
        Ok(Self::did(name(about.1), &done, false))
    }
}

fn view_members(view: &Objects, peer: &YoiPeer) -> Vec<yoi_crds::peer::BoundMember> {
    let of = |m: &String| view.yoipods.get(m).map(|y| yoi_crds::peer::BoundMember { name: m.clone(), uid: uid(&y.metadata).to_owned() });
    peer.spec.members.iter().filter_map(of).collect()
}

const OPERATORS: &[&str] = &[condition::ACCEPTED, condition::SCHEDULED, condition::POPULATED, condition::BOUND, condition::READY];

fn own_workspace(mut s: AgentWorkspaceStatus) -> AgentWorkspaceStatus {
    s.provider = None;
    s.volume = None;
    (s.claims, s.loans) = (Vec::new(), Vec::new());
    s.conditions.retain(|c| OPERATORS.contains(&c.type_.as_str()));
    s
}

fn own_yoipod(s: YoiPodStatus) -> YoiPodStatus {
    let reader = s.reader.filter(|reader| reader.pod.is_some()).map(|reader| ReaderStatus { requested_at: None, ..reader });
    let push = s.push.map(|push| PushStatus { request: None, ..*push }).filter(|push| *push != PushStatus::default()).map(Box::new);
    YoiPodStatus { session: None, task: None, live: None, report: None, rest: None, reader, push, ..s }
}

fn sorted<S: Conditions>(mut status: S) -> S {
    status.conditions_mut().sort_by(|a, b| a.type_.cmp(&b.type_));
    status
}

fn bases(view: &Objects, parents: &[&str]) -> Vec<Arc<AgentWorkspace>> {
    view.workspaces.values().filter(|w| base_parent_uid(w).is_some_and(|l| parents.contains(&l))).cloned().collect()
}
