//! Histories for tests, as streams for `git fast-import`. The same seed gives the same history.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// How many histories a test tries: so many `by_default`, and 200 with `cargo xtask test --all`.
pub fn histories(by_default: u64) -> u64 {
    std::env::var("YOI_HISTORIES").map_or(by_default, |count| count.parse().expect("YOI_HISTORIES is a number"))
}

/// Names that programs get wrong.
const NAMES: [&[u8]; 10] = [
    b"plain.txt",
    b"with space",
    "\u{fc}ml\u{e4}ut/\u{1f600}".as_bytes(),
    b"-dash",
    b"\"quoted\"",
    b"tab\tand\nnewline",
    b"deep/er/and/deep.er",
    b"back\\slash",
    b"not-utf8-\xff\xfe",
    b"refs/heads/main",
];

/// A branch with commits on top of `base`: merges, renames, deletions, empty commits, tags, large files, links and odd names among them.
pub struct GeneratedHistory {
    pub branch: String,
    stream: Vec<u8>,
    random: u64,
    mark: u64,
    files: Vec<Vec<u8>>,
}

impl GeneratedHistory {
    pub fn new(seed: u64, base: &str) -> Self {
        let kinds = ["plain", "with/slash", "\u{fc}ml\u{e4}ut", "a@b", "x&y=z#+%", "heads/main"];
        let mut history = Self {
            branch: format!("h{seed}/{}", kinds[usize::try_from(seed).unwrap() % kinds.len()]),
            stream: Vec::new(),
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            mark: 0,
            files: Vec::new(),
        };
        let mut parent = base.to_owned();
        for _ in 0..history.below(6) + 1 {
            parent = history.step(seed, &parent);
        }
        history
    }

    /// Writes the history to a repository that has its base.
    pub fn import(&self, repository: &Path) {
        let mut child = Command::new("git").args(["fast-import", "--quiet"]).current_dir(repository).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(&self.stream).unwrap();
        assert!(child.wait().unwrap().success());
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % limit
    }

    fn text(&mut self, text: &str) {
        self.stream.extend_from_slice(text.as_bytes());
    }

    fn data(&mut self, bytes: &[u8]) {
        self.text(&format!("data {}\n", bytes.len()));
        self.stream.extend_from_slice(bytes);
        self.text("\n");
    }

    /// Begins a commit, and returns its name in the stream.
    fn commit(&mut self, branch: &str, parents: &[&str]) -> String {
        self.mark += 1;
        let mark = format!(":{}", self.mark);
        self.text(&format!("commit refs/heads/{branch}\nmark {mark}\n"));
        self.text(&format!("author Zo\u{eb} O'Neil <z@example.invalid> {} +0530\n", 1_700_000_000 + self.mark));
        self.text(&format!("committer a <a@p.ns.invalid> {} -0800\n", 1_700_000_100 + self.mark));
        let message = ["", "one line", "many\n\nlines \u{1f600}\n"][usize::try_from(self.below(3)).unwrap()];
        self.data(message.as_bytes());
        for (index, parent) in parents.iter().enumerate() {
            self.text(&format!("{} {parent}\n", if index == 0 { "from" } else { "merge" }));
        }
        mark
    }

    fn path(&mut self, path: &[u8]) {
        self.text("\"");
        for byte in path {
            match byte {
                b'"' | b'\\' => self.stream.extend_from_slice(&[b'\\', *byte]),
                b'\n' => self.stream.extend_from_slice(b"\\n"),
                _ => self.stream.push(*byte),
            }
        }
        self.text("\"");
    }

    fn write(&mut self, mode: &str, path: &[u8], content: &[u8]) {
        self.text(&format!("M {mode} inline "));
        self.path(path);
        self.text("\n");
        self.data(content);
        if !self.files.iter().any(|known| known == path) {
            self.files.push(path.to_owned());
        }
    }

    fn new_name(&mut self) -> Vec<u8> {
        let name = NAMES[usize::try_from(self.below(NAMES.len() as u64)).unwrap()];
        [format!("f{}-", self.mark).as_bytes(), name].concat()
    }

    fn step(&mut self, seed: u64, parent: &str) -> String {
        let branch = self.branch.clone();
        match self.below(7) {
            0 => self.commit(&branch, &[parent]),
            1 => {
                let mark = self.commit(&branch, &[parent]);
                let size = usize::try_from(self.below(600_000)).unwrap();
                let content: Vec<u8> = (0..size).map(|_| u8::try_from(self.below(256)).unwrap()).collect();
                let name = self.new_name();
                self.write("100644", &name, &content);
                mark
            }
            2 if !self.files.is_empty() => {
                let mark = self.commit(&branch, &[parent]);
                let old = self.files.remove(0);
                let new = self.new_name();
                self.text("R ");
                self.path(&old);
                self.text(" ");
                self.path(&new);
                self.text("\n");
                self.files.push(new);
                mark
            }
            3 if !self.files.is_empty() => {
                let mark = self.commit(&branch, &[parent]);
                let gone = self.files.remove(0);
                self.text("D ");
                self.path(&gone);
                self.text("\n");
                mark
            }
            4 => {
                let side = self.commit(&format!("side{seed}"), &[parent]);
                let name = self.new_name();
                self.write("100755", &name, b"#!/bin/sh\n");
                let mark = self.commit(&branch, &[parent, &side]);
                self.write("100755", &name, b"#!/bin/sh\n");
                mark
            }
            5 => {
                let mark = self.commit(&branch, &[parent]);
                let name = self.new_name();
                self.write("120000", &name, b"../../etc/passwd");
                self.text(&format!("tag t{seed}-{}\nfrom {mark}\ntagger a <a@p.ns.invalid> 1700000000 +0000\n", self.mark));
                self.data(b"a tag");
                mark
            }
            _ => {
                let mark = self.commit(&branch, &[parent]);
                let name = self.new_name();
                let content = format!("line {}\n", self.mark).repeat(usize::try_from(self.below(50)).unwrap());
                self.write("100644", &name, content.as_bytes());
                mark
            }
        }
    }
}

/// Every object that `commit` reaches, with its type and content.
pub fn objects_of(repository: &Path, commit: &str) -> Vec<u8> {
    let script = "git rev-list --objects --no-object-names \"$1\" -- | sort | git cat-file --batch";
    let done = Command::new("sh").args(["-c", script, "sh", commit]).current_dir(repository).output().unwrap();
    assert!(done.status.success() && !done.stdout.is_empty(), "{}", String::from_utf8_lossy(&done.stderr));
    done.stdout
}
