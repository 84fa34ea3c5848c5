//! The connection of ssh that a machine's context goes over: kept while it is used, made anew when it is gone.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::context::write_secret;
use super::list;
use super::ssh::Ssh;
use crate::args::{HostConnectOptions, HostsFile, SshTarget, cache_folder};
use crate::commands::pull::LOOK_AT_DISK;
use crate::commands::ssh::private_folder;
use crate::error::{Error, RefusalKind};
use crate::show;

/// A connection that stays after a machine was lost says so after this time.
const ALIVE_WITHIN: Duration = Duration::from_secs(10);
/// Bytes of the longest path of a socket, with what ssh puts behind it meanwhile.
const MAX_SOCKET: usize = 85;

/// Who the administrator of a machine's cluster is: a certificate and its key, as PEM.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Credentials {
    pub certificate: String,
    pub key: String,
}

/// Where a machine's credentials are, beside the list of machines.
fn credentials_path(file: &HostsFile, name: &str) -> Result<PathBuf, Error> {
    Ok(list::path(file)?.with_extension("").join(format!("{name}.json")))
}

pub fn keep_credentials(file: &HostsFile, name: &str, credentials: &Credentials) -> Result<(), Error> {
    let path = credentials_path(file, name)?;
    let text = show::document(crate::args::OutputFormat::Json, credentials)?;
    write_secret(&path, &text).map_err(|error| Error::local(format!("write {}", path.display()), error, LOOK_AT_DISK))
}

pub fn forget_credentials(file: &HostsFile, name: &str) -> Result<(), Error> {
    match std::fs::remove_file(credentials_path(file, name)?) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::local(format!("forget the credentials of {name}"), error, LOOK_AT_DISK))
        }
        _ => Ok(()),
    }
}

/// The socket of a machine's connection, and the lock of whoever makes it.
pub struct Connection {
    socket: PathBuf,
}

impl Connection {
    pub fn of(name: &str) -> Result<Self, Error> {
        let folder = cache_folder().map(|folder| folder.join("yoi/ssh"));
        let socket = folder.as_ref().map(|folder| folder.join(name)).filter(|path| path.as_os_str().len() <= MAX_SOCKET);
        let (Some(folder), Some(socket)) = (folder, socket) else {
            return Err(Error::Usage {
                message: format!("the socket of the connection to {name} has no place: its path would be too long"),
                next: "name a folder with a short path: XDG_CACHE_HOME=FOLDER".to_owned(),
            });
        };
        private_folder(&folder).map_err(|error| Error::local(format!("make {}", folder.display()), error, LOOK_AT_DISK))?;
        Ok(Connection { socket })
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// One at a time: two that begin together would leave one of their connections behind.
    fn lock(&self) -> Result<File, Error> {
        let path = self.socket.with_extension("lock");
        let lock = File::create(&path).and_then(|file| file.lock().map(|()| file));
        lock.map_err(|error| Error::local(format!("lock {}", path.display()), error, LOOK_AT_DISK))
    }

    /// A connection that leads to the machine, the one that is there or a new one.
    pub async fn open(&self, target: &SshTarget, operation: &str, patience: Duration) -> Result<(), Error> {
        let _lock = self.lock()?;
        self.open_locked(target, operation, patience).await
    }

    async fn open_locked(&self, target: &SshTarget, operation: &str, patience: Duration) -> Result<(), Error> {
        let ssh = Ssh { target, control: None, operation: operation.to_owned() };
        if ssh.is_alive(&self.socket, ALIVE_WITHIN).await {
            return Ok(());
        }
        ssh.ask(&self.socket, "exit", &[]).await;
        let _ = std::fs::remove_file(&self.socket);
        ssh.start(&self.socket, patience).await
    }

    /// As [`Connection::open`], with a port of this machine that leads to `server` there.
    pub async fn forward(&self, target: &SshTarget, node: &KnownNode, operation: &str, patience: Duration) -> Result<(), Error> {
        let _lock = self.lock()?;
        self.open_locked(target, operation, patience).await?;
        // A forwarding that is there already is no other one.
        let ssh = Ssh { target, control: None, operation: operation.to_owned() };
        let rule = format!("127.0.0.1:{}:{}", node.port, node.server);
        if ssh.ask(&self.socket, "forward", &["-L", &rule]).await {
            return Ok(());
        }
        let message = format!("port {} of this machine cannot be led there; another program may have it", node.port);
        let next = "end that program; or have another port taken: kubectl yoi host up, for this machine again".to_owned();
        Err(Error::refused_error(operation, message, next, RefusalKind::Unreachable))
    }

    pub async fn close(&self, target: &SshTarget) {
        let ssh = Ssh { target, control: None, operation: String::new() };
        ssh.ask(&self.socket, "exit", &[]).await;
        for path in [self.socket.clone(), self.socket.with_extension("lock")] {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The node that `host up` has made of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KnownNode {
    /// Version of Yoi.
    pub version: String,
    /// Of this machine, on its loopback address.
    pub port: u16,
    /// Host and port of the API server, as the other machine sees them.
    pub server: String,
}

/// Makes the connection, and prints who the person is on that machine, as programs that read kubeconfigs ask for it.
pub async fn connect(args: &HostConnectOptions) -> Result<(), Error> {
    let name = &args.name;
    let hosts = list::read(&args.file)?;
    let set_up = || Error::Missing { what: format!("a node on the machine {name}"), next: format!("kubectl yoi host up {name}") };
    let known = hosts.get(name).ok_or_else(set_up)?;
    let node = known.node.as_ref().ok_or_else(set_up)?;
    Connection::of(name)?.forward(&known.target()?, node, &format!("reach {}", known.host), args.timeout).await?;
    let path = credentials_path(&args.file, name)?;
    let text = std::fs::read(&path).map_err(|_| set_up())?;
    let credentials: Credentials = serde_json::from_slice(&text).map_err(|_| set_up())?;
    let status = json!({ "clientCertificateData": credentials.certificate, "clientKeyData": credentials.key });
    println!("{}", json!({ "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status }));
    Ok(())
}
