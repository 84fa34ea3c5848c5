//! Another policy of the project: an entry of the log, after which the driver lets it count.

use yoi_wire::entry::{AgentConfig, Body, ConfigChanged, Extension, OfferedTool};
use yoi_wire::policy::ToolPolicy;

use super::{ConversationState, Intent};

/// A policy that is to count, and what it shows.
#[derive(Clone, Debug)]
pub struct PolicyChange {
    /// The policy.
    pub policy: ToolPolicy,
    /// The tools that it shows to the model.
    pub tools: Vec<OfferedTool>,
}

/// The entry's name. It changes nothing that a replay needs: who starts again is told the policy of that time.
const POLICY: &str = "yoi/policy";

/// The policy that counts from this entry on.
#[must_use]
pub fn policy_of(body: &Body) -> Option<ToolPolicy> {
    match body {
        Body::Extension(Extension { name, data }) if name == POLICY => serde_json::from_value(data.clone()).ok(),
        _ => None,
    }
}

impl ConversationState {
    pub(super) fn change_policy(&mut self, change: PolicyChange, intents: &mut Vec<Intent>) {
        let bodies = self.policy_entries(change, self.config.as_deref());
        self.append(bodies, intents);
    }

    /// The entries after which it counts. `config` is what the log has before them.
    pub(super) fn policy_entries(&self, change: PolicyChange, config: Option<&AgentConfig>) -> Vec<Body> {
        let PolicyChange { policy, tools } = change;
        let data = serde_json::to_value(policy).unwrap_or_default();
        let mut bodies = vec![Body::Extension(Extension { name: POLICY.to_owned(), data })];
        // A program has its own tools.
        if let Some(config) = config.filter(|config| self.program.is_none() && config.tools != tools) {
            bodies.push(Body::ConfigChanged(ConfigChanged { config: AgentConfig { tools, ..config.clone() } }));
        }
        bodies
    }
}
