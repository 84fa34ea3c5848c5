//! Which node makes the tree, and from what.

use std::sync::Arc;

use yoi_crds::condition::{ConditionValue, find};
use yoi_crds::name::label;
use yoi_crds::reason::{self, condition};
use yoi_crds::workspace::{Binding, Origin, OriginKind};

use super::base::{self, BaseSet};
use super::{Round, claim};
use crate::meta::{self, name, uid};
use crate::step::Step;

/// Where the tree comes to stand, and from what; or why not yet.
type Place = Result<(String, Origin), ConditionValue>;

impl Round<'_> {
    /// Set once; anew only when the base went before the tree was made from it.
    pub(super) fn place(&mut self) -> Place {
        if let (Some(node), Some(origin)) = (self.before.node_name.clone(), self.before.origin.clone()) {
            let made = yoi_crds::condition::is_true(&self.before.conditions, condition::PROVISIONED);
            let orphan = origin.kind == OriginKind::Base
                && !self.seen.bases.iter().any(|b| Some(uid(&b.metadata)) == origin.workspace_uid.as_deref());
            if made || !orphan {
                return Ok((node, origin));
            }
        }
        // What is made from a source that this version does not know would be a tree without it.
        if let Some((project, field)) = self.seen.project.as_ref().and_then(|p| Some((p, p.spec.unknown_field()?))) {
            let why = format!("YoiProject {}: {field} says something that this version of Yoi does not know", name(&project.metadata));
            return Err(ConditionValue::no(reason::PROJECT_NOT_READY, why));
        }
        // The node may have begun already: the next base is made there, too.
        if let Some(node) = self.before.node_name.clone().filter(|n| self.seen.nodes.exists(n)) {
            return self.clone_on(node);
        }
        let workspace = Arc::clone(&self.seen.workspace);
        let spec = &workspace.spec;
        if let Some(base) = &spec.base {
            return Ok((base.node.clone(), Origin { kind: OriginKind::Empty, workspace_uid: None }));
        }
        if spec.source.workspace.is_some() {
            return self.fork();
        }
        let node = match self.lineage() {
            // The first base is wanted before any consumer comes, so that its Pod has somewhere to go.
            Some(lineage) => {
                self.first_base(&lineage);
                self.choose(&lineage.sealed_nodes(&self.seen.bases), lineage.provider)?
            }
            None => self.choose(&[], spec.provider)?,
        };
        self.clone_on(node)
    }

    fn lineage(&self) -> Option<BaseSet> {
        let workspace = &self.seen.workspace;
        match &workspace.spec.source.project {
            Some(_) => self.seen.project.as_deref().map(BaseSet::of_project),
            None => BaseSet::of_workspace(workspace),
        }
    }

    /// A direct source has no project that would see to it.
    fn first_base(&mut self, lineage: &BaseSet) {
        if self.seen.workspace.spec.source.git.is_none() {
            return;
        }
        self.steps.extend(lineage.lost(&self.seen.bases, &self.seen.nodes));
        if lineage.living(&self.seen.bases, &self.seen.nodes).next().is_some() {
            return;
        }
        let eligible = self.seen.nodes.eligible(lineage.provider);
        if let Some(node) = eligible.iter().find(|node| !lineage.taken(node, &self.seen.bases)) {
            self.steps.push(lineage.ensure_on(node));
        }
    }

    fn clone_on(&mut self, node: String) -> Place {
        let Some(lineage) = self.lineage() else { return Ok((node, Origin { kind: OriginKind::Empty, workspace_uid: None })) };
        match lineage.on(&node, &self.seen.bases) {
            Some(base) if base::is_sealed(base) => {
                let workspace_uid = Some(uid(&base.metadata).to_owned());
                Ok((node, Origin { kind: OriginKind::Base, workspace_uid }))
            }
            Some(base) => {
                let why = find(base.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default(), condition::READY);
                let why = why.map(|c| format!(": {}", c.message)).unwrap_or_default();
                Err(ConditionValue::no(
                    reason::POPULATING,
                    format!("node {node} was chosen and its base {} is not sealed yet{why}", name(&base.metadata)),
                ))
            }
            None => {
                let made_by_first = self.steps.iter().any(|s| matches!(s, Step::EnsureWorkspace(_)));
                if !made_by_first && !lineage.taken(&node, &self.seen.bases) {
                    self.steps.push(lineage.ensure_on(&node));
                }
                Err(ConditionValue::no(reason::POPULATING, format!("node {node} was chosen and gets a base first")))
            }
        }
    }

    /// The node, by who will use the tree.
    fn choose(&self, sealed: &[String], provider: yoi_crds::source::ProviderName) -> Result<String, ConditionValue> {
        let spec = &self.seen.workspace.spec;
        let eligible = self.seen.nodes.eligible(provider);
        let chosen = if !spec.claim {
            self.holders_pod().and_then(|p| p.spec.as_ref()?.node_name.clone())
        } else {
            match spec.binding {
                Binding::WaitForConsumer | Binding::Unknown => claim::selected_node(self.seen.claim.as_deref()).map(str::to_owned),
                Binding::Immediate => {
                    let warm = eligible.iter().find(|n| sealed.iter().any(|s| s == *n));
                    warm.or(eligible.first()).map(|n| (*n).to_owned())
                }
            }
        };
        if eligible.is_empty() {
            return Err(ConditionValue::no(reason::NO_ELIGIBLE_NODE, self.seen.nodes.none_eligible(provider)));
        }
        match chosen {
            Some(node) if eligible.contains(&node.as_str()) => Ok(node),
            Some(node) => Err(ConditionValue::no(
                reason::NO_ELIGIBLE_NODE,
                format!(
                    "node {node} was chosen by the scheduler, and its WorkspaceNode is missing or offers no fitting provider; check the yoi-agent-shim Pod there"
                ),
            )),
            None if spec.claim => Err(ConditionValue::no(reason::WAITING_FOR_CONSUMER, "waits for the first Pod that uses the claim")),
            None => Err(ConditionValue::no(reason::WAITING_FOR_CONSUMER, "waits for the YoiPod's Pod to get a node")),
        }
    }

    fn fork(&self) -> Place {
        let Some(parent) = &self.seen.parent else {
            return Err(ConditionValue::no(reason::SOURCE_NOT_FOUND, "the parent does not exist"));
        };
        let status = parent.status.as_ref();
        let made = status.is_some_and(|s| yoi_crds::condition::is_true(&s.conditions, condition::PROVISIONED));
        let Some(node) = status.and_then(|s| s.node_name.clone()).filter(|_| made) else {
            return Err(ConditionValue::no(
                reason::SOURCE_NOT_SEALED,
                format!("AgentWorkspace {} has no tree yet", name(&parent.metadata)),
            ));
        };
        let origin = Origin { kind: OriginKind::Fork, workspace_uid: Some(uid(&parent.metadata).to_owned()) };
        let spec = &self.seen.workspace.spec;
        let consumer = if spec.claim && spec.binding == Binding::WaitForConsumer {
            // The copy must be of this moment, so it is made at once; a Pod that was sent elsewhere already cannot have it.
            claim::selected_node(self.seen.claim.as_deref()).map(str::to_owned)
        } else if meta::label(&self.seen.workspace.metadata, label::YOIPOD).is_some() {
            // A YoiPod's own tree is bound to its Pod before it is made.
            match self.holders_pod().and_then(|p| p.spec.as_ref()?.node_name.clone()) {
                Some(on) => Some(on),
                None => return Err(ConditionValue::no(reason::WAITING_FOR_CONSUMER, "waits for the YoiPod's Pod to get a node")),
            }
        } else {
            None
        };
        match consumer.filter(|on| *on != node) {
            Some(on) => Err(ConditionValue::no(
                reason::PARENT_ON_OTHER_NODE,
                format!("a fork must be on its parent's node {node}, and the Pod that uses it is on {on}"),
            )),
            None => Ok((node, origin)),
        }
    }
}
