//! The promise: from any world, with a stop after any step and with views that may be old, asking again and again ends with plans without
//! steps and with statuses that stay; and at no moment is a promise broken. Planted faults show that this would be found out.

mod actors;
mod sim;

use std::collections::BTreeSet;
use std::sync::Arc;

use actors::Dice;
use sim::{Broken, Cluster, NS};
use yoi_crds::WorkspaceNode;
use yoi_crds::condition::is_true;
use yoi_crds::reason::condition;
use yoi_plan::manage::{controlled_by, name, uid};
use yoi_plan::nodes::{Node, Nodes};
use yoi_plan::settings::Settings;
use yoi_plan::step::{Step, Target};
use yoi_plan::workspace::base::lineage_of;
use yoi_plan::yoipod::{session_claim_name, workspace_name};
use yoi_plan::{names, peer, project, workspace, yoipod};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// A step that is never carried out.
    SkipManifest,
    SkipFinalizers,
    /// Statuses of workspaces are never written.
    LoseStatus,
    /// Removals forget whom they mean.
    ForgetUid,
    /// The run generation is counted from the view alone and written without looking.
    Recount,
    /// The volume is made as soon as there is a claim.
    VolumeFirst,
    MakeInTerminating,
}

fn settings() -> Settings {
    Settings {
        agent_image: "agent".into(),
        populator_image: "agent".into(),
        image_pull_policy: None,
        runtime_digest: None,
        default_session_class: None,
        gateway: yoi_wire::manifest::Gateway { lines: "l".into(), service: "s".into(), server_name: "s".into(), ca: "ca".into() },
        network: None,
    }
}

fn nodes() -> Arc<Nodes> {
    let offer = |n: &str, free: i64| {
        let status = serde_json::json!({
            "providers": [{"name": "Btrfs", "available": true, "reason": "here"}], "capacity": {"totalBytes": 100, "freeBytes": free}, "runtimeDigests": ["d"],
        });
        let mut offer = WorkspaceNode::new(n, yoi_crds::node::WorkspaceNodeSpec {});
        offer.status = Some(serde_json::from_value(status).unwrap());
        (n.to_owned(), Node { labels: std::collections::BTreeMap::new(), offer: Some(Arc::new(offer)) })
    };
    Arc::new(Nodes([offer("n1", 50), offer("n2", 40)].into()))
}

struct Life {
    cluster: Cluster,
    /// A view that is some writes old.
    old: Cluster,
    fault: Fault,
    settings: Settings,
}

/// What a round of one object did.
#[derive(PartialEq)]
enum Did {
    Nothing,
    Something(String),
}

impl Life {
    fn new(fault: Fault) -> Self {
        let cluster = Cluster { nodes: nodes(), ..Cluster::default() };
        Life { old: cluster.clone(), cluster, fault, settings: settings() }
    }

    fn steps(&mut self, mut steps: Vec<Step>, stop_after: Option<usize>, stale: bool) -> Result<bool, Broken> {
        for step in &mut steps {
            if let (Step::Delete(Target { uid, .. }), Fault::ForgetUid) = (step, self.fault) {
                uid.clear();
            }
        }
        if self.fault == Fault::VolumeFirst {
            let early: Vec<Step> = self.early_volumes();
            steps.extend(early);
        }
        if self.fault == Fault::MakeInTerminating && self.cluster.terminating {
            let claim = k8s_openapi::api::core::v1::PersistentVolumeClaim::default();
            steps.push(Step::EnsureClaim(Box::new(claim)));
        }
        for (i, step) in steps.iter().enumerate() {
            if stop_after == Some(i) {
                return Ok(false);
            }
            let skipped = match step {
                Step::EnsureConfigMap(_) => self.fault == Fault::SkipManifest,
                Step::AddFinalizers { .. } => self.fault == Fault::SkipFinalizers,
                _ => false,
            };
            if !skipped {
                self.cluster.apply(step, stale)?;
            }
        }
        Ok(stop_after != Some(steps.len()))
    }

