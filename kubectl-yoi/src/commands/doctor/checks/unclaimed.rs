//! Trees on nodes' disks that no AgentWorkspace claims.

use std::collections::HashMap;

use kube::ResourceExt;
use yoi_crds::WorkspaceNode;
use yoi_crds::node::UnclaimedTree;

use super::super::finding::Finding;
use super::super::observed::{ObservedCluster, display_name, listed};
use super::or_ok;
use crate::commands::trees::volumes_by_tree;
use crate::show;

/// So many are named in one finding.
const MOST_NAMED: usize = 3;

pub fn check(observed: &ObservedCluster) -> Vec<Finding> {
    let kept = volumes_by_tree(listed(&observed.volumes));
    let found: Vec<Finding> = listed(&observed.workspace_nodes).iter().flat_map(|node| findings(node, &kept)).collect();
    let is_clean = found.is_empty() && observed.workspace_nodes.is_ok() && observed.volumes.is_ok();
    or_ok(found, is_clean, "trees", || "every tree on a node's disk belongs to an AgentWorkspace".to_owned())
}

fn findings(node: &WorkspaceNode, kept: &HashMap<String, String>) -> Vec<Finding> {
    let Some(all) = node.status.as_ref().and_then(|status| status.unclaimed.as_ref()) else { return Vec::new() };
    let name = node.name_any();
    let (held, free): (Vec<&UnclaimedTree>, Vec<&UnclaimedTree>) = all.items.iter().partition(|tree| kept.contains_key(&tree.uid));
    let (bases, trees): (Vec<&UnclaimedTree>, Vec<&UnclaimedTree>) = free.into_iter().partition(|tree| tree.base);
    let held_of = |base| i64::try_from(held.iter().filter(|tree| tree.base == base).count()).unwrap_or(i64::MAX);
    let mut found = Vec::new();
    for tree in &held {
        let Some(volume) = kept.get(&tree.uid) else { continue };
        let what = format!("{} is kept: PersistentVolume {volume} names it", named(tree));
        found.push(Finding::note(display_name(node), what, format!("kubectl describe persistentvolume {volume}")));
    }
    if !trees.is_empty() {
        let what = format!(
            "its disk holds {} ({}) whose AgentWorkspaces are gone, and somebody may have worked there: {}. Look at all with `kubectl yoi \
             trees --node {name}`; what nobody misses may go",
            counted(all.trees - held_of(false), "tree"),
            size(&trees),
            some(&trees)
        );
        let uid = if let [one] = trees.as_slice() { one.uid.as_str() } else { "UID" };
        found.push(Finding::note(display_name(node), what, format!("kubectl yoi trees discard {name} {uid} --force")));
    }
    if !bases.is_empty() {
        let what = format!(
            "its disk holds {} ({}) of projects that are gone: {}. A project makes its bases anew",
            counted(all.bases - held_of(true), "base"),
            size(&bases),
            some(&bases)
        );
        found.push(Finding::note(display_name(node), what, format!("kubectl yoi trees discard {name} --bases --force")));
    }
    found
}

fn counted(count: i64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// What those that are listed take.
fn size(trees: &[&UnclaimedTree]) -> String {
    let sum: i64 = trees.iter().filter_map(|tree| tree.exclusive_bytes).fold(0, i64::saturating_add);
    u64::try_from(sum).map(show::bytes).unwrap_or_default()
}

fn some(trees: &[&UnclaimedTree]) -> String {
    let names: Vec<String> = trees.iter().take(MOST_NAMED).map(|tree| named(tree)).collect();
    let more = trees.len().saturating_sub(MOST_NAMED);
    names.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
}

fn named(tree: &UnclaimedTree) -> String {
    let of = tree.object.as_deref().map_or_else(|| "of an unknown object".to_owned(), |object| format!("of {object}"));
    format!("{} {of}", tree.uid)
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::super::sample::{expect_finding, healthy};
    use serde_json::json;

    const WORK: &str = "0197c0de-0000-4000-8000-000000000001";
    const BASE: &str = "0197c0de-0000-4000-8000-000000000002";

    fn with_unclaimed() -> super::ObservedCluster {
        let mut observed = healthy();
        let unclaimed = json!({ "trees": 1, "bases": 1, "exclusiveBytes": 3, "items": [
            { "uid": WORK, "base": false, "object": "team/alice", "exclusiveBytes": 2 },
            { "uid": BASE, "base": true, "object": "team/base-g-1", "exclusiveBytes": 1 }] });
        let status = observed.workspace_nodes.as_mut().unwrap()[0].status.as_mut().unwrap();
        status.unclaimed = serde_json::from_value(unclaimed).unwrap();
        observed
    }

    #[test]
    fn a_tree_and_a_base_without_an_object_are_notes_with_the_command_that_discards_them() {
        let observed = with_unclaimed();
        let tree = expect_finding(&observed, "trees", "somebody may have worked there");
        assert!(tree.message.contains("1 tree (2 B)") && tree.message.contains("of team/alice"), "{tree:?}");
        assert_eq!((tree.severity, tree.command.unwrap()), (Severity::Note, format!("kubectl yoi trees discard n {WORK} --force")));
        let base = expect_finding(&observed, "trees", "of projects that are gone");
        assert_eq!(base.command.unwrap(), "kubectl yoi trees discard n --bases --force");
    }

    #[test]
    fn what_a_volume_names_is_kept_and_no_command_discards_it() {
        let mut observed = with_unclaimed();
        let volume = json!({ "metadata": { "name": "pv-1" }, "spec": { "csi": { "driver": "csi.yoi.dev", "volumeHandle": WORK } } });
        observed.volumes.as_mut().unwrap().push(serde_json::from_value(volume).unwrap());
        assert_eq!(expect_finding(&observed, "trees", "is kept").command.unwrap(), "kubectl describe persistentvolume pv-1");
        let discards = super::check(&observed).into_iter().filter(|f| f.command.as_ref().is_some_and(|c| c.contains("discard")));
        assert_eq!(discards.map(|f| f.command.unwrap()).collect::<Vec<_>>(), ["kubectl yoi trees discard n --bases --force"]);
    }
}
