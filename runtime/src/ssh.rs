//! OpenSSH's server of the agent's image, for one person at a time: `sshd -i` on a stream that the gateway brings.
//!
//! # Guarantees
//! * It is started as the command of a tool is: as the agent's user, in the frame, with the same variables. So a person reaches what the agent reaches.
//! * All that it needs is written and read in the frame, so no link of the agent's leads the runtime to what is closed.
//! * It lets in whoever the gateway says has come, by the key that came with the request, and nobody else.
//!
//! # Caveats
//! The agent's processes are of the same user, and may read its keys and end it: they reach nothing by it that they do not reach without.

mod config;
mod passwd;

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use tokio::io::AsyncReadExt;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use uuid::Uuid;
use yoi_engine::processes::{CALL_ID_ENV, ProcessSupervisor, SupervisedProcess};
use yoi_wire::ssh::{MAX_SERVERS, SshHost, is_public_key};

use config::Config;

/// Folder of the keys, in that for temporary files.
const FOLDER: &str = "yoi-ssh";
const HOST_KEY: &str = "host_ed25519";
/// Bytes of a program's standard error that are kept.
const MAX_STDERR: u64 = 4096;

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum SshError {
    #[error(
        "the agent's image has no {0}: take one with OpenSSH's server (Debian: apt-get install openssh-server; Alpine: apk add openssh) as image of the project"
    )]
    NoProgram(&'static str),
    #[error(
        "the agent runs as uid {0}, and /etc/passwd of its image has no such user, which OpenSSH's server asks for: add one to the image, with a shell"
    )]
    NoUser(u32),
    #[error("the agent has {MAX_SERVERS} SSH connections, and takes no more: close one of them")]
    TooMany,
    #[error("failed to make the host key: {0}")]
    HostKey(String),
    #[error("failed to start OpenSSH's server")]
    Start(#[source] io::Error),
}

/// Starts servers. A clone is the same.
#[derive(Clone, Debug)]
pub struct SshServers(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    processes: Arc<ProcessSupervisor>,
    permits: Arc<Semaphore>,
    /// Held while the host key is made.
    key: Mutex<()>,
}

/// A server that runs. Dropping it ends it with all that it has started.
#[derive(Debug)]
pub struct SshServer {
    pub process: SupervisedProcess,
    _permit: OwnedSemaphorePermit,
}

/// What the image has for a server.
#[derive(Clone, Debug)]
struct Image {
    sshd: PathBuf,
    keygen: PathBuf,
    user: String,
}

impl SshServers {
    #[must_use]
    pub fn new(processes: Arc<ProcessSupervisor>) -> Self {
        Self(Arc::new(Shared { processes, permits: Arc::new(Semaphore::new(MAX_SERVERS)), key: Mutex::default() }))
    }

    /// What a client has to know. The host key is made when there is none.
    ///
    /// # Errors
    /// The image has no server, or the agent has no user in it.
    pub async fn host(&self) -> Result<SshHost, SshError> {
        let image = self.image().await?;
        let host_key = self.host_key(&image).await?;
        Ok(SshHost { user: image.user, host_key, path: self.0.processes.root().display().to_string() })
    }

    /// The permit for one more server.
    ///
    /// # Errors
    /// There is none, or there can be no server.
    pub async fn reserve(&self) -> Result<Reserved, SshError> {
        let permit = self.0.permits.clone().try_acquire_owned().map_err(|_| SshError::TooMany)?;
        let image = self.image().await?;
        self.host_key(&image).await?;
        Ok(Reserved { servers: self.clone(), image, permit })
    }

    /// Removes the files that a server was started with.
    pub async fn forget(&self, id: Uuid) {
        let folder = self.folder();
        let remove = move || {
            for end in ["conf", "keys"] {
                // The agent may have removed one of them.
                let _ = fs::remove_file(folder.join(format!("{id}.{end}")));
            }
            Ok(())
        };
        let _ = self.in_frame(remove).await;
    }

    fn folder(&self) -> PathBuf {
        self.0.processes.temp().join(FOLDER)
    }

