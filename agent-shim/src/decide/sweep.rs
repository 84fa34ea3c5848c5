//! After a restart: publish records against what is really mounted.

use crate::mounter::verb::{Mounts, What};
use crate::shim::publish::{Exhibit, Publication};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Correction {
    /// A crash came between the mount and its record.
    Remember(Publication),
    /// Nothing is mounted and the kubelet keeps no folder for the Pod: NodeUnpublish will never come.
    Forget(Publication),
}

/// What to correct. A record without a mount stays while the kubelet knows the Pod: after a reboot it asks for the mount again, and the
/// record is then what says that the Pod may.
pub fn corrections(records: &[Publication], found: &Mounts) -> Vec<Correction> {
    let mut out = Vec::new();
    for shown in &found.shown {
        if records.iter().any(|r| r.volume == shown.volume) {
            continue;
        }
        match shown.what {
            What::Tree(tree) => {
                out.push(Correction::Remember(Publication {
                    volume: shown.volume.clone(),
                    shows: Exhibit::Tree { tree, read_only: shown.read_only },
                }));
            }
            // Its digest is unknown; NodePublish comes again for it, or NodeUnpublish, and neither needs the record.
            What::Runtime => {}
        }
    }
    for record in records {
        let mounted = found.shown.iter().any(|s| s.volume == record.volume);
        if !mounted && !found.pods.contains(&record.volume.pod) {
            out.push(Correction::Forget(record.clone()));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mounter::verb::Shown;
    use crate::volume::PodVolume;
    use yoi_workspace::Uid;

    fn volume(pod: u8) -> PodVolume {
        PodVolume { pod: Uid::from_bytes([pod; 16]), name: "tree".parse().unwrap() }
    }
    fn tree(pod: u8) -> Publication {
        Publication { volume: volume(pod), shows: Exhibit::Tree { tree: Uid::from_bytes([9; 16]), read_only: false } }
    }
    fn shown(pod: u8) -> Shown {
        Shown { volume: volume(pod), what: What::Tree(Uid::from_bytes([9; 16])), read_only: false }
    }

    #[test]
    fn records_and_mounts_that_agree_are_left_alone() {
        let found = Mounts { shown: vec![shown(1)], pods: vec![] };
        assert_eq!(corrections(&[tree(1)], &found), []);
    }

    #[test]
    fn a_mount_without_a_record_is_remembered() {
        let found = Mounts { shown: vec![shown(1)], pods: vec![volume(1).pod] };
        assert_eq!(corrections(&[], &found), [Correction::Remember(tree(1))]);
    }

    #[test]
    fn after_a_reboot_the_record_of_a_known_pod_stays() {
        let found = Mounts { shown: vec![], pods: vec![volume(1).pod] };
        assert_eq!(corrections(&[tree(1), tree(2)], &found), [Correction::Forget(tree(2))]);
    }
}
