//! What keeps git, run in a tree, from starting programs that files of the tree name.
//!
//! # Guarantees
//! With [`ENV`], [`ARGS`] and [`without_filters`], git runs no file system monitor, hook, filter, signature check, editor or maintenance, and fetches
//! nothing: not from a remote either whose transport is a program. Who shows submodules adds `--ignore-submodules=dirty` and `--submodule=short` where the
//! command has them, so that git starts no other git in a submodule, which would obey that submodule's configuration.
//!
//! # Assumptions
//! git 2.31 or later. While a process of the agent runs, it can write a filter between [`without_filters`] and the command; both are in the frame then.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use crate::processes::ProcessSupervisor;

/// Variables of each git. It asks for nothing, and fetches nothing that a partial clone lacks: the second variable is of git 2.44, and a list of transports
/// that holds none that exists does the same in all versions.
pub const ENV: [(&str, &str); 3] = [("GIT_TERMINAL_PROMPT", "0"), ("GIT_NO_LAZY_FETCH", "1"), ("GIT_ALLOW_PROTOCOL", "none")];
/// Arguments of each git, before the command.
pub const ARGS: [&str; 16] = [
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "safe.directory=*",
    "-c",
    "submodule.recurse=false",
    "-c",
    "status.submoduleSummary=false",
    "-c",
    "log.showSignature=false",
    "-c",
    "maintenance.auto=false",
    "-c",
    "gc.auto=0",
];
/// Bytes of all names of filters.
const MAX_NAMES_BYTES: usize = 64 << 10;
const FILTERS: &str = r"^filter\..*\.(clean|smudge|process|required)$";

/// Variables that switch off each filter of the repository in the root of the tree, or in the folder `at` of it. Files are then compared as they are.
///
/// # Errors
/// git cannot be run, takes longer than `timeout`, or does not understand the configuration; or there are too many filters.
pub async fn without_filters(
    processes: &ProcessSupervisor,
    at: &str,
    env: &[(&str, &OsStr)],
    timeout: Duration,
) -> io::Result<Vec<(String, OsString)>> {
    let args =
        [&["-C", if at.is_empty() { "." } else { at }][..], &ARGS, &["config", "--name-only", "-z", "--get-regexp", FILTERS]].concat();
    let output = processes.capture("git", &args, env, timeout, MAX_NAMES_BYTES).await?;
    // No such setting is code 1.
    if !output.success && output.exit_code != Some(1) {
        return Err(io::Error::other(format!("git config failed: {}", output.stderr.trim())));
    }
    if output.truncated {
        return Err(io::Error::other(format!("the names of the repository's filters take more than {} KiB", MAX_NAMES_BYTES >> 10)));
    }
    Ok(overrides(&output.stdout))
}

/// `names`: such as `filter.NAME.clean`, each ended by a zero byte. NAME may hold any other byte.
fn overrides(names: &[u8]) -> Vec<(String, OsString)> {
    let filters: BTreeSet<&[u8]> =
        names.split(|byte| *byte == 0).filter_map(|name| Some(&name[..name.iter().rposition(|byte| *byte == b'.')?])).collect();
    let settings = filters.iter().flat_map(|filter| {
        let of = |setting: &str| OsString::from_vec([*filter, b".", setting.as_bytes()].concat());
        [(of("clean"), ""), (of("smudge"), ""), (of("process"), ""), (of("required"), "false")]
    });
    let mut env = Vec::new();
    for (number, (name, value)) in settings.enumerate() {
        env.push((format!("GIT_CONFIG_KEY_{number}"), name));
        env.push((format!("GIT_CONFIG_VALUE_{number}"), value.into()));
    }
    let count = env.len() / 2;
    env.push(("GIT_CONFIG_COUNT".to_owned(), count.to_string().into()));
    env
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_filter_is_switched_off_whatever_its_name_holds() {
        let env = overrides(b"filter.a.clean\0filter.a.required\0filter.b=\n.c\xff.process\0");
        let value = |name: &str| env.iter().find(|(given, _)| given == name).map(|(_, value)| value.clone());
        assert_eq!(value("GIT_CONFIG_COUNT").unwrap(), "8");
        assert_eq!(value("GIT_CONFIG_KEY_0").unwrap(), "filter.a.clean");
        assert_eq!(value("GIT_CONFIG_KEY_6").unwrap(), OsString::from_vec(b"filter.b=\n.c\xff.process".to_vec()));
        assert_eq!((value("GIT_CONFIG_VALUE_6").unwrap(), value("GIT_CONFIG_VALUE_7").unwrap()), ("".into(), "false".into()));
        assert_eq!(overrides(b""), [("GIT_CONFIG_COUNT".to_owned(), "0".into())]);
    }
}
