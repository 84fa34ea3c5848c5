//! Does `kubectl-yoi` compile for Windows and macOS? `cargo check` for one target of each, on Linux.
//!
//! rustup's standard libraries of other systems are in no package registry. Debian has a newer rustc together with the sources of its standard library, from
//! which cargo compiles that library for any target. These packages are unpacked into the user's cache, not installed.
//!
//! What is checked is Rust: names, types, borrows. Nothing is linked and nothing runs; C code of dependencies is not compiled, see [`toolchain::make`].

mod toolchain;

use crate::command::{capture, command, command_line, tail};
use crate::instance::repository;
use crate::{cargo, progress};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;
use toolchain::Toolchain;

/// What people run the plugin on that is not Linux.
const TARGETS: [&str; 2] = ["aarch64-apple-darwin", "x86_64-pc-windows-gnu"];

/// What this machine lacks is no fault of the code, and nobody may take it for a check that passed.
#[derive(Debug)]
pub enum Portable {
    Compiles,
    NotTried { why: String },
}

/// Checks the plugin for all of [`TARGETS`]. What does not compile is an error with the compiler's words.
pub fn check() -> Result<Portable> {
    let toolchain = match toolchain::get() {
        Ok(toolchain) => toolchain,
        Err(why) => return Ok(Portable::NotTried { why: format!("{why:#}") }),
    };
    let step = progress::start(format!("Check kubectl-yoi for {}", TARGETS.join(" and ")));
    // Not the target of anything else: this compiler is another one.
    let target = repository().join("target/portable").join(&toolchain.key);
    let output = plugin(&toolchain, &target)?.output().context("failed to start cargo")?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        bail!("kubectl-yoi does not compile for {}:\n{}", TARGETS.join(" or "), tail(&text, 80));
    }
    for name in TARGETS {
        finds_what_only_linux_has(&toolchain, &target, name)?;
    }
    step.done(toolchain.version);
    Ok(Portable::Compiles)
}

fn plugin(toolchain: &Toolchain, target: &Path) -> Result<Command> {
    let mut check = cargo::cargo();
    check.args(["check", "--quiet", "--locked", "-p", "kubectl-yoi", "-Zbuild-std=std,panic_abort"]);
    check.arg("--target-dir").arg(target).current_dir(repository());
    for name in TARGETS {
        let of_target = name.replace('-', "_");
        check.args(["--target", name]).env(format!("CC_{of_target}"), &toolchain.compiler).env(format!("AR_{of_target}"), "ar");
    }
    // A stable compiler takes `-Z` only so. That our code needs no feature gate the other builds see to.
    check.env("RUSTC", &toolchain.rustc).env("RUSTC_BOOTSTRAP", "1").env("CARGO_PROFILE_DEV_DEBUG", "false");
    for of_others in ["RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTUP_TOOLCHAIN"] {
        check.env_remove(of_others);
    }
    // Behind everything else, as only `x86_64-w64-mingw32-dlltool` is wanted of them: rustc calls it for libraries of Windows.
    let path = std::env::var_os("PATH").unwrap_or_default();
    check.env("PATH", std::env::join_paths(std::env::split_paths(&path).chain([toolchain.programs.clone()]))?);
    Ok(check)
}

/// The planted fault of this check: with the standard library that the plugin was checked against, a line that only Linux knows must be refused, and the
/// same file without it must pass.
fn finds_what_only_linux_has(toolchain: &Toolchain, target: &Path, name: &str) -> Result<()> {
    let place = tempfile::tempdir()?;
    let libraries = target.join(name).join("debug/deps");
    let compile = |source: &str| -> Result<Command> {
        let file = place.path().join("planted.rs");
        std::fs::write(&file, source)?;
        let mut rustc =
            command(&toolchain.rustc, ["--edition=2024", "--crate-type=lib", "--emit=metadata", "-Zunstable-options", "--target", name]);
        rustc.env("RUSTC_BOOTSTRAP", "1").arg(file).arg("--out-dir").arg(place.path());
        rustc.arg("-L").arg(format!("dependency={}", libraries.display()));
        for library in ["core", "alloc", "std"] {
            rustc.arg("--extern").arg(format!("{library}={}", newest(&libraries, library)?.display()));
        }
        Ok(rustc)
    };
    capture(&mut compile("pub fn size(of: &std::fs::Metadata) -> u64 { of.len() }\n")?)?;
    let mut planted = compile("pub use std::os::linux::fs::MetadataExt;\n")?;
    let output = planted.output().with_context(|| format!("failed to start {}", command_line(&planted)))?;
    let text = String::from_utf8_lossy(&output.stderr);
    if output.status.success() || !text.contains("configured out") {
        bail!("a line that only Linux knows was not refused for {name}, so the check finds nothing:\n{}", tail(&text, 20));
    }
    Ok(())
}

/// The library that the last check used: a former one of other settings may lie beside it.
fn newest(folder: &Path, library: &str) -> Result<PathBuf> {
    let prefix = format!("lib{library}-");
    let mut found: Vec<(SystemTime, PathBuf)> = vec![];
    for entry in folder.read_dir().with_context(|| format!("failed to read {}", folder.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(&prefix) && name.ends_with(".rmeta") {
            found.push((entry.metadata()?.modified()?, entry.path()));
        }
    }
    found.into_iter().max().map(|(_, path)| path).with_context(|| format!("cargo left no {library} in {}", folder.display()))
}
