//! The paths of the tree that the node hides from the agent by its scope: mounts that show nothing. To git their files would look as if the agent had removed
//! or emptied them.

use std::path::Path;

use yoi_wire::identity::HIDDEN_SOURCE;

/// Paths in the folder `at` of the tree, relative to that folder, in which nothing is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HiddenPaths(Vec<String>);

impl HiddenPaths {
    /// As the mount table of this process has them.
    pub fn read(tree: &Path, at: &str) -> Self {
        let tree = tree.canonicalize().unwrap_or_else(|_| tree.to_owned());
        Self::parse(&std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default(), &tree.join(at))
    }

    fn parse(mountinfo: &str, folder: &Path) -> Self {
        let of_line = |line: &str| {
            // `id parent device root mount-point options ... - type source options`.
            let (mount, file_system) = line.split_once(" - ")?;
            let (point, source) = (unescaped(mount.split(' ').nth(4)?), file_system.split(' ').nth(1)?);
            let below = Path::new(&point).strip_prefix(folder).ok()?.to_str()?.to_owned();
            (source == HIDDEN_SOURCE && !below.is_empty()).then_some(below)
        };
        Self(mountinfo.lines().filter_map(of_line).collect())
    }

    /// Whether nothing is hidden.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this path is hidden, or lies below one that is.
    pub fn has(&self, path: &[u8]) -> bool {
        let is_in = |hidden: &String| path.strip_prefix(hidden.as_bytes()).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"));
        self.0.iter().any(is_in)
    }

    /// What git is to be given for them.
    pub fn pathspecs(&self) -> Vec<String> {
        self.0.iter().map(|path| format!(":(top,literal){path}")).collect()
    }
}

/// Blanks, backslashes and such are written as a backslash and three octal digits.
fn unescaped(field: &str) -> String {
    let mut pieces = field.split('\\');
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        match piece.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                text.push(char::from(byte));
                text.push_str(&piece[3..]);
            }
            None => text.push_str(piece),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = r"30 20 0:40 /trees/0a/u/tree /workspace ro,nosuid - btrfs /dev/loop0 rw
31 30 0:40 /trees/0a/u/tree/src /workspace/src rw,nosuid shared:7 - btrfs /dev/loop0 rw
32 30 0:51 / /workspace/conf/my\040keys ro,nosuid master:2 - tmpfs yoi:hidden rw,size=4k
33 30 0:52 /empty /workspace/sub/.env ro - tmpfs yoi:hidden rw
34 30 0:53 / /workspace/cache rw - tmpfs tmpfs rw
35 30 0:54 / /elsewhere ro - tmpfs yoi:hidden rw
";

    #[test]
    fn only_what_the_node_hides_in_the_folder_is_hidden() {
        let tree = HiddenPaths::parse(MOUNTS, Path::new("/workspace"));
        assert_eq!(tree.0, ["conf/my keys", "sub/.env"]);
        let has = |path: &str| tree.has(path.as_bytes());
        assert!(has("conf/my keys") && has("conf/my keys/a") && has("sub/.env"));
        assert!(!has("conf/my keys.txt") && !has("conf") && !has("src/a") && !has(""));
        assert_eq!(HiddenPaths::parse(MOUNTS, Path::new("/workspace/sub")).pathspecs(), [":(top,literal).env"]);
        assert!(HiddenPaths::parse("", Path::new("/workspace")).is_empty());
    }
}
