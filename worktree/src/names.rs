//! Names of files that are no names of files everywhere.

/// Names of devices of Windows, whatever their ending.
const DEVICES: [&str; 6] = ["con", "prn", "aux", "nul", "conin$", "conout$"];

/// Why a path cannot be taken; `None` where it can. A path of git has `/` between its names.
pub(crate) fn refused(path: &[u8], windows: bool) -> Option<&'static str> {
    if path.first() == Some(&b'/') {
        return Some("it is absolute");
    }
    path.split(|byte| *byte == b'/').find_map(|name| refused_name(name, windows))
}

fn refused_name(name: &[u8], windows: bool) -> Option<&'static str> {
    match name {
        b"" => return Some("it holds an empty name"),
        b"." | b".." => return Some("it leads elsewhere"),
        _ => {}
    }
    // Letters that file systems of macOS leave out.
    let text: String = String::from_utf8_lossy(name).chars().filter(|c| !is_ignored(*c)).collect::<String>().to_lowercase();
    let plain = text.trim_end_matches(['.', ' ']);
    let stem = plain.split(':').next().unwrap_or_default().trim_end_matches(['.', ' ']);
    if stem == ".git" || stem == "git~1" {
        return Some("it is git's own");
    }
    if !windows {
        return None;
    }
    if name.iter().any(|byte| *byte < 0x20 || b"<>:\"|?*\\".contains(byte)) {
        return Some("it holds a letter that Windows does not take");
    }
    if plain.len() != text.len() {
        return Some("it ends in a dot or a space, which Windows leaves out");
    }
    let device = text.split('.').next().unwrap_or_default().trim_end();
    let is_port =
        ["com", "lpt"].iter().any(|port| device.strip_prefix(port).is_some_and(|n| n.len() == 1 && n.bytes().all(|n| n.is_ascii_digit())));
    (DEVICES.contains(&device) || is_port).then_some("it is a device of Windows")
}

fn is_ignored(c: char) -> bool {
    matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::refused;

    #[test]
    fn names_of_git_and_names_that_lead_elsewhere_are_refused_everywhere() {
        for path in [
            ".git/hooks/x",
            "a/.GIT/config",
            "a/.git",
            "git~1",
            ".g\u{200c}it/x",
            ".git./x",
            ".git ",
            ".git::$INDEX_ALLOCATION",
            "../x",
            "a/../b",
            "./a",
            "/etc/x",
            "a//b",
            "",
        ] {
            assert!(refused(path.as_bytes(), false).is_some(), "{path}");
        }
        for path in [".gitignore", "a/.github/x", ".gitmodules", "a..b", "...", "git", "aux.c", "a:b", "\u{e4}"] {
            assert_eq!(refused(path.as_bytes(), false), None, "{path}");
        }
    }

    #[test]
    fn names_that_windows_cannot_hold_are_refused_where_it_counts() {
        for path in ["con", "a/AUX.c", "nul.tar.gz", "com1", "LPT9.x", "a:b", "a\\b", "x.", "x ", "q?"] {
            assert!(refused(path.as_bytes(), true).is_some(), "{path}");
        }
        for path in ["console", "com", "com10", "auxiliary.c", "a.b", "lptx"] {
            assert_eq!(refused(path.as_bytes(), true), None, "{path}");
        }
    }
}
