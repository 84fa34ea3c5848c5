use crate::reading::Reading;
use crate::workflow::Workflow;
pub(super) fn check(_reading: &mut Reading<'_>, _workflow: &mut Workflow) {}
