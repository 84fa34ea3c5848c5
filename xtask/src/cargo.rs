//! The cargo that runs this program, and what it compiles.

use crate::command::{capture, command};
use crate::instance::repository;
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::path::PathBuf;

pub fn program() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Compiles what these words of cargo name, which is one program, and returns its path.
pub fn executable(words: &[&str]) -> Result<PathBuf> {
    let mut cargo = command(PathBuf::from(program()), words);
    let messages = capture(cargo.arg("--message-format=json").current_dir(repository()))?;
    let executable = |line: &str| Some(PathBuf::from(serde_json::from_str::<serde_json::Value>(line).ok()?.get("executable")?.as_str()?));
    messages.lines().find_map(executable).with_context(|| format!("`cargo {}` names no program", words.join(" ")))
}