    fn early_volumes(&self) -> Vec<Step> {
        let waits = self
            .cluster
            .workspaces
            .values()
            .find(|w| w.spec.claim && !w.status.as_ref().is_some_and(|s| is_true(&s.conditions, condition::PROVISIONED)));
        let Some(workspace) = waits else { return Vec::new() };
        let volume = serde_json::json!({
            "metadata": {"name": names::volume(uid(&workspace.metadata))},
            "spec": {"claimRef": {"uid": "some"}, "csi": {"driver": "d", "volumeHandle": uid(&workspace.metadata)}},
        });
        vec![Step::EnsureVolume(Box::new(serde_json::from_value(volume).unwrap()))]
    }

    fn round(&mut self, kind: usize, title: &str, stop_after: Option<usize>, stale: bool) -> Result<Did, Broken> {
        let view = if stale { self.old.clone() } else { self.cluster.clone() };
        let now = self.cluster.now();
        match kind {
            0 => self.project(&view, title, now, stop_after, stale),
            1 => self.workspace(&view, title, now, stop_after, stale),
            2 => self.yoipod(&view, title, now, stop_after, stale),
            _ => self.peer(&view, title, now),
        }
    }

    fn project(&mut self, view: &Cluster, title: &str, now: jiff::Timestamp, stop: Option<usize>, stale: bool) -> Result<Did, Broken> {
        let Some(object) = view.projects.get(title) else { return Ok(Did::Nothing) };
        let origins: BTreeSet<String> =
            view.workspaces.values().filter_map(|w| w.status.as_ref()?.origin.as_ref()?.workspace_uid.clone()).collect();
        let bases = bases(view, &[uid(&object.metadata)]);
        let plan = project::plan(
            &project::Observed { project: object.clone(), terminating: view.terminating, bases, origins, nodes: view.nodes.clone() },
            now,
        );
        let did = did(&plan.steps, plan.status.as_ref() != object.status.as_ref() && plan.status.is_some(), title);
        if self.steps(plan.steps, stop, stale)? {
            let version = object.metadata.resource_version.clone();
            let current = self.cluster.projects.get(title).is_some_and(|o| o.metadata.resource_version == version);
            if let Some(status) = plan.status.filter(|s| current && object.status.as_ref() != Some(s)) {
                self.cluster.change(|c| &mut c.projects, title, |p| p.status = Some(status));
            }
        }
        Ok(did)
    }

    fn workspace(&mut self, view: &Cluster, title: &str, now: jiff::Timestamp, stop: Option<usize>, stale: bool) -> Result<Did, Broken> {
        let Some(object) = view.workspaces.get(title) else { return Ok(Did::Nothing) };
        let project = object.spec.source.project.as_ref().and_then(|p| view.projects.get(&p.name)).cloned();
        let lineage = lineage_of(object).map(str::to_owned).or_else(|| project.as_ref().and_then(|p| p.metadata.uid.clone()));
        let lineage = lineage.unwrap_or_else(|| uid(&object.metadata).to_owned());
        let users: Vec<_> = view.yoipods.values().filter(|y| workspace_name(y) == title).cloned().collect();
        let of_users = |p: &&Arc<k8s_openapi::api::core::v1::Pod>| users.iter().any(|u| controlled_by(&p.metadata, uid(&u.metadata)));
        let seen = workspace::Observed {
            workspace: object.clone(),
            terminating: view.terminating,
            parent: object.spec.source.workspace.as_ref().and_then(|w| view.workspaces.get(&w.name)).cloned(),
            bases: bases(view, &[&lineage]),
            agents: view.pods.values().filter(of_users).cloned().collect(),
            populators: view.pods.values().filter(|p| controlled_by(&p.metadata, uid(&object.metadata))).cloned().collect(),
            claim: view.claims.get(title).filter(|_| object.spec.claim).cloned(),
            volume: view.volumes.get(&names::volume(uid(&object.metadata))).cloned(),
            nodes: view.nodes.clone(),
            users,
            project,
        };
        let plan = workspace::plan(&seen, &self.settings, now);
        let before = object.status.clone().map(own_workspace);
        let changed = plan.status.is_some() && plan.status.clone().map(own_workspace) != before;
        let did = did(&plan.steps, changed, title);
        if self.steps(plan.steps, stop, stale)? && changed && self.fault != Fault::LoseStatus {
            self.cluster.write_workspace(title, object.metadata.resource_version.as_deref(), plan.status.unwrap())?;
        }
        Ok(did)
    }

