//! The machines that a person has named, in a file of theirs. It holds no key and no password.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::connection::KnownNode;
use crate::args::{HostsFile, SshTarget};
use crate::error::{Error, RefusalKind};

/// Bytes of the longest file that is read.
const MAX_FILE: u64 = 1 << 20;

/// A machine, and what it was found to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KnownHost {
    /// As ssh names it.
    pub host: String,
    pub system: String,
    /// When somebody looked last.
    pub looked_at: String,
    /// What it lacked then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<KnownNode>,
}

impl KnownHost {
    pub fn target(&self) -> Result<SshTarget, Error> {
        self.host.parse().map_err(|form| refused(format!("`{}` is no machine: {form}", crate::show::one_line(&self.host))))
    }
}

fn refused(message: String) -> Error {
    Error::refused_error("read the list of machines", message, "mend it, or delete it", RefusalKind::Other)
}

pub fn path(file: &HostsFile) -> Result<PathBuf, Error> {
    file.path().ok_or_else(|| Error::Usage {
        message: "nobody says which folder is yours, so no machine can be remembered".to_owned(),
        next: "name a file: --hosts FILE".to_owned(),
    })
}

/// All of them by name; none where nothing was remembered.
pub fn read(file: &HostsFile) -> Result<BTreeMap<String, KnownHost>, Error> {
    let path = path(file)?;
    let failed = |why: String| refused(format!("{}: {why}", path.display()));
    match std::fs::metadata(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(failed(error.to_string())),
        Ok(metadata) if metadata.len() > MAX_FILE => return Err(failed("it is too long".to_owned())),
        Ok(_) => {}
    }
    let text = std::fs::read(&path).map_err(|error| failed(error.to_string()))?;
    serde_json::from_slice(&text).map_err(|error| failed(error.to_string()))
}

/// Writes it whole, or not at all.
pub fn write(file: &HostsFile, hosts: &BTreeMap<String, KnownHost>) -> Result<(), Error> {
    let path = path(file)?;
    let failed = |error| Error::local(format!("write {}", path.display()), error, "look at the folder's owner and room, and say it again");
    let text = crate::show::document(crate::args::OutputFormat::Json, hosts)?;
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let new = path.with_extension(format!("json.{}", std::process::id()));
    std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &path)).map_err(failed)
}
