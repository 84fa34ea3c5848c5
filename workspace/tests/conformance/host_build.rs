//! A tree that shows at the path of its source: what was built there stays built.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::mount::{UnmountFlags, mount_bind, unmount};

use crate::fixture::{Fixture, git, needs_root};
use crate::host;
use crate::lanes::{Lane, is_installed};
use crate::{Case, Verdict};

pub const CASES: &[Case] = &[
    ("w22_what_was_built_in_a_host_folder_is_up_to_date_in_a_tree_at_its_path", same_path),
    ("w22_what_was_built_in_a_host_folder_is_of_no_use_in_a_tree_elsewhere", other_path),
];

/// CMake writes absolute paths into what it generates, and the program reads its data by one.
const FILES: [(&str, &str); 4] = [
    (
        "CMakeLists.txt",
        "cmake_minimum_required(VERSION 3.13)\nproject(hello C)\nadd_executable(hello main.c greeting.c)\n\
         target_compile_definitions(hello PRIVATE DATA=\"${CMAKE_SOURCE_DIR}/data.txt\")\n",
    ),
    ("main.c", "const char *greeting(void);\nint puts(const char *);\nint main(void) { return puts(greeting()) < 0; }\n"),
    (
        "greeting.c",
        "#include <stdio.h>\n#include \"greeting.h\"\nconst char *greeting(void) {\n    static char text[80];\n    \
         FILE *data = fopen(DATA, \"r\");\n    snprintf(text, sizeof text, GREETING \" \");\n    \
         if (data) fgets(text + sizeof GREETING, 40, data);\n    return text;\n}\n",
    ),
    ("greeting.h", "#define GREETING \"hello\"\n"),
];

/// Builds in `at`/build. Returns what make says; each file that it compiles is a line with "Building".
fn make(at: &Path) -> Result<String, String> {
    let out = Command::new("make").arg("-C").arg(at.join("build")).env("LC_ALL", "C").output().unwrap();
    let text = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
    if out.status.success() { Ok(text) } else { Err(text) }
}

fn compiled(text: &str) -> usize {
    text.lines().filter(|line| line.contains("Building C object")).count()
}

fn says(at: &Path) -> String {
    let out = Command::new(at.join("build/hello")).output().unwrap();
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}

fn lack() -> Option<Verdict> {
    ["cmake", "make", "cc"].iter().any(|program| !is_installed(program)).then_some(Verdict::Lacks("needs cmake, make and cc"))
}

/// A repository that is built and then given to a user.
fn built(source: &Path, lane: Lane) {
    host::make_folder(lane, source);
    FILES.iter().for_each(|(name, text)| fs::write(source.join(name), text).unwrap());
    fs::write(source.join("data.txt"), "source").unwrap();
    fs::write(source.join(".gitignore"), "build/\n").unwrap();
    git(source, &["init", "-q"]);
    git(source, &["add", "."]);
    git(source, &["commit", "-q", "-m", "one"]);
    let generated = Command::new("cmake").arg("-S").arg(source).arg("-B").arg(source.join("build")).output().unwrap();
    assert!(generated.status.success(), "{}", String::from_utf8_lossy(&generated.stderr));
    assert_eq!(compiled(&make(source).unwrap()), 2);
    assert_eq!(says(source), "hello source");
    host::give_away(source);
}

/// A source that was built, and a tree of it.
fn source_and_tree(fixture: &Fixture) -> (PathBuf, PathBuf) {
    let source = host::beside(fixture);
    built(&source, fixture.lane);
    let base = fixture.uid();
    host::capture_with(fixture.provider(), base, &source).unwrap();
    (source, fixture.clone_of(base).1)
}

fn same_path(fixture: &Fixture) -> Verdict {
    needs_root!();
    if let Some(lacks) = lack() {
        return lacks;
    }
    let (source, tree) = source_and_tree(fixture);
    mount_bind(&tree, &source).unwrap();
    assert_eq!(compiled(&make(&source).unwrap()), 0, "what was built in the source is built again");
    assert_eq!(git(&source, &["status", "--porcelain"]), "");
    // The absolute path in the program is the tree's.
    fs::write(source.join("data.txt"), "tree").unwrap();
    assert_eq!(says(&source), "hello tree");
    fs::write(source.join("greeting.h"), "#define GREETING \"salut\"\n").unwrap();
    assert_eq!(compiled(&make(&source).unwrap()), 1, "only what includes the header");
    assert_eq!(says(&source), "salut tree");
    unmount(&source, UnmountFlags::empty()).unwrap();
    assert_eq!((compiled(&make(&source).unwrap()), says(&source)), (0, "hello source".to_owned()), "the source was written to");
    Verdict::Ran
}

/// The control: if this built as well, the other case would prove nothing.
fn other_path(fixture: &Fixture) -> Verdict {
    needs_root!();
    if let Some(lacks) = lack() {
        return lacks;
    }
    let (_, tree) = source_and_tree(fixture);
    fs::write(tree.join("data.txt"), "tree").unwrap();
    fs::write(tree.join("greeting.h"), "#define GREETING \"salut\"\n").unwrap();
    let built_there = make(&tree).map(|text| compiled(&text));
    println!("    it compiles {built_there:?} files, and the program says {:?}", says(&tree));
    assert_ne!(says(&tree), "salut tree", "it was built as well at another path");
    Verdict::Ran
}