    fn yoipod(&mut self, view: &Cluster, title: &str, now: jiff::Timestamp, stop: Option<usize>, stale: bool) -> Result<Did, Broken> {
        let Some(object) = view.yoipods.get(title) else { return Ok(Did::Nothing) };
        let project = view.projects.get(&object.spec.project_ref.name).cloned();
        let works_in = workspace_name(object);
        let workspace = view.workspaces.get(works_in).cloned();
        let template = object.spec.workspace.as_ref().and_then(|w| w.template.as_ref()?.source.as_ref()?.workspace.clone());
        let forked = workspace.as_ref().map_or(template, |w| w.spec.source.workspace.clone());
        let lineages = [project.as_ref().map(|p| uid(&p.metadata)), workspace.as_ref().map(|w| uid(&w.metadata))];
        let session_claim = view.claims.get(&session_claim_name(object)).cloned();
        let seen = yoipod::Observed {
            terminating: view.terminating,
            users: view.yoipods.values().filter(|y| workspace_name(y) == works_in).cloned().collect(),
            bases: bases(view, &lineages.into_iter().flatten().collect::<Vec<_>>()),
            parent: forked.and_then(|w| view.workspaces.get(&w.name)).cloned(),
            pods: view.pods.values().filter(|p| controlled_by(&p.metadata, uid(&object.metadata))).cloned().collect(),
            session_volume: None,
            session_claim,
            manifests: view.maps.values().filter(|m| controlled_by(&m.metadata, uid(&object.metadata))).cloned().collect(),
            nodes: view.nodes.clone(),
            yoipod: object.clone(),
            project,
            workspace,
        };
        let mut plan = yoipod::plan(&seen, &self.settings, now);
        let before = object.status.clone().map(own_yoipod);
        let changed = plan.status.is_some() && plan.status.clone().map(own_yoipod) != before;
        let did = did(&plan.steps, changed, title);
        let mut version = object.metadata.resource_version.clone();
        if self.fault == Fault::Recount && stale {
            version = self.cluster.yoipods.get(title).and_then(|o| o.metadata.resource_version.clone());
            if let Some(status) = &mut plan.status {
                status.run_generation = object.status.as_ref().and_then(|s| s.run_generation);
            }
        }
        if self.steps(plan.steps, stop, stale)? && changed {
            self.cluster.write_yoipod(title, version.as_deref(), plan.status.unwrap())?;
        }
        Ok(did)
    }

    fn peer(&mut self, view: &Cluster, title: &str, now: jiff::Timestamp) -> Result<Did, Broken> {
        let Some(object) = view.peers.get(title) else { return Ok(Did::Nothing) };
        let member = |i: usize| view.yoipods.get(&object.spec.members[i]).cloned();
        let plan =
            peer::plan(&peer::Observed { peer: object.clone(), terminating: view.terminating, members: [member(0), member(1)] }, now);
        let changed = plan.status.is_some() && plan.status != object.status;
        let did = did(&plan.steps, changed, title);
        if changed && self.cluster.peers.get(title).is_some_and(|o| o.metadata.resource_version == object.metadata.resource_version) {
            self.cluster.change(|c| &mut c.peers, title, |p| p.status = plan.status);
        }
        Ok(did)
    }

