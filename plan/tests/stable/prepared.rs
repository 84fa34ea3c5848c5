//! What is in bases that are prepared: a run of `prepare` that was cut short spoils a base until it is filled anew.

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use yoi_crds::AgentWorkspace;
use yoi_crds::name::label;
use yoi_crds::prepare::Prepare;
use yoi_plan::meta::{label as label_of, uid};

use crate::cluster::Cluster;
use crate::kubernetes::{ended, mounts, phase, pod_status, running};
use crate::users::Random;

/// What is in a base whose project prepares it. One that nothing was done to has no such entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BaseContent {
    /// The source, and nothing else.
    Filled,
    /// The Pod of this UID runs in it, and began in one that was just filled.
    Preparing(String),
    Prepared,
    /// A part of what prepare makes.
    Spoiled,
}

pub fn any(random: &mut Random) -> Option<Box<Prepare>> {
    let command = *random.pick(&["make", "cargo"]).expect("programs");
    let prepare = json!({"image": "builder", "command": [command], "egress": if random.one_in(2) { "None" } else { "Agents" }});
    random.one_in(3).then(|| serde_json::from_value(prepare).expect("a prepare"))
}

pub fn is_prepare(pod: &Pod) -> bool {
    label_of(&pod.metadata, label::ROLE) == Some(label::ROLE_PREPARE)
}

/// The kubelet ends a populator well.
pub fn filled(c: &mut Cluster, populator: &Pod) {
    if let Some(base) = mounts(c, populator) {
        c.contents.insert(base, BaseContent::Filled);
    }
}

/// The kubelet lets the Pod run, and ends it well in the next round.
pub fn run(c: &mut Cluster, pod: &Pod) {
    let (Some(base), title) = (mounts(c, pod), pod.metadata.name.clone().unwrap_or_default()) else { return };
    let own = BaseContent::Preparing(uid(&pod.metadata).to_owned());
    // The node has taken a folder when it made the base.
    let is_taken = c.now.workspaces.values().any(|w| uid(&w.metadata) == base && w.spec.source.host.is_some());
    let (content, status) = match (c.contents.get(&base), phase(pod)) {
        (Some(content), "Running") if *content == own => (BaseContent::Prepared, pod_status(pod, "Succeeded", ended(c.now(), 0))),
        (_, "Running") => (BaseContent::Spoiled, pod_status(pod, "Succeeded", ended(c.now(), 0))),
        (Some(BaseContent::Filled), _) => (own, pod_status(pod, "Running", running())),
        (None, _) if is_taken => (own, pod_status(pod, "Running", running())),
        (_, _) => (BaseContent::Spoiled, pod_status(pod, "Running", running())),
    };
    c.contents.insert(base, content);
    c.change::<Pod>(&title, |p| p.status = Some(status));
}

/// The Pod of a base has failed.
pub fn spoil(c: &mut Cluster, pod: &Pod) {
    if let Some(base) = mounts(c, pod).filter(|_| is_prepare(pod)) {
        c.contents.insert(base, BaseContent::Spoiled);
        c.coverage.feature("prepare: fails");
    }
}

/// Whether what agents get of the base is what one whole run has left of a base that was just filled.
pub fn is_whole(c: &Cluster, base: &AgentWorkspace) -> bool {
    let is_prepared = base.spec.base.as_ref().is_some_and(|base| base.prepare.is_some());
    !is_prepared || c.contents.get(uid(&base.metadata)) == Some(&BaseContent::Prepared)
}
