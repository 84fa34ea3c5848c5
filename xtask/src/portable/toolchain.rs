//! Debian's rustc with the sources of its standard library, unpacked.

use crate::command::{capture, command, find_program, run};
use crate::{cache, progress};
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// The oldest compiler that the workspace allows.
const RUST_VERSION: &str = env!("CARGO_PKG_RUST_VERSION");

/// The package of the compiler: Debian keeps it new enough for browsers.
const COMPILER: &str = "rustc-web";

/// rustc asks its `dlltool` for the libraries of Windows.
const MINGW: &str = "binutils-mingw-w64-x86-64";

/// Starts the compiler with its own libraries, wherever the folder is.
const RUSTC: &str = r#"#!/bin/sh
here=$(dirname "$0")
LD_LIBRARY_PATH=$(echo "$here"/usr/lib/*-linux-gnu) exec "$here/usr/bin/rustc" "$@"
"#;

/// Stands where build scripts look for the target's C compiler. There is none for macOS here, and `cargo check` links nothing, so an empty file is as good as
/// an object. Which kind of compiler it is, they hear from the machine's own.
const C_COMPILER: &str = r#"#!/bin/sh
[ "$1" = -E ] && exec cc "$@"
while [ $# -gt 1 ]; do
  [ "$1" = -o ] && : > "$2" && exit
  shift
done
exit 1
"#;

pub struct Toolchain {
    pub rustc: PathBuf,
    pub compiler: PathBuf,
    /// A folder of programs.
    pub programs: PathBuf,
    pub key: String,
    /// As rustc says it.
    pub version: String,
}

/// The unpacked toolchain. An error says what this machine lacks.
pub fn get() -> Result<Toolchain> {
    for program in ["cc", "ar"] {
        find_program(program).with_context(|| format!("no {program} on this machine"))?;
    }
    // Without the packages' version: a newer one is taken when the workspace asks for it, and until then no index of packages is needed.
    let key = cache::key([RUST_VERSION, COMPILER, MINGW, RUSTC, C_COMPILER]);
    let name = "rust-of-debian";
    let folder = match cache::path(name, &key) {
        made if made.exists() => made,
        _ => {
            let packages = packages()?;
            cache::folder(name, &key, "Unpack Debian's rustc and the sources of its standard library", |folder| make(folder, &packages))?
        }
    };
    let rustc = folder.join("rustc");
    let version = capture(&mut command(&rustc, ["--version"])).context("Debian's rustc does not start here")?;
    let version = version.trim().to_owned();
    Ok(Toolchain { compiler: folder.join("cc"), programs: folder.join("usr/bin"), rustc, key, version })
}

fn make(folder: &Path, packages: &[String]) -> Result<()> {
    let download = folder.join("packages");
    fs::create_dir(&download)?;
    run(command("apt-get", ["download", "--quiet"]).args(packages).current_dir(&download)).context("no packages from here")?;
    for package in download.read_dir()? {
        unpack(&package?.path(), folder)?;
    }
    fs::remove_dir_all(&download)?;
    for (name, script) in [("rustc", RUSTC), ("cc", C_COMPILER)] {
        fs::write(folder.join(name), script)?;
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// Without the sources of the compiler and of its tools, five sixths of all.
fn unpack(package: &Path, folder: &Path) -> Result<()> {
    let mut files = command("dpkg-deb", ["--fsys-tarfile"]);
    let mut files = files.arg(package).stdout(Stdio::piped()).spawn().context("failed to start dpkg-deb")?;
    let mut tar = command(
        "tar",
        ["--extract", "--wildcards", "--no-wildcards-match-slash", "--exclude=./usr/src/*/compiler", "--exclude=./usr/src/*/src"],
    );
    let unpacked = run(tar.arg("--directory").arg(folder).stdin(files.stdout.take().context("dpkg-deb has no output")?));
    let read = files.wait()?;
    unpacked?;
    if !read.success() {
        bail!("failed to read {} ({read})", package.display());
    }
    Ok(())
}

/// What is to be unpacked, with versions.
fn packages() -> Result<Vec<String>> {
    for program in ["apt-get", "apt-cache", "dpkg-deb"] {
        find_program(program).with_context(|| format!("Debian's packages take {program}"))?;
    }
    let package = |name: &str| Package::candidate(name).with_context(|| format!("no package {name} from here"));
    // The index may never have been fetched, or be older than what the mirror still has.
    if rustix::process::geteuid().is_root()
        && let Err(error) = run(&mut command("apt-get", ["update", "--quiet"]))
    {
        progress::note(&format!("{error:#}"));
    }
    let compiler = package(COMPILER)?;
    let minor = minor_version(&compiler.version).with_context(|| format!("{COMPILER} has the version {}", compiler.version))?;
    if minor < minor_version(RUST_VERSION).context("the workspace has no rust-version")? {
        bail!("{COMPILER} of this Debian is {}, and the workspace asks for {RUST_VERSION}", compiler.version);
    }
    let driver = format!("libstd-rust-web-1.{minor}");
    let llvm = package(&driver)?.dependency("libllvm").with_context(|| format!("{driver} depends on no libllvm"))?;
    let same_source = [COMPILER, "rust-web-src", "libstd-rust-web-dev", &driver].map(|name| format!("{name}={}", compiler.version));
    Ok(same_source.into_iter().chain([llvm, MINGW.to_owned()]).collect())
}

/// 96 of `1.96.0+dfsg1-1` and of `1.96`.
fn minor_version(version: &str) -> Option<u32> {
    version.strip_prefix("1.")?.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

struct Package {
    version: String,
    depends: String,
}

impl Package {
    fn candidate(name: &str) -> Option<Self> {
        Self::parse(&capture(&mut command("apt-cache", ["show", "--no-all-versions", name])).ok()?)
    }

    fn parse(about: &str) -> Option<Self> {
        let field = |name: &str| about.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).map(str::to_owned);
        Some(Self { version: field("Version")?, depends: field("Depends").unwrap_or_default() })
    }

    /// The first dependency whose name begins so.
    fn dependency(&self, prefix: &str) -> Option<String> {
        let mut names = self.depends.split([',', '|']).filter_map(|dependency| dependency.split_whitespace().next());
        names.find(|name| name.starts_with(prefix)).map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABOUT: &str = "Package: libstd-rust-web-1.96\nSource: rustc-web\nVersion: 1.96.0+dfsg1-1~deb12u2\nInstalled-Size: 93130\n\
        Depends: libc6 (>= 2.34), libgcc-s1 (>= 4.2), libllvm22, libstdc++6 (>= 11)\nDescription: Rust standard libraries\n";

    #[test]
    fn what_apt_says_of_a_package_is_read() {
        let package = Package::parse(ABOUT).expect("a version");
        assert_eq!(package.version, "1.96.0+dfsg1-1~deb12u2");
        assert_eq!(package.dependency("libllvm").as_deref(), Some("libllvm22"));
        assert_eq!(package.dependency("libz3"), None);
        assert!(Package::parse("N: No packages found\n").is_none());
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(minor_version("1.96.0+dfsg1-1~deb12u2"), Some(96));
        assert_eq!(minor_version("1.100.0"), Some(100));
        assert_eq!(minor_version(RUST_VERSION).map(|minor| minor > 63), Some(true));
        assert_eq!(minor_version("2:1.63"), None);
    }

    #[test]
    fn a_build_script_gets_an_object_from_the_stand_in_and_no_library_of_c() {
        let folder = tempfile::tempdir().expect("a folder");
        let script = folder.path().join("cc");
        fs::write(&script, C_COMPILER).expect("a script");
        let cc = |args: &[&str]| command("sh", [&[script.to_str().expect("a path")], args].concat()).current_dir(folder.path()).status();
        assert!(cc(&["-O2", "-c", "a.c", "-o", "a.o"]).is_ok_and(|status| status.success()));
        assert!(folder.path().join("a.o").exists());
        // What `cl` of Windows takes, and what would be a program of its own.
        assert!(cc(&["-?"]).is_ok_and(|status| !status.success()));
    }
}