    fn all(&self) -> Vec<(usize, String)> {
        let c = &self.cluster;
        let of = |kind: usize, names: Vec<&String>| names.into_iter().map(|n| (kind, n.clone())).collect::<Vec<_>>();
        let mut all = of(0, c.projects.keys().collect());
        all.extend(of(1, c.workspaces.keys().collect()));
        all.extend(of(2, c.yoipods.keys().collect()));
        all.extend(of(3, c.peers.keys().collect()));
        all
    }

    /// A wild time, then peace: and in peace everything must come to rest.
    fn live(&mut self, seed: u64) -> Result<(), Broken> {
        let mut dice = Dice(seed);
        actors::user(&mut self.cluster, &mut dice);
        for _ in 0..120 {
            self.cluster.seconds += i64::try_from(dice.roll(4)).unwrap();
            match dice.roll(12) {
                0 => actors::user(&mut self.cluster, &mut dice),
                1 => actors::kubernetes(&mut self.cluster, (dice.roll(2) == 0).then_some("n1"), dice.roll(4) == 0),
                2 => actors::shim(&mut self.cluster),
                3 => actors::gateway(&mut self.cluster),
                4 => self.old = self.cluster.clone(),
                _ => {
                    let all = self.all();
                    if let Some((kind, title)) = dice.pick(&all) {
                        // The operator may die after any step, and may look through an old cache.
                        let stop = (dice.roll(4) == 0).then(|| usize::try_from(dice.roll(4)).unwrap());
                        self.round(*kind, title, stop, dice.roll(4) == 0)?;
                    }
                }
            }
            if let Some(why) = actors::twice(&self.cluster) {
                return Err(Broken(why));
            }
        }
        if dice.roll(6) == 0 {
            self.cluster.terminating = true;
        }
        self.settle()
    }

    fn settle(&mut self) -> Result<(), Broken> {
        const ROUNDS: usize = 60;
        let mut last = String::new();
        for round in 0..ROUNDS {
            self.cluster.seconds += 30;
            actors::kubernetes(&mut self.cluster, Some("n1").filter(|_| round % 2 == 0), false);
            actors::shim(&mut self.cluster);
            actors::gateway(&mut self.cluster);
            last.clear();
            for (kind, title) in self.all() {
                if let Did::Something(what) = self.round(kind, &title, None, false)? {
                    last = what;
                }
            }
            if last.is_empty() && round > 2 {
                // Once is not enough: it must stay so.
                for (kind, title) in self.all() {
                    if let Did::Something(what) = self.round(kind, &title, None, false)? {
                        return Err(Broken(format!("rest does not last: {what}")));
                    }
                }
                return self.at_rest();
            }
        }
        Err(Broken(format!("no rest after {ROUNDS} rounds: {last}")))
    }

    /// Rest must be the right one: who wants to run and can, runs; who goes, is gone.
    fn at_rest(&self) -> Result<(), Broken> {
        if self.cluster.terminating {
            return Ok(());
        }
        for (title, y) in &self.cluster.yoipods {
            let status = y.status.clone().unwrap_or_default();
            let accepted = is_true(&status.conditions, condition::ACCEPTED);
            let ready = is_true(&status.conditions, condition::READY);
            let why = status.conditions.iter().find(|c| c.type_ == condition::READY).map_or("", |c| c.reason.as_str());
            let fine = ready || !accepted || ["Stopped", "SourceNotFound", "SourceNotSealed"].contains(&why);
            if !fine || y.metadata.deletion_timestamp.is_some() {
                return Err(Broken(format!("{title} rests wrongly: {:?}", status.conditions)));
            }
        }
        for (title, w) in &self.cluster.workspaces {
            // A tree in use stays until its agent stops, as a claim does.
            let used =
                self.cluster.pods.values().any(|p| yoi_plan::manage::label(&p.metadata, yoi_crds::name::label::WORKSPACE) == Some(title));
            if w.metadata.deletion_timestamp.is_some() && !used {
                return Err(Broken(format!("workspace {title} never goes: {:?}", w.metadata)));
            }
        }
        let unready = |p: &&Arc<yoi_crds::YoiProject>| !p.status.as_ref().is_some_and(|s| is_true(&s.conditions, condition::READY));
        match self.cluster.projects.get("p").filter(unready) {
            Some(project) => Err(Broken(format!("the project rests wrongly: {:?}", project.status))),
            None => Ok(()),
        }
    }
}

