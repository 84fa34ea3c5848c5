//! The end of a YoiPod: the Pod goes before the object, so that nothing holds the name's claim and tree any more.

use yoi_crds::YoiPodStatus;
use yoi_crds::name::finalizer;

use super::yoipod_input::YoiPodInput;
use super::{loan, push, reader, session};
use crate::names;
use crate::step::{Kind, Plan, Step};
use crate::stored::delete_all;

pub(super) fn plan(input: &YoiPodInput<'_>) -> Plan<YoiPodStatus> {
    let yoipod = input.yoipod;
    let pods: Vec<_> = input.own_pods.iter().chain(&input.readers).chain(&input.pushers).copied().collect();
    if !pods.is_empty() {
        return Plan::only(delete_all(pods));
    }
    // Its name stays with what it was lent until that is back.
    if loan::is_held(input) {
        return Plan::nothing();
    }
    let Some(last) = yoipod.remove_finalizer(finalizer::OPERATOR) else {
        // Somebody wrote the shim's finalizer here. No shim looks at YoiPods, so nobody else would remove it.
        return Plan::only(yoipod.remove_finalizer(finalizer::NODE_DATA).into_iter().collect());
    };
    let mut steps = session::last_steps(input);
    // The status names the first run only with its Pod, which may have been made a moment ago.
    steps.push(Step::ConfirmGone {
        kind: Kind::Pod,
        namespace: yoipod.namespace().to_owned(),
        name: names::pod(yoipod.name(), input.before.run_generation.unwrap_or(names::FIRST_RUN)),
        of: yoipod.uid().as_str().to_owned(),
    });
    steps.extend(reader::confirm_gone(input));
    steps.extend(push::confirm_gone(input));
    steps.push(last);
    Plan::only(steps)
}
