//! Names of the objects that plans make. Each is derived, so that a repeated step finds the object that it made before.

use serde::Serialize;
use sha2::{Digest, Sha256};

use yoi_crds::prepare::Prepare;
use yoi_crds::source::{DEFAULT_PATH, ProviderName, TreeOwner, WorkspaceSource};

/// The run generation of an agent's first Pod, as in its name.
pub(crate) const FIRST_RUN: i64 = 1;

/// Name of the Pod of one run of a YoiPod.
#[must_use]
pub fn pod(yoipod: &str, run_generation: i64) -> String {
    format!("{yoipod}-{run_generation}")
}

/// Id of the loan that an agent's request asks for.
#[must_use]
pub fn loan(lender_uid: &str, request_id: &str) -> String {
    sha256(&json(&("loan", lender_uid, request_id)))[..24].to_owned()
}

/// Name of the Pod that reads a stopped YoiPod's session and tree.
#[must_use]
pub fn reader(yoipod: &str) -> String {
    format!("{yoipod}-reader")
}

/// Name of the Pod that pushes what a YoiPod has committed.
#[must_use]
pub fn pusher(yoipod: &str) -> String {
    format!("{yoipod}-push")
}

/// Name of the session claim of a YoiPod that names none. No other claim of ours has a name of this form: [`is_session_claim`].
#[must_use]
pub fn session_claim(yoipod: &str) -> String {
    format!("{yoipod}{SESSION_SUFFIX}")
}

const SESSION_SUFFIX: &str = "-session";

/// Whether a claim of this name is kept for the session of a YoiPod.
#[must_use]
pub fn is_session_claim(name: &str) -> bool {
    name.ends_with(SESSION_SUFFIX)
}

/// Name of a session claim that is made before an agent needs it. No name of a YoiPod has a dot, so no YoiPod's own claim has such a name.
#[must_use]
pub fn warm_claim(project_uid: &str, nanosecond: i128, number: usize) -> String {
    let digest = sha256(&json(&(project_uid, nanosecond.to_string(), number)));
    format!("{WARM_PREFIX}{}{SESSION_SUFFIX}", digest.get(..12).unwrap_or_default())
}

const WARM_PREFIX: &str = "warm.";

/// Whether a claim of this name was made before an agent needed it.
#[must_use]
pub fn is_warm_claim(name: &str) -> bool {
    name.starts_with(WARM_PREFIX) && is_session_claim(name)
}

/// Name of the ConfigMap that holds a YoiPod's manifest. `digest` is of all that the map holds, in hex.
#[must_use]
pub fn manifest(yoipod: &str, digest: &str) -> String {
    format!("{yoipod}-{}", &digest[..digest.len().min(10)])
}

/// Name of the PersistentVolume of a workspace with a claim.
#[must_use]
pub fn volume(workspace_uid: &str) -> String {
    format!("yoi-{workspace_uid}")
}

/// Name of the base of one generation on one node.
#[must_use]
pub fn base(generation: &str, node: &str) -> String {
    format!("base-{generation}-{}", &sha256(node.as_bytes())[..10])
}

/// Name of the `attempt`-th Pod that fills a base.
#[must_use]
pub fn populator(base: &str, attempt: u32) -> String {
    format!("{base}-{attempt}")
}

/// Name of the Pod that prepares a base in the `attempt`-th time that it was filled.
#[must_use]
pub fn prepare(base: &str, attempt: u32) -> String {
    format!("{base}-prepare-{attempt}")
}

/// Name of the generation of all bases that would hold the same content. `of` is the UID of the project, or of a workspace with a direct source. `path` is
/// that of its spec.
#[must_use]
pub fn generation(of: &str, source: &WorkspaceSource, owner: TreeOwner, path: Option<&str>, provider: ProviderName) -> String {
    #[derive(Serialize)]
    struct Key<'a>(&'a str, &'a WorkspaceSource, TreeOwner, Option<&'a str>, ProviderName);
    // The path of a folder is told by the node that it is taken on, and that node is chosen for a generation.
    let path = path.or(source.host.is_none().then_some(DEFAULT_PATH));
    sha256(&json(&Key(of, source, owner, path, provider)))[..10].to_owned()
}

