//! The columns of workspaces.

use comfy_table::Cell;
use kube::ResourceExt;
use yoi_crds::AgentWorkspace;
use yoi_crds::condition::is_true;
use yoi_crds::reason::condition;
use yoi_crds::source::WorkspaceSource;

use super::rows::Rows;
use crate::show;

pub struct WorkspaceRows;

impl Rows for WorkspaceRows {
    type Object = AgentWorkspace;
    const WHAT: &'static str = "workspaces";

    fn header(&self, wide: bool) -> Vec<&'static str> {
        let mut header =
            vec!["workspace", "ready", "reason", "source", "provider", "node", "claim", "in use", "logical", "exclusive", "age"];
        if wide {
            header.push("path");
        }
        header.push("message");
        header
    }

    fn row(&self, workspace: &AgentWorkspace, wide: bool) -> Vec<Cell> {
        let status = workspace.status.clone().unwrap_or_default();
        let [ready, reason] = show::ready(&status.conditions);
        let mut row = vec![
            show::cell(workspace.name_any()),
            ready,
            reason,
            show::cell(source_text(&workspace.spec.source)),
            show::cell(status.provider.as_ref().map(|p| show::provider(p.selected)).unwrap_or_default()),
            show::cell(status.node_name.as_deref().unwrap_or_default()),
            show::cell(status.claim_name.as_deref().unwrap_or_default()),
            show::cell(if is_true(&status.conditions, condition::IN_USE) { "yes" } else { "no" }),
            show::cell(bytes(status.volume.as_ref().and_then(|v| v.logical_bytes))),
            show::cell(bytes(status.volume.as_ref().and_then(|v| v.exclusive_bytes))),
            show::cell(show::age(workspace.creation_timestamp().map(|t| t.0))),
        ];
        if wide {
            row.push(show::cell(workspace.tree_path().unwrap_or_default()));
        }
        row.push(show::message(&status.conditions, wide));
        row
    }

    fn has(&self, workspace: &AgentWorkspace) -> bool {
        workspace.spec.base.is_none()
    }
}

/// Empty until the node has measured the tree.
fn bytes(bytes: Option<i64>) -> String {
    bytes.and_then(|bytes| u64::try_from(bytes).ok()).map(show::bytes).unwrap_or_default()
}

fn source_text(source: &WorkspaceSource) -> String {
    match source {
        WorkspaceSource { project: Some(p), .. } => format!("project/{}", p.name),
        WorkspaceSource { workspace: Some(w), .. } => format!("fork of {}", w.name),
        WorkspaceSource { git: Some(g), .. } => g.url.clone(),
        WorkspaceSource { host: Some(h), .. } => format!("host/{}", h.name),
        WorkspaceSource { empty: Some(_), .. } => "empty".to_owned(),
        WorkspaceSource { project: None, workspace: None, git: None, host: None, empty: None } => "-".to_owned(),
    }
}
