//! The tools of a conversation, by name.

use std::collections::BTreeSet;
use std::sync::Arc;

use yoi_wire::entry::{OfferedTool, RefusalClass};
use yoi_wire::manifest::RunLimits;

use super::output_limit::truncate;
use super::tool::Tool;
use super::{arguments, builtin};
use crate::decision::Refusal;

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

    /// The tool of this name.
    ///
    /// # Errors
    /// There is none; the message names those that there are.
    pub fn find(&self, name: &str) -> Result<&dyn Tool, Refusal> {
        self.0.iter().find(|tool| tool.name() == name).map(Box::as_ref).ok_or_else(|| {
            let names: Vec<&str> = self.0.iter().map(|tool| tool.name()).collect();
            let refusal =
                Refusal::new(RefusalClass::UnknownTool, format_args!("there is no tool {name:?}; there are {}", names.join(", ")));
            Refusal { message: truncate(refusal.message, arguments::MAX_MESSAGE_BYTES), ..refusal }
        })
    }
}
