//! The difference between the publish records and the mount table.

use crate::mounter::protocol::{MountedContent, Mounts};
use crate::volume::{PublishRecord, PublishedVolume};

/// The records to write for mounts that have none. Valid only while nothing mounts: else a mount and its record may be read at different times.
pub fn missing_records(records: &[PublishRecord], found: &Mounts) -> Vec<PublishRecord> {
    let unrecorded = found.shown.iter().filter(|s| !records.iter().any(|r| r.volume == s.volume));
    unrecorded
        .filter_map(|shown| match shown.what {
            MountedContent::Tree(tree) => {
                let shows = PublishedVolume::Tree { tree, read_only: shown.read_only, covers: 0, lending: None };
                Some(PublishRecord { volume: shown.volume.clone(), shows })
            }
            // The digest is not known. The kubelet publishes or unpublishes this volume again, and neither needs the record.
            MountedContent::Runtime => None,
        })
        .collect()
}

/// The records that nothing is mounted for, of Pods that the kubelet has no directory for: it will never unpublish them. `records` must have been
/// read before `found`.
///
/// A record without a mount stays while the kubelet knows the Pod. After a reboot the kubelet publishes again, and the record then admits the Pod.
pub fn stale_records(records: &[PublishRecord], found: &Mounts) -> Vec<PublishRecord> {
    let gone = |r: &&PublishRecord| !found.pods.contains(&r.volume.pod) && !found.shown.iter().any(|s| s.volume == r.volume);
    records.iter().filter(gone).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mounter::protocol::PublishedMount;
    use crate::volume::PodVolume;
    use yoi_workspace::Uid;

    fn volume(pod: u8) -> PodVolume {
        PodVolume { pod: Uid::from_bytes([pod; 16]), name: "tree".parse().unwrap() }
    }
    fn tree(pod: u8) -> PublishRecord {
        PublishRecord {
            volume: volume(pod),
            shows: PublishedVolume::Tree { tree: Uid::from_bytes([9; 16]), read_only: false, covers: 0, lending: None },
        }
    }
    fn shown(pod: u8) -> PublishedMount {
        PublishedMount { volume: volume(pod), what: MountedContent::Tree(Uid::from_bytes([9; 16])), read_only: false, covers: vec![] }
    }

    #[test]
    fn records_and_mounts_that_agree_are_left_alone() {
        let found = Mounts { shown: vec![shown(1)], pods: vec![] };
        assert_eq!((missing_records(&[tree(1)], &found), stale_records(&[tree(1)], &found)), (vec![], vec![]));
    }

    #[test]
    fn a_mount_without_a_record_is_remembered() {
        let found = Mounts { shown: vec![shown(1)], pods: vec![volume(1).pod] };
        assert_eq!(missing_records(&[], &found), [tree(1)]);
    }

    #[test]
    fn after_a_reboot_the_record_of_a_known_pod_stays() {
        let found = Mounts { shown: vec![], pods: vec![volume(1).pod] };
        assert_eq!(stale_records(&[tree(1), tree(2)], &found), [tree(2)]);
    }
}