fn own_workspace(mut s: yoi_crds::AgentWorkspaceStatus) -> yoi_crds::AgentWorkspaceStatus {
    let own = [condition::ACCEPTED, condition::SCHEDULED, condition::POPULATED, condition::BOUND, condition::READY];
    s.provider = None;
    s.volume = None;
    s.conditions.retain(|c| own.contains(&c.type_.as_str()));
    s.conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
    s
}

fn own_yoipod(s: yoi_crds::YoiPodStatus) -> yoi_crds::YoiPodStatus {
    yoi_crds::YoiPodStatus { session: None, task: None, live: None, report: None, ..s }
}

fn did(steps: &[Step], status: bool, title: &str) -> Did {
    let deeds: Vec<String> = steps.iter().map(Step::deed).collect();
    if deeds.is_empty() && !status { Did::Nothing } else { Did::Something(format!("{title}: {deeds:?}, status {status}")) }
}

fn bases(view: &Cluster, lineages: &[&str]) -> Vec<Arc<yoi_crds::AgentWorkspace>> {
    view.workspaces.values().filter(|w| lineage_of(w).is_some_and(|l| lineages.contains(&l))).cloned().collect()
}

#[test]
fn every_life_comes_to_rest_and_breaks_no_promise() {
    for seed in 0..3000 {
        if let Err(Broken(why)) = Life::new(Fault::None).live(seed) {
            panic!("seed {seed}: {why}");
        }
    }
}

#[test]
fn every_planted_fault_is_found() {
    use Fault::{ForgetUid, LoseStatus, MakeInTerminating, Recount, SkipFinalizers, SkipManifest, VolumeFirst};
    for fault in [SkipManifest, SkipFinalizers, LoseStatus, ForgetUid, Recount, VolumeFirst, MakeInTerminating] {
        let found = (0..3000).find(|seed| Life::new(fault).live(*seed).is_err());
        assert!(found.is_some(), "{fault:?} went unnoticed");
    }
}

/// One straight life, so that a fault in the wild one has something to be compared with.
#[test]
fn a_project_and_an_agent_become_ready() {
    let mut life = Life::new(Fault::None);
    let mut project = yoi_crds::YoiProject::new(
        "p",
        serde_json::from_value(serde_json::json!({
            "source": {"git": {"url": "https://example.invalid/x"}}, "defaults": {"model": {"provider": "OpenAI", "name": "m"}},
        }))
        .unwrap(),
    );
    project.metadata.namespace = Some(NS.to_owned());
    life.cluster.born(|c| &mut c.projects, project);
    let spec = serde_json::json!({"projectRef": {"name": "p"}, "agent": {"builtin": {}}});
    let mut yoipod = yoi_crds::YoiPod::new("a", serde_json::from_value(spec).unwrap());
    yoipod.metadata.namespace = Some(NS.to_owned());
    life.cluster.born(|c| &mut c.yoipods, yoipod);
    life.settle().unwrap_or_else(|b| panic!("{}", b.0));
    let status = life.cluster.yoipods["a"].status.clone().unwrap();
    assert!(is_true(&status.conditions, condition::READY), "{:?}", status.conditions);
    let pod = life.cluster.pods.values().find(|p| name(&p.metadata).starts_with("a-")).expect("the agent has a Pod");
    assert_eq!(life.cluster.workspaces["a"].status.as_ref().unwrap().pod_uid.as_deref(), Some(uid(&pod.metadata)));
    assert!(
        life.cluster.pods.values().all(|p| controlled_by(&p.metadata, uid(&life.cluster.yoipods["a"].metadata))),
        "populators are gone"
    );
}
