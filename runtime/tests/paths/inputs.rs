//! The paths that are given to tools.

use crate::fixture::TreeFixture;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Leads out by `..`.
    DotDot,
    Absolute,
    /// Through a link that leads out.
    LinkOut,
    Loop,
    /// Stays within the tree.
    Within,
    /// Not a path, or too long for one.
    Malformed,
    /// Looks like a path out of the tree, or like a shell expression, but is only a name.
    Lookalike,
    /// A folder, FIFO, socket or device instead of a file.
    NoFile,
    /// git's own files.
    Git,
    /// Files of the machine. They are only read, so that a broken tool does no harm.
    System,
    /// Random components.
    Random,
}

/// How the tools have to answer. In every case no canary is changed and no secret is in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Refused by the check, and again by the call.
    Refused,
    /// No tool succeeds.
    Fails,
    /// Every tool succeeds: it is a file of the tree.
    Works,
    Free,
}

#[derive(Clone, Debug)]
pub struct Input {
    pub kind: Kind,
    pub expected: Expected,
    /// `{outer}`, `{tree}`, `{folder}` and `{file}` are replaced with those of each fixture.
    text: String,
}

impl Input {
    pub fn path(&self, fixture: &TreeFixture) -> String {
        let [folder, file] = fixture.descriptors();
        self.text
            .replace("{outer}", fixture.outer().to_str().unwrap())
            .replace("{tree}", fixture.tree().to_str().unwrap())
            .replace("{folder}", &folder.to_string())
            .replace("{file}", &file.to_string())
    }
}

/// Files outside the tree; some of them do not exist.
const OUTSIDE: [&str; 7] =
    ["secret", "outside/secret", "outside/dir/secret", "tree-beside/secret", "new", "outside/empty/new", "outside/made/by/tool"];

