//! Git repositories: their branch moves, people ask for a look, and bases hold the commit that was fetched.

use k8s_openapi::api::core::v1::Pod;
use yoi_crds::name::annotation::LOOK;
use yoi_crds::{AgentWorkspace, YoiProject};
use yoi_plan::meta::{annotation, controlled_by, controller, deleting, uid};

use crate::cluster::{Cluster, Violation};
use crate::kubernetes::{ended, mounts, pod_status};
use crate::users::Random;

/// The commit that every repository's branch is at.
fn head(c: &Cluster) -> String {
    format!("{:040x}", c.branch)
}

/// What a workspace can name: the branch, or one of its commits, which a base may hold or not.
pub fn any(c: &Cluster, random: &mut Random) -> String {
    if random.one_in(3) { "main".to_owned() } else { format!("{:040x}", random.roll(c.branch + 1)) }
}

/// Somebody pushes to the branch, or asks for a look.
pub fn change(c: &mut Cluster, random: &mut Random) {
    if random.one_in(2) {
        c.coverage.feature("look: the branch has moved");
        c.branch += 1;
        return;
    }
    let Some(title) = random.pick(&c.names::<YoiProject>()).cloned() else { return };
    c.coverage.feature("look: asked for");
    let word = c.counter.to_string();
    c.change::<YoiProject>(&title, |p| drop(p.metadata.annotations.get_or_insert_default().insert(LOOK.to_owned(), word)));
}

/// Whether the workspace is of a commit of a project that has no repository.
pub fn names_no_commit(c: &Cluster, w: &AgentWorkspace) -> bool {
    let of = w.spec.source.project.as_ref().filter(|of| of.revision.is_some());
    of.and_then(|of| c.now.projects.get(&of.name)).is_some_and(|project| project.spec.source.git.is_none())
}

/// Whether it looks at a project's repository.
pub fn is_look(pod: &Pod) -> bool {
    controller(&pod.metadata).is_some_and(|owner| owner.kind == "YoiProject")
}

/// The kubelet lets the Pod look. Now and then that fails.
pub fn run(c: &mut Cluster, pod: &Pod) {
    let title = pod.metadata.name.clone().unwrap_or_default();
    if Random(c.counter).one_in(16) {
        c.coverage.feature("look: fails");
        let status = pod_status(pod, "Failed", ended(c.now(), 128));
        return c.change::<Pod>(&title, |p| p.status = Some(status));
    }
    let mut state = ended(c.now(), 0);
    state.terminated.iter_mut().for_each(|state| state.message = Some(head(c)));
    let status = pod_status(pod, "Succeeded", state);
    c.change::<Pod>(&title, |p| p.status = Some(status));
}

/// A populator has fetched the commit that it was given, or else the branch.
pub fn fetched(c: &mut Cluster, populator: &Pod) {
    let containers = populator.spec.iter().flat_map(|spec| &spec.containers);
    let mut variables = containers.flat_map(|container| container.env.iter().flatten());
    let Some(given) = variables.find(|variable| variable.name == "REVISION") else { return };
    let commit = given.value.clone().filter(|value| !value.is_empty()).unwrap_or_else(|| head(c));
    if let Some(base) = mounts(c, populator) {
        c.fetched.insert(base, commit);
    }
}

/// Whether trees are made from the commit that the last look has found.
pub fn is_at_rest(project: &YoiProject) -> bool {
    let Some(status) = &project.status else { return true };
    let found = status.refresh.as_ref().and_then(|refresh| refresh.revision.as_ref());
    found.is_none() || found == status.generation.as_ref().and_then(|generation| generation.revision.as_ref())
}

/// What holds of a ready project once nothing changes any more. `can_fetch`: a Pod that looks or fetches can run.
pub fn check(c: &Cluster, title: &str, project: &YoiProject, can_fetch: bool) -> Result<(), Violation> {
    let broken = |why: String| Err(Violation(format!("project {title} {why}")));
    if project.spec.source.git.is_none() || !can_fetch {
        return Ok(());
    }
    let own = |pod: &&std::sync::Arc<Pod>| is_look(pod) && controlled_by(&pod.metadata, uid(&project.metadata));
    let left = c.now.pods.values().find(|pod| own(pod) && !deleting(&pod.metadata) && c.ours.contains_key(uid(&pod.metadata)));
    if let Some(left) = left {
        return broken(format!("rests, and Pod {:?} that looked is left over", left.metadata.name));
    }
    let refresh = project.status.as_ref().and_then(|status| status.refresh.as_deref());
    let asked = annotation(&project.metadata, LOOK);
    if asked.is_some() && refresh.and_then(|refresh| refresh.request.as_deref()) != asked {
        return broken(format!("was to be looked at by request {asked:?}, and says {refresh:?}"));
    }
    if is_at_rest(project) { Ok(()) } else { broken(format!("says {refresh:?}, and its trees are of another commit")) }
}
