//! The columns of agents and of their sessions.

use std::collections::{HashMap, HashSet};

use comfy_table::Cell;
use kube::ResourceExt;
use yoi_crds::{YoiPod, reason};
use yoi_plan::visibility::{self, PeerLink};
use yoi_wire::entry::AgentRef;
use yoi_wire::hub::{ReportReason, VisibilityReason};

use super::rows::Rows;
use crate::commands::approvals::needs_input;
use crate::show;

pub fn has_session(pod: &YoiPod) -> bool {
    pod.status.as_ref().is_some_and(|status| status.session.is_some())
}

/// Returns the name of the claim that holds the agent's session, or `None` when the agent has no session.
pub fn session_name(pod: &YoiPod) -> Option<String> {
    let status = pod.status.as_ref().filter(|s| s.session.is_some())?;
    Some(format!("persistentvolumeclaim/{}", status.session_claim_name.as_deref()?))
}

/// Whether the agent can be restored from its session, as far as its object says; if not, why.
fn restorable(pod: &YoiPod) -> String {
    let status = pod.status.as_ref();
    if status.and_then(|s| s.session.as_ref()).is_none_or(|session| session.segment.is_empty()) {
        return format!("no: {}", reason::NO_SESSION);
    }
    match status.and_then(|s| s.report.as_ref()).and_then(|report| report.reason.known()) {
        Some(damage @ (ReportReason::ReplayFailed | ReportReason::LogNewer)) => format!("no: {}", damage.as_str()),
        Some(
            ReportReason::Replayed | ReportReason::Starting | ReportReason::Stopping | ReportReason::Resting | ReportReason::SessionLocked,
        )
        | Some(ReportReason::SessionNotEmpty | ReportReason::DiskFull | ReportReason::DiskFailed | ReportReason::SecretMissing)
        | Some(ReportReason::ModelUnreachable | ReportReason::ModelRefused | ReportReason::ModelRefusedHistory)
        | Some(ReportReason::ProgramMissing | ReportReason::PresetInvalid | ReportReason::ModelFormatNotSpoken)
        | None => "yes".to_owned(),
    }
}

/// Agents, and whom each sees.
pub struct AgentRows<'a> {
    /// The YoiPeers that name an agent, by its namespace and name; `None` where that column is left out.
    links: Option<HashMap<(&'a str, &'a str), Vec<&'a PeerLink>>>,
    agents: HashMap<(String, String), AgentRef>,
    /// Whether one of them was started by another: only then there is a column for it.
    has_children: bool,
    /// UIDs of those that stand below the one that has started them.
    nested: HashSet<String>,
}

/// Puts each agent below the one that has started it, if that is in the list, and leaves the order as it is otherwise. A family stands where the first
/// of it stood. Returns the UIDs of those that stand below another.
pub fn as_tree(pods: &mut [YoiPod]) -> HashSet<String> {
    let there: HashSet<String> = pods.iter().filter_map(ResourceExt::uid).collect();
    let parent_of = |pod: &YoiPod| pod.spec.spawned_by.as_ref().map(|by| by.uid.clone()).filter(|uid| there.contains(uid));
    let nested = pods.iter().filter(|pod| parent_of(pod).is_some()).filter_map(ResourceExt::uid).collect();
    let family = |pod: &YoiPod| parent_of(pod).or_else(|| pod.uid()).unwrap_or_default();
    let mut first: HashMap<String, usize> = HashMap::new();
    for (at, pod) in pods.iter().enumerate() {
        first.entry(family(pod)).or_insert(at);
    }
    pods.sort_by_key(|pod| (first.get(&family(pod)).copied(), parent_of(pod).is_some()));
    nested
}

impl<'a> AgentRows<'a> {
    /// `agents` are all of the namespaces that are listed.
    pub fn new(links: &'a [PeerLink], agents: &[YoiPod]) -> Self {
        let mut by_member: HashMap<(&str, &str), Vec<&PeerLink>> = HashMap::new();
        for link in links {
            for member in &link.members {
                by_member.entry((&link.namespace, member)).or_default().push(link);
            }
        }
        let has_children = agents.iter().any(|pod| pod.spec.spawned_by.is_some());
        let agents = agents.iter().map(visibility::agent_ref).map(|agent| ((agent.namespace.clone(), agent.name.clone()), agent)).collect();
        AgentRows { links: Some(by_member), agents, has_children, nested: HashSet::new() }
    }

    /// Without whom they see, which changes with other objects.
    pub fn watched() -> Self {
        AgentRows { links: None, agents: HashMap::new(), has_children: false, nested: HashSet::new() }
    }

    /// With those that [`as_tree`] has put below another.
    pub fn with_nested(self, nested: HashSet<String>) -> Self {
        AgentRows { nested, ..self }
    }

