//! Clones of clones.

use std::fs;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use yoi_workspace::{CloneAccess, Error, ErrorReason, ProviderKind, Uid};

use crate::fixture::{Fixture, StopOnDrop, content, make_subvolume};
use crate::{Case, Verdict};

pub const CASES: &[Case] = &[
    ("w9_a_nested_volume_is_refused_and_nothing_is_left", w9),
    ("w24_a_fork_has_what_was_before_the_checkpoint", w24),
    ("w25_a_fork_outlives_its_parent", w25),
    ("w26_the_middle_of_a_chain_may_go_first", w26),
    ("w27_w29_a_live_tree_is_forked_at_one_moment_or_refused", live),
    ("a_source_of_another_provider_is_refused", wrong_provider),
];

fn w9(fixture: &Fixture) -> Verdict {
    if !fixture.on_btrfs() {
        return Verdict::NotRun("no nested volumes on this file system");
    }
    let (base, path) = fixture.empty();
    fs::create_dir(path.join("dir")).unwrap();
    make_subvolume(&path.join("dir/nested"));
    fs::write(path.join("dir/nested/file"), "x").unwrap();
    assert_eq!(fixture.provider().seal(base).unwrap_err().reason(), ErrorReason::NestedVolume);
    if fixture.kind() == ProviderKind::Btrfs {
        let error = fixture.provider().clone_tree(fixture.uid(), base, CloneAccess::ReadWrite).unwrap_err();
        assert!(matches!(error, Error::NestedVolume { from } if from == base), "{error}");
    }
    fixture.assert_only(&[base]);
    fs::remove_file(path.join("dir/nested/file")).unwrap();
    fs::remove_dir(path.join("dir/nested")).unwrap();
    fixture.provider().seal(base).unwrap();
    fixture.clone_of(base);
    Verdict::Ran
}

fn w24(fixture: &Fixture) -> Verdict {
    let (base, _) = fixture.base();
    let (original, path) = fixture.clone_of(base);
    fs::write(path.join("M1"), "1").unwrap();
    if !fixture.forks_at_rest() {
        return Verdict::NotRun("forks sealed trees only");
    }
    let checkpoint = fixture.uid();
    fixture.rest(original);
    fixture.provider().clone_tree(checkpoint, original, CloneAccess::ReadOnly).unwrap();
    let path = fixture.path(original);
    fs::write(path.join("M2"), "2").unwrap();
    let (_, fork) = fixture.clone_of(checkpoint);
    assert!(fork.join("M1").exists() && !fork.join("M2").exists());
    assert!(path.join("M1").exists() && path.join("M2").exists());
    if fixture.forks_live() {
        assert!(fs::write(fixture.path(checkpoint).join("x"), "x").is_err());
    }
    Verdict::Ran
}

fn w25(fixture: &Fixture) -> Verdict {
    let (base, source) = fixture.base();
    let before = content(&source);
    let (fork, path) = fixture.clone_of(base);
    let stays = destroy_or_refuse(fixture, base, &[fork]);
    fixture.sync();
    assert_eq!(content(&path), before);
    fs::write(path.join("after"), "x").unwrap();
    fixture.assert_only(&if stays { vec![base, fork] } else { vec![fork] });
    fixture.provider().destroy(fork).unwrap();
    fixture.provider().destroy(base).unwrap();
    fixture.assert_only(&[]);
    Verdict::Ran
}

/// Destroys a base. Overlays cannot live without theirs, so it is refused while there are some, and true is returned.
fn destroy_or_refuse(fixture: &Fixture, base: Uid, expected: &[Uid]) -> bool {
    match (fixture.kind(), fixture.provider().destroy(base)) {
        (ProviderKind::Overlay, Err(Error::DependentForks { uid, forks })) => {
            assert_eq!((uid, &*forks), (base, expected));
            true
        }
        (ProviderKind::Zfs | ProviderKind::Btrfs | ProviderKind::Reflink | ProviderKind::Copy, Ok(())) => false,
        other => panic!("{other:?}"),
    }
}

fn w26(fixture: &Fixture) -> Verdict {
    let (base, _) = fixture.base();
    let (middle, path) = fixture.clone_of(base);
    fs::write(path.join("middle"), "x").unwrap();
    fixture.provider().seal(middle).unwrap();
    let (last, path) = fixture.clone_of(middle);
    fixture.provider().destroy(middle).unwrap();
    assert!(path.join("middle").exists());
    fixture.assert_only(&[base, last]);
    destroy_or_refuse(fixture, base, &[last]);
    fixture.provider().destroy(last).unwrap();
    fixture.provider().destroy(base).unwrap();
    fixture.assert_only(&[]);
    Verdict::Ran
}

fn live(fixture: &Fixture) -> Verdict {
    let (base, _) = fixture.base();
    let (parent, path) = fixture.clone_of(base);
    if !fixture.forks_live() {
        let error = fixture.provider().clone_tree(fixture.uid(), parent, CloneAccess::ReadWrite).unwrap_err();
        assert_eq!(error.reason(), ErrorReason::SourceNotSealed);
        fixture.assert_only(&[base, parent]);
        return Verdict::Ran;
    }
    // The writer always writes `a` before `b`, so `b` is never ahead. It syncs each file before the rename: a Btrfs snapshot holds what a
    // power cut would leave, and of a new file that is not synced that may be nothing.
    let stop = AtomicBool::new(false);
    let number = |path: &std::path::Path| fs::read_to_string(path).ok().and_then(|s| s.parse::<u64>().ok()).unwrap_or(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut n = 0u64;
            while !stop.load(Ordering::Relaxed) {
                n += 1;
                for name in ["a", "b"] {
                    let mut new = fs::File::create(path.join("new")).unwrap();
                    new.write_all(n.to_string().as_bytes()).unwrap();
                    new.sync_data().unwrap();
                    fs::rename(path.join("new"), path.join(name)).unwrap();
                }
            }
        });
        let _writer = StopOnDrop(&stop);
        for _ in 0..30 {
            let (_, fork) = fixture.clone_of(parent);
            let (a, b) = (number(&fork.join("a")), number(&fork.join("b")));
            assert!(a == b || a == b + 1, "{a} and {b} are of no one moment");
        }
    });
    Verdict::Ran
}

fn wrong_provider(fixture: &Fixture) -> Verdict {
    let (base, _) = fixture.base();
    let other = if fixture.kind() == ProviderKind::Copy { ProviderKind::Reflink } else { ProviderKind::Copy };
    let other = fixture.root.provider(other).unwrap();
    assert!(matches!(other.clone_tree(fixture.uid(), base, CloneAccess::ReadWrite), Err(Error::WrongProvider { .. })));
    assert!(matches!(other.destroy(base), Err(Error::WrongProvider { .. })));
    fixture.root.provider_of(base).unwrap().usage(base).unwrap();
    Verdict::Ran
}
