use crate::reading::Reading;
use crate::workflow::Workflow;
pub(super) fn read(_reading: &mut Reading<'_>, _workflow: &mut Workflow, _body: &str, _first_line: u32) {}
