//! What `kubectl yoi sync` has sent to a project: the working trees of people's machines.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Machines of which the last commit is known. Of more, the one that has sent nothing for the longest time is forgotten.
pub const MAX_MACHINES: usize = 16;
/// Bundles of one project that may lie there at once.
pub const MAX_BUNDLES: usize = 16;
/// Bundles of one project of which not all parts have come. Of more, the one that has got none for the longest time is given up.
pub const MAX_UPLOADS: usize = 4;
/// ConfigMaps of one bundle.
pub const MAX_PARTS: usize = 8;
/// Bytes of one part. A ConfigMap holds at most one MiB.
pub const PART_BYTES: usize = 1_000_000;
/// The key of a part in its ConfigMap.
pub const PART_KEY: &str = "part";
/// Bytes of the longest bundle: it lies in the cluster's database.
pub const MAX_SYNC_BYTES: usize = MAX_PARTS * PART_BYTES;

/// What people have sent, and where it lies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SyncStatus {
    /// Gateway: the state that came last. Trees are made from it once it is sealed on a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<SyncedTree>,
    /// Gateway: the last commit of each machine, that which came last at the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub machines: Vec<SyncedMachine>,
    /// Gateway: the bundles that it has stored, without those that it knows to be deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub bundles: Vec<StoredBundle>,
    /// Gateway: bundles of which not all parts have come, one of a machine. What is there is not sent again. None of them is a state of the tree.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4))]
    pub uploads: Vec<SyncUpload>,
    /// Operator: the commits of those of `bundles` that it has deleted, as no tree is made from them any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub deleted: Vec<String>,
}

/// A working tree as it was at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SyncedTree {
    /// The machine that it is of.
    pub machine: String,
    /// The commit that holds it. It is on no branch of the repository.
    pub commit: String,
    /// The moment, by that machine's clock, RFC 3339.
    pub captured_at: String,
    /// When it came, RFC 3339.
    pub received_at: String,
    /// The user who sent it.
    pub person: String,
}

/// What a machine has sent last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SyncedMachine {
    /// Its name.
    pub machine: String,
    /// The commit.
    pub commit: String,
}

/// A bundle of which the first parts have come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SyncUpload {
    /// The machine that sends it.
    pub machine: String,
    /// What has come, with the length and the digest of the whole.
    pub bundle: StoredBundle,
}

/// A bundle of what the repository lacks of one commit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoredBundle {
    /// The commit.
    pub commit: String,
    /// Of the whole, in lower-case hex.
    pub sha256: String,
    /// Its length.
    pub bytes: i64,
    /// Where it lies, in order.
    #[schemars(length(max = 8))]
    pub parts: Vec<StoredPart>,
}

/// A ConfigMap that holds a part of a bundle.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoredPart {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// How many parts a bundle of so many bytes has; at least one.
#[must_use]
pub fn part_count(bytes: usize) -> usize {
    bytes.div_ceil(PART_BYTES).max(1)
}

/// What the name of each ConfigMap with a part of a bundle of this project begins with. No name of a project has a dot.
#[must_use]
pub fn part_prefix(project: &str) -> String {
    format!("{project}.sync-")
}

/// The only name in the bundle of a machine.
#[must_use]
pub fn sync_ref(machine: &str) -> String {
    format!("refs/yoi/sync/{machine}")
}

/// Whether this can be the name of a machine: 1 to 63 lower-case letters, digits and `-`, neither first nor last.
#[must_use]
pub fn is_machine_name(name: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=63).contains(&name.len()) && name.bytes().all(is_plain) && !name.starts_with('-') && !name.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_of_the_longest_length_has_all_parts_and_one_byte_more_is_another_part() {
        assert_eq!((part_count(0), part_count(1), part_count(PART_BYTES), part_count(PART_BYTES + 1)), (1, 1, 1, 2));
        assert_eq!(part_count(MAX_SYNC_BYTES), MAX_PARTS);
    }

    #[test]
    fn the_name_of_a_machine_leads_to_no_other_ref() {
        for name in ["a", "laptop-7", &"x".repeat(63)] {
            assert!(is_machine_name(name), "{name}");
        }
        for name in ["", "-a", "a-", "a.lock", "a/b", "..", "A", "a b", "a\n", &"x".repeat(64)] {
            assert!(!is_machine_name(name), "{name}");
        }
    }
}
