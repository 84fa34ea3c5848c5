use crate::reading::Reading;
use crate::workflow::Workflow;
use crate::yaml::Map;
pub(super) fn read(_reading: &mut Reading<'_>, _workflow: &mut Workflow, _map: Map) -> bool { true }
