//! An image as an OCI layout in a tar: the same inputs give the same bytes, so its digest can be its tag.

use super::archive_folder;
use crate::tree::ImageTree;
use anyhow::{Context, Result};
use oci_spec::image::{
    Arch, ConfigBuilder, Descriptor, DescriptorBuilder, Digest as OciDigest, ImageConfiguration, ImageConfigurationBuilder,
    ImageIndexBuilder, ImageManifestBuilder, MediaType, OciLayoutBuilder, Os, RootFsBuilder,
};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::path::PathBuf;
use std::time::SystemTime;
use yoi_host::images::Archive;

pub struct Image {
    name: String,
    layers: Vec<Layer>,
    user: String,
    entrypoint: Vec<String>,
    command: Vec<String>,
    home: Option<String>,
}

/// An uncompressed tar.
enum Layer {
    Memory(Vec<u8>),
    File(PathBuf),
}

impl Image {
    pub fn of_tree(name: &str, tree: ImageTree, user: &str, program: &str) -> Result<Self> {
        let (layers, entrypoint) = (vec![Layer::Memory(tree.tar()?)], vec![program.to_owned()]);
        Ok(Self { name: name.to_owned(), layers, user: user.to_owned(), entrypoint, command: vec![], home: None })
    }

    pub fn of_tar(name: &str, tar: PathBuf, user: &str, shell: &str, home: &str) -> Self {
        let (name, user, command) = (name.to_owned(), user.to_owned(), vec![shell.to_owned()]);
        Self { name, layers: vec![Layer::File(tar)], user, entrypoint: vec![], command, home: Some(home.to_owned()) }
    }

    /// One more layer on top.
    pub fn with(mut self, tree: &ImageTree) -> Result<Self> {
        self.layers.push(Layer::Memory(tree.tar()?));
        Ok(self)
    }

    /// One more layer on top, of an uncompressed tar.
    pub fn with_tar(mut self, tar: PathBuf) -> Self {
        self.layers.push(Layer::File(tar));
        self
    }

    /// The program is only what runs when a container names nothing else.
    pub fn arguments_only(&mut self) {
        self.command = std::mem::take(&mut self.entrypoint);
    }
}

pub fn write(image: &Image) -> Result<Archive> {
    let layers: Vec<(String, u64)> = image.layers.iter().map(Layer::digest).collect::<Result<_>>()?;
    let config = serde_json::to_vec(&configuration(image, &layers)?)?;
    let config_digest = hex::encode(Sha256::digest(&config));
    let manifest = ImageManifestBuilder::default()
        .schema_version(2u32)
        .media_type(MediaType::ImageManifest)
        .config(descriptor(MediaType::ImageConfig, config.len() as u64, &config_digest)?)
        .layers(layers.iter().map(|(digest, size)| descriptor(MediaType::ImageLayer, *size, digest)).collect::<Result<Vec<_>>>()?)
        .build()?;
    let manifest = serde_json::to_vec(&manifest)?;
    let manifest_digest = hex::encode(Sha256::digest(&manifest));
    let mut archive = Archive { name: image.name.clone(), digest: format!("sha256:{manifest_digest}"), file: PathBuf::new() };
    archive.file = archive_folder().join(format!("{}-{}.tar", image.name, archive.tag()));
    if archive.file.exists() {
        // It counts as built now: what was built before it goes first.
        File::open(&archive.file)?.set_modified(SystemTime::now())?;
        return Ok(archive);
    }

    let mut named = vec![];
    for reference in [archive.reference(), archive.dev_reference()] {
        let mut one = descriptor(MediaType::ImageManifest, manifest.len() as u64, &manifest_digest)?;
        one.set_annotations(Some(HashMap::from([("io.containerd.image.name".to_owned(), reference)])));
        named.push(one);
    }
    let index = ImageIndexBuilder::default().schema_version(2u32).media_type(MediaType::ImageIndex).manifests(named).build()?;
    let layout = OciLayoutBuilder::default().image_layout_version("1.0.0").build()?;

    fs::create_dir_all(archive_folder())?;
    let mut fresh = tempfile::NamedTempFile::new_in(archive_folder())?;
    let mut tar = tar::Builder::new(&mut fresh);
    let (layout, index) = (serde_json::to_vec(&layout)?, serde_json::to_vec(&index)?);
    let (manifest_blob, config_blob) = (blob(&manifest_digest), blob(&config_digest));
    for (path, bytes) in [("oci-layout", &layout), ("index.json", &index), (&manifest_blob, &manifest), (&config_blob, &config)] {
        append(&mut tar, path, bytes.as_slice(), bytes.len() as u64)?;
    }
    for (layer, (digest, size)) in image.layers.iter().zip(&layers) {
        match layer {
            Layer::Memory(bytes) => append(&mut tar, &blob(digest), bytes.as_slice(), *size)?,
            Layer::File(path) => append(&mut tar, &blob(digest), File::open(path)?, *size)?,
        }
    }
    tar.finish()?;
    drop(tar);
    forget_older(&image.name)?;
    fresh.persist(&archive.file).with_context(|| format!("failed to write {}", archive.file.display()))?;
    Ok(archive)
}

