//! Which requests of the kubelet are admitted.

use std::collections::HashMap;
use std::path::Path;

use crate::fixtures::{NODE, record, uid, workspace};
use serde_json::{Value, json};
use yoi_agent_shim::decide::publish::{Admission, BadRequest, KnownTree, PublishRequest, RequestedVolume, admission, parse_request};
use yoi_wire::identity::{VOLUME_COVERS, VOLUME_KIND, VOLUME_RUNTIME_DIGEST, VOLUME_SCOPED_TREE, VOLUME_WORKSPACE};
use yoi_workspace::ProviderKind::Btrfs;
use yoi_workspace::mount::Shown;
use yoi_workspace::{CloneAccess, RecordState};

const EPHEMERAL: &str = "csi.storage.k8s.io/ephemeral";
const POD_UID: &str = "csi.storage.k8s.io/pod.uid";
const KUBELET: &str = "/var/lib/kubelet";

fn parse_with(over: &[(&str, &str)], handle: &str) -> Result<PublishRequest, BadRequest> {
    let mut context = HashMap::from([(POD_UID.to_owned(), uid(7).to_string()), (EPHEMERAL.to_owned(), "true".to_owned())]);
    context.extend(over.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
    let target = format!("{KUBELET}/pods/{}/volumes/kubernetes.io~csi/tree/mount", uid(7));
    parse_request(Path::new(KUBELET), handle, &target, false, &context)
}

#[test]
fn requests_are_parsed_and_bad_ones_refused() {
    let (ws, digest) = (uid(1).to_string(), "ab".repeat(32));
    let tree = parse_with(&[(VOLUME_KIND, "tree"), (VOLUME_WORKSPACE, &ws)], "csi-1").unwrap();
    assert_eq!((tree.requested, tree.read_only), (RequestedVolume::Tree(uid(1)), false));
    let runtime = parse_with(&[(VOLUME_KIND, "runtime"), (VOLUME_RUNTIME_DIGEST, &digest)], "csi-1").unwrap();
    assert!(runtime.read_only && matches!(runtime.requested, RequestedVolume::Runtime(d) if d.as_str() == digest));
    let claim = parse_with(&[(EPHEMERAL, "false"), (VOLUME_KIND, "tree"), (VOLUME_WORKSPACE, &uid(3).to_string())], &ws).unwrap();
    assert_eq!(claim.requested, RequestedVolume::Claim(uid(1)), "attributes of a PersistentVolume name no tree");

    assert_eq!(parse_with(&[], "csi-1"), Err(BadRequest::Kind));
    assert!(matches!(parse_with(&[(VOLUME_KIND, "tree"), (VOLUME_WORKSPACE, "../x")], "csi-1"), Err(BadRequest::Workspace(_))));
    assert!(matches!(parse_with(&[(VOLUME_KIND, "runtime"), (VOLUME_RUNTIME_DIGEST, "../x")], "csi-1"), Err(BadRequest::Digest(_))));
    assert!(matches!(parse_with(&[(EPHEMERAL, "false")], "csi-1"), Err(BadRequest::Handle(_))));
    let other_pod = uid(8).to_string();
    assert_eq!(parse_with(&[(VOLUME_KIND, "tree"), (VOLUME_WORKSPACE, &ws), (POD_UID, &other_pod)], "csi-1"), Err(BadRequest::Pod));
}

#[test]
fn a_tree_with_a_scope_is_asked_for_with_its_covers_or_not_at_all() {
    let ws = uid(1).to_string();
    let parse = |kind: &str, covers: &str| parse_with(&[(VOLUME_KIND, kind), (VOLUME_WORKSPACE, &ws), (VOLUME_COVERS, covers)], "csi-1");
    let covers =
        r#"[{"path":".","shown":"ReadOnly"},{"path":"src","shown":"Writable","folders":"ReadOnly"},{"path":"a","shown":"Hidden"}]"#;
    let scoped = parse(VOLUME_SCOPED_TREE, covers).unwrap();
    assert_eq!(scoped.requested, RequestedVolume::Tree(uid(1)));
    let shown: Vec<_> = scoped.covers.iter().map(|cover| (cover.path.to_str().unwrap(), cover.shown, cover.folders)).collect();
    assert_eq!(shown, [(".", Shown::ReadOnly, None), ("src", Shown::Writable, Some(Shown::ReadOnly)), ("a", Shown::Hidden, None)]);
    assert_eq!(parse("tree", covers).unwrap().covers, []);
    for none in ["", "[]", "{}", r#"[{"path":"a"}]"#, r#"[{"path":"a","shown":"Open"}]"#, r#"[{"path":"a","shown":"Hidden","more":1}]"#] {
        assert!(matches!(parse(VOLUME_SCOPED_TREE, none), Err(BadRequest::Covers(_))), "{none}");
    }
}

fn through(over: Option<Value>, state: Option<RecordState>, inline: bool, published_before: bool) -> Admission {
    let ws = over.map(|over| workspace(1, over));
    let record = state.map(|s| record(1, Btrfs, s));
    admission(
        uid(1),
        uid(7),
        inline,
        false,
        &KnownTree { node: NODE, workspace: ws.as_ref(), record: record.as_ref(), published_before, lends: false },
    )
}

fn waits(admission: Admission) -> bool {
    matches!(admission, Admission::Wait(_))
}

fn denied(admission: Admission) -> bool {
    matches!(admission, Admission::Deny(_))
}

fn mine() -> Option<Value> {
    Some(json!({ "status": { "podUID": uid(7) } }))
}

#[test]
fn an_inline_volume_is_for_the_named_pod_only_once_its_tree_is_provisioned() {
    let open = Admission::Admit(CloneAccess::ReadWrite);
    assert_eq!(through(mine(), Some(RecordState::Ready), true, false), open);
    assert!(waits(through(mine(), None, true, false)), "not made");
    assert!(waits(through(mine(), Some(RecordState::Creating), true, false)), "being made");
    assert!(waits(through(None, Some(RecordState::Ready), true, false)), "not in the cache");
    assert!(waits(through(Some(json!({})), Some(RecordState::Ready), true, false)), "no Pod named yet");
    assert!(waits(through(Some(json!({ "status": { "podUID": uid(8) } })), Some(RecordState::Ready), true, false)), "another Pod's");
    assert!(waits(through(Some(json!({ "status": { "podUID": uid(7), "nodeName": "n2" } })), Some(RecordState::Ready), true, false)));
    assert!(denied(through(mine(), Some(RecordState::Destroying), true, false)));
    let deleted = json!({ "metadata": { "deletionTimestamp": "2026-11-21T00:00:00Z" }, "status": { "podUID": uid(7) } });
    assert!(denied(through(Some(deleted), Some(RecordState::Ready), true, false)));
}

#[test]
fn a_reader_mounts_the_tree_read_only_or_not_at_all() {
    let by = |over: Value, read_only: bool| {
        let (ws, record) = (workspace(1, over), record(1, Btrfs, RecordState::Ready));
        let known = KnownTree { node: NODE, workspace: Some(&ws), record: Some(&record), published_before: false, lends: false };
        admission(uid(1), uid(7), true, read_only, &known)
    };
    let reader = || json!({ "status": { "readerPodUID": uid(7) } });
    assert_eq!(by(reader(), true), Admission::Admit(CloneAccess::ReadOnly));
    assert!(denied(by(reader(), false)), "it asks for a mount that it could write");
    // The Pod of a former run may still be named beside it.
    assert_eq!(by(json!({ "status": { "podUID": uid(8), "readerPodUID": uid(7) } }), true), Admission::Admit(CloneAccess::ReadOnly));
    assert!(waits(by(json!({ "status": { "readerPodUID": uid(8) } }), true)), "another Pod's");
    let deleted = json!({ "metadata": { "deletionTimestamp": "2026-11-21T00:00:00Z" }, "status": { "readerPodUID": uid(7) } });
    assert!(denied(by(deleted, true)));
}

#[test]
fn any_pod_may_mount_by_claim_if_the_workspace_has_a_claim() {
    let claim = Some(json!({ "spec": { "claim": true } }));
    assert_eq!(through(claim, Some(RecordState::Ready), false, false), Admission::Admit(CloneAccess::ReadWrite));
    assert!(denied(through(mine(), Some(RecordState::Ready), false, false)));
}

#[test]
fn what_was_mounted_before_is_mounted_again_without_the_api_server() {
    assert_eq!(through(None, Some(RecordState::Ready), true, true), Admission::Admit(CloneAccess::ReadWrite));
    assert!(waits(through(None, None, true, true)), "but not without a tree");
}

#[test]
fn a_sealed_tree_and_a_read_only_one_are_never_written() {
    assert_eq!(through(mine(), Some(RecordState::Sealed), true, false), Admission::Admit(CloneAccess::ReadOnly));
    let frozen = json!({ "spec": { "readOnly": true }, "status": { "podUID": uid(7) } });
    assert_eq!(through(Some(frozen), Some(RecordState::Ready), true, false), Admission::Admit(CloneAccess::ReadOnly));
}

#[test]
fn a_base_of_a_host_folder_is_written_to_only_by_the_pod_that_prepares_it_and_before_it_is_sealed() {
    let owner = yoi_workspace::Owner { uid: 1000, gid: 1000 };
    let access = |prepare: Value, state: RecordState| {
        let base = json!({ "generation": "g", "node": NODE, "prepare": prepare });
        let ws = workspace(
            1,
            json!({ "spec": { "source": { "empty": null, "host": { "name": "clone" } }, "base": base }, "status": { "podUID": uid(7) } }),
        );
        let record = yoi_workspace::Record { origin: yoi_workspace::TreeOrigin::Host { owner }, ..record(1, Btrfs, state) };
        admission(
            uid(1),
            uid(7),
            true,
            false,
            &KnownTree { node: NODE, workspace: Some(&ws), record: Some(&record), published_before: false, lends: false },
        )
    };
    let prepare = json!({ "image": "i", "command": ["make"] });
    assert_eq!(access(prepare.clone(), RecordState::Ready), Admission::Admit(CloneAccess::ReadWrite));
    assert_eq!(access(prepare, RecordState::Sealed), Admission::Admit(CloneAccess::ReadOnly));
    assert_eq!(access(Value::Null, RecordState::Ready), Admission::Admit(CloneAccess::ReadOnly));
}