    /// Returns who has started this agent, marked when that one is gone.
    fn parent(&self, pod: &YoiPod) -> String {
        let Some(by) = &pod.spec.spawned_by else { return String::new() };
        let parent = self.agents.get(&(pod.namespace().unwrap_or_default(), by.name.clone()));
        if parent.is_some_and(|parent| parent.uid == by.uid) { by.name.clone() } else { format!("{} (Missing)", by.name) }
    }

    /// Returns the names of the agents that this one sees, as its own ListPods does. A missing one is marked.
    fn visible_names(&self, pod: &YoiPod, links: &HashMap<(&str, &str), Vec<&PeerLink>>) -> Vec<String> {
        let me = visibility::agent_ref(pod);
        let own = links.get(&(me.namespace.as_str(), me.name.as_str())).into_iter().flatten().copied();
        // The family stands in a column of its own.
        let seen =
            visibility::visible_agents(&me, None, own, []).into_iter().filter(|seen| !seen.reasons.contains(&VisibilityReason::Itself));
        seen.map(|seen| {
            // The UID is compared too, so a later agent of the name is not taken for this one.
            let there = self.agents.get(&(me.namespace.clone(), seen.name.to_owned())).is_some_and(|agent| seen.is(agent));
            if there { seen.name.to_owned() } else { format!("{} (Missing)", seen.name) }
        })
        .collect()
    }
}

impl Rows for AgentRows<'_> {
    type Object = YoiPod;
    const WHAT: &'static str = "agents";

    fn header(&self, wide: bool) -> Vec<&'static str> {
        let mut header = vec!["agent", "ready", "reason", "desired", "activity", "task", "project"];
        header.extend(self.has_children.then_some("parent"));
        header.extend(self.links.as_ref().map(|_| "sees"));
        header.push("age");
        if wide {
            header.extend(["runs", "node", "pod", "session", "restorable"]);
        }
        header.push("message");
        header
    }

    fn row(&self, pod: &YoiPod, wide: bool) -> Vec<Cell> {
        let status = pod.status.clone().unwrap_or_default();
        let [ready, reason] = show::ready(&status.conditions);
        // The hint is of one Pod, and means nothing for another.
        let activity = status.live.filter(|l| status.pod.as_ref().is_some_and(|p| p.uid == l.pod_uid));
        let activity = activity.map(|live| show::activity(live.activity.as_str(), live.background.unwrap_or_default().unsigned_abs()));
        let below = if pod.uid().is_some_and(|uid| self.nested.contains(&uid)) { "└ " } else { "" };
        let mut row = vec![
            show::cell(format!("{below}{}", pod.name_any())),
            ready,
            reason,
            show::cell(show::desired_state_name(pod.spec.desired_state)),
            show::cell(activity.unwrap_or_default()),
            show::cell(status.task.as_ref().map(|t| t.state.as_str()).unwrap_or_default()),
            show::cell(&pod.spec.project_ref.name),
        ];
        row.extend(self.has_children.then(|| show::cell(self.parent(pod))));
        row.extend(self.links.as_ref().map(|links| show::cell(self.visible_names(pod, links).join(","))));
        row.push(show::cell(show::age(pod.creation_timestamp().map(|t| t.0))));
        if wide {
            row.extend([
                show::cell(pod.spec.agent.title()),
                show::cell(status.workspace.and_then(|w| w.node_name).unwrap_or_default()),
                show::cell(status.pod.map(|pod| pod.name).unwrap_or_default()),
                show::cell(status.session.map(|session| session.id).unwrap_or_default()),
                show::cell(restorable(pod)),
            ]);
        }
        row.push(match needs_input(pod) {
            // Its conditions are met.
            true => show::cell(format!("a call waits for a person: kubectl yoi approvals {}", pod.name_any())),
            false => show::message(&status.conditions, wide),
        });
        row
    }
}

/// How many Pods the agent has had. Without one, the status names the run that comes next.
fn runs(generation: Option<i64>, has_pod: bool) -> i64 {
    let of_next = if has_pod { 0 } else { 1 };
    generation.unwrap_or_default().saturating_sub(of_next).max(0)
}

/// The sessions of agents.
pub struct SessionRows;

impl Rows for SessionRows {
    type Object = YoiPod;
    const WHAT: &'static str = "sessions";
    const HAS_MESSAGE: bool = false;

