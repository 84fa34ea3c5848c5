//! Bases of a source `host`: a folder is another one on each node, so what was taken on one node stays there, and shows where it lay there.

use yoi_crds::condition::{self as conditions, ConditionValue};
use yoi_crds::reason::{self, condition};
use yoi_crds::source::{DEFAULT_PATH, HostSource, is_tree_path};

use super::{BaseSet, ObservedBase};
use crate::nodes::join_sentences;
use crate::step::Step;
use crate::stored::delete_all;

impl<'a> BaseSet<'a> {
    /// Where the trees of this content show; `None` while no base of a folder is there that tells it.
    pub(crate) fn tree_path(&self) -> Option<&'a str> {
        let of_source = || if self.source.host.is_some() { self.living().next()?.workspace.get().tree_path() } else { Some(DEFAULT_PATH) };
        self.path.or_else(of_source)
    }

    /// Where the trees of a base on `node` show; `None` where the node's folder lies at a path that no tree can have, or at one that is not known.
    pub(super) fn path_on(&self, node: &str) -> Option<&'a str> {
        let of_source = || match &self.source.host {
            Some(host) => self.nodes.host_source_path(node, &host.name, self.namespace).filter(|path| is_tree_path(path)),
            None => Some(DEFAULT_PATH),
        };
        self.path.or_else(of_source)
    }

    /// The nodes that the folder can be taken on.
    fn nodes_with(&self, host: &HostSource) -> Vec<&'a str> {
        let mut nodes = self.nodes.with_host_source(&host.name, self.namespace);
        nodes.retain(|node| self.path_on(node).is_some());
        nodes
    }

    /// Steps that delete a base whose node has not taken the folder, when the node would not be chosen for it any more, while another would; and when the
    /// administrator lists the folder at another path by now. The next one is made once this one is being deleted, so no generation has two contents.
    pub(super) fn delete_not_taken(&self) -> Vec<Step> {
        let Some(host) = &self.source.host else { return Vec::new() };
        let having = self.nodes_with(host);
        let mut fitting = self.nodes.eligible_for_pods(self.provider, self.tolerations());
        fitting.retain(|node| having.contains(node));
        let is_misplaced = |base: &ObservedBase<'_>| !fitting.is_empty() && !fitting.contains(&base.node);
        let has_moved =
            |base: &ObservedBase<'_>| self.path_on(base.node).is_some_and(|path| base.workspace.get().tree_path() != Some(path));
        let is_taken = |base: &ObservedBase<'_>| base.workspace.is_true(condition::PROVISIONED);
        delete_all(self.living().filter(|base| !is_taken(base) && (is_misplaced(base) || has_moved(base))).map(|base| base.workspace))
    }

    /// Whether a base may be on `node`.
    pub(crate) fn may_be_on(&self, node: &str) -> bool {
        let Some(host) = &self.source.host else { return true };
        let mut living = self.living().peekable();
        match living.peek() {
            Some(_) => living.any(|base| base.node == node),
            None => self.nodes_with(host).contains(&node),
        }
    }

    /// The node that a folder was taken on; `None` for another source, and until it is taken.
    pub(crate) fn taken_on(&self) -> Option<&'a str> {
        self.source.host.as_ref().and_then(|_| self.living().next()).map(|base| base.node)
    }

    /// Why the node could not take the folder, by the reasons that people can do something about.
    pub(super) fn not_taken(&self) -> Option<ConditionValue> {
        self.source.host.as_ref()?;
        let reasons = [
            reason::SOURCE_FORBIDDEN,
            reason::SOURCE_NOT_FOUND,
            reason::SOURCE_CHANGING,
            reason::NESTED_VOLUME,
            reason::PROVIDER_UNAVAILABLE,
            reason::OUT_OF_SPACE,
            reason::BACKEND_ERROR,
        ];
        self.living().find_map(|base| {
            let c = conditions::find(base.workspace.conditions(), condition::PROVISIONED)?;
            let reason = reasons.into_iter().find(|reason| c.reason == *reason)?;
            Some(ConditionValue::no(reason, format!("node {}: {}", base.node, c.message)))
        })
    }

    /// Why no base of the folder can be made, while `eligible` are the nodes that can make one of another source.
    pub(super) fn no_node_with(&self, host: &HostSource, eligible: &[&str]) -> ConditionValue {
        let listing = self.nodes.with_host_source(&host.name, self.namespace);
        let no_node = |why: String| ConditionValue::no(reason::NO_ELIGIBLE_NODE, why);
        if let Some(forbidden) = self.nodes.host_source_forbidden(&host.name, self.namespace) {
            return forbidden;
        }
        if eligible.is_empty() {
            return no_node(self.nodes.none_eligible_for_pods(self.provider, self.tolerations()));
        }
        if self.nodes_with(host).is_empty()
            && let Some(node) = listing.first()
        {
            return match self.nodes.host_source_path(node, &host.name, self.namespace).filter(|path| !path.is_empty()) {
                Some(path) => ConditionValue::no(
                    reason::INVALID_SPEC,
                    format!("the host source {} lies at {path} on node {node}, where no tree can show: set spec.path", host.name),
                ),
                None => no_node(format!(
                    "the yoi-agent-shim of node {node} does not say where the host source {} lies: it is of an earlier version, or set spec.path",
                    host.name
                )),
            };
        }
        no_node(format!(
            "no node with the host source {} can make the tree and run agents: check {}",
            host.name,
            join_sentences(listing.into_iter().map(|node| format!("node {node}")))
        ))
    }

    /// Why a tree of this content can be on no node, where [`Self::may_be_on`] lets none through that makes trees.
    pub(crate) fn no_node_for_trees(&self) -> Option<ConditionValue> {
        let taken_on = || {
            let why = format!(
                "the source was taken on node {}, and its WorkspaceNode is missing or offers no fitting provider",
                self.taken_on()?
            );
            Some(ConditionValue::no(reason::NO_ELIGIBLE_NODE, why))
        };
        self.no_node().or_else(taken_on)
    }
}
