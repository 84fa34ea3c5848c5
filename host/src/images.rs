//! Images on the way into a cluster: archives that are made already, kept with the instance, and imported into each node that lacks them.

use crate::command::{capture, command, run};
use crate::instance::{Instance, Node};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

pub const PAUSE: &str = "yoi.dev/pause:dev";
pub const COREDNS: &str = "yoi.dev/coredns:dev";
pub const LOCAL_PATH: &str = "yoi.dev/local-path-provisioner:dev";
pub const BUSYBOX: &str = "yoi.dev/busybox:dev";

/// Every reference by the image's short name, as in `images.json`.
pub type References = BTreeMap<String, String>;

/// A written image.
pub struct Archive {
    pub name: String,
    /// Of the manifest, with `sha256:`.
    pub digest: String,
    pub file: PathBuf,
}

impl Archive {
    pub fn repository(&self) -> String {
        repository_of(&self.name)
    }

    pub fn tag(&self) -> &str {
        &self.digest["sha256:".len()..][..12]
    }

    pub fn reference(&self) -> String {
        format!("{}:{}", self.repository(), self.tag())
    }

    pub fn dev_reference(&self) -> String {
        format!("{}:dev", self.repository())
    }
}

/// Keeps the archives with the instance, one of each name: what a node lacks later is imported from there, when a newer build has taken
/// their place in the cache.
pub fn keep(instance: Instance, archives: &[Archive]) -> Result<()> {
    let folder = kept(instance);
    fs::create_dir_all(&folder)?;
    for archive in archives {
        let own = folder.join(&archive.name);
        fs::create_dir_all(&own)?;
        let file = own.join(format!("{}.tar", archive.tag()));
        for entry in fs::read_dir(&own)? {
            let other = entry?.path();
            if other != file {
                fs::remove_file(other)?;
            }
        }
        // A link takes no room; the cache may be on another file system.
        if !file.exists() && fs::hard_link(&archive.file, &file).is_err() {
            let fresh = file.with_extension("new");
            fs::copy(&archive.file, &fresh).with_context(|| format!("failed to copy {}", archive.file.display()))?;
            fs::rename(fresh, &file)?;
        }
    }
    Ok(())
}

fn kept(instance: Instance) -> PathBuf {
    instance.state().join("images")
}

/// Imports what the instance keeps and the node's containerd does not hold. Returns the names of these images. `on_import` gets a line before each
/// import, which takes seconds.
pub fn import(node: Node, on_import: impl Fn(&str)) -> Result<Vec<String>> {
    let ctr = |args: &[&str]| {
        let mut ctr = command("ctr", ["--address", &node.containerd_socket(), "--namespace", "k8s.io", "images"]);
        ctr.args(args);
        ctr
    };
    let held = capture(&mut ctr(&["list"]))?;
    let mut imported = vec![];
    for entry in fs::read_dir(kept(node.instance))? {
        let folder = entry?.path();
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for entry in fs::read_dir(&folder)? {
            let file = entry?.path();
            let tag = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if !["dev", &tag].iter().all(|reference| holds(&held, &format!("{}:{reference}", repository_of(&name)), &tag)) {
                on_import(&format!("{node}: {name}"));
                run(ctr(&["import"]).arg(&file)).with_context(|| format!("failed to import {name} into {node}"))?;
                imported.push(name.clone());
            }
        }
    }
    Ok(imported)
}

/// Whether the output of `ctr images list` has this reference with the digest that the tag begins.
fn holds(listed: &str, reference: &str, tag: &str) -> bool {
    let digest = format!("sha256:{tag}");
    listed.lines().any(|line| line.split_whitespace().next() == Some(reference) && line.contains(&digest))
}

/// The name of an image without its tag.
fn repository_of(name: &str) -> String {
    format!("yoi.dev/{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_held_when_its_reference_has_its_content() {
        let listed = "REF TYPE DIGEST SIZE\nyoi.dev/agent:dev application/vnd.oci sha256:aaaaaaaaaaaa0000 1 MiB\n";
        assert!(holds(listed, "yoi.dev/agent:dev", "aaaaaaaaaaaa"));
        assert!(!holds(listed, "yoi.dev/agent:dev", "bbbbbbbbbbbb"), "an older build");
        assert!(!holds(listed, "yoi.dev/agent:aaaaaaaaaaaa", "aaaaaaaaaaaa"), "the tag was removed");
    }
}
