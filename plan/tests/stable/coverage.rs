//! What happened in the simulations. What never happens is not tested, so everything listed here must happen at least once.

use std::collections::BTreeMap;

use yoi_crds::reason::{self, Reason};
use yoi_plan::step::{Kind, Step};

/// What happens beside the operator's own steps.
pub const FEATURES: &[&str] = &[
    "project: empty source",
    "project: git source",
    "project: no source at all",
    "project: host source",
    "project: taken anew",
    "project: quota",
    "project: path",
    "project: no model",
    "project: new source",
    "workspace: of a project",
    "workspace: of a commit of a project",
    "workspace: fork",
    "workspace: fork of itself",
    "workspace: git source",
    "workspace: empty source",
    "workspace: host source",
    "workspace: quota",
    "workspace: path",
    "workspace: two sources",
    "workspace: no source at all",
    "workspace: without claim",
    "workspace: claim bound late",
    "workspace: claim bound at once",
    "workspace: ttlAfterRelease",
    "workspace: a base that a user made",
    "yoipod: the runtime's own loop",
    "yoipod: a program",
    "yoipod: a program of no preset",
    "yoipod: a command",
    "yoipod: workspace of the project",
    "yoipod: workspace by name",
    "yoipod: workspace by template",
    "yoipod: template that forks",
    "yoipod: task, Keep",
    "yoipod: task, Stop",
    "yoipod: push",
    "yoipod: stopped",
    "yoipod: started",
    "yoipod: suspended",
    "yoipod: rests",
    "yoipod: woken",
    "yoipod: task changed",
    "yoipod: another limit of tokens",
    "yoipod: another policy",
    "yoipod: refreshed",
    "project: another model",
    "project: another policy",
    "manifest: altered",
    "yoipod: session kept",
    "yoipod: session goes along",
    "yoipod: session's fate changed",
    "yoipod: may go on in a new tree",
    "yoipod: claimTemplate",
    "yoipod: claimName",
    "yoipod: nodeSelector",
    "yoipod: made again while its former session is kept",
    "peer: made",
    "peer: of one with itself",
    "peer: of three",
    "peer: member made again",
    "node: goes",
    "node: comes",
    "node: comes back with another UID and its disk",
    "node: comes back with another UID and an empty disk",
    "node: not ready",
    "node: ready again",
    "node: heard of again",
    "node: its shim offers nothing",
    "node: its shim is gone",
    "node: full",
    "node: comes without a shim",
    "node: cordoned",
    "node: tainted",
    "node: cannot pull an image",
    "node: no room for any Pod",
    "host source: listed no more",
    "host source: listed again",
    "host source: listed at another path",
    "host source: is well",
    "host source: vanishes",
    "host source: is written to",
    "host source: belongs to root",
    "host source: holds a volume",
    "quota: changed",
    "quota: taken away",
    "quota: a tree grows or shrinks",
    "network policy: deleted",
    "network policy: opened",
    "namespace: terminating",
    "deleted: project",
    "deleted: project, by force",
    "deleted: workspace",
    "deleted: yoipod",
    "deleted: peer",
    "deleted: pod",
    "deleted: claim",
    "deleted: volume",
    "deleted: manifest",
    "deleted: and made again under the name",
    "foreign: pod",
    "foreign: workspace",
    "foreign: claim",
    "foreign: volume",
    "foreign: config map",
    "foreign: with our labels",
    "foreign: taken away",
    "foreign finalizer",
    "pod: evicted",
    "pod: container waits",
    "pod: container ended",
    "pod: no room",
    "pod: a job takes a claim",
    "pod: a job ends",
    "populator: fails",
    "prepare: fails",
    "look: the branch has moved",
    "look: asked for",
    "look: fails",
    "project: prepare",
    "populator: no node fits",
    "populator: its image cannot be pulled",
    "session volume: local to a node",
    "session volume: of the network",
    "session volume: lost",
    "claim: Kubernetes misses the end of its last Pod",
    "shim: cannot make a tree",
    "shim: cannot take a folder",
    "shim: dies before it tells of a tree",
    "shim: loses a tree",
    "runtime: reports a failure",
    "runtime: reports a run that is over",
    "task: fails",
    "reader: asked for now",
    "reader: asked for a while ago",
    "reader: asked for long ago",
    "reader: asked for tomorrow",
    "push: asked for",
    "push: asked for, with a lease",
    "push: asked for while one is under way",
    "push: the agent commits",
    "push: somebody else moves the branch",
    "push: the branch has moved",
    "push: the branch is there already",
    "push: fails",
    "push: killed after the server did it",
    "loan: reserved",
    "loan: refused, for another one holds the path",
    "loan: the gateway dies before the child is made",
    "loan: fenced",
    "loan: its child is made",
    "loan: begins",
    "loan: its child works",
    "loan: the node of its child does not answer",
    "loan: a Pod of a silent node is deleted by force",
    "loan: its child is deleted",
    "loan: its child is stopped",
    "loan: its lender is deleted",
    "loan: its lender is stopped",
    "loan: its lender is started anew",
    "loan: given up before it begins",
    "loan: released",
    "operator: dies before its first step",
    "operator: dies between steps",
    "operator: dies after its fourth step",
    "operator: dies before the status",
    "operator: old view",
    "operator: what it made is not seen yet",
    "operator: restarts",
    "operator: waits for its hour",
];

