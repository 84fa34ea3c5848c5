//! The diff uses git's files in the tree, which the agent can change: to links, pipes and pointers to other repositories.

use std::fs::{self, File, FileTimes};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, SystemTime};

use tokio::sync::Mutex;
use yoi_engine::processes::ProcessSupervisor;
use yoi_runtime::bundle::{bundle_since, commit};
use yoi_runtime::diff::{ComparedWith, TextDiff, commits_since, text_diff};
use yoi_test_support::limit;
use yoi_wire::bundle::{BundleQuery, CommitRequest};
use yoi_wire::people::PatchFormat;

use crate::fixture::{SECRET, TreeFixture};

/// Held by each test that runs git, for `cargo test`, which runs them on threads of one process: a supervisor kills the children of its process that it does not
/// know, so the diff of one test would kill the git of another. Tests with a process each do not need it.
pub static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// A change of the tree's repository. Gets the tree and the folder around it.
type RepositoryChange = fn(&Path, &Path);

const CHANGES: [(&str, RepositoryChange); 23] = [
    ("the repository is a link to one outside", |tree, outer| {
        fs::remove_dir_all(tree.join(".git")).unwrap();
        symlink(outer.join("repository/.git"), tree.join(".git")).unwrap();
    }),
    ("the repository is a file that names one outside", |tree, outer| {
        fs::remove_dir_all(tree.join(".git")).unwrap();
        fs::write(tree.join(".git"), format!("gitdir: {}\n", outer.join("repository/.git").display())).unwrap();
    }),
    ("the common folder is outside", |tree, outer| {
        fs::write(tree.join(".git/commondir"), outer.join("repository/.git").to_str().unwrap()).unwrap();
    }),
    ("the objects are a link to those outside", |tree, outer| {
        fs::remove_dir_all(tree.join(".git/objects")).unwrap();
        symlink(outer.join("repository/.git/objects"), tree.join(".git/objects")).unwrap();
        head_of_the_other(tree, outer);
    }),
    ("more objects are outside", |tree, outer| {
        fs::create_dir_all(tree.join(".git/objects/info")).unwrap();
        fs::write(tree.join(".git/objects/info/alternates"), outer.join("repository/.git/objects").to_str().unwrap()).unwrap();
        head_of_the_other(tree, outer);
    }),
    ("the index is a link to a secret", |tree, outer| replace(tree, ".git/index", &outer.join("secret"))),
    ("the index is a link to a folder", |tree, outer| replace(tree, ".git/index", &outer.join("outside"))),
    ("the index is a pipe", |tree, _| {
        fs::remove_file(tree.join(".git/index")).unwrap();
        pipe(&tree.join(".git/index"));
    }),
    ("the index is a link to bytes without end", |tree, _| replace(tree, ".git/index", Path::new("/dev/zero"))),
    ("HEAD is a link to a secret", |tree, outer| replace(tree, ".git/HEAD", &outer.join("secret"))),
    ("the configuration is a link to a secret", |tree, outer| replace(tree, ".git/config", &outer.join("secret"))),
    ("the work tree is outside", |tree, outer| config(tree, &format!("[core]\n\tworktree = {}\n", outer.join("outside").display()))),
    ("the files to leave out are listed in a secret", |tree, outer| {
        config(tree, &format!("[core]\n\texcludesFile = {0}\n\tattributesFile = {0}\n", outer.join("secret").display()));
    }),
    ("a mail ends with a secret", |tree, outer| {
        config(
            tree,
            &format!(
                "[format]\n\tsignature = s\n\tsignatureFile = {0}\n\tcoverLetter = true\n\tattach = true\n",
                outer.join("secret").display()
            ),
        );
    }),
    ("the names of authors are in a secret", |tree, outer| {
        config(tree, &format!("[mailmap]\n\tfile = {0}\n[log]\n\tmailmap = true\n", outer.join("secret").display()));
    }),
    ("a tracked file is a link to a secret now", |tree, outer| replace(tree, "tracked", &outer.join("secret"))),
    ("a folder of the tree is a link to one outside", |tree, outer| symlink(outer.join("outside"), tree.join("new")).unwrap()),
    ("a tracked file is a pipe now", |tree, _| {
        fs::remove_file(tree.join("tracked")).unwrap();
        pipe(&tree.join("tracked"));
    }),
    ("a filter is a program", |tree, outer| {
        fs::write(tree.join(".gitattributes"), "* filter=x=y\n").unwrap();
        config(tree, &format!("[filter \"x=y\"]\n\tclean = touch {}/ran; cat\n\trequired = true\n", outer.display()));
    }),
    ("a filter is a program that stays", |tree, outer| {
        fs::write(tree.join(".git/info/attributes"), "* filter=x\n").unwrap();
        config(tree, &format!("[filter \"x\"]\n\tprocess = touch {}/ran\n", outer.display()));
    }),
    ("an object is missing, and a program is the remote", |tree, outer| {
        partial_clone(tree, &format!("url = ext::touch {}/ran\n[protocol \"ext\"]\n\tallow = always\n", outer.display()));
    }),
    ("an object is missing, and the remote is reached by a program", |tree, outer| {
        partial_clone(tree, &format!("url = ssh://h/r\n[core]\n\tsshCommand = touch {}/ran;\n", outer.display()));
    }),
    ("a submodule names programs", |tree, outer| {
        submodule(tree);
        let text = format!("touch {}/ran; cat", outer.display());
        for setting in ["filter.x.clean", "diff.external", "core.fsmonitor"] {
            git(&tree.join("sub"), &["config", setting, &text]);
        }
        fs::write(tree.join("sub/.gitattributes"), "* filter=x\n").unwrap();
        config(tree, "[diff]\n\tsubmodule = diff\n\tignoreSubmodules = none\n[status]\n\tsubmoduleSummary = true\n");
    }),
];