pub fn all() -> Vec<Input> {
    let mut all = Vec::new();
    let mut add = |kind, expected, text: String| all.push(Input { kind, expected, text });

    let climbs = [
        "../",
        "./../",
        ".//..//",
        "dir/../../",
        "dir/sub/../../../",
        "dir//..//.//..//",
        "../tree/../",
        "missing/../../",
        "a/b/c/../../../../",
        "file/../../",
        "dir/file/../../../",
        "i-dir/../../../",
        "i-root/../",
        "i-here/../",
        "./././../",
        "dir/i-parent/../",
    ];
    for climb in climbs {
        for target in OUTSIDE {
            add(Kind::DotDot, Expected::Refused, format!("{climb}{target}"));
        }
    }
    for bare in ["..", "../", "../.", "../..", "dir/../..", "../tree-beside", "../tree/../tree-beside/secret", "../tree"] {
        add(Kind::DotDot, if bare == "../tree" { Expected::Refused } else { Expected::Fails }, bare.to_owned());
    }
    for prefix in ["{outer}/", "//{outer}/", "{outer}/./", "{outer}/tree/../", "{tree}/../", "{tree}//..//", "{tree}/dir/../../"] {
        for target in OUTSIDE {
            add(Kind::Absolute, Expected::Refused, format!("{prefix}{target}"));
        }
    }
    for prefix in ["/proc/self/root{outer}/", "/proc/thread-self/root{outer}/", "/proc/self/root{tree}/../"] {
        for target in &OUTSIDE[..4] {
            add(Kind::Absolute, Expected::Refused, format!("{prefix}{target}"));
        }
    }
    for path in [
        "/proc/self/fd/{file}",
        "/proc/thread-self/fd/{file}",
        "/dev/fd/{file}",
        "/proc/self/fd/{folder}/secret",
        "/dev/fd/{folder}/dir/secret",
        "/proc/self/fd/{folder}/../secret",
        "/proc/self/fd/{folder}/empty/new",
        "{tree}-beside/secret",
        "{tree}-beside",
        "{outer}",
        "{outer}/tree-beside/../secret",
    ] {
        add(Kind::Absolute, Expected::Refused, path.to_owned());
    }

    let folders = [
        "d-relative",
        "d-absolute",
        "d-hops",
        "d-hop-1",
        "d-through",
        "d-slashes",
        "d-fd",
        "d-thread-fd",
        "d-dev-fd",
        "d-root",
        "dir/../d-relative",
        "i-root/d-absolute",
        "{tree}/d-relative",
        "dir/i-parent/d-hops",
    ];
    for folder in folders {
        for rest in ["", "/", "/.", "/secret", "/./secret", "//dir//secret", "/dir/../secret", "/../secret", "/empty/new", "/made/by/tool"]
        {
            add(Kind::LinkOut, Expected::Refused, format!("{folder}{rest}"));
        }
    }
    for path in [
        "d-up/secret",
        "d-up/outside/secret",
        "d-up/tree/../secret",
        "d-up",
        "d-beside/secret",
        "d-beside/../secret",
        "d-up/tree-beside/new",
    ] {
        add(Kind::LinkOut, Expected::Refused, path.to_owned());
    }
    let files = [
        "f-relative",
        "f-absolute",
        "f-hops",
        "f-beside",
        "f-fd",
        "f-dangling",
        "f-dangling-absolute",
        "f-dangling-deep",
        "f-through-a-file",
    ];
    for file in files {
        for rest in ["", "/", "/.", "/..", "/x", "/../f-relative"] {
            add(Kind::LinkOut, Expected::Refused, format!("{file}{rest}"));
        }
    }
    for name in ["l-self", "l-a", "l-b", "l-deep", "l-0", "c-0", "c-5"] {
        for rest in ["", "/", "/x", "/../file", "/../../secret"] {
            add(Kind::Loop, Expected::Refused, format!("{name}{rest}"));
        }
    }

    for path in [
        "file",
        "./file",
        ".//file",
        "dir/file",
        "dir//file",
        "dir/./file",
        "dir/../file",
        "dir/sub/../file",
        "dir/sub/../../file",
        "./dir/../dir/file",
        "{tree}/file",
        "{tree}//dir/file",
        "{tree}/./dir/../file",
        "i-relative",
        "i-absolute",
        "i-hops",
        "i-dir/file",
        "i-root/file",
        "i-root/i-root/dir/file",
        "i-here/file",
        "i-here/i-here/i-here/dir/file",
        "dir/i-parent/file",
        "dir/sub/i-file",
        "dir/sub/../../i-hops",
        "c-20",
        "c-49",
        "é",
        "e\u{301}",
        " .. ",
        "...",
        "missing/../file",
        "{tree}/dir/i-parent/dir/file",
    ] {
        add(Kind::Within, Expected::Works, path.to_owned());
    }
    add(Kind::Within, Expected::Free, "hard".to_owned());
    add(Kind::Within, Expected::Free, "dir/../hard".to_owned());

    for path in ["", "\0", "file\0", "a\0b", "\0/../secret", "file\0/../../secret", "../\0secret", "{outer}/secret\0", "dir/\0"] {
        add(Kind::Malformed, Expected::Refused, path.to_owned());
    }
    let long = |piece: &str, count: usize, rest: &str| format!("{}{rest}", piece.repeat(count));
    for (expected, path) in [
        (Expected::Refused, long("../", 1000, "secret")),
        (Expected::Refused, long("../", 1400, "secret")),
        (Expected::Refused, long("dir/../", 600, "../secret")),
        (Expected::Refused, long("dir/../", 20_000, "../secret")),
        (Expected::Works, long("./", 2100, "file")),
        (Expected::Works, long("dir/../", 600, "file")),
        (Expected::Works, long("/", 1, "").replace('/', "dir/////////////////////////file")),
        (Expected::Fails, long("x", 256, "")),
        (Expected::Fails, long("x", 4096, "")),
        (Expected::Fails, long("x", 70_000, "")),
        (Expected::Fails, format!("dir/{}/../../../secret", "x".repeat(256))),
        (Expected::Fails, format!("{}/../file", "é".repeat(128))),
        (Expected::Fails, long("d/", 2500, "new")),
        (Expected::Fails, long("long-component-of-a-path/", 400, "new")),
        (Expected::Free, long("x", 255, "")),
        (Expected::Free, long("é", 127, "")),
        (Expected::Free, long("x/", 100, "new")),
    ] {
        add(Kind::Malformed, expected, path);
    }

    let twins = [
        "\u{2025}/secret",
        "\u{2024}\u{2024}/secret",
        "\u{ff0e}\u{ff0e}/secret",
        "..\u{2215}secret",
        "..\u{ff0f}secret",
        "..\u{2044}secret",
        "\u{3002}\u{3002}/secret",
        "%2e%2e/secret",
        "..%2fsecret",
        "%2e%2e%2fsecret",
        "..%c0%afsecret",
        "%252e%252e/secret",
        "..\\secret",
        "..\\..\\secret",
        "dir\\..\\..\\secret",
        "\u{202e}../secret",
        ".\u{200b}./secret",
        "..\u{200b}/secret",
        "\u{feff}../secret",
        ".\u{307}./secret",
        "..\u{301}/secret",
        ".\u{ad}./secret",
        "~/secret",
        "~root/secret",
        "$HOME/secret",
        "${PWD}/../secret",
        "`pwd`/secret",
        "$(pwd)/secret",
        "file;cat ..",
        "file|cat",
        "file&",
        "*",
        "?ile",
        "[f]ile",
        "{file,secret}",
        " ../secret",
        "\t../secret",
        "\n../secret",
        ".. /secret",
        "....//secret",
        ".../secret",
        "..../secret",
        "C:\\secret",
        "C:/secret",
        "file:///secret",
        "file://../secret",
        "http://127.0.0.1/secret",
        "-",
        "--help",
        "-rf",
        "@file",
        ":secret",
        "a:b",
        "\u{e9}/secret",
        "e\u{301}\u{301}",
        "FILE",
        "File",
        "ﬁle",
        "fi\u{200d}le",
        "\u{1f600}/x",
        "\u{7f}",
        "\r",
        "\u{1b}[2J",
        "con",
        "nul.txt",
        "file.",
        "file ",
    ];
    for path in twins.into_iter().filter(|path| !path.is_empty()) {
        add(Kind::Lookalike, Expected::Free, path.to_owned());
    }

    for path in [
        ".", "./", "././.", "dir", "dir/", "dir/.", "dir/..", "dir/sub", "dir/sub/", "i-dir", "i-root", "i-here", "{tree}", "{tree}/",
        "i-dir/..",
    ] {
        add(Kind::NoFile, Expected::Fails, path.to_owned());
    }
    for path in ["file/x", "file/x/y", "dir/file/x", "i-relative/x", "é/x", "hard/x"] {
        add(Kind::NoFile, Expected::Fails, path.to_owned());
    }
    for path in ["file/", "file/.", "dir/file/", "fifo", "dir/../fifo", "socket", "{tree}/socket", "fifo/x", "socket/x", "device", "block"]
    {
        add(Kind::NoFile, Expected::Free, path.to_owned());
    }
    for path in [
        ".git",
        ".git/",
        ".git/HEAD",
        ".git/config",
        ".git/index",
        ".git/hooks/post-checkout",
        ".git/objects/info/alternates",
        ".gitmodules",
        ".gitattributes",
        ".GIT/config",
        ".git./config",
        ".git\u{200c}/config",
        "dir/.git/config",
        ".git/./HEAD",
        ".git//HEAD",
    ] {
        add(Kind::Git, Expected::Free, path.to_owned());
    }
    for path in [".git/../../secret", ".git/objects/../../../secret", ".git/../d-relative/secret", ".git/../f-absolute"] {
        add(Kind::Git, Expected::Refused, path.to_owned());
    }
    for path in [
        "/",
        "//",
        "/.",
        "/..",
        "/etc/passwd",
        "//etc//passwd",
        "/etc/../etc/passwd",
        "/proc/self/environ",
        "/proc/self/mem",
        "/proc/self/maps",
        "/proc/self/cwd/Cargo.toml",
        "/proc/thread-self/cwd/Cargo.toml",
        "/proc/self/exe",
        "/proc/1/environ",
        "/proc/self/fd/0",
        "/proc/self/fd/1",
        "/dev/stdin",
        "/dev/stdout",
        "/dev/zero",
        "/dev/random",
        "/dev/null",
        "/dev/tty",
        "/sys/kernel/notes",
        "/tmp",
        "/root/.ssh/id_rsa",
        "/var/run/secrets/tokens/token",
        "/proc/self/task/../environ",
    ] {
        add(Kind::System, Expected::Refused, path.to_owned());
    }

    random(&mut add);
    all
}

/// Paths of two to nine random components, the same in every run.
fn random(add: &mut impl FnMut(Kind, Expected, String)) {
    const PIECES: [&str; 24] = [
        ".",
        "..",
        "..",
        "..",
        "",
        "dir",
        "sub",
        "file",
        "tree",
        "tree-beside",
        "outside",
        "secret",
        "missing",
        "d-relative",
        "d-absolute",
        "d-hops",
        "d-up",
        "f-relative",
        "i-dir",
        "i-root",
        "i-here",
        "dir/i-parent",
        "l-a",
        "hard",
    ];
    let mut state = 0x5eed_u64;
    let mut roll = |sides: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % sides
    };
    for _ in 0..400 {
        let start = ["", "", "", "{tree}/", "{outer}/"][roll(5)];
        let pieces: Vec<&str> = (0..2 + roll(8)).map(|_| PIECES[roll(PIECES.len())]).collect();
        add(Kind::Random, Expected::Free, format!("{start}{}", pieces.join("/")));
    }
}