/// Name of a generation whose bases are prepared, by the name that it would have if they were not.
#[must_use]
pub fn prepared_generation(unprepared: &str, prepare: &Prepare) -> String {
    sha256(&json(&(unprepared, prepare)))[..10].to_owned()
}

/// Name of the generation of a project whose branch has moved to `commit`. `first` is the name of the one that was fetched first.
#[must_use]
pub fn refreshed_generation(first: &str, commit: &str) -> String {
    sha256(&json(&(first, commit)))[..10].to_owned()
}

/// Name of the Pod that looks at a project's git repository; `number` is 1 unless former ones do not go. It never ends in a number of its own, as that
/// of a run of a YoiPod does.
#[must_use]
pub fn look(project: &str, number: u32) -> String {
    if number > 1 { format!("{project}-look-x{number}") } else { format!("{project}-look") }
}

/// Id of a task. A YoiPod's runtime takes each id once.
#[must_use]
pub fn task(yoipod_uid: &str, text: &str) -> String {
    sha256(&json(&(yoipod_uid, text)))[..32].to_owned()
}

/// SHA-256 in lower-case hex.
#[must_use]
pub fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// The keys of these types are strings and none of their serializers fails, so they serialize to JSON without fail.
fn json<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use yoi_crds::source::{GitSource, HostSource};

    #[test]
    fn a_generation_changes_with_each_of_its_inputs() {
        let git =
            |url: &str| WorkspaceSource { git: Some(Box::new(GitSource { url: url.into(), ..Default::default() })), ..Default::default() };
        let owner = TreeOwner::default();
        let one = generation("u", &git("https://a/b"), owner, Some("/workspace"), ProviderName::Auto);
        assert_eq!(one.len(), 10);
        assert_eq!(one, generation("u", &git("https://a/b"), owner, Some("/workspace"), ProviderName::Auto));
        for other in [
            generation("v", &git("https://a/b"), owner, Some("/workspace"), ProviderName::Auto),
            generation("u", &git("https://a/c"), owner, Some("/workspace"), ProviderName::Auto),
            generation("u", &git("https://a/b"), TreeOwner { uid: 1001, gid: 1000 }, Some("/workspace"), ProviderName::Auto),
            generation("u", &git("https://a/b"), owner, Some("/src"), ProviderName::Auto),
            generation("u", &git("https://a/b"), owner, Some("/workspace"), ProviderName::Copy),
        ] {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn a_generation_without_a_path_is_the_same_as_with_the_default_but_of_a_folder() {
        let (owner, auto) = (TreeOwner::default(), ProviderName::Auto);
        let git =
            WorkspaceSource { git: Some(Box::new(GitSource { url: "https://a/b".into(), ..Default::default() })), ..Default::default() };
        let host = WorkspaceSource { host: Some(HostSource { name: "clone".into(), take: None }), ..Default::default() };
        let name = |source, path| generation("u", source, owner, path, auto);
        // The names of former versions, which wrote the default into every object: no base is made anew.
        assert_eq!((&*name(&git, Some("/workspace")), &*name(&host, Some("/workspace"))), ("e5980a4bce", "9c4d581559"));
        assert_eq!(name(&git, None), name(&git, Some("/workspace")));
        assert_ne!(name(&host, None), name(&host, Some("/workspace")));
    }

    #[test]
    fn no_two_of_our_pods_have_one_name() {
        let roots = ["x", "x-look", "x-reader", "x-push", "x-2", "x-look-2", "x-look-x2", "x-reader-1", "x-push-1"];
        let mut made = std::collections::BTreeMap::new();
        for root in roots {
            let numbered = (1..=12).flat_map(|n| [pod(root, n), look(root, u32::try_from(n).unwrap())]);
            for name in numbered.chain([reader(root), pusher(root)]) {
                if let Some(other) = made.insert(name.clone(), root) {
                    panic!("{name} is of {other} and of {root}");
                }
            }
        }
    }

    #[test]
    fn names_fit_a_dns_label_for_the_longest_yoipod() {
        let longest = "a".repeat(50);
        for name in [
            pod(&longest, 999_999_999),
            reader(&longest),
            pusher(&longest),
            session_claim(&longest),
            manifest(&longest, &sha256(b"x")),
            look(&longest, 99),
        ] {
            assert!(name.len() <= 63, "{name}");
        }
        assert!(base("0123456789", "n").len() <= 50);
    }
}