/// Every step that a plan can have.
const STEPS: &[&str] = &[
    "AddFinalizers of YoiProject",
    "AddFinalizers of YoiPod",
    "AddFinalizers of AgentWorkspace",
    "RemoveFinalizer operator of YoiProject",
    "RemoveFinalizer operator of YoiPod",
    "RemoveFinalizer operator of AgentWorkspace",
    "RemoveFinalizer node-data of AgentWorkspace",
    "EnsureWorkspace",
    "EnsureWorkspace base",
    "EnsureNetworkPolicy",
    "EnsureClaim of a session",
    "EnsureClaim of a workspace",
    "EnsureVolume",
    "EnsureConfigMap",
    "EnsurePod agent",
    "EnsurePod reader",
    "EnsurePod populator",
    "EnsurePod prepare",
    "EnsurePod look",
    "EnsurePod pusher",
    "OwnClaim",
    "RetainVolume",
    "SetTokens",
    "SetPolicy",
    "UnselectNode",
    "NudgeClaim",
    "ConfirmGone Pod",
    "ConfirmGone PersistentVolumeClaim",
    "ConfirmGone PersistentVolume",
    "Delete AgentWorkspace",
    "Delete PersistentVolumeClaim",
    "Delete PersistentVolume",
    "Delete ConfigMap",
    "Delete Pod",
    "Delete WorkspaceNode",
    "SetNodeCondition",
    "MakeWarmClaim",
    "TakeWarmClaim",
    "DeleteUnchanged",
    "SetClaims",
];

#[derive(Clone, Default)]
pub struct Coverage {
    features: BTreeMap<&'static str, u64>,
    steps: BTreeMap<&'static str, u64>,
    reasons: BTreeMap<&'static str, u64>,
    /// What happened, in order; recorded only when it is to be printed.
    pub trace: Option<Vec<String>>,
}

impl Coverage {
    pub fn feature(&mut self, name: &'static str) {
        debug_assert!(FEATURES.contains(&name), "{name} is not on the list");
        self.record(|| name.to_owned());
        *self.features.entry(name).or_default() += 1;
    }

    pub fn record(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(line());
        }
    }

    pub fn step(&mut self, step: &Step) {
        *self.steps.entry(variant(step)).or_default() += 1;
        self.record(|| format!("    {}", step.description()));
    }

    /// The operator crashed after `done` steps of a plan. `before_status`: all steps were done and the status was not written.
    pub fn crash(&mut self, done: usize, before_status: bool) {
        match done {
            _ if before_status => self.feature("operator: dies before the status"),
            0 => self.feature("operator: dies before its first step"),
            _ => self.feature("operator: dies between steps"),
        }
        if done >= 4 {
            self.feature("operator: dies after its fourth step");
        }
    }

    pub fn reason(&mut self, name: &str) {
        match Reason::from_name(name) {
            Some(reason) => *self.reasons.entry(reason.as_str()).or_default() += 1,
            None => panic!("{name} is the reason of a condition and not among reason::ALL"),
        }
    }

    pub fn add(&mut self, other: &Coverage) {
        let Coverage { features, steps, reasons, trace: _ } = other;
        for (mine, theirs) in [(&mut self.features, features), (&mut self.steps, steps), (&mut self.reasons, reasons)] {
            for (name, n) in theirs {
                *mine.entry(name).or_default() += n;
            }
        }
    }

    /// Everything that is listed and did not happen.
    pub fn missing(&self) -> Vec<&'static str> {
        let all = [(FEATURES.to_vec(), &self.features), (STEPS.to_vec(), &self.steps), (reason_names(), &self.reasons)];
        all.into_iter().flat_map(|(wanted, had)| wanted.into_iter().filter(|w| !had.contains_key(w))).collect()
    }

    /// The features of this kind that did not happen.
    pub fn missing_of(&self, kind: &str) -> Vec<&'static str> {
        self.missing().into_iter().filter(|name| name.starts_with(kind)).collect()
    }

    pub fn print(&self) {
        for (title, counted) in [("features", &self.features), ("steps", &self.steps), ("reasons", &self.reasons)] {
            let all: Vec<String> = counted.iter().map(|(name, n)| format!("{name} {n}")).collect();
            println!("{title} ({}): {}", counted.len(), all.join(", "));
        }
    }
}

