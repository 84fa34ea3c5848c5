//! Sessions of agents that are gone. They are kept on purpose, so each is a note, and many are one.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt;
use yoi_crds::name::label;

use super::super::super::finding::Finding;
use super::super::super::observed::{ObservedCluster, display_name, listed};
use super::{is_ours, released_claim};
use crate::remedy::delete_data_command;

/// So many names stand in a sentence.
const TOLD: usize = 3;
/// So many are in one command.
const AT_ONCE: usize = 50;

pub fn check(observed: &ObservedCluster) -> Vec<Finding> {
    let mut found: Vec<Finding> = claims(observed).into_iter().map(|(namespace, claims)| kept_claims(&namespace, &claims)).collect();
    found.extend(kept_volumes(&volumes(observed)));
    found
}

/// The claims that keep the session of an agent that is gone, by namespace.
fn claims(observed: &ObservedCluster) -> BTreeMap<String, Vec<&PersistentVolumeClaim>> {
    let mut kept = BTreeMap::<String, Vec<_>>::new();
    let (Ok(yoipods), Ok(claims)) = (&observed.yoipods, &observed.claims) else { return kept };
    for claim in claims.iter().filter(|claim| claim.metadata.deletion_timestamp.is_none()) {
        let has_agent = |owner: &String| yoipods.iter().any(|y| y.name_any() == *owner && y.namespace() == claim.namespace());
        if claim.labels().get(label::YOIPOD).is_some_and(|owner| !has_agent(owner)) {
            kept.entry(claim.namespace().unwrap_or_default()).or_default().push(claim);
        }
    }
    kept
}

/// The note about the claims of one namespace.
fn kept_claims(namespace: &str, claims: &[&PersistentVolumeClaim]) -> Finding {
    let owner = |claim: &PersistentVolumeClaim| claim.labels().get(label::YOIPOD).cloned().unwrap_or_default();
    if let [claim] = claims {
        let delete = format!("kubectl delete pvc {} -n {namespace}", claim.name_any());
        let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).filter(|name| !name.is_empty());
        let command = volume.map_or_else(|| delete.clone(), |volume| format!("{} && {delete}", delete_data_command(&[volume])));
        let what = format!("it keeps the session of YoiPod {}, which is gone. This deletes it with its data", owner(claim));
        return Finding::note(display_name(*claim), what, command);
    }
    let owners: Vec<String> = claims.iter().map(|claim| owner(claim)).collect();
    let what = format!("{} sessions are kept of YoiPods that are gone ({}). {}", owners.len(), some(&owners), this_deletes(&owners));
    let command = format!("kubectl yoi rm {} --purge --force -n {namespace}", first(&owners).join(" "));
    Finding::note(format!("Namespace {namespace}"), what, command)
}

/// The volumes that hold a session whose claim is gone, with that claim.
fn volumes(observed: &ObservedCluster) -> Vec<(&PersistentVolume, String)> {
    let kept = |volume| {
        let (namespace, name) = released_claim(observed, volume)?;
        let retained = volume.spec.as_ref()?.persistent_volume_reclaim_policy.as_deref() == Some("Retain");
        (name.ends_with("-session") && retained && !is_ours(volume)).then(|| (volume, format!("{namespace}/{name}")))
    };
    listed(&observed.volumes).iter().filter_map(kept).collect()
}

fn kept_volumes(volumes: &[(&PersistentVolume, String)]) -> Option<Finding> {
    let names: Vec<String> = volumes.iter().map(|(volume, _)| volume.name_any()).collect();
    let command = delete_data_command(&first(&names));
    let (object, what) = match volumes {
        [] => return None,
        [(volume, claim)] => {
            let what = format!(
                "it holds the session of claim {claim}, which is gone; it is kept until somebody deletes it. This deletes it with its data"
            );
            (display_name(*volume), what)
        }
        [_, ..] => {
            let claims: Vec<String> = volumes.iter().map(|(_, claim)| claim.clone()).collect();
            let what = format!(
                "they hold sessions whose claims are gone ({}); they are kept until somebody deletes them. {}",
                some(&claims),
                this_deletes(&names)
            );
            (format!("{} PersistentVolumes", names.len()), what)
        }
    };
    Some(Finding::note(object, what, command))
}

