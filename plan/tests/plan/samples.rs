//! What several tests plan for: an object of which nothing else is there yet.

use std::sync::Arc;

use yoi_crds::{AgentWorkspace, YoiPod};
use yoi_plan::nodes::Nodes;
use yoi_plan::settings::Settings;
use yoi_plan::{workspace, yoipod};

pub const NOW: i64 = 1_700_000_000;

pub fn now() -> jiff::Timestamp {
    jiff::Timestamp::from_second(NOW).expect("a time")
}

pub fn settings() -> Settings {
    let gateway = yoi_wire::manifest::Gateway { lines: "l".into(), service: "s".into(), server_name: "s".into(), ca: "ca".into() };
    Settings::new("agent", gateway)
}

pub fn workspace_with(workspace: Arc<AgentWorkspace>, nodes: Arc<Nodes>) -> workspace::Observed {
    workspace::Observed {
        workspace,
        terminating: false,
        project: None,
        parent: None,
        bases: Vec::new(),
        users: Vec::new(),
        agents: Vec::new(),
        populators: Vec::new(),
        claim: None,
        volume: None,
        nodes,
        network_policies: Vec::new(),
    }
}

pub fn yoipod_with(yoipod: Arc<YoiPod>, nodes: Arc<Nodes>) -> yoipod::Observed {
    yoipod::Observed {
        warm: yoi_plan::warm::Candidates::default(),
        yoipod,
        terminating: false,
        project: None,
        workspace: None,
        users: Vec::new(),
        bases: Vec::new(),
        parent: None,
        spawner: None,
        children: 0,
        pods: Vec::new(),
        session_claim: None,
        session_volume: None,
        manifests: Vec::new(),
        nodes,
        network_policies: Vec::new(),
    }
}
