//! The context of the person's kubeconfig that leads to a machine: over the connection of ssh, which is made when it is needed.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::args::kubeconfig_files;
use crate::error::{Error, RefusalKind};

/// What a machine's own kubeconfig says: how its API server is known, and who its administrator is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Administrator {
    /// Host and port of the API server, as the machine sees them.
    pub server: String,
    pub authority: String,
    pub certificate: String,
    pub key: String,
}

impl Administrator {
    /// `None` when it is not as the machine's program writes it.
    pub fn parse(kubeconfig: &str) -> Option<Self> {
        let file: Value = serde_yaml::from_str(kubeconfig).ok()?;
        let (cluster, user) = (&file["clusters"][0]["cluster"], &file["users"][0]["user"]);
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Some(Administrator {
            server: cluster["server"].as_str()?.strip_prefix("https://")?.to_owned(),
            authority: text(&cluster["certificate-authority-data"])?,
            certificate: text(&user["client-certificate-data"])?,
            key: text(&user["client-key-data"])?,
        })
    }
}

fn refused(path: &Path, why: impl std::fmt::Display) -> Error {
    Error::refused_error(
        format!("change the kubeconfig {}", path.display()),
        why.to_string(),
        "mend it, or set KUBECONFIG",
        RefusalKind::Other,
    )
}

fn read(path: &Path) -> Result<Value, Error> {
    match std::fs::read_to_string(path) {
        Ok(text) if text.trim().is_empty() => Ok(json!({ "apiVersion": "v1", "kind": "Config" })),
        Ok(text) => serde_yaml::from_str(&text).map_err(|error| refused(path, error)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(json!({ "apiVersion": "v1", "kind": "Config" })),
        Err(error) => Err(refused(path, error)),
    }
}

fn write(path: &Path, file: &Value) -> Result<(), Error> {
    // A link stays one.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let text = serde_yaml::to_string(file).map_err(|error| refused(&path, error))?;
    write_secret(&path, &text).map_err(|error| refused(&path, error))
}

/// Writes a file that only its owner reads, whole or not at all, and makes its folder where that is missing.
pub fn write_secret(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let new = path.with_extension(format!("new-{}", std::process::id()));
    let mut options = std::fs::File::options();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    std::io::Write::write_all(&mut options.open(&new)?, text.as_bytes())?;
    std::fs::rename(&new, path)
}

/// The entries of a kind in the file.
fn entries<'a>(file: &'a mut Value, kind: &str) -> Option<&'a mut Vec<Value>> {
    let entries = file.as_object_mut()?.entry(kind).or_insert_with(|| json!([]));
    if entries.is_null() {
        *entries = json!([]);
    }
    entries.as_array_mut()
}

fn find<'a>(file: &'a Value, kind: &str, name: &str) -> Option<&'a Value> {
    file[kind].as_array()?.iter().find(|entry| entry["name"] == name)
}

/// Whether the file's user of this name is one that [`add`] has written.
fn is_ours(file: &Value, name: &str) -> bool {
    let args = find(file, "users", name).and_then(|user| user["user"]["exec"]["args"].as_array());
    args.is_some_and(|args| args.iter().take(3).eq(["host", "connect", name].iter()))
}

/// # Errors
/// A context, cluster or user of the person's has this name.
pub fn check_free(name: &str) -> Result<(), Error> {
    for path in kubeconfig_files() {
        let file = read(&path)?;
        let is_taken = ["contexts", "clusters", "users"].iter().any(|kind| find(&file, kind, name).is_some());
        if is_taken && !is_ours(&file, name) {
            return Err(Error::Usage {
                message: format!("the kubeconfig {} has {name} already, and it is not this machine", path.display()),
                next: "take another name: --name NAME".to_owned(),
            });
        }
    }
    Ok(())
}

/// Adds the context, or writes it anew. `connect`: the words that make the connection and say who the person is.
pub fn add(name: &str, port: u16, authority: &str, connect: &[String]) -> Result<PathBuf, Error> {
    check_free(name)?;
    let files = kubeconfig_files();
    // Where it is already, or else where kubectl would put it.
    let has = |path: &&PathBuf| read(path).is_ok_and(|file| find(&file, "contexts", name).is_some());
    let Some(path) = files.iter().find(has).or_else(|| files.iter().find(|path| path.exists())).or(files.first()) else {
        return Err(Error::Usage {
            message: "nobody says which folder is yours, so no context can be added".to_owned(),
            next: "name a file: KUBECONFIG=FILE".to_owned(),
        });
    };
    let mut file = read(path)?;
    let (program, args) = connect.split_first().map_or(("", &[][..]), |(program, args)| (program.as_str(), args));
    let exec = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "command": program, "args": args, "interactiveMode": "IfAvailable",
        "provideClusterInfo": false,
    });
    let cluster = json!({ "server": format!("https://127.0.0.1:{port}"), "certificate-authority-data": authority });
    for (kind, entry) in [
        ("clusters", json!({ "name": name, "cluster": cluster })),
        ("users", json!({ "name": name, "user": { "exec": exec } })),
        ("contexts", json!({ "name": name, "context": { "cluster": name, "user": name } })),
    ] {
        let entries = entries(&mut file, kind).ok_or_else(|| refused(path, format!("its {kind} are no list")))?;
        match entries.iter_mut().find(|entry| entry["name"] == name) {
            // A namespace that the person has chosen stays.
            Some(_) if kind == "contexts" => {}
            Some(there) => *there = entry,
            None => entries.push(entry),
        }
    }
    if file["current-context"].as_str().unwrap_or_default().is_empty() {
        file["current-context"] = name.into();
    }
    write(path, &file)?;
    Ok(path.clone())
}

/// Removes what [`add`] has written.
pub fn remove(name: &str) -> Result<(), Error> {
    for path in kubeconfig_files() {
        let mut file = read(&path)?;
        if !is_ours(&file, name) {
            continue;
        }
        for kind in ["clusters", "users", "contexts"] {
            if let Some(entries) = entries(&mut file, kind) {
                entries.retain(|entry| entry["name"] != name);
            }
        }
        if file["current-context"] == name {
            file["current-context"] = "".into();
        }
        write(&path, &file)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_administrator_is_read_from_the_machines_kubeconfig() {
        let text = r#"{"clusters": [{"name": "n", "cluster": {"certificate-authority-data": "YQ==", "server": "https://198.18.127.2:6443"}}],
            "users": [{"name": "u", "user": {"client-certificate-data": "Yg==", "client-key-data": "Yw=="}}]}"#;
        let found = Administrator::parse(text).unwrap();
        assert_eq!((found.server.as_str(), found.authority.as_str(), found.key.as_str()), ("198.18.127.2:6443", "YQ==", "Yw=="));
        assert_eq!(Administrator::parse("clusters: []"), None);
    }

    #[test]
    fn only_what_leads_to_this_machine_is_its_own() {
        let user = |args: Value| json!({ "users": [{ "name": "n", "user": { "exec": { "args": args } } }] });
        assert!(is_ours(&user(json!(["host", "connect", "n", "--hosts", "f"])), "n"));
        assert!(!is_ours(&user(json!(["host", "connect", "m"])), "n"));
        assert!(!is_ours(&json!({ "users": [{ "name": "n", "user": { "token": "t" } }] }), "n"));
    }
}
