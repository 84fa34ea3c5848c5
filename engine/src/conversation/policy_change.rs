//! Another policy of the project: an entry of the log, after which the driver lets it count.

use yoi_wire::entry::{AgentConfig, Body, ConfigChanged, Extension, OfferedTool};
use yoi_wire::policy::ToolPolicy;

use super::{ConversationState, Intent};

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
    pub(super) fn change_policy(&mut self, policy: &ToolPolicy, tools: Vec<OfferedTool>, intents: &mut Vec<Intent>) {
        let data = serde_json::to_value(policy).unwrap_or_default();
        let mut bodies = vec![Body::Extension(Extension { name: POLICY.to_owned(), data })];
        // A program has its own tools.
        if let Some(config) = self.config.as_deref().filter(|config| self.program.is_none() && config.tools != tools) {
            bodies.push(Body::ConfigChanged(ConfigChanged { config: AgentConfig { tools, ..config.clone() } }));
        }
        self.append(bodies, intents);
    }
}
