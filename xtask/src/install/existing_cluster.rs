//! Installs into the cluster of a kubeconfig context. kind loads images from this machine, other clusters pull them.

use super::{InstallTarget, charts, fleet, try_next};
use crate::cluster::Kubectl;
use crate::command::{command, run};
use crate::images::{self, Built, Profile, References, Registry};
use crate::{build, packages, progress};
use anyhow::{Result, bail};

pub struct ExistingCluster {
    pub context: String,
    pub registry: Option<Registry>,
    /// Absent: optimized where the images are pulled, because that cluster is more than a trial.
    pub profile: Option<Profile>,
    /// Values of the chart yoi-operator, as `helm --set` takes them.
    pub settings: Vec<String>,
}

/// How images get to the nodes.
enum ImageDelivery {
    Pull(Registry),
    Load(String),
}

pub fn existing(cluster: ExistingCluster) -> Result<()> {
    let ExistingCluster { context, registry, profile, mut settings } = cluster;
    let profile = profile.unwrap_or(if registry.is_some() { Profile::Release } else { Profile::Dev });
    let delivery = match (registry, context.strip_prefix("kind-")) {
        (Some(registry), _) => ImageDelivery::Pull(registry),
        (None, Some(cluster)) => ImageDelivery::Load(cluster.to_owned()),
        (None, None) => bail!(
            "the cluster of {context} has to pull the images: name a registry that it can reach, and that you may push to, by \
             `cargo xtask up --context {context} --registry HOST/PATH`"
        ),
    };
    let kubectl = Kubectl::of_context(&build::kubernetes()?, &context);
    // Before minutes of building: does that cluster answer, and as whom?
    kubectl.run(["auth", "can-i", "create", "customresourcedefinitions"])?;
    packages::for_images()?;
    let built = images::build_all_as(profile)?;
    built.complete()?;
    // The examples name images by `yoi.dev/NAME:dev`, which kind gets under just that name.
    let (chart, examples) = match delivery {
        ImageDelivery::Pull(registry) => {
            let references = images::push(&built, &registry)?;
            (references.clone(), references)
        }
        ImageDelivery::Load(cluster) => {
            load(&cluster, &built)?;
            // A kind node's own file system is no Btrfs.
            settings.insert(0, "shim.loopBtrfs.enabled=true".into());
            (built.references(), References::new())
        }
    };
    let target = InstallTarget { context: Some(context.clone()), kubeconfig: None, kubectl, settings };
    charts(&target, &chart)?;
    let plugin = built.plugin()?;
    fleet::start(&target.kubectl, &examples, plugin)?;
    println!("\nYoi runs in {context}.");
    println!("The plugin for your PATH: {}", plugin.display());
    try_next(Some(&context));
    Ok(())
}

fn load(cluster: &str, built: &Built) -> Result<()> {
    let kind = build::tools()?.join("kind");
    let step = progress::start(format!("Load {} images into kind", built.archives.len()));
    for archive in &built.archives {
        step.progress(&archive.name);
        run(command(&kind, ["load", "image-archive", "--name", cluster]).arg(&archive.file))?;
    }
    step.done("");
    Ok(())
}
