//! Images for clusters that pull: pushed by crane, which also knows the user's credentials.

use super::{Built, References};
use crate::command::{capture, command, run};
use crate::{build, progress};
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::fs::{self, File};

/// Where a cluster pulls from.
pub struct Registry {
    /// Host and path before an image's short name, such as `registry.example/team/yoi`.
    pub prefix: String,
    pub plain_http: bool,
}

/// Pushes what the registry does not hold yet; gives every image's reference there.
pub fn push(built: &Built, registry: &Registry) -> Result<References> {
    built.complete()?;
    let crane = build::tools()?.join("crane");
    let say_crane = |words: &[OsString]| {
        let mut crane = command(&crane, words);
        if registry.plain_http {
            crane.arg("--insecure");
        }
        crane
    };
    let prefix = registry.prefix.trim_end_matches('/');
    let step = progress::start(format!("Push {} images to {prefix}", built.archives.len()));
    let (mut references, mut pushed) = (References::new(), 0);
    for archive in &built.archives {
        let reference = format!("{prefix}/{}:{}", archive.name, archive.tag());
        step.progress(&archive.name);
        let held = capture(&mut say_crane(&["digest".into(), reference.clone().into()]));
        if !held.is_ok_and(|digest| digest.trim() == archive.digest) {
            let layout = tempfile::tempdir()?;
            tar::Archive::new(File::open(&archive.file)?).unpack(layout.path())?;
            // The archive names its one manifest twice, for containerd; crane wants to be told of one.
            let index = layout.path().join("index.json");
            let mut listed: serde_json::Value = serde_json::from_slice(&fs::read(&index)?)?;
            listed["manifests"].as_array_mut().context("failed to read an image's index")?.truncate(1);
            fs::write(&index, serde_json::to_vec(&listed)?)?;
            run(&mut say_crane(&["push".into(), layout.path().into(), reference.clone().into()])).with_context(|| {
                format!("failed to push {reference}; `docker login` or `crane auth login` where a password is asked for")
            })?;
            pushed += 1;
        }
        references.insert(archive.name.clone(), reference);
    }
    step.done(format!("{pushed} were new there"));
    Ok(references)
}
