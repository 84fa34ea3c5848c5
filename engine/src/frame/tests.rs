use std::process::Command;

use super::*;
use crate::processes::CALL_ID_ENV;

#[test]
fn what_a_kernel_lacks_is_said() {
    assert!(FrameSupport { abi: -38 }.lacks().unwrap().contains("no Landlock"));
    assert!(FrameSupport { abi: 3 }.lacks().unwrap().contains("signal the runtime"));
    assert!(FrameSupport { abi: 5 }.lacks().unwrap().contains("abstract sockets"));
    assert_eq!(FrameSupport { abi: 6 }.lacks(), None);
}

#[test]
fn volumes_of_the_pods_owner_are_those_that_can_be_written_and_are_not_the_systems() {
    let mounts = "1 0 0:1 / / rw - overlay o rw\n2 1 0:2 / /proc rw - proc p rw\n3 1 8:1 /a /cache rw,relatime - ext4 d rw\n\
        4 1 8:1 /b /read ro - ext4 d rw\n5 1 8:1 /c /etc/hosts rw - ext4 d rw\n6 1 8:1 /d /with\\040blank rw - ext4 d rw";
    assert_eq!(parse_mounts(mounts), [PathBuf::from("/cache"), PathBuf::from("/with blank")]);
}

#[test]
fn a_folder_above_a_closed_one_is_opened_child_by_child_and_links_into_closed_ones_open_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    for path in ["usr/bin", "session/home/claude", "run/yoi", "run/other", "var", "tree"] {
        fs::create_dir_all(root.join(path)).unwrap();
    }
    std::os::unix::fs::symlink(root.join("run"), root.join("var/run")).unwrap();
    let frame = Frame {
        write: ["tree", "session/home/claude"].map(|path| root.join(path)).into(),
        // By the link, as it is mounted.
        closed: ["session", "var/run/yoi"].map(|path| root.join(path)).into(),
        volumes: true,
    };
    let rules = frame.rules(&root, &[root.join("session")]);
    let of = |path: &str| rules.iter().filter(|(other, _)| *other == root.join(path)).map(|(_, access)| *access).collect::<Vec<_>>();
    let (all, read) = (AccessFs::from_all(NEWEST), AccessFs::from_read(NEWEST));
    assert_eq!((of("usr"), of("run/other"), of("tree")), (vec![read], vec![read], vec![read, all]));
    assert_eq!(of("session/home/claude"), [all]);
    for closed in ["", "session", "run", "run/yoi", "var/run", "session/home"] {
        assert!(of(closed).is_empty(), "{closed}");
    }
}

#[test]
fn c23_a_process_of_a_framed_thread_reads_the_image_writes_the_tree_and_reaches_nothing_closed() {
    if !FrameSupport::of_this_kernel().governs_files() {
        eprintln!("not run: this kernel has no Landlock");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for path in ["tree", "session"] {
        fs::create_dir(dir.path().join(path)).unwrap();
    }
    fs::write(dir.path().join("session/log"), "secret").unwrap();
    let frame = Frame { write: vec![dir.path().join("tree")], closed: vec![dir.path().join("session")], volumes: true };
    let shell = |script: &str| {
        // With the variable of a call: tests beside this one end every child of this process that has none.
        let mut command = Command::new("sh");
        command.args(["-c", script]).current_dir(dir.path().join("tree")).env(CALL_ID_ENV, "of-this-test");
        let output = command.output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    assert_eq!(shell("cat ../session/log"), (true, "secret".to_owned()), "the control");
    assert!(shell(&format!("kill -0 {}", std::process::id())).0, "the control");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            frame.enter().unwrap();
            assert!(!shell("cat ../session/log").0);
            assert!(!shell("echo x >> ../session/log").0 && !shell("ln ../session/log here").0 && !shell("mv ../session/log here").0);
            assert!(!shell("ls ../session").0);
            assert!(shell("echo x > file && mkdir -p a/b && mv file a/b/ && cat a/b/file > /dev/null && ls /usr /proc/self").0);
            if FrameSupport::of_this_kernel().lacks().is_none() {
                assert!(!shell(&format!("kill -0 {}", std::process::id())).0, "it can signal this process");
            }
        });
    });
    assert_eq!(shell("cat ../session/log").1, "secret", "another thread is not in the frame");
}
