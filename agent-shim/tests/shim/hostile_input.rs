//! Malformed paths and names, in calls of the kubelet, in requests to the mounter and on the sockets of Pods.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tonic::Code;
use yoi_wire::identity::{SHIM_SOCKET, VOLUME_KIND, VOLUME_RUNTIME_DIGEST, VOLUME_WORKSPACE};

use crate::fixtures::{NODE, uid};
use crate::test_shim::TestShim;
use yoi_agent_shim::host_sources::HostSourceName;
use yoi_agent_shim::mounter::protocol::{MounterRefusal, Response};
use yoi_agent_shim::mounter::service::MounterService;
use yoi_agent_shim::mounter::{DataRootConfig, frame};
use yoi_agent_shim::proto::csi::NodeUnpublishVolumeRequest;
use yoi_agent_shim::volume::PodVolume;
use yoi_workspace::ErrorReason;

/// Texts that are no UID, no digest, no volume's name and no path.
fn nonsense() -> BTreeSet<String> {
    let good = uid(7).to_string();
    let mut all: BTreeSet<String> =
        ["", " ", ".", "..", "/", "//", "../..", "~", "*", "-", "--", "\0", "a\0b", "\n", "\u{202e}", "é", "null", "0", "%2e%2e", "..\\"]
            .map(str::to_owned)
            .into();
    for at in 0..good.len() {
        for wrong in ["/", ".", "..", "A", "g", "\0", "/../"] {
            all.insert(format!("{}{wrong}{}", &good[..at], &good[at + 1..]));
        }
        all.insert(good[..at].to_owned());
    }
    for tail in ["/", "/.", "/..", ".tmp", "/tree", "\n", " ", "\0", "%00", ";", "/../../etc"] {
        all.insert(format!("{good}{tail}"));
        all.insert(format!("{}{good}", &tail[..1]));
    }
    for up in 1..12 {
        all.insert(format!("{}etc/passwd", "../".repeat(up)));
        all.insert("a".repeat((1 << up) + 1));
    }
    all.insert("f".repeat(63));
    all.insert("F".repeat(64));
    all.insert("f".repeat(65));
    all
}

/// Targets that are not spelled as the kubelet spells them, most of them ways out.
fn false_targets(kubelet_dir: &Path) -> BTreeSet<String> {
    let good = PodVolume { pod: uid(7), name: "tree".parse().unwrap() }.target(kubelet_dir).display().to_string();
    let parts: Vec<_> = good.split('/').collect();
    let mut all = nonsense();
    for at in 0..=parts.len() {
        for wrong in ["..", ".", "", "x", "../..", "../x", "x/..", "~", "\0"] {
            let mut other = parts.clone();
            other.insert(at, wrong);
            all.insert(other.join("/"));
            if at < parts.len() {
                other.remove(at + 1);
                all.insert(other.join("/"));
            }
        }
        if at < parts.len() {
            all.insert(parts[at..].join("/"));
            all.insert(parts[..at].join("/"));
        }
    }
    for tail in ["/", "//", "/.", "/..", "/../..", "/x", "\0", " ", "\n", "/../../../../../../../../etc"] {
        all.insert(format!("{good}{tail}"));
        all.insert(format!("{}{tail}", kubelet_dir.display()));
    }
    for name in ["..", ".", "a/b", "A", "-a", "a-", "a..b", "", "\0", "tree\0"] {
        all.insert(good.replace("/tree/", &format!("/{name}/")));
    }
    for pod in ["..", ".", "", "*", "0198F0AA-5b1c-7d2e-8f00-0123456789ab", "a"] {
        all.insert(good.replace(&uid(7).to_string(), pod));
    }
    // What remains right: another volume of this Pod.
    all.remove(&good.replace("/tree/", "/x/"));
    all.remove(&good);
    all
}

/// Passes every false target to a check that must refuse it. Returns their number, or the first one that was accepted.
fn accepted_target(kubelet_dir: &Path, check: &dyn Fn(&Path) -> bool) -> Result<usize, String> {
    let all = false_targets(kubelet_dir);
    let taken = all.iter().find(|text| check(Path::new(text)));
    taken.map_or(Ok(all.len()), |text| Err(format!("it took {text:?}")))
}

#[test]
fn only_the_path_that_the_kubelet_uses_is_a_target() {
    let inputs =
        accepted_target(Path::new("/var/lib/kubelet"), &|t| PodVolume::from_target(Path::new("/var/lib/kubelet"), t).is_ok()).unwrap();
    println!("{inputs} targets");
    assert!(inputs >= 300, "only {inputs}");
}

#[test]
fn planted_a_check_that_compares_prefixes_is_found() {
    let complaint = accepted_target(Path::new("/var/lib/kubelet"), &|t| t.starts_with("/var/lib/kubelet/pods")).unwrap_err();
    println!("found: {complaint}");
    assert!(complaint.contains("it took"), "{complaint}");
}

