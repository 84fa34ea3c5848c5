//! The presets of programs: YAML files in a folder, one a program, read once at the start. The chart mounts them; a changed file is another Pod.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use yoi_wire::preset::{Preset, PresetError};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to list the folder of presets {}", .0.display())]
    List(PathBuf, #[source] std::io::Error),
    #[error("failed to read preset {}", .0.display())]
    Read(PathBuf, #[source] std::io::Error),
    #[error("failed to understand preset {}: {source}", path.display())]
    Parse { path: PathBuf, source: serde_yaml::Error },
    #[error("failed to use preset {}: {source}", path.display())]
    Invalid { path: PathBuf, source: PresetError },
    #[error("failed to use preset {}: its name is {name}, and its file must be called {name}.yaml", path.display())]
    Name { path: PathBuf, name: String },
}

/// Reads every file `NAME.yaml` of the folder. Other files are left alone, as are names that begin with a dot: a mounted ConfigMap has such folders.
///
/// # Errors
/// Names the file, and what is wrong with it.
pub fn read(folder: &Path) -> Result<BTreeMap<String, Preset>, Error> {
    let list = |source| Error::List(folder.to_owned(), source);
    let mut presets = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(list)? {
        let path = entry.map_err(list)?.path();
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(stem) = file.strip_suffix(".yaml").filter(|stem| !stem.starts_with('.')) else { continue };
        let text = fs::read_to_string(&path).map_err(|source| Error::Read(path.clone(), source))?;
        let preset: Preset = serde_yaml::from_str(&text).map_err(|source| Error::Parse { path: path.clone(), source })?;
        preset.check().map_err(|source| Error::Invalid { path: path.clone(), source })?;
        if preset.name != stem {
            return Err(Error::Name { path, name: preset.name });
        }
        presets.insert(preset.name.clone(), preset);
    }
    Ok(presets)
}
