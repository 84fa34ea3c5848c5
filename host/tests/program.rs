//! The program that a bundle brings to a machine.

use std::process::{Command, Output};

fn yoi_host(words: &[&str]) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_yoi-host")).args(words).output().expect("the program starts");
    (status.code(), String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned())
}

#[test]
fn a_program_outside_of_a_bundle_says_so_and_starts_nothing() {
    let (code, said) = yoi_host(&["start"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("bundle"), "{said}");
}

#[test]
fn no_room_for_trees_and_an_unknown_verb_are_refused_by_name() {
    for (words, named) in [(&["up", "--trees", "0"][..], "--trees"), (&["upp"], "upp")] {
        let (code, said) = yoi_host(words);
        assert_eq!(code, Some(2), "{words:?}: {said}");
        assert!(said.contains(named), "{words:?}: {said}");
    }
}
