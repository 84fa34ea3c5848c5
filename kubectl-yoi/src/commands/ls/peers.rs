//! The columns of YoiPeers.

use comfy_table::Cell;
use kube::ResourceExt;
use yoi_crds::YoiPeer;

use super::rows::Rows;
use crate::show;

pub struct PeerRows;

impl Rows for PeerRows {
    type Object = YoiPeer;
    const WHAT: &'static str = "peers";

    fn header(&self, _wide: bool) -> Vec<&'static str> {
        vec!["a", "b", "ready", "reason", "age", "message"]
    }

    fn row(&self, peer: &YoiPeer, wide: bool) -> Vec<Cell> {
        let conditions = peer.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
        let [ready, reason] = show::ready(conditions);
        let member = |n: usize| show::cell(peer.spec.members.get(n).cloned().unwrap_or_default());
        let age = show::cell(show::age(peer.creation_timestamp().map(|t| t.0)));
        vec![member(0), member(1), ready, reason, age, show::message(conditions, wide)]
    }
}
