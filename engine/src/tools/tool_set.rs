//! The tools of a conversation, by name.

use std::collections::BTreeSet;
use std::sync::Arc;

use yoi_wire::entry::OfferedTool;
use yoi_wire::manifest::RunLimits;

use super::builtin;
use super::tool::Tool;

/// Tools in the order in which the model is offered them. Of two of one name the first is called.
#[derive(Clone)]
pub struct ToolSet(Arc<[Box<dyn Tool>]>);

impl ToolSet {
    /// The built-in tools.
    #[must_use]
    pub fn builtin() -> Self {
        Self(builtin::all().into())
    }

    /// The tools as the model is offered them.
    #[must_use]
    pub fn offered(&self, limits: &RunLimits) -> Vec<OfferedTool> {
        self.0.iter().map(|tool| tool.offered(limits)).collect()
    }

    /// Names of the tools that change nothing.
    #[must_use]
    pub fn read_only(&self) -> BTreeSet<String> {
        self.0.iter().filter(|tool| tool.reads_only()).map(|tool| tool.name().to_owned()).collect()
    }

    /// Names of the tools that a sub-agent can have.
    #[must_use]
    pub fn for_subagents(&self) -> BTreeSet<String> {
        let others: Vec<&str> = builtin::FOR_SUBAGENTS.into_iter().chain(builtin::FOR_CHILDREN).chain(builtin::FOR_PEERS).collect();
        self.0.iter().map(|tool| tool.name()).filter(|name| !others.contains(name)).map(str::to_owned).collect()
    }

    /// The tool of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&dyn Tool> {
        self.0.iter().find(|tool| tool.name() == name).map(Box::as_ref)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p38_a_sub_agent_can_have_the_tools_that_an_object_may_name_and_no_others() {
        let names: Vec<String> = ToolSet::builtin().for_subagents().into_iter().collect();
        assert_eq!(names, yoi_wire::subagent::SUBAGENT_TOOLS);
    }
}
