//! Who hangs under whom, in the status.

use std::sync::Arc;

use serde_json::{Value, json};
use yoi_crds::YoiPod;
use yoi_plan::nodes::Nodes;
use yoi_plan::yoipod;

use crate::samples::{now, settings, yoipod_with};

fn agent(name: &str, spec: Value) -> Arc<YoiPod> {
    let mut whole = json!({ "projectRef": { "name": "p" }, "agent": { "builtin": {} } });
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let agent = json!({ "metadata": { "name": name, "namespace": "ns", "uid": format!("uid-{name}"), "finalizers": ["yoi.dev/operator"] }, "spec": whole });
    Arc::new(serde_json::from_value(agent).unwrap())
}

#[test]
fn c16_a_child_says_whose_it_is_as_long_as_that_one_is_there_and_a_parent_how_many_it_has() {
    let lead = agent("lead", json!({ "delegation": {} }));
    let child = agent("child", json!({ "spawnedBy": { "name": "lead", "uid": "uid-lead", "requestId": "r" } }));
    let status = |seen: &yoipod::Observed| yoipod::plan(seen, &settings(), now()).status.unwrap();
    let with_parent = yoipod::Observed { spawner: Some(lead.clone()), ..yoipod_with(child.clone(), Arc::new(Nodes::default())) };
    let parent = status(&with_parent).parent.unwrap();
    assert_eq!((parent.name.as_str(), parent.uid.as_str()), ("lead", "uid-lead"));
    let orphan = status(&yoipod_with(child, Arc::new(Nodes::default())));
    assert_eq!((orphan.parent, orphan.children), (None, None));
    let with_children = yoipod::Observed { children: 2, ..yoipod_with(lead, Arc::new(Nodes::default())) };
    assert_eq!(status(&with_children).children, Some(2));
}
