//! Quotas: what users ask for, what trees take, and what shims do about both.

use yoi_crds::condition::{ConditionValue, find, is_true};
use yoi_crds::quota::quota_bytes;
use yoi_crds::reason::{self, condition};
use yoi_crds::{AgentWorkspace, AgentWorkspaceStatus, YoiProject};
use yoi_plan::meta::uid;

use crate::cluster::{Cluster, Violation};
use crate::users::Random;

/// Bytes of each node's data root.
pub const TOTAL: i64 = 100 << 30;
/// The node whose file system counts nothing.
const WITHOUT_QUOTAS: &str = "n2";

pub fn any(random: &mut Random) -> Option<String> {
    random.pick(&[None, None, Some("1Mi"), Some("10Gi"), Some("1Ti")]).copied().flatten().map(str::to_owned)
}

/// Somebody changes the quota of a workspace or a project.
pub fn change(c: &mut Cluster, random: &mut Random) {
    let quota = any(random);
    let feature = if quota.is_some() { "quota: changed" } else { "quota: taken away" };
    if random.one_in(3) {
        let Some(title) = random.pick(&c.names::<YoiProject>()).cloned() else { return };
        c.edit::<YoiProject>(&title, |p| p.spec.defaults.quota = quota);
    } else {
        let Some(title) = random.pick(&c.names::<AgentWorkspace>()).cloned() else { return };
        c.edit::<AgentWorkspace>(&title, |w| w.spec.quota = quota);
    }
    c.coverage.feature(feature);
}

/// Agents write to their trees, or remove files.
pub fn write(c: &mut Cluster, random: &mut Random) {
    let Some(title) = random.pick(&c.names::<AgentWorkspace>()).cloned() else { return };
    let tree = uid(&c.now.workspaces[&title].metadata).to_owned();
    let bytes = *random.pick(&[0, 2 << 20, 20 << 30]).expect("sizes");
    c.coverage.feature("quota: a tree grows or shrinks");
    c.used.insert(tree, bytes);
}

/// Why a tree with this quota is not made.
pub fn refusal(quota: Option<i64>) -> Option<ConditionValue> {
    let quota = quota.filter(|quota| *quota > TOTAL)?;
    Some(ConditionValue::no(reason::OUT_OF_SPACE, format!("the quota is {quota} bytes, and the data root has {TOTAL}")))
}

/// Sets the quota of a tree that stands, and returns QuotaEnforced, if there is something to say.
pub fn set(c: &mut Cluster, node: &str, tree: &str, status: &AgentWorkspaceStatus) -> Option<ConditionValue> {
    let wanted = status.quota_bytes;
    if let Some(no) = refusal(wanted) {
        return Some(no);
    }
    match wanted {
        Some(_) if node == WITHOUT_QUOTAS => {
            c.quotas.remove(tree);
            Some(ConditionValue::no(reason::UNSUPPORTED, "its file system has no quotas"))
        }
        Some(bytes) => {
            c.quotas.insert(tree.to_owned(), bytes);
            Some(ConditionValue::yes(reason::ENFORCED, format!("over {bytes} bytes nothing is written")))
        }
        None => {
            c.quotas.remove(tree);
            find(&status.conditions, condition::QUOTA_ENFORCED).map(|_| ConditionValue::yes(reason::ENFORCED, "it has no quota any more"))
        }
    }
}

/// The condition Healthy, if there is something to say.
pub fn health(c: &Cluster, tree: &str, status: &AgentWorkspaceStatus) -> Option<ConditionValue> {
    let written = c.used.get(tree).copied().unwrap_or(0);
    let used = c.quotas.get(tree).map_or(written, |most| written.min(*most));
    match status.quota_bytes {
        Some(quota) if used >= quota => {
            Some(ConditionValue::no(reason::QUOTA_EXCEEDED, format!("the tree takes {used} bytes, and its quota is {quota}")))
        }
        _ => find(&status.conditions, condition::HEALTHY).map(|_| ConditionValue::yes(reason::ALL_MET, "it is within its quota")),
    }
}

/// What its specs ask for.
fn asked(c: &Cluster, w: &AgentWorkspace) -> Option<i64> {
    let source = &w.spec.source;
    if w.spec.base.is_some() {
        return None;
    }
    if let Some(own) = &w.spec.quota {
        return quota_bytes(own);
    }
    if let Some(project) = source.project.as_ref().and_then(|p| c.now.projects.get(&p.name)) {
        return project.spec.defaults.quota.as_deref().and_then(quota_bytes);
    }
    let parent = source.workspace.as_ref().and_then(|p| c.now.workspaces.get(&p.name));
    parent.and_then(|parent| parent.status.as_ref()?.quota_bytes)
}

/// Once nothing changes any more, each tree has the quota that its specs ask for, and its conditions say what is true of it.
pub fn check(c: &Cluster, title: &str, w: &AgentWorkspace) -> Result<(), Violation> {
    let Some(status) = w.status.as_ref().filter(|s| is_true(&s.conditions, condition::PROVISIONED)) else { return Ok(()) };
    let broken = |why: &str| Err(Violation(format!("workspace {title} with {:?} bytes of quota {why}", status.quota_bytes)));
    let source = &w.spec.source;
    // What was resolved stays while the object that it came from is gone.
    let is_left = source.project.as_ref().is_some_and(|p| !c.now.projects.contains_key(&p.name))
        || source.workspace.as_ref().is_some_and(|p| !c.now.workspaces.contains_key(&p.name));
    if status.quota_bytes != asked(c, w) && (w.spec.quota.is_some() || !is_left) {
        return broken("was asked for another");
    }
    let Some(node) = status.node_name.as_deref().filter(|node| c.exists(node)) else { return Ok(()) };
    let enforced = find(&status.conditions, condition::QUOTA_ENFORCED).map(|c| &*c.reason);
    let fits = match status.quota_bytes {
        None => enforced.is_none_or(|why| why == reason::ENFORCED),
        Some(bytes) if bytes > TOTAL => enforced == Some(&reason::OUT_OF_SPACE),
        Some(_) if node == WITHOUT_QUOTAS => enforced == Some(&reason::UNSUPPORTED),
        Some(bytes) => enforced == Some(&reason::ENFORCED) && c.quotas.get(uid(&w.metadata)) == Some(&bytes),
    };
    if !fits {
        return broken(&format!("says {enforced:?}"));
    }
    let is_over = find(&status.conditions, condition::HEALTHY).is_some_and(|c| c.reason == reason::QUOTA_EXCEEDED);
    let is_full = health(c, uid(&w.metadata), status).is_some_and(|v| v.reason == reason::QUOTA_EXCEEDED);
    if is_over != is_full { broken(&format!("is full: {is_full}, and says it: {is_over}")) } else { Ok(()) }
}