#[tokio::test]
async fn no_false_target_or_attribute_reaches_the_mounter() {
    let shim = TestShim::new();
    shim.assign_pod(1, 7);
    let mut node = shim.node().await;
    let (mut targets, mut attributes) = (0, 0);
    for target in false_targets(&shim.state.kubelet_dir) {
        let mut request = shim.tree(7, 1);
        request.target_path.clone_from(&target);
        assert_eq!(node.node_publish_volume(request).await.unwrap_err().code(), Code::InvalidArgument, "{target:?}");
        let request = NodeUnpublishVolumeRequest { volume_id: "csi-0123".into(), target_path: target.clone() };
        assert_eq!(node.node_unpublish_volume(request).await.unwrap_err().code(), Code::InvalidArgument, "{target:?}");
        targets += 2;
    }
    for text in nonsense() {
        let with = |key: &str, kind: &str| {
            let mut request = shim.tree(7, 1);
            request.volume_context.insert(VOLUME_KIND.to_owned(), kind.to_owned());
            request.volume_context.insert(key.to_owned(), text.clone());
            request
        };
        let mut by_handle = shim.tree(7, 1);
        by_handle.volume_context.insert("csi.storage.k8s.io/ephemeral".into(), "false".into());
        by_handle.volume_id.clone_from(&text);
        let requests = [
            with(VOLUME_WORKSPACE, "tree"),
            with(VOLUME_RUNTIME_DIGEST, "runtime"),
            with("csi.storage.k8s.io/pod.uid", "tree"),
            with(VOLUME_KIND, &text),
            by_handle,
        ];
        for request in requests {
            assert_eq!(node.node_publish_volume(request).await.unwrap_err().code(), Code::InvalidArgument, "{text:?}");
            attributes += 1;
        }
    }
    assert_eq!(shim.mounter.take_requests(), []);
    assert_eq!(shim.state.publish_records.all(), []);
    println!("{targets} calls with false targets, {attributes} with false attributes");
    assert!(targets >= 600 && attributes >= 1500, "{targets} {attributes}");
}

/// Everything below a folder, with its size.
fn census(dir: &Path) -> Vec<(PathBuf, u64)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        all.push((entry.path(), entry.metadata().unwrap().len()));
        if entry.file_type().unwrap().is_dir() {
            all.extend(census(&entry.path()));
        }
    }
    all.sort();
    all
}