    async fn in_frame<T: Send + 'static>(&self, job: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
        self.0.processes.run_in_frame(job).await.flatten()
    }

    async fn image(&self) -> Result<Image, SshError> {
        let path: OsString = self.0.processes.path().to_owned();
        let uid = rustix::process::getuid().as_raw();
        let look = move || {
            let find =
                |name: &str| std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file() && file.is_absolute());
            Ok((find("sshd"), find("ssh-keygen"), passwd::user_of(&fs::read_to_string("/etc/passwd").unwrap_or_default(), uid)))
        };
        let (sshd, keygen, user) = self.in_frame(look).await.map_err(SshError::Start)?;
        Ok(Image {
            sshd: sshd.ok_or(SshError::NoProgram("sshd"))?,
            keygen: keygen.ok_or(SshError::NoProgram("ssh-keygen"))?,
            user: user.ok_or(SshError::NoUser(uid))?,
        })
    }

    /// The public host key, which is made with the first server of the Pod.
    async fn host_key(&self, image: &Image) -> Result<String, SshError> {
        let _alone = self.0.key.lock().await;
        let failed = |error: io::Error| SshError::HostKey(error.to_string());
        let folder = self.folder();
        let (made, read) = (folder.clone(), folder.join(HOST_KEY).with_extension("pub"));
        self.in_frame(move || make_folder(&made)).await.map_err(failed)?;
        let known = || {
            let read = read.clone();
            self.in_frame(move || fs::read_to_string(read))
        };
        if let Some(key) = known().await.ok().and_then(|text| public_key(&text)) {
            return Ok(key);
        }
        let file = folder.join(HOST_KEY);
        let stale = file.clone();
        // ssh-keygen asks before it writes over one.
        self.in_frame(move || {
            fs::remove_file(stale).or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
        })
        .await
        .map_err(failed)?;
        let start = self.0.processes.start(&image.keygen, |command| {
            command.args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"]).arg(&file).stdout(Stdio::null()).stderr(Stdio::piped());
        });
        let mut keygen = start.map_err(failed)?;
        let (_, _, errors) = keygen.take_pipes();
        let (said, status) = tokio::join!(stderr_text(errors), keygen.wait());
        if !status.map_err(failed)?.success() {
            return Err(SshError::HostKey(said));
        }
        known().await.ok().and_then(|text| public_key(&text)).ok_or_else(|| SshError::HostKey("ssh-keygen wrote none".to_owned()))
    }
}

/// The permit of a server that has not started.
#[derive(Debug)]
pub struct Reserved {
    servers: SshServers,
    image: Image,
    permit: OwnedSemaphorePermit,
}

impl Reserved {
    /// Starts the server, which lets the person with this key in. Its three streams are pipes.
    ///
    /// # Errors
    /// The system's.
    pub async fn start(self, id: Uuid, key: &str) -> Result<SshServer, SshError> {
        let Self { servers, image, permit } = self;
        let (processes, folder) = (&servers.0.processes, servers.folder());
        let keys = folder.join(format!("{id}.keys"));
        let config =
            Config { host_key: &folder.join(HOST_KEY), authorized_keys: &keys, env: processes.env(), call_id: (CALL_ID_ENV, &id) }.text();
        let (config_file, key) = (folder.join(format!("{id}.conf")), format!("{key}\n"));
        let written = (config_file.clone(), keys);
        let write = move || {
            write_new(&written.0, config.as_bytes())?;
            write_new(&written.1, key.as_bytes())
        };
        servers.in_frame(write).await.map_err(SshError::Start)?;
        let process = processes.start_as(id.to_string(), &image.sshd, |command| {
            command.args(["-i", "-e", "-f"]).arg(&config_file);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        });
        Ok(SshServer { process: process.map_err(SshError::Start)?, _permit: permit })
    }
}

fn make_folder(folder: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

fn write_new(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    io::Write::write_all(&mut file, bytes)
}

/// Kind and data of a key, without its comment.
fn public_key(text: &str) -> Option<String> {
    let mut words = text.split_whitespace();
    let key = format!("{} {}", words.next()?, words.next()?);
    is_public_key(&key).then_some(key)
}

/// The first [`MAX_STDERR`] bytes of what a program writes on standard error. All is read, so that the program never waits.
pub async fn stderr_text(errors: Option<tokio::process::ChildStderr>) -> String {
    let Some(mut errors) = errors else { return String::new() };
    let mut kept = Vec::new();
    let _ = (&mut errors).take(MAX_STDERR).read_to_end(&mut kept).await;
    let _ = tokio::io::copy(&mut errors, &mut tokio::io::sink()).await;
    String::from_utf8_lossy(&kept).trim().to_owned()
}
