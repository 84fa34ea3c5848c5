//! Folders of the node that trees may be made from, as the administrator lists them. The shim asks for one by its name, and only the mounter,
//! which has the same list, knows a path.

use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use yoi_workspace::{Error, HostFolder, SysError};

/// The name of a folder: a DNS label of at most 50 characters. It is no path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostSourceName(String);

/// The text is no name of a folder.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("failed to accept the name of a host source: it is no DNS label of at most 50 characters")]
pub struct ParseHostSourceNameError;

impl HostSourceName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for HostSourceName {
    type Error = ParseHostSourceNameError;
    fn try_from(text: String) -> Result<Self, ParseHostSourceNameError> {
        let plain = text.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_lowercase() || b == b'-');
        let is_label = plain && (1..=50).contains(&text.len()) && !text.starts_with('-') && !text.ends_with('-');
        if is_label { Ok(HostSourceName(text)) } else { Err(ParseHostSourceNameError) }
    }
}

impl From<HostSourceName> for String {
    fn from(name: HostSourceName) -> String {
        name.0
    }
}

/// One entry of the administrator's list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSource {
    /// What objects call it.
    pub name: HostSourceName,
    /// The folder on the node: an absolute path of at least two plain names.
    pub path: PathBuf,
    /// The namespaces whose objects may name it; `*` for all.
    pub namespaces: Vec<String>,
}

impl HostSource {
    /// Whether objects of this namespace may name it.
    pub fn is_for(&self, namespace: &str) -> bool {
        self.namespaces.iter().any(|allowed| allowed == "*" || allowed == namespace)
    }
}

/// Reads the list as JSON. A name stands once, and each path is absolute, without dots, and below another folder.
pub fn parse(text: &str) -> Result<HostSources, String> {
    let list: Vec<HostSource> = serde_json::from_str(text).map_err(|e| e.to_string())?;
    for (n, HostSource { name, path, .. }) in list.iter().enumerate() {
        if list[..n].iter().any(|other| other.name == *name) {
            return Err(format!("{} stands twice", name.as_str()));
        }
        let mut parts = path.components();
        let is_plain = parts.next() == Some(Component::RootDir) && parts.clone().all(|c| matches!(c, Component::Normal(_)));
        if !is_plain || parts.count() < 2 {
            return Err(format!("{}: {path:?} is no absolute path of two or more plain names", name.as_str()));
        }
    }
    Ok(HostSources(list))
}

/// The administrator's list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostSources(pub Vec<HostSource>);

impl HostSources {
    /// The name of the folder for an object of this namespace. None for one that is not listed, or not for this namespace: nobody learns which.
    pub fn for_namespace(&self, name: &str, namespace: &str) -> Option<&HostSourceName> {
        self.0.iter().find(|source| source.name.as_str() == name && source.is_for(namespace)).map(|source| &source.name)
    }

    /// Opens a folder. `root` holds, under each name, the folder that contains it: so a folder that was made anew is found, and a link in its place
    /// is not followed.
    pub fn open(&self, name: &HostSourceName, root: &Path) -> Result<HostFolder, Error> {
        let lost =
            |path: &Path, source| Error::SourceVanished { path: path.to_owned(), source: SysError { step: "open the folder", source } };
        let Some(HostSource { path, .. }) = self.0.iter().find(|source| source.name == *name) else {
            return Err(lost(Path::new(name.as_str()), std::io::ErrorKind::NotFound.into()));
        };
        let parent = std::fs::File::open(root.join(name.as_str())).map_err(|e| lost(path, e))?;
        HostFolder::open(&parent, Path::new(path.file_name().unwrap_or_default()), path)
    }

    /// The names of the folders that are there.
    pub fn available(&self, root: &Path) -> Vec<HostSourceName> {
        let names = self.0.iter().map(|source| &source.name);
        names.filter(|name| self.open(name, root).is_ok()).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_whole_or_refused_with_the_reason() {
        let list = parse(r#"[{"name":"clone","path":"/home/me/yoi","namespaces":["team","*"]}]"#).unwrap();
        assert!(list.for_namespace("clone", "any").is_some() && list.for_namespace("other", "any").is_none());
        let entry = |name: &str, path: &str| format!(r#"{{"name":"{name}","path":"{path}","namespaces":[]}}"#);
        let bad = [
            ("a/b", "/x/y"),
            ("..", "/x/y"),
            ("A", "/x/y"),
            ("", "/x/y"),
            ("-a", "/x/y"),
            ("a", "x/y"),
            ("a", "/x"),
            ("a", "/"),
            ("a", "/x/../y"),
            ("a", ""),
        ];
        for (name, path) in bad {
            assert!(parse(&format!("[{}]", entry(name, path))).is_err(), "{name} {path}");
        }
        let twice = parse(&format!("[{},{}]", entry("a", "/x/y"), entry("a", "/x/z"))).unwrap_err();
        assert_eq!(twice, "a stands twice");
    }

    #[test]
    fn not_listed_and_not_for_this_namespace_are_the_same() {
        let list = parse(r#"[{"name":"clone","path":"/home/me/yoi","namespaces":["team"]}]"#).unwrap();
        assert!(list.for_namespace("clone", "team").is_some());
        assert_eq!(list.for_namespace("clone", "other"), list.for_namespace("missing", "team"));
    }

    #[test]
    fn a_folder_that_was_made_anew_is_found_and_a_link_in_its_place_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let list = parse(r#"[{"name":"clone","path":"/home/me/yoi","namespaces":["*"]}]"#).unwrap();
        let (root, folder) = (dir.path(), dir.path().join("clone/yoi"));
        let reason = || list.open(&list.0[0].name, root).unwrap_err().reason().as_str();
        assert_eq!(reason(), "SourceNotFound");
        for _ in 0..2 {
            std::fs::create_dir_all(&folder).unwrap();
            assert_eq!(list.available(root), [list.0[0].name.clone()]);
            std::fs::remove_dir(&folder).unwrap();
            assert!(list.available(root).is_empty());
        }
        std::os::unix::fs::symlink("/etc", &folder).unwrap();
        assert_eq!(reason(), "SourceForbidden");
        assert!(list.available(root).is_empty());
    }
}