#[test]
fn no_request_with_a_malformed_name_makes_the_mounter_act() {
    if !rustix::process::geteuid().is_root() {
        crate::skip::skip("the mounter listens to root only");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (kubelet, root, socket) = (dir.path().join("kubelet"), dir.path().join("root"), dir.path().join("m.sock"));
    std::fs::create_dir_all(dir.path().join("outside/tree")).unwrap();
    std::fs::create_dir(&kubelet).unwrap();
    std::fs::create_dir(&root).unwrap();
    let service =
        MounterService::new(NODE.to_owned(), DataRootConfig { data_root: root, loop_size: None, simple_quota: false, zfs: None }, &kubelet)
            .unwrap();
    let served = socket.clone();
    std::thread::spawn(move || yoi_agent_shim::mounter::listener::run(&served, service));
    while !socket.exists() {
        std::thread::yield_now();
    }
    let send_bytes = |body: &[u8]| -> Option<Result<Response, MounterRefusal>> {
        let mut stream = UnixStream::connect(&socket).unwrap();
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        // The mounter may close the connection before it has read everything.
        _ = stream.write_all(&[&length[..], body].concat());
        _ = stream.shutdown(std::net::Shutdown::Write);
        frame::read(&stream).ok()
    };
    let send_request =
        |verb: &str| send_bytes(format!(r#"{{"whose":{{"object":"../../etc","uid":"\u0000","run":null}},"verb":{verb}}}"#).as_bytes());
    assert!(matches!(send_request(r#"{"Open":{"expected":"Any"}}"#), Some(Ok(Response::Opened(_)))));
    let before = census(dir.path());
    // The same words with a name that is one are understood: no such folder is listed.
    let capture = format!(
        r#"{{"Capture":{{"uid":"{}","provider":"Copy","source":"clone","owner":{{"uid":1000,"gid":1000}},"access":"ReadOnly"}}}}"#,
        uid(1)
    );
    let unlisted = send_request(&capture).unwrap().unwrap_err();
    assert_eq!(unlisted.reason, ErrorReason::SourceNotFound, "{unlisted:?}");
    let (good, digest) = (uid(1).to_string(), "a".repeat(64));
    let mut refused = 0;
    for text in nonsense() {
        let (bad, volume) = (serde_json::to_string(&text).unwrap(), format!(r#"{{"pod":"{good}","name":"tree"}}"#));
        let mut verbs = vec![
            format!(r#"{{"CreateEmpty":{{"uid":{bad},"provider":"Copy","owner":{{"uid":0,"gid":0}}}}}}"#),
            format!(r#"{{"Clone":{{"uid":{bad},"provider":"Copy","from":"{good}","access":"ReadWrite"}}}}"#),
            format!(r#"{{"Clone":{{"uid":"{good}","provider":"Copy","from":{bad},"access":"ReadWrite"}}}}"#),
            format!(r#"{{"Seal":{{"uid":{bad}}}}}"#),
            format!(r#"{{"Destroy":{{"uid":{bad}}}}}"#),
            format!(r#"{{"Recover":{{"step":{{"Purge":{{"uid":{bad}}}}}}}}}"#),
            format!(r#"{{"Publish":{{"tree":{bad},"volume":{volume},"access":"ReadWrite"}}}}"#),
            format!(r#"{{"Publish":{{"tree":"{good}","volume":{{"pod":{bad},"name":"tree"}},"access":"ReadWrite"}}}}"#),
            format!(r#"{{"PublishRuntime":{{"volume":{volume},"digest":{bad}}}}}"#),
            format!(r#"{{"Unpublish":{{"volume":{{"pod":{bad},"name":"tree"}}}}}}"#),
            format!(r#"{{"Changes":{{"uid":{bad},"since":null,"limit":1}}}}"#),
            format!(r#"{{"Open":{{"expected":{{"Named":{bad}}}}}}}"#),
            format!(
                r#"{{"Capture":{{"uid":{bad},"provider":"Copy","source":"clone","owner":{{"uid":1000,"gid":1000}},"access":"ReadOnly"}}}}"#
            ),
        ];
        if HostSourceName::try_from(text.clone()).is_err() {
            verbs.push(format!(
                r#"{{"Capture":{{"uid":"{good}","provider":"Copy","source":{bad},"owner":{{"uid":1000,"gid":1000}},"access":"ReadOnly"}}}}"#
            ));
        }
        // Some of these are names that a volume may have, if not a Pod.
        if text.parse::<yoi_agent_shim::volume::VolumeName>().is_err() {
            verbs.push(format!(r#"{{"Unpublish":{{"volume":{{"pod":"{good}","name":{bad}}}}}}}"#));
            verbs.push(format!(r#"{{"PublishRuntime":{{"volume":{{"pod":"{good}","name":{bad}}},"digest":"{digest}"}}}}"#));
        }
        for verb in verbs {
            assert_eq!(send_request(&verb), None, "{verb}");
            refused += 1;
        }
    }
    let frames = [&b""[..], b"{", b"[]", b"null", b"\"Probe", b"{\"Path\":\"/etc\"}", b"{\"Destroy\":{\"path\":\"/etc\"}}", b"\xff\xfe"];
    assert!(frames.iter().all(|bytes| send_bytes(bytes).is_none()));
    let mut too_long = UnixStream::connect(&socket).unwrap();
    too_long.write_all(&[0xff; 8]).unwrap();
    assert_eq!(too_long.read(&mut [0; 8]).unwrap_or(0), 0, "it hangs up");
    assert!(matches!(send_request(r#""Inventory""#), Some(Ok(Response::Trees(found))) if found.entries.is_empty()), "and goes on");
    assert_eq!(census(dir.path()), before);
    println!("{refused} verbs");
    assert!(refused >= 1000, "only {refused}");
}

#[tokio::test]
async fn a_pod_gets_its_own_change_list_and_nothing_by_any_other_path() {
    let shim = TestShim::new();
    shim.node().await.node_publish_volume(shim.runtime(7)).await.unwrap();
    let socket = shim.state.runtimes.pod_dir(uid(7)).join(SHIM_SOCKET);
    let good = "/v1/changes";
    let mut paths = nonsense();
    for head in ["", "/", "//", "/v1/../", "/v1//", "/V1/", "/v2/", "/%2e%2e/", "/v1/./", "http://other"] {
        for tail in [
            "changes/",
            "changes/..",
            "changes/../../etc",
            "changes%2f..",
            "Changes",
            "changes\t",
            "changes;x",
            "change",
            "",
            "changes/x",
            "/changes",
        ] {
            paths.insert(format!("{head}{tail}"));
        }
    }
    for (n, path) in paths.iter().enumerate() {
        let response = tokio::task::spawn_blocking({
            let (socket, path) = (socket.clone(), path.clone());
            move || {
                let mut stream = UnixStream::connect(socket).unwrap();
                stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                _ = stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes());
                let mut response = Vec::new();
                _ = stream.read_to_end(&mut response);
                String::from_utf8_lossy(&response).into_owned()
            }
        });
        let response = response.await.unwrap();
        assert!(!response.starts_with("HTTP/1.1 2"), "{n} {path:?}: {response}");
    }
    let inputs = paths.len();
    assert!(
        inputs >= 300
            && shim.mounter.take_requests().iter().all(|v| !matches!(v, yoi_agent_shim::mounter::protocol::Request::Changes { .. }))
    );
    println!("{inputs} paths beside {good}");
}