/// Removes an object of the last commit, which git then wants to fetch.
fn partial_clone(tree: &Path, remote: &str) {
    let blob = git(tree, &["rev-parse", "HEAD:tracked"]);
    fs::remove_file(tree.join(".git/objects").join(&blob[..2]).join(blob[2..].trim())).unwrap();
    git(tree, &["config", "core.repositoryFormatVersion", "1"]);
    config(tree, &format!("[extensions]\n\tpartialClone = origin\n[remote \"origin\"]\n\tpromisor = true\n\t{remote}"));
}

/// Makes a submodule with another commit than the tree's last one names, and a change in it.
fn submodule(tree: &Path) {
    let sub = tree.join("sub");
    fs::create_dir(&sub).unwrap();
    git(&sub, &["init", "-q"]);
    for (text, parent) in [("of the submodule\n", true), ("of its next commit\n", false)] {
        fs::write(sub.join("inner"), text).unwrap();
        git(&sub, &["add", "inner"]);
        git(&sub, &["commit", "-q", "-m", text]);
        if parent {
            git(tree, &["-c", "advice.addEmbeddedRepo=false", "add", "sub"]);
            git(tree, &["commit", "-q", "-m", "with a submodule"]);
        }
    }
    fs::write(sub.join("inner"), "changed in the submodule\n").unwrap();
}

fn replace(tree: &Path, name: &str, target: &Path) {
    let _ = fs::remove_file(tree.join(name));
    symlink(target, tree.join(name)).unwrap();
}

fn pipe(path: &Path) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
}

fn config(tree: &Path, more: &str) {
    let path = tree.join(".git/config");
    fs::write(&path, fs::read_to_string(&path).unwrap() + more).unwrap();
}

/// Makes the commit of the repository outside the tree's HEAD.
fn head_of_the_other(tree: &Path, outer: &Path) {
    let commit = git(&outer.join("repository"), &["rev-parse", "HEAD"]);
    fs::write(tree.join(".git/HEAD"), commit).unwrap();
}