/// What does not happen in these worlds. What a runtime says of its model, its program and its image is in the runtime's tests; of Pods of an earlier
/// version, scopes, warm claims that are refused and namespaces that go in `tests/plan`.
const NOT_HERE: &[Reason] = &[
    reason::ASSETS_NOT_FETCHED,
    reason::ASSETS_PARTLY_READ,
    reason::ASSETS_READ,
    reason::INVALID_ASSETS,
    reason::COMMAND_INVALID,
    reason::GIT_MISSING,
    reason::HOLDERS_ENDED,
    reason::MODEL_REQUEST_CHANGED,
    reason::PROGRAM_FAILED,
    reason::PROGRAM_HOME_FULL,
    reason::PROGRAM_LOGIN_NEEDED,
    reason::PROGRAM_SESSION_LOST,
    reason::PROGRAM_SILENT,
    reason::PROGRAM_TASK_STOPPED,
    reason::READER_WITHOUT_GIT,
    reason::WRITTEN_CALL,
    reason::COVER_REFUSED,
    reason::POLICY_AT_NEXT_START,
    reason::SESSION_NOT_EMPTY,
    reason::WARM_OFF,
    reason::WARM_REFUSED,
    reason::NAMESPACE_TERMINATING,
    reason::DELETED_WHEN_FINISHED,
    reason::LIFETIME_ENDS,
    reason::LIFETIME_OVER,
];

fn reason_names() -> Vec<&'static str> {
    reason::ALL.iter().filter(|r| !NOT_HERE.contains(r)).map(|r| r.as_str()).collect()
}

fn variant(step: &Step) -> &'static str {
    match step {
        Step::AddFinalizers { of, .. } if of.kind == Kind::Project => "AddFinalizers of YoiProject",
        Step::RemoveFinalizer { of, .. } if of.kind == Kind::Project => "RemoveFinalizer operator of YoiProject",
        Step::AddFinalizers { of, .. } if of.kind == Kind::YoiPod => "AddFinalizers of YoiPod",
        Step::AddFinalizers { .. } => "AddFinalizers of AgentWorkspace",
        Step::RemoveFinalizer { of, .. } if of.kind == Kind::YoiPod => "RemoveFinalizer operator of YoiPod",
        Step::RemoveFinalizer { finalizer, .. } if *finalizer == yoi_crds::name::finalizer::NODE_DATA => {
            "RemoveFinalizer node-data of AgentWorkspace"
        }
        Step::RemoveFinalizer { .. } => "RemoveFinalizer operator of AgentWorkspace",
        Step::EnsureWorkspace(w) if w.spec.base.is_some() => "EnsureWorkspace base",
        Step::EnsureWorkspace(_) => "EnsureWorkspace",
        Step::EnsureClaim(c) if yoi_plan::meta::controller(&c.metadata).is_some_and(|o| o.kind == "AgentWorkspace") => {
            "EnsureClaim of a workspace"
        }
        Step::EnsureClaim(_) => "EnsureClaim of a session",
        Step::EnsureVolume(_) => "EnsureVolume",
        Step::EnsureConfigMap(_) => "EnsureConfigMap",
        Step::EnsurePod(p) if crate::kubernetes::is_agent(p) => "EnsurePod agent",
        Step::EnsurePod(p) if crate::kubernetes::is_reader(p) => "EnsurePod reader",
        Step::EnsurePod(p) if crate::prepared::is_prepare(p) => "EnsurePod prepare",
        Step::EnsurePod(p) if crate::pushes::is_pusher(p) => "EnsurePod pusher",
        Step::EnsurePod(p) if crate::looks::is_look(p) => "EnsurePod look",
        Step::EnsurePod(_) => "EnsurePod populator",
        Step::EnsureNetworkPolicy(_) => "EnsureNetworkPolicy",
        Step::OwnClaim { .. } => "OwnClaim",
        Step::MakeWarmClaim(_) => "MakeWarmClaim",
        Step::TakeWarmClaim { .. } => "TakeWarmClaim",
        Step::DeleteUnchanged { .. } => "DeleteUnchanged",
        Step::UnselectNode { .. } => "UnselectNode",
        Step::NudgeClaim { .. } => "NudgeClaim",
        Step::SetTokens { .. } => "SetTokens",
        Step::SetRest { .. } => "SetRest",
        Step::SetPolicy { .. } => "SetPolicy",
        Step::LeaveOutSet { .. } => "LeaveOutSet",
        Step::RetainVolume { .. } => "RetainVolume",
        Step::ConfirmGone { kind: Kind::Pod, .. } => "ConfirmGone Pod",
        Step::ConfirmGone { kind: Kind::Claim, .. } => "ConfirmGone PersistentVolumeClaim",
        Step::ConfirmGone { .. } => "ConfirmGone PersistentVolume",
        Step::SetNodeCondition { .. } => "SetNodeCondition",
        Step::SetClaims { .. } => "SetClaims",
        Step::Delete(t) => match t.kind {
            Kind::Workspace => "Delete AgentWorkspace",
            Kind::Claim => "Delete PersistentVolumeClaim",
            Kind::Volume => "Delete PersistentVolume",
            Kind::ConfigMap => "Delete ConfigMap",
            Kind::Pod => "Delete Pod",
            Kind::WorkspaceNode => "Delete WorkspaceNode",
            Kind::Project => "Delete YoiProject",
            Kind::YoiPod => "Delete YoiPod",
        },
    }
}
