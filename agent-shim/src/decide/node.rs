//! What the shim says of its node.

use yoi_crds::condition::{self, Verdict};
use yoi_crds::node::{Capacity, OfferedProvider, WorkspaceNodeStatus};
use yoi_crds::reason::{self, condition as type_};
use yoi_crds::source::Provider;
use yoi_workspace::{Probe, ProviderKind};

use crate::mounter::verb::Digest;

/// The status to write, or None when the one that stands is near enough.
pub fn status(
    before: Option<&WorkspaceNodeStatus>,
    offers: &Probe,
    digests: &[Digest],
    generation: i64,
    now: &str,
) -> Option<WorkspaceNodeStatus> {
    let empty = WorkspaceNodeStatus::default();
    let before = before.unwrap_or(&empty);
    let mut providers: Vec<_> = offers
        .offers
        .iter()
        .map(|o| OfferedProvider { name: name(o.provider), available: o.available, reason: o.reason.clone() })
        .collect();
    providers.sort_by_key(|p| p.name as u8);
    let verdict = if providers.iter().any(|p| p.available) {
        Verdict::yes(reason::ALL_MET, "trees can be made on this node")
    } else {
        Verdict::no(reason::PROVIDER_UNAVAILABLE, "no provider works on this node's data root")
    };
    let after = WorkspaceNodeStatus {
        providers,
        capacity: Some(capacity(before.capacity, offers)),
        kernel: Some(offers.kernel.release.clone()),
        runtime_digests: digests.iter().map(|d| d.as_str().to_owned()).collect(),
        conditions: vec![condition::said(&before.conditions, type_::READY, verdict, generation, now)],
    };
    (after != *before).then_some(after)
}

/// Rounded to 1 % of the whole, and kept as it was while less than 5 % of the whole has moved: a quiet node writes nothing.
fn capacity(before: Option<Capacity>, offers: &Probe) -> Capacity {
    let total = i64::try_from(offers.total_bytes).unwrap_or(i64::MAX);
    let free = i64::try_from(offers.free_bytes).unwrap_or(i64::MAX);
    let step = (total / 100).max(1);
    match before {
        Some(b) if b.total_bytes == total && (b.free_bytes - free).abs() < step.saturating_mul(5) => b,
        _ => Capacity { total_bytes: total, free_bytes: free / step * step },
    }
}

fn name(provider: ProviderKind) -> Provider {
    match provider {
        ProviderKind::Btrfs => Provider::Btrfs,
        ProviderKind::Copy => Provider::Copy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use yoi_workspace::{KernelFacts, ProviderOffer};

    fn probe(offers: Vec<ProviderOffer>, free_bytes: u64) -> Probe {
        let kernel = KernelFacts { release: "6.18".into(), mount_setattr: true };
        Probe { offers, total_bytes: 1000, free_bytes, kernel }
    }

    fn offers(free: u64) -> Probe {
        let providers = vec![ProviderOffer { provider: ProviderKind::Copy, available: true, reason: "works".into() }];
        probe(providers, free)
    }

    #[test]
    fn a_quiet_node_writes_nothing_and_a_filling_one_does() {
        let first = status(None, &offers(905), &[], 1, "t0").unwrap();
        assert_eq!(first.capacity, Some(Capacity { total_bytes: 1000, free_bytes: 900 }));
        assert_eq!(status(Some(&first), &offers(860), &[], 1, "t1"), None);
        let second = status(Some(&first), &offers(850), &[], 1, "t1").unwrap();
        assert_eq!(second.capacity, Some(Capacity { total_bytes: 1000, free_bytes: 850 }));
        assert_eq!(second.conditions, first.conditions, "the transition time stays");
    }

    #[test]
    fn a_node_without_a_provider_is_not_ready() {
        let said = status(None, &probe(vec![], 1), &[], 1, "t0").unwrap();
        assert_eq!(said.conditions[0].reason, "ProviderUnavailable");
    }
}
