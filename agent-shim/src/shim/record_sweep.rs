//! Keeps the publish records in agreement with the mount table.

use super::error::Error;
use super::publishing;
use super::state::ShimState;
use crate::decide::record_diff;

/// Writes a record for each mount that has none, as a crash may leave it. Call it before the CSI socket is served: later, a mount and its
/// record may be written between the two reads.
pub async fn add_missing_records(state: &ShimState) -> Result<(), Error> {
    let found = state.mounter.mounts().await?;
    for record in record_diff::missing_records(&state.publish_records.all(), &found) {
        let uid = record.shows.tree().map(tracing::field::display);
        tracing::warn!(uid, volume = %record.volume, "found a mount without a record");
        state.publish_records.put(record).await?;
    }
    Ok(())
}

/// Unpublishes what records name for Pods that the kubelet no longer knows.
pub async fn remove_stale_records(state: &ShimState) -> Result<(), Error> {
    let records = state.publish_records.all();
    for record in record_diff::stale_records(&records, &state.mounter.mounts().await?) {
        let uid = record.shows.tree().map(tracing::field::display);
        tracing::warn!(uid, volume = %record.volume, "forgot the record of a Pod that is gone");
        publishing::unpublish(state, &record.volume).await?;
    }
    Ok(())
}
