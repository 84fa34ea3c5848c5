//! One file with all that a machine gets to become a node: programs, images and charts. The same inputs give the same bytes.

use crate::images::{self, Archive, Built, Profile};
use crate::instance::{cache, repository};
use crate::{build, packages, progress};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use yoi_host::bundle::{BundledFile, CLUSTER, CONTENTS, Contents, Head, PROGRAM, digest, files_below, image_path};

/// The images of a clone alone: they are for its example, and nobody else has that.
const OF_THE_EXAMPLE: &[&str] = &["example-git", "git-server"];
const CHARTS: &[&str] = &["charts/yoi-crds", "charts/yoi-operator"];

pub fn run(profile: Profile, out: Option<PathBuf>) -> Result<()> {
    let built = images::build_all_as(profile)?;
    let out = write(&built, profile, out)?;
    println!("\nFor a machine that you reach by SSH:\n  kubectl yoi host up USER@HOST --bundle {}", out.display());
    Ok(())
}

/// Writes the bundle of what was built, and returns its path.
pub fn write(built: &Built, profile: Profile, out: Option<PathBuf>) -> Result<PathBuf> {
    packages::for_bundle()?;
    built.complete()?;
    let (version, machine) = (env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    let out = out.unwrap_or_else(|| cache().join("bundle").join(format!("yoi-{version}-{machine}.tar.zst")));
    let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder).with_context(|| format!("failed to make {}", folder.display()))?;
    let step = progress::start("Make the bundle");
    let inputs = inputs(built)?;
    let files: BTreeMap<String, BundledFile> =
        inputs.iter().map(|(path, from)| Ok((path.clone(), digest(from)?))).collect::<Result<_>>()?;
    let contents = Contents {
        version: version.to_owned(),
        machine: machine.to_owned(),
        images: archives(built).map(|archive| (archive.name.clone(), archive.digest.clone())).collect(),
        files,
    };
    step.progress("compress");
    let compressed = tempfile::NamedTempFile::new_in(folder)?;
    compress(&contents, &inputs, profile, compressed.path())?;
    let BundledFile { bytes, sha256 } = digest(compressed.path())?;
    let head = Head { version: contents.version, machine: contents.machine, bytes, sha256: sha256.clone() };
    let mut fresh = tempfile::NamedTempFile::new_in(folder)?;
    fresh.write_all(&head.frame()?)?;
    std::io::copy(&mut File::open(compressed.path())?, &mut fresh)?;
    fs::set_permissions(fresh.path(), std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
    fresh.persist(&out).with_context(|| format!("failed to write {}", out.display()))?;
    step.done(format!("{}, {} MiB, sha256 {sha256}", out.display(), bytes >> 20));
    Ok(out)
}

/// The images that a bundle has.
fn archives(built: &Built) -> impl Iterator<Item = &Archive> {
    built.archives.iter().filter(|archive| !OF_THE_EXAMPLE.contains(&archive.name.as_str()))
}

/// Where each file of the bundle comes from.
fn inputs(built: &Built) -> Result<BTreeMap<String, PathBuf>> {
    let programs = build::programs()?;
    let host = built.programs.get("yoi-host").context("yoi-host was not built")?;
    let mut inputs = BTreeMap::from([
        (PROGRAM.to_owned(), host.clone()),
        (CLUSTER.to_owned(), programs.kubernetes.join("yoi-cluster")),
        ("bin/netpol".to_owned(), programs.netpol),
        ("bin/helm".to_owned(), programs.helm),
    ]);
    for archive in archives(built) {
        inputs.insert(image_path(&archive.name), archive.file.clone());
    }
    for chart in CHARTS {
        let folder = repository().join(chart);
        for file in files_below(&folder)? {
            inputs.insert(format!("{chart}/{file}"), folder.join(file));
        }
    }
    Ok(inputs)
}

/// The list first, so that it can be read without the rest.
fn compress(contents: &Contents, inputs: &BTreeMap<String, PathBuf>, profile: Profile, to: &Path) -> Result<()> {
    // With threads the frame is the same for any number of them.
    let level = if profile == Profile::Release { "-12" } else { "-1" };
    let mut zstd = Command::new("zstd");
    zstd.args(["--quiet", "--force", "--threads=2", level, "-o"]).arg(to).stdin(Stdio::piped());
    let mut zstd = zstd.spawn().context("failed to start zstd")?;
    let written = zstd.stdin.take().context("zstd has an input").and_then(|input| tar(contents, inputs, input));
    let status = zstd.wait()?;
    // An end of zstd is why nothing could be written.
    if !status.success() {
        bail!("failed to compress the bundle: zstd ended with {status}");
    }
    written
}

fn tar(contents: &Contents, inputs: &BTreeMap<String, PathBuf>, to: impl Write) -> Result<()> {
    let mut tar = tar::Builder::new(BufWriter::new(to));
    let header = |bytes: u64, mode: u32| {
        let mut header = tar::Header::new_gnu();
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(bytes);
        header.set_mode(mode);
        header
    };
    let list = serde_json::to_vec_pretty(contents)?;
    tar.append_data(&mut header(list.len() as u64, 0o644), CONTENTS, list.as_slice())?;
    for (path, from) in inputs {
        let mode = if path.starts_with("bin/") { 0o755 } else { 0o644 };
        let bytes = contents.files[path].bytes;
        let file = File::open(from).with_context(|| format!("failed to open {}", from.display()))?;
        tar.append_data(&mut header(bytes, mode), path, file)?;
    }
    tar.into_inner()?.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_inputs_give_the_same_bytes_and_readers_skip_the_head() {
        let folder = tempfile::tempdir().unwrap();
        let from = folder.path().join("program");
        fs::write(&from, "x".repeat(100_000)).unwrap();
        let inputs = BTreeMap::from([("bin/b".to_owned(), from.clone()), ("a".to_owned(), from.clone())]);
        let files = inputs.iter().map(|(path, from)| (path.clone(), digest(from).unwrap())).collect();
        let contents = Contents { version: "1".into(), machine: "m".into(), images: BTreeMap::new(), files };
        let made = |name: &str| {
            let to = folder.path().join(name);
            compress(&contents, &inputs, Profile::Dev, &to).unwrap();
            fs::read(to).unwrap()
        };
        let compressed = made("one");
        fs::File::open(&from).unwrap().set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(compressed, made("two"));
        let head = Head { version: "1".into(), machine: "m".into(), bytes: compressed.len() as u64, sha256: String::new() };
        let whole = folder.path().join("whole");
        fs::write(&whole, [head.frame().unwrap(), compressed].concat()).unwrap();
        let listed = crate::command::capture(crate::command::command("tar", ["--zstd", "-tf"]).arg(&whole)).unwrap();
        assert_eq!(listed.lines().collect::<Vec<_>>(), ["bundle.json", "a", "bin/b"]);
    }
}
