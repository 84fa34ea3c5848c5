//! The cargo that runs this program, and what it compiles.

use crate::command::capture;
use crate::instance::repository;
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

pub fn program() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// A call of cargo, without what `cargo run` says of this program: build scripts that read such a variable (ring's does) would run again,
/// and nearly everything be compiled again, each time that cargo was called in another way before.
pub fn cargo() -> Command {
    let mut cargo = Command::new(program());
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_of_the_running_package(&name.to_string_lossy())) {
        cargo.env_remove(name);
    }
    cargo
}

fn is_of_the_running_package(variable: &str) -> bool {
    const NAMES: [&str; 3] = ["CARGO_BIN_NAME", "CARGO_CRATE_NAME", "CARGO_PRIMARY_PACKAGE"];
    variable.starts_with("CARGO_MANIFEST_") || variable.starts_with("CARGO_PKG_") || NAMES.contains(&variable)
}

/// Compiles what these words of cargo name, which is one program, and returns its path.
pub fn executable(words: &[&str]) -> Result<PathBuf> {
    let messages = capture(cargo().args(words).arg("--message-format=json").current_dir(repository()))?;
    let executable = |line: &str| Some(PathBuf::from(serde_json::from_str::<serde_json::Value>(line).ok()?.get("executable")?.as_str()?));
    messages.lines().find_map(executable).with_context(|| format!("`cargo {}` names no program", words.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_of_cargo_compiles_the_same_from_cargo_run_and_from_a_shell() {
        // This test has the variables of cargo: its runner gives them.
        let removed: Vec<String> =
            cargo().get_envs().filter(|(_, value)| value.is_none()).map(|(name, _)| name.to_string_lossy().into_owned()).collect();
        assert!(removed.contains(&"CARGO_MANIFEST_DIR".to_owned()), "{removed:?}");
        assert!(is_of_the_running_package("CARGO_PKG_NAME") && !is_of_the_running_package("CARGO_INCREMENTAL"));
        assert!(!is_of_the_running_package("CARGO_TARGET_DIR") && !is_of_the_running_package("CARGO_HOME"));
    }
}