fn some(names: &[String]) -> String {
    match names.len().checked_sub(TOLD) {
        None | Some(0) => names.join(", "),
        Some(more) => format!("{} and {more} more", names[..TOLD].join(", ")),
    }
}

fn first(names: &[String]) -> Vec<&str> {
    names.iter().take(AT_ONCE).map(String::as_str).collect()
}

fn this_deletes(names: &[String]) -> String {
    let which = if names.len() > AT_ONCE { format!("the first {AT_ONCE} of them") } else { "them".to_owned() };
    format!("This deletes {which} with their data")
}

#[cfg(test)]
mod tests {
    use super::super::super::sample::{expect_finding, healthy};
    use super::super::super::{Severity, check_named};
    use super::*;
    use serde_json::json;

    fn volume(name: &str) -> PersistentVolume {
        serde_json::from_value(json!({ "metadata": { "name": name },
            "spec": { "persistentVolumeReclaimPolicy": "Retain", "claimRef": { "namespace": "ns", "name": format!("{name}-session") } },
            "status": { "phase": "Released", "lastPhaseTransitionTime": "2026-11-20T12:00:00Z" } }))
        .unwrap()
    }

    fn delete(volumes: &str) -> String {
        format!(r#"kubectl patch pv {volumes} -p '{{"spec":{{"persistentVolumeReclaimPolicy":"Delete"}}}}'"#)
    }

    #[test]
    fn a_kept_session_is_a_note_with_the_command_that_deletes_its_data() {
        let mut observed = healthy();
        *observed.volumes.as_mut().unwrap() = vec![volume("s")];
        let note = expect_finding(&observed, "stuck", "kept until somebody");
        assert_eq!((note.severity, note.command.unwrap()), (Severity::Note, delete("s")));
        observed.yoipods.as_mut().unwrap().clear();
        observed.claims.as_mut().unwrap()[0].spec.get_or_insert_default().volume_name = None;
        assert_eq!(expect_finding(&observed, "stuck", "session of YoiPod a").command.unwrap(), "kubectl delete pvc a-session -n ns");
        // Without the patch the volume would stay, and the data on it.
        observed.claims.as_mut().unwrap()[0].spec.get_or_insert_default().volume_name = Some("pv-1".to_owned());
        let command = expect_finding(&observed, "stuck", "session of YoiPod a").command.unwrap();
        assert_eq!(command, format!("{} && kubectl delete pvc a-session -n ns", delete("pv-1")));
    }

    #[test]
    fn many_kept_sessions_are_one_note_with_a_count_and_one_command() {
        let mut observed = healthy();
        *observed.volumes.as_mut().unwrap() = (0..95).map(|n| volume(&format!("v{n}"))).collect();
        observed.yoipods.as_mut().unwrap().clear();
        let claim = observed.claims.as_ref().unwrap()[0].clone();
        let of = |n: usize| {
            let mut claim = claim.clone();
            claim.metadata.name = Some(format!("a{n}-session"));
            claim.metadata.labels.get_or_insert_default().insert(label::YOIPOD.to_owned(), format!("a{n}"));
            claim
        };
        *observed.claims.as_mut().unwrap() = (0..4).map(of).collect();
        let notes: Vec<Finding> =
            check_named(&observed, "stuck").into_iter().filter(|finding| finding.severity == Severity::Note).collect();
        let [claims, volumes] = notes.as_slice() else { panic!("{notes:?}") };
        assert_eq!(claims.object, "Namespace ns");
        assert!(claims.message.starts_with("4 sessions are kept of YoiPods that are gone (a0, a1, a2 and 1 more)"), "{}", claims.message);
        assert_eq!(claims.command.as_deref(), Some("kubectl yoi rm a0 a1 a2 a3 --purge --force -n ns"));
        assert_eq!(volumes.object, "95 PersistentVolumes");
        assert!(volumes.message.contains("(ns/v0-session, ns/v1-session, ns/v2-session and 92 more)"), "{}", volumes.message);
        assert!(volumes.message.contains("the first 50 of them"), "{}", volumes.message);
        assert!(volumes.command.as_ref().unwrap().contains("pv v0 v1 ") && volumes.command.as_ref().unwrap().contains(" v49 -p "));
    }
}