fn git(at: &Path, args: &[&str]) -> String {
    let done = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"])
        .args(args)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .current_dir(at)
        .output()
        .unwrap();
    assert!(done.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// A repository in the tree, and one outside whose commit holds a secret.
fn repositories() -> TreeFixture {
    let mut fixture = TreeFixture::new();
    let (tree, other) = (fixture.tree(), fixture.outer().join("repository"));
    for name in ["socket", "fifo", "device", "block"] {
        let _ = fs::remove_file(tree.join(name));
    }
    fs::remove_dir_all(tree.join(".git")).unwrap();
    fs::create_dir(&other).unwrap();
    for (at, text) in [(&tree, "tracked and inside\n"), (&other, SECRET)] {
        git(at, &["init", "-q"]);
        fs::write(at.join("tracked"), text).unwrap();
        git(at, &["add", "tracked"]);
        git(at, &["commit", "-q", "-m", "first"]);
    }
    fs::write(tree.join("tracked"), "changed and inside\n").unwrap();
    fixture.reset_canaries();
    fixture
}

fn supervisor(tree: &Path) -> ProcessSupervisor {
    ProcessSupervisor::new(tree.to_owned(), "a", &[])
}

/// The text of the diff, or its error.
fn ask(tree: &Path) -> Option<String> {
    on_a_thread(tree, |runtime, tree| format!("{:?}", runtime.block_on(text_diff(&supervisor(tree), tree, ComparedWith::Head))))
}

/// All commits as mail and as a bundle, or the errors.
fn ask_for_commits(tree: &Path) -> Option<String> {
    on_a_thread(tree, |runtime, tree| {
        let commits = |format| runtime.block_on(commits_since(&supervisor(tree), tree, None, format));
        let text = |answer: Result<Vec<u8>, _>| answer.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        format!("{:?} {:?}", text(commits(PatchFormat::Mail)), text(commits(PatchFormat::Bundle)))
    })
}

/// What is said of a bundle, and the bundle; or the error.
fn ask_for_bundle(tree: &Path) -> Option<String> {
    on_a_thread(tree, |runtime, tree| {
        runtime.block_on(async {
            let processes = supervisor(tree);
            let bundle = match bundle_since(&processes, tree, None, &BundleQuery::default()).await {
                Ok(bundle) => bundle,
                Err(error) => return format!("{error:?}"),
            };
            let mut text = format!("{:?} ", bundle.head);
            if let Some(mut stream) = bundle.stream {
                while let Some(chunk) = stream.next().await.ok().filter(|chunk| !chunk.is_empty()) {
                    text.push_str(&String::from_utf8_lossy(&chunk));
                }
            }
            text
        })
    })
}

/// Asks on a thread of its own, so that an answer that does not come does not hang the test.
fn on_a_thread(tree: &Path, ask: fn(&tokio::runtime::Runtime, &Path) -> String) -> Option<String> {
    let (sender, answer) = mpsc::channel();
    let tree = tree.to_owned();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _ = sender.send(ask(&runtime, &tree));
    });
    answer.recv_timeout(limit(Duration::ZERO)).ok()
}

/// Tries every change on `ask`, and returns what went wrong.
fn check_promises(ask: fn(&Path) -> Option<String>) -> Vec<String> {
    let mut broken = Vec::new();
    for (name, change) in CHANGES {
        let fixture = repositories();
        let tree = fixture.tree();
        change(&tree, &fixture.outer());
        match ask(&tree) {
            None => {
                broken.push(format!("{name}: no answer"));
                release(&tree);
            }
            Some(text) if text.contains(SECRET) => broken.push(format!("{name}: the secret was disclosed")),
            Some(text) => println!("diff, {name}: {text:.150}"),
        }
        if let Err(what) = fixture.check_untouched() {
            broken.push(format!("{name}: {what}"));
        }
    }
    broken
}

#[test]
fn a_diff_shows_nothing_from_outside_and_ends_for_every_repository() {
    let _alone = ONE_AT_A_TIME.blocking_lock();
    let broken = check_promises(ask);
    assert!(broken.is_empty(), "{} of {}:\n{}", broken.len(), CHANGES.len(), broken.join("\n"));
}

#[test]
fn a_patch_shows_nothing_from_outside_and_ends_for_every_repository() {
    let _alone = ONE_AT_A_TIME.blocking_lock();
    let broken = check_promises(ask_for_commits);
    assert!(broken.is_empty(), "{} of {}:\n{}", broken.len(), CHANGES.len(), broken.join("\n"));
}

#[test]
fn a_bundle_shows_nothing_from_outside_and_ends_for_every_repository() {
    let _alone = ONE_AT_A_TIME.blocking_lock();
    let broken = check_promises(ask_for_bundle);
    assert!(broken.is_empty(), "{} of {}:\n{}", broken.len(), CHANGES.len(), broken.join("\n"));
}

#[test]
fn planted_a_plain_git_diff_leaves_the_tree_and_hangs() {
    let _alone = ONE_AT_A_TIME.blocking_lock();
    let broken = check_promises(|tree| {
        let done = Command::new("timeout").args(["5", "git", "diff", "HEAD"]).current_dir(tree).output().unwrap();
        (done.status.code() != Some(124)).then(|| String::from_utf8_lossy(&done.stdout).into_owned())
    });
    println!("seen:\n  {}", broken.join("\n  "));
    for what in ["the secret was disclosed", "no answer", "/ran was made outside"] {
        assert!(broken.iter().any(|broken| broken.ends_with(what)), "{what}");
    }
}