/// Archives grow with every build otherwise. The one before the last stays: a run of all tests builds Yoi twice, and its last cluster takes the first build.
fn forget_older(name: &str) -> Result<()> {
    let mut earlier = vec![];
    for entry in fs::read_dir(archive_folder())? {
        let path = entry?.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if stem.rsplit_once('-').is_some_and(|(image, tag)| image == name && tag.len() == 12) {
            earlier.push((fs::metadata(&path)?.modified()?, path));
        }
    }
    earlier.sort();
    for (_, path) in earlier.iter().rev().skip(1) {
        fs::remove_file(path)?;
    }
    Ok(())
}

fn configuration(image: &Image, layers: &[(String, u64)]) -> Result<ImageConfiguration> {
    let mut env = vec!["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned()];
    env.extend(image.home.iter().map(|home| format!("HOME={home}")));
    let mut config =
        ConfigBuilder::default().user(image.user.clone()).env(env).working_dir(image.home.clone().unwrap_or_else(|| "/".into()));
    if !image.entrypoint.is_empty() {
        config = config.entrypoint(image.entrypoint.clone());
    }
    if !image.command.is_empty() {
        config = config.cmd(image.command.clone());
    }
    let root = RootFsBuilder::default()
        .typ("layers")
        .diff_ids(layers.iter().map(|(digest, _)| format!("sha256:{digest}")).collect::<Vec<_>>())
        .build()?;
    let configuration =
        ImageConfigurationBuilder::default().architecture(Arch::default()).os(Os::Linux).config(config.build()?).rootfs(root);
    configuration.history(vec![]).build().context("failed to describe an image")
}

fn descriptor(kind: MediaType, size: u64, digest: &str) -> Result<Descriptor> {
    let digest: OciDigest = format!("sha256:{digest}").parse()?;
    Ok(DescriptorBuilder::default().media_type(kind).size(size).digest(digest).build()?)
}

fn blob(digest: &str) -> String {
    format!("blobs/sha256/{digest}")
}

fn append(tar: &mut tar::Builder<impl std::io::Write>, path: &str, from: impl Read, size: u64) -> Result<()> {
    let mut header = tar::Header::new_ustar();
    header.set_mode(0o644);
    header.set_mtime(0);
    header.set_size(size);
    Ok(tar.append_data(&mut header, path, from)?)
}

impl Layer {
    /// And the size.
    fn digest(&self) -> Result<(String, u64)> {
        match self {
            Layer::Memory(bytes) => Ok((hex::encode(Sha256::digest(bytes)), bytes.len() as u64)),
            Layer::File(path) => digest_of_file(path),
        }
    }
}

fn digest_of_file(path: &PathBuf) -> Result<(String, u64)> {
    let mut file = File::open(path).with_context(|| format!("failed to read {}", path.display()))?;
    let mut hash = Sha256::new();
    std::io::copy(&mut file, &mut hash)?;
    Ok((hex::encode(hash.finalize()), file.stream_position()?))
}
