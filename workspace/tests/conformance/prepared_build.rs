//! What was built in a base before it was sealed is up to date in every tree of it: file times survive the clone, and what git ignores stays.

use std::fs;
use std::path::Path;
use std::process::Command;

use yoi_workspace::{CloneAccess, Uid};

use crate::fixture::{Fixture, git, needs_root};
use crate::host;
use crate::lanes::is_installed;
use crate::{Case, Verdict};

pub const CASES: &[Case] = &[
    ("what_was_built_in_a_base_is_built_in_each_tree_of_it", built_in_a_base),
    ("a_folder_that_was_prepared_before_it_was_sealed_stays_as_it_was", built_in_a_taken_folder),
];

/// Compiled units of the project.
const UNITS: usize = 200;
/// What its program says: the sum of what the units return.
const SUM: usize = UNITS * (UNITS - 1) / 2;

const MAKEFILE: &str = "OBJECTS = $(patsubst src/%.c,build/%.o,$(wildcard src/*.c))\n\
    build/program: $(OBJECTS)\n\t@$(CC) -o $@ $^\n\
    build/%.o: src/%.c\n\t@mkdir -p build\n\t@echo compiles $<\n\t@$(CC) -O0 -c -o $@ $<\n";

/// A repository whose program sums up what each unit returns.
fn write_project(at: &Path) {
    fs::create_dir(at.join("src")).unwrap();
    let (mut declared, mut summed) = (String::new(), String::new());
    for n in 1..UNITS {
        fs::write(at.join(format!("src/unit{n}.c")), format!("int unit{n}(void) {{ return {n}; }}\n")).unwrap();
        declared += &format!("int unit{n}(void);\n");
        summed += &format!(" + unit{n}()");
    }
    let main = format!("int printf(const char *, ...);\n{declared}int main(void) {{ return printf(\"%d\\n\", 0{summed}) < 0; }}\n");
    fs::write(at.join("src/main.c"), main).unwrap();
    fs::write(at.join("Makefile"), MAKEFILE).unwrap();
    fs::write(at.join(".gitignore"), "build/\n").unwrap();
    git(at, &["init", "-q"]);
    git(at, &["add", "."]);
    git(at, &["commit", "-q", "-m", "one"]);
}

/// Builds. Returns how many units were compiled, and what the program says.
fn build(at: &Path) -> (usize, usize) {
    let made = Command::new("make").args(["-j2", "-C"]).arg(at).env("LC_ALL", "C").output().unwrap();
    let text = String::from_utf8_lossy(&made.stdout).into_owned();
    assert!(made.status.success(), "{text}{}", String::from_utf8_lossy(&made.stderr));
    let says = Command::new(at.join("build/program")).output().unwrap();
    (text.lines().filter(|line| line.starts_with("compiles ")).count(), String::from_utf8(says.stdout).unwrap().trim().parse().unwrap())
}

fn expect_built(fixture: &Fixture, base: Uid) {
    let (first, second) = (fixture.clone_of(base).1, fixture.clone_of(base).1);
    for tree in [&first, &second] {
        assert_eq!(build(tree), (0, SUM), "a tree of a base that was built is built again");
        assert_eq!(git(tree, &["status", "--porcelain"]), "", "the build is not ignored in the tree");
    }
    fs::write(first.join("src/unit7.c"), "int unit7(void) { return 1007; }\n").unwrap();
    assert_eq!(build(&first), (1, SUM + 1000), "one unit was edited");
    assert_eq!(build(&second), (0, SUM), "the edit is in another tree");
}

fn lack() -> Option<Verdict> {
    ["make", "cc"].iter().any(|program| !is_installed(program)).then_some(Verdict::Lacks("needs make and cc"))
}

fn built_in_a_base(fixture: &Fixture) -> Verdict {
    if let Some(lacks) = lack() {
        return lacks;
    }
    let (base, tree) = fixture.empty();
    write_project(&tree);
    assert_eq!(build(&tree), (UNITS, SUM));
    fixture.provider().seal(base).unwrap();
    expect_built(fixture, base);
    Verdict::Ran
}

fn built_in_a_taken_folder(fixture: &Fixture) -> Verdict {
    needs_root!();
    if let Some(lacks) = lack() {
        return lacks;
    }
    let source = host::beside(fixture);
    host::make_folder(fixture.lane, &source);
    write_project(&source);
    host::give_away(&source);
    let base = fixture.uid();
    let marker = fixture.provider().capture(base, &host::opened(&source).unwrap(), host::USER, CloneAccess::ReadWrite).unwrap();
    // A crash after it was made: the call is repeated, and nothing is taken anew.
    fs::write(source.join("later"), "").unwrap();
    let again = fixture.provider().capture(base, &host::opened(&source).unwrap(), host::USER, CloneAccess::ReadWrite).unwrap();
    assert_eq!((again, marker.sealed.is_some()), (marker, false));
    let tree = fixture.path(base);
    assert!(!tree.join("later").exists());
    assert_eq!(build(&tree), (UNITS, SUM));
    assert!(!source.join("build").exists(), "the build is in the folder that was taken");
    fixture.provider().seal(base).unwrap();
    expect_built(fixture, base);
    Verdict::Ran
}
