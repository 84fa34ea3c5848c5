//! A populator that is killed at any moment is done or undone: the next attempt, which finds what is left in the base, makes what a fresh clone is.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use yoi_test_support::{THOROUGH, thorough};

use crate::Folder;
use crate::git_server::{GitServer, USER};
use crate::populator::Populator;
use crate::repository::Repository;

/// `YOI_POPULATOR_KILLS` of them, or 12 in a thorough run and 3 otherwise.
fn rounds() -> u64 {
    let usual = if thorough() { 12 } else { 3 };
    std::env::var("YOI_POPULATOR_KILLS").map_or(usual, |count| count.parse().expect("YOI_POPULATOR_KILLS is a number"))
}

/// Numbers that differ from run to run. What a round did is printed.
pub struct Random(u64);

impl Random {
    pub fn new() -> Self {
        let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
        Random(u64::try_from(nanos % u128::from(u64::MAX)).unwrap() | 1)
    }

    /// When the processes of a round are killed, once or twice, of which the whole takes so many milliseconds. The first moments of all rounds are spread
    /// over the whole, so that few rounds do not all fall into its end.
    pub fn moments(&mut self, (round, rounds): (u64, u64), whole: u64) -> Vec<u64> {
        let end = whole + whole / 8;
        let first = (end * round + self.below(end)) / rounds;
        // A Pod that is killed again and again leaves more behind than one that is killed once.
        std::iter::once(first).chain((0..self.below(2)).map(|_| self.below(end))).collect()
    }

    /// Below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

struct Source {
    folder: Folder,
    server: GitServer,
    token: String,
}

impl Source {
    /// A repository with some history, objects of git LFS, and a submodule: each step of the script has something to do.
    fn new() -> Self {
        crate::populator::require("git-lfs", "git-lfs");
        let folder = Folder::new("kills");
        let token = format!("canary-kills-{}", std::process::id());
        let served = folder.path().join("served");
        let server = GitServer::start(&served, &token);
        let (main, library) = (Repository::new(&served, "private/p"), Repository::new(&served, "private/lib"));
        let commit = library.write("lib.rs", "pub fn one() {}\n").commit("one");
        main.write(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n");
        for n in 0..4 {
            main.write(&format!("assets/{n}.bin"), server.keep_object(format!("object {n} {}", "x".repeat(2000)).as_bytes()));
            for file in 0..100 {
                main.write(&format!("src/{n}/{file}.rs"), format!("// {n}\npub fn f{file}() {{}}\n"));
            }
            main.commit(&format!("commit {n}"));
        }
        main.link("link", "src/0/0.rs").submodule("vendor/lib", "../lib.git", &commit).commit("the last");
        main.git(&["tag", "v1"]);
        Source { folder, server, token }
    }

    fn pod(&self, name: &str) -> Populator {
        let pod = Populator::new(&self.folder.path().join(name), &self.server.url("private/p.git")).ca(&self.server.ca);
        pod.secret(&[("username", USER), ("password", &self.token)])
    }
}

/// Every entry of the work tree with its mode and content; of folders named `.git` what git says of them, because packs differ from clone to clone.
pub fn content(pod: &Populator) -> BTreeMap<String, (u32, Vec<u8>)> {
    let (root, mut found) = (pod.tree(), BTreeMap::new());
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            if entry.file_name() == ".git" {
                continue;
            }
            let bytes = match (kind.is_dir(), kind.is_symlink()) {
                (true, _) => Vec::new(),
                (false, true) => fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes(),
                (false, false) => fs::read(&path).unwrap(),
            };
            found.insert(relative(&path, &root), (entry.metadata().unwrap().mode(), bytes));
            folders.extend(kind.is_dir().then_some(path));
        }
    }
    let says = [
        &["rev-parse", "HEAD"][..],
        &["rev-parse", "--symbolic-full-name", "HEAD"],
        &["config", "--local", "--list"],
        &["for-each-ref"],
        &["rev-list", "--all", "--objects"],
        &["cat-file", "--batch-all-objects", "--batch-check"],
        &["ls-files", "--stage"],
        &["status", "--porcelain", "--ignored"],
        &["submodule", "status", "--recursive"],
        &["fsck", "--full", "--strict"],
        &["lfs", "ls-files", "--long"],
    ];
    found.extend(says.map(|args| {
        let mut lines: Vec<String> = pod.git(args).lines().map(str::to_owned).collect();
        lines.sort_unstable();
        (format!("git {}", args.join(" ")), (0, lines.join("\n").into_bytes()))
    }));
    found
}

fn relative(path: &Path, root: &Path) -> String {
    path.strip_prefix(root).unwrap().display().to_string()
}

#[test]
fn a_populator_that_is_killed_at_any_moment_is_done_or_undone() {
    let source = Source::new();
    let fresh = source.pod("fresh");
    let begun = Instant::now();
    fresh.expect_filled();
    let whole = u64::try_from(begun.elapsed().as_millis()).unwrap();
    let wanted = content(&fresh);
    assert!(wanted.len() > 400, "{}", wanted.len());
    let (mut random, mut undone, rounds) = (Random::new(), 0, rounds());
    for round in 0..rounds {
        let pod = source.pod(&format!("round-{round}"));
        let moments = random.moments((round, rounds), whole);
        for moment in &moments {
            let ended = pod.run_for(Duration::from_millis(*moment));
            match ended {
                Some(done) => {
                    assert!(done.succeeded, "round {round}, at {moments:?} of {whole} ms: {}", done.words);
                    assert_eq!(content(&pod), wanted, "round {round}: it said that it was done, before {moments:?} of {whole} ms");
                }
                None => undone += 1,
            }
            pod.renew_tmp();
        }
        let done = pod.run();
        assert!(done.succeeded, "round {round}: killed at {moments:?} of {whole} ms, and never filled again: {}", done.words);
        let found = content(&pod);
        for (name, value) in &wanted {
            assert!(
                found.get(name) == Some(value),
                "round {round}: killed at {moments:?} of {whole} ms, and {name} is not that of a fresh clone"
            );
        }
        assert_eq!(found.len(), wanted.len(), "round {round}: killed at {moments:?} of {whole} ms, and something was left over");
        fs::remove_dir_all(pod.tree()).unwrap();
    }
    println!("{rounds} populators, killed {undone} times; YOI_POPULATOR_KILLS or {THOROUGH} ask for more");
    assert!(undone > 0, "no populator was killed before it was done");
    source.server.expect_no_leak();
}
