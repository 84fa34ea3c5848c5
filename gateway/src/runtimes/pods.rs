//! `POST /v1/pods`: whom the caller sees.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, State};
use yoi_crds::pod::DesiredState;
use yoi_wire::hub::{PodList, SightReason, VisiblePod};

use crate::Hub;
use crate::identity::Caller;
use crate::sight::other_end;
use crate::world::{AgentRecord, Key};

pub async fn list(State(hub): State<Arc<Hub>>, Extension(caller): Extension<Caller>) -> Json<PodList> {
    let namespace = &caller.agent.namespace;
    let own = Key::new(namespace, &caller.agent.name);
    let visible = |name: &str, reason, record: Option<&AgentRecord>| {
        let (live, state) = record.map_or((false, "Missing".to_owned()), |record| state(&hub, record));
        VisiblePod { name: name.to_owned(), reasons: vec![reason], live, state }
    };
    let mut pods = vec![visible(&caller.agent.name, SightReason::Itself, hub.world.agent(&own).as_deref())];
    let mut bonds = hub.world.bonds_of(&own);
    bonds.sort_by(|a, b| a.name.cmp(&b.name));
    for bond in bonds {
        if let Some(other) = other_end(&caller.agent, &bond) {
            // A successor under the same name is not the one that was joined.
            let record = hub.world.agent(&Key::new(namespace, other.name)).filter(|record| record.name.uid == other.uid);
            pods.push(visible(other.name, SightReason::Peer, record.as_deref()));
        }
    }
    Json(PodList { pods })
}

/// Hints: the line here, or what another replica wrote down.
fn state(hub: &Hub, record: &AgentRecord) -> (bool, String) {
    let line = hub.lines.get(&record.name.uid).filter(|line| Some(&line.pod_uid) == record.pod_uid.as_ref());
    match (record.hinted_live(), line, record.desired) {
        (Some(live), _, _) => (true, live.activity.clone()),
        (None, Some(line), _) => (true, line.activity.as_str().to_owned()),
        (None, None, DesiredState::Stopped) => (false, "Stopped".to_owned()),
        (None, None, DesiredState::Running) => (false, "Unreachable".to_owned()),
    }
}
