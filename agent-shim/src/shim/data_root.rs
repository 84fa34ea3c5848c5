//! Whether the data root works: probed for each report of the node, reported in every workspace that it concerns, and mounted anew where the
//! mounter can.

use std::collections::BTreeSet;

use yoi_crds::name::label;
use yoi_workspace::{ErrorReason, Probe, RootFailure};

use super::recovery;
use super::state::ShimState;
use super::workspaces::object_name;
use crate::decide::node_status::DataRootFailure;
use crate::decide::workspace_status::condition_reason;
use crate::mounter::client::MounterFailure;
use crate::mounter::protocol::MounterRefusal;
use yoi_wire::error_chain;

/// How many workspaces the message of a read-only data root names.
const MAX_NAMED: usize = 3;

/// Probes the data root. One that has become read-only is mounted anew, unless Pods or requests use it.
///
/// The providers and the failure are stored in the state. If the failure changes, every workspace of this node is reconciled, and reports it.
pub async fn check(state: &ShimState) -> Result<Probe, MounterFailure> {
    let checked = probe_and_repair(state).await;
    match &checked {
        Ok((probe, failure)) => {
            if let Ok(mut offers) = state.offers.write() {
                offers.clone_from(&probe.offers);
            }
            set_failure(state, failure.clone());
        }
        Err(MounterFailure::Refused(refused)) => set_failure(state, Some(refusal_failure(refused))),
        // Nothing is known of the disk.
        Err(MounterFailure::Transport(_) | MounterFailure::Protocol) => {}
    }
    checked.map(|(probe, _)| probe)
}

/// Why the data root does not work, if the mounter refuses even to probe it.
pub fn refusal_failure(refused: &MounterRefusal) -> DataRootFailure {
    DataRootFailure { reason: condition_reason(refused.reason), message: refused.message.clone() }
}

async fn probe_and_repair(state: &ShimState) -> Result<(Probe, Option<DataRootFailure>), MounterFailure> {
    let probe = state.mounter.probe().await?;
    match &probe.failure {
        Some(RootFailure { reason: ErrorReason::ReadOnlyFilesystem, .. }) => {}
        other => {
            let failure = other.as_ref().map(failure_of);
            return Ok((probe, failure));
        }
    }
    match state.mounter.mount_anew().await {
        Ok(()) => {
            if let Err(error) = recovery::recover_mounted_anew(state).await {
                tracing::error!(error = error_chain(&error), "recovery is incomplete");
            }
            let probe = state.mounter.probe().await?;
            // Mounted anew, it is the same file system as long as somebody has the former mount.
            let failure = probe.failure.as_ref().map(|failure| match failure.reason {
                ErrorReason::ReadOnlyFilesystem => {
                    read_only_failure(state, ErrorReason::Busy, "another process of the node still has it mounted")
                }
                _ => failure_of(failure),
            });
            tracing::info!(works = failure.is_none(), "the data root was read-only and is mounted anew");
            Ok((probe, failure))
        }
        Err(MounterFailure::Refused(refused)) => Ok((probe, Some(read_only_failure(state, refused.reason, &refused.message)))),
        Err(failure @ (MounterFailure::Transport(_) | MounterFailure::Protocol)) => Err(failure),
    }
}

fn failure_of(failure: &RootFailure) -> DataRootFailure {
    DataRootFailure { reason: condition_reason(failure.reason), message: format!("the data root fails: {}", failure.message) }
}

fn read_only_failure(state: &ShimState, refused: ErrorReason, why: &str) -> DataRootFailure {
    DataRootFailure { reason: condition_reason(ErrorReason::ReadOnlyFilesystem), message: read_only_message(state, refused, why) }
}

/// What is wrong, who keeps it from being repaired, and the command that lets them go. `why` is why it was not mounted anew.
fn read_only_message(state: &ShimState, refused: ErrorReason, why: &str) -> String {
    let node = &state.node;
    let wrong = format!("the file system of the trees of node {node} has become read-only, so nothing can be written to them");
    if refused != ErrorReason::Busy {
        return format!("{wrong}; {why}. On the node, read `dmesg`, repair the file system, and mount it anew");
    }
    let trees: BTreeSet<_> = state.publish_records.all().into_iter().filter_map(|record| record.shows.tree()).collect();
    let name = |uid| state.workspaces.get(uid).map_or_else(|| uid.to_string(), |ws| object_name(&ws));
    let named: Vec<_> = trees.iter().take(MAX_NAMED).map(|uid| name(*uid)).collect();
    let more = match trees.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let holders = match named.is_empty() {
        true => why.to_owned(),
        false => format!("Pods use {}{more}", named.join(", ")),
    };
    let command = format!("kubectl delete pods -A --field-selector spec.nodeName={node} -l {}", label::YOIPOD);
    format!(
        "{wrong}; {holders}. It is mounted anew when none does. End the Pods that use claims, and let the agents' Pods be made again: {command}"
    )
}

fn set_failure(state: &ShimState, failure: Option<DataRootFailure>) {
    let Ok(mut stored) = state.data_root_failure.write() else { return };
    if *stored == failure {
        return;
    }
    match &failure {
        Some(DataRootFailure { reason, message }) => tracing::error!(%reason, message, "the data root does not work"),
        None => tracing::info!("the data root works again"),
    }
    *stored = failure;
    drop(stored);
    state.workspaces.all().iter().for_each(|ws| state.requeue(ws));
}
