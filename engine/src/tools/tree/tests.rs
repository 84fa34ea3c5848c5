use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::TempDir;
use yoi_test_support::wait_until;

use super::*;

/// A tree at `outer/root`, beside the file `outer/secret`.
fn fixture() -> (TempDir, Tree) {
    let outer = tempfile::tempdir().unwrap();
    let root = outer.path().join("root");
    fs::create_dir_all(root.join("dir/sub")).unwrap();
    fs::write(root.join("dir/file"), "inside").unwrap();
    fs::write(outer.path().join("secret"), "secret").unwrap();
    let tree = Tree::open(&root).unwrap();
    (outer, tree)
}

fn text(tree: &Tree, path: &str) -> Result<String, PathError> {
    let mut text = String::new();
    tree.read(path)?.read_to_string(&mut text).unwrap();
    Ok(text)
}

#[test]
fn p13_a_path_out_of_the_tree_is_a_sandbox_violation_and_a_loop_is_invalid() {
    let (outer, tree) = fixture();
    let root = outer.path().join("root");
    let link = |target: &Path, name: &str| symlink(target, root.join(name)).unwrap();
    link(Path::new("../secret"), "one-hop");
    link(Path::new("one-hop"), "two-hops");
    link(outer.path(), "folder");
    link(Path::new("dir/../../secret"), "through");
    link(Path::new("/proc/self/root"), "magic");
    link(Path::new("loop-b"), "loop-a");
    link(Path::new("loop-a"), "loop-b");
    link(Path::new("../new"), "dangling");
    let absolute = outer.path().join("secret");
    let beside = format!("{}-beside/x", root.display());
    for path in [
        "../secret",
        "dir/../../secret",
        "x/../../secret",
        absolute.to_str().unwrap(),
        &beside,
        "one-hop",
        "two-hops",
        "folder/secret",
        "through",
        "magic/etc/passwd",
        "dangling",
        "/",
    ] {
        for error in [tree.check(path).unwrap_err(), tree.read(path).unwrap_err(), tree.replace(path, b"x").unwrap_err()] {
            assert!(error.to_string().starts_with("sandbox_violation"), "{path}: {error}");
        }
    }
    for error in [tree.check("loop-a").unwrap_err(), tree.read("loop-a/x").unwrap_err(), tree.replace("loop-b", b"x").unwrap_err()] {
        assert!(error.to_string().starts_with("invalid_path"), "{error}");
    }
    for path in ["", "a\0b"] {
        assert!(matches!(tree.check(path), Err(PathError::NotAPath { .. })));
    }
    assert_eq!(fs::read_to_string(absolute).unwrap(), "secret");
    assert!(!outer.path().join("new").exists());
}

#[test]
fn p14_links_within_the_tree_are_followed_and_kept() {
    let (outer, tree) = fixture();
    let root = outer.path().join("root");
    symlink("dir/file", root.join("relative")).unwrap();
    symlink(root.join("dir/file"), root.join("absolute")).unwrap();
    symlink(&root, root.join("dir/up")).unwrap();
    symlink("../file", root.join("dir/sub/parent")).unwrap();
    symlink("dir/later", root.join("dangling")).unwrap();
    for path in ["dir/file", "./dir//file", "relative", "absolute", "dir/up/relative", "dir/up/dir/sub/parent", "dir/sub/../file"] {
        assert_eq!(text(&tree, path).unwrap(), "inside", "{path}");
    }
    assert_eq!(text(&tree, root.join("dir/file").to_str().unwrap()).unwrap(), "inside");
    tree.replace("absolute", b"new").unwrap();
    assert!(root.join("absolute").is_symlink());
    assert_eq!(text(&tree, "dir/file").unwrap(), "new");
    tree.replace("dangling", b"made").unwrap();
    assert_eq!(fs::read_to_string(root.join("dir/later")).unwrap(), "made");
}

#[test]
fn files_are_replaced_atomically_with_their_folders_and_keep_their_mode() {
    let (outer, tree) = fixture();
    let root = outer.path().join("root");
    tree.replace("a/b/c", b"1").unwrap();
    fs::set_permissions(root.join("a/b/c"), fs::Permissions::from_mode(0o750)).unwrap();
    tree.replace("a/b/c", b"2").unwrap();
    assert_eq!(fs::metadata(root.join("a/b/c")).unwrap().permissions().mode() & 0o777, 0o750);
    assert_eq!(fs::read_dir(root.join("a/b")).unwrap().count(), 1);
    for path in ["dir", ".", "dir/file/below"] {
        assert!(matches!(tree.replace(path, b"x"), Err(PathError::Io { .. })), "{path}");
    }
    assert!(matches!(tree.read("dir"), Err(PathError::Io { .. })));
    assert!(matches!(tree.read("nothing"), Err(PathError::Io { .. })));
}

#[test]
fn reading_a_fifo_does_not_hang() {
    let (outer, tree) = fixture();
    let fifo = std::ffi::CString::new(outer.path().join("root/fifo").to_str().unwrap()).unwrap();
    // SAFETY: the string ends in NUL.
    assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
    assert!(matches!(tree.read("fifo"), Err(PathError::Io { .. })));
}

#[test]
fn p15_swapping_a_link_never_leads_out() {
    let (outer, tree) = fixture();
    let root = outer.path().join("root");
    let outside = outer.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "secret").unwrap();
    fs::rename(root.join("dir"), root.join("swapped")).unwrap();
    symlink(&outside, root.join("other")).unwrap();
    /// Ends the thread even when an assertion fails, because the scope waits for it.
    struct Done<'a>(&'a AtomicBool);
    impl Drop for Done<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let done = AtomicBool::new(false);
    let (mut inside, mut refused, mut naive) = (0, 0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // `swapped` always exists: it is a folder of the tree and a link out of it by turns.
            while !done.load(Ordering::Relaxed) {
                let here = rustix::fs::CWD;
                let (swapped, other) = (root.join("swapped"), root.join("other"));
                rustix::fs::renameat_with(here, &swapped, here, &other, rustix::fs::RenameFlags::EXCHANGE).unwrap();
                // So that the other thread meets each of the two folders.
                std::thread::sleep(std::time::Duration::from_micros(50));
            }
        });
        let _done = Done(&done);
        let mut round = 0;
        let mut next_round = || {
            round += 1;
            match text(&tree, "swapped/file") {
                Ok(text) => {
                    assert!(text.starts_with("inside"), "{text}");
                    inside += 1;
                }
                Err(_) => refused += 1,
            }
            let _ = tree.replace("swapped/file", format!("inside {round}").as_bytes());
            // The planted fault is an open that trusts an earlier check.
            if tree.check("swapped/file").is_ok() && fs::read_to_string(root.join("swapped/file")).is_ok_and(|text| text == "secret") {
                naive += 1;
            }
            (inside.min(refused).min(naive) > 0).then_some(())
        };
        (0..2000).for_each(|_| _ = next_round());
        // A busy machine may run only one of the two threads for a while.
        wait_until("both folders were met, and the planted fault was led out", next_round);
    });
    println!("{inside} inside, {refused} refused, {naive} times the planted fault was led out");
    assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "secret");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
}