/// Wakes a process that waits for the writer of a pipe.
fn release(tree: &Path) {
    for name in [".git/index", "tracked"] {
        let _ = rustix::fs::open(
            tree.join(name),
            rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        );
    }
}

#[tokio::test]
async fn a_diff_of_an_intact_repository_has_its_changes() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let fixture = repositories();
    let TextDiff { text, truncated, .. } =
        text_diff(&supervisor(&fixture.tree()), &fixture.tree(), ComparedWith::Head).await.unwrap().unwrap();
    assert!(text.contains("+changed and inside") && !truncated, "{text}");
    fixture.check_untouched().unwrap();
}

#[tokio::test]
async fn an_index_without_end_is_refused_at_once() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let fixture = repositories();
    // It has holes, so its length is all that it takes.
    File::options().write(true).open(fixture.tree().join(".git/index")).unwrap().set_len(1 << 40).unwrap();
    let error = text_diff(&supervisor(&fixture.tree()), &fixture.tree(), ComparedWith::Head).await.unwrap_err();
    assert!(format!("{error:?}").contains("git's index is larger than 64 MiB"), "{error:?}");
}

/// git compares times in whole seconds, and lengths. It reads files that changed in the second of the index's own time.
#[tokio::test]
async fn a_change_of_equal_length_in_the_second_of_the_commit_is_found_later() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let fixture = repositories();
    let tree = fixture.tree();
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let date = |path: &Path| File::options().write(true).open(path).unwrap().set_times(FileTimes::new().set_modified(then)).unwrap();
    config(&tree, "[core]\n\ttrustctime = false\n");
    date(&tree.join("tracked"));
    git(&tree, &["add", "tracked"]);
    git(&tree, &["commit", "-q", "-m", "second"]);
    fs::write(tree.join("tracked"), "tracked and inside\n").unwrap();
    date(&tree.join("tracked"));
    date(&tree.join(".git/index"));
    let TextDiff { text, .. } = text_diff(&supervisor(&tree), &tree, ComparedWith::Head).await.unwrap().unwrap();
    assert!(text.contains("+tracked and inside"), "{text:.500}");
}

/// Mounts nothing over a path, as the node does.
struct Hidden(std::path::PathBuf);

impl Hidden {
    /// `None` without the right to mount.
    fn over(path: &Path) -> Option<Self> {
        let source = yoi_wire::identity::HIDDEN_SOURCE;
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "ro", source]).arg(path).output().unwrap().status.success();
        mounted.then(|| Self(path.to_owned()))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[tokio::test]
async fn what_the_node_hides_from_the_agent_is_no_change_of_its_tree() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let fixture = repositories();
    let tree = fixture.tree();
    fs::create_dir_all(tree.join("conf/keys")).unwrap();
    fs::write(tree.join("conf/keys/one"), "a key\n").unwrap();
    git(&tree, &["add", "conf"]);
    git(&tree, &["commit", "-q", "-m", "keys"]);
    fs::write(tree.join("conf/keys/two"), "another, not committed\n").unwrap();
    fs::write(tree.join("conf/new"), "made by the agent\n").unwrap();
    let Some(_hidden) = Hidden::over(&tree.join("conf/keys")) else {
        return crate::skip::skip("no right to mount");
    };
    assert!(!tree.join("conf/keys/one").exists());
    let processes = supervisor(&tree);
    let TextDiff { text, .. } = text_diff(&processes, &tree, ComparedWith::Head).await.unwrap().unwrap();
    assert!(text.contains("+made by the agent") && !text.contains("keys"), "{text}");
    let bundle = bundle_since(&processes, &tree, None, &BundleQuery::default()).await.unwrap();
    let uncommitted = bundle.head.uncommitted.paths;
    // The list is cut, and has what git knows first.
    assert!(uncommitted.iter().any(|path| path == "tracked") && !uncommitted.iter().any(|path| path.contains("keys")), "{uncommitted:?}");

    let request = CommitRequest { message: "What the agent left".to_owned() };
    for (name, value) in [("user.name", "t"), ("user.email", "t@t")] {
        git(&tree, &["config", name, value]);
    }
    let made = commit(&processes, &tree, &request).await.unwrap().expect("a commit");
    let changed = git(&tree, &["show", "--name-only", "--format=", &made]);
    assert!(changed.contains("conf/new") && !changed.contains("keys"), "{changed}");
    // What is hidden alone is no reason for a commit.
    assert_eq!(commit(&processes, &tree, &request).await.unwrap(), None);
}