    fn header(&self, _wide: bool) -> Vec<&'static str> {
        vec!["session", "agent", "segment", "claim", "runs", "restorable"]
    }

    fn row(&self, pod: &YoiPod, _wide: bool) -> Vec<Cell> {
        let status = pod.status.clone().unwrap_or_default();
        let (id, segment) = status.session.map(|session| (session.id, session.segment)).unwrap_or_default();
        vec![
            show::cell(id),
            show::cell(pod.name_any()),
            show::cell(segment),
            show::cell(status.session_claim_name.unwrap_or_default()),
            show::cell(runs(status.run_generation, status.pod.is_some()).to_string()),
            show::cell(restorable(pod)),
        ]
    }

    fn has(&self, pod: &YoiPod) -> bool {
        has_session(pod)
    }

    fn name(&self, pod: &YoiPod) -> Option<String> {
        session_name(pod)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_run_that_comes_next_does_not_count() {
        assert_eq!(
            [(None, false), (Some(1), false), (Some(1), true), (Some(2), false)].map(|(at, has_pod)| runs(at, has_pod)),
            [0, 0, 1, 1]
        );
    }

    #[test]
    fn an_agent_is_restorable_unless_it_has_no_segment_or_its_last_runtime_could_not_read_it() {
        let restorable = |session, report| {
            let spec = json!({ "projectRef": { "name": "p" }, "agent": { "builtin": {} } });
            let report = json!({ "podUID": "u", "runGeneration": 1, "ready": false, "reason": report, "message": "m" });
            let status = json!({ "session": session, "report": report });
            let pod: YoiPod = serde_json::from_value(json!({ "metadata": { "name": "a" }, "spec": spec, "status": status })).unwrap();
            restorable(&pod)
        };
        let session = json!({ "id": "i", "segment": "s" });
        assert_eq!(restorable(json!(null), "Starting"), "no: NoSession");
        assert_eq!(restorable(json!({ "id": "i", "segment": "" }), "Stopping"), "no: NoSession");
        for damage in ["ReplayFailed", "LogNewer"] {
            assert_eq!(restorable(session.clone(), damage), format!("no: {damage}"));
        }
        for other in ["Stopping", "ModelRefused", "OfANewerVersion"] {
            assert_eq!(restorable(session.clone(), other), "yes");
        }
    }

    #[test]
    fn who_has_started_an_agent_stands_in_a_column_that_is_there_only_for_children() {
        let pod = |name: &str, uid: &str, by: serde_json::Value| -> YoiPod {
            let spec = json!({ "projectRef": { "name": "p" }, "agent": { "builtin": {} }, "spawnedBy": by });
            serde_json::from_value(json!({ "metadata": { "namespace": "ns", "name": name, "uid": uid }, "spec": spec })).unwrap()
        };
        let born = |uid: &str| json!({ "name": "lead", "uid": uid, "requestId": "r" });
        let pods = [pod("lead", "u", json!(null)), pod("child", "c", born("u")), pod("orphan", "o", born("former"))];
        let rows = AgentRows::new(&[], &pods);
        assert_eq!(pods.each_ref().map(|pod| rows.parent(pod)), ["", "lead", "lead (Missing)"]);
        assert!(rows.header(false).contains(&"parent") && !AgentRows::new(&[], &pods[..1]).header(false).contains(&"parent"));
        assert_eq!(rows.row(&pods[1], true).len(), rows.header(true).len());
    }

    #[test]
    fn agents_stand_below_the_one_that_has_started_them_and_a_family_where_its_first_member_stood() {
        let pod = |name: &str, uid: &str, by: Option<&str>| -> YoiPod {
            let by = by.map(|uid| json!({ "name": "lead", "uid": uid, "requestId": "r" }));
            let spec = json!({ "projectRef": { "name": "p" }, "agent": { "builtin": {} }, "spawnedBy": by });
            serde_json::from_value(json!({ "metadata": { "namespace": "ns", "name": name, "uid": uid }, "spec": spec })).unwrap()
        };
        // The second one waits for a person, so that it came first.
        let mut pods = vec![
            pod("child-2", "u-2", Some("u-l")),
            pod("alone", "u-a", None),
            pod("child-1", "u-1", Some("u-l")),
            pod("orphan", "u-o", Some("u-former")),
            pod("lead", "u-l", None),
        ];
        let nested = as_tree(&mut pods);
        let names: Vec<String> = pods.iter().map(ResourceExt::name_any).collect();
        assert_eq!(names, ["lead", "child-2", "child-1", "alone", "orphan"]);
        assert_eq!(nested, HashSet::from(["u-1".to_owned(), "u-2".to_owned()]));
    }

    #[test]
    fn a_session_is_named_by_its_claim_and_an_agent_without_one_by_nothing() {
        let pod = |status| {
            let spec = json!({ "projectRef": { "name": "p" }, "agent": { "builtin": {} } });
            let pod: YoiPod = serde_json::from_value(json!({ "metadata": { "name": "a" }, "spec": spec, "status": status })).unwrap();
            session_name(&pod)
        };
        let session = json!({ "id": "i", "segment": "s" });
        assert_eq!(pod(json!({ "session": session, "sessionClaimName": "kept" })).as_deref(), Some("persistentvolumeclaim/kept"));
        assert_eq!(pod(json!({ "sessionClaimName": "a-session" })), None, "nothing was said in it yet");
        assert_eq!(pod(json!(null)), None);
    }
}
