//! Flags, environment and manifest, read once at the start.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use sha2::{Digest, Sha256};
use yoi_engine::model::{ModelTimeouts, RetryPolicy};
use yoi_wire::identity::{self, env};
use yoi_wire::manifest::{AgentManifest, ReaderManifest};

use crate::model_secrets::TakenVariables;

#[derive(Debug, Parser)]
#[command(name = "yoi-runtime", about = "What runs an agent in its Pod", version)]
pub struct RuntimeCli {
    #[command(subcommand)]
    pub command: RuntimeCommand,
}

#[derive(Debug, Subcommand)]
pub enum RuntimeCommand {
    /// Run the agent of this Pod. It takes no arguments: everything is in the manifest.
    Agent(AgentArgs),
    /// Serve log, diff and patch of an agent that has stopped. Nothing is written, locked or run.
    Read(ReadArgs),
    /// Tell the runtime of a tool call of a program. The program calls this, with the call on standard input. Exits with 2 when the call must not run.
    Hook(HookArgs),
    /// Copy the skills and commands of the image that this runs in, for the agent's own container. Nothing of the image is run.
    CopyAssets(CopyAssetsArgs),
    /// Merge the work of another agent, which stands on standard input, into the tree. The runtime calls this.
    Merge,
    /// Offer the runtime's tools to a program, over the Model Context Protocol on standard input and output.
    Mcp(ProgramEnd),
}

/// The arguments of `copy-assets`.
#[derive(Clone, Debug, Args)]
pub struct CopyAssetsArgs {
    /// The folder that holds the folders `skills` and `commands`.
    #[arg(long)]
    pub from: PathBuf,
    /// What it is copied into. All that is there before is removed.
    #[arg(long)]
    pub to: PathBuf,
    /// Leave the reason there when there is nothing to copy, and succeed: the agent is to start without.
    #[arg(long)]
    pub lenient: bool,
    /// What Kubernetes shows of how this has ended.
    #[arg(long, default_value = "/dev/termination-log")]
    pub end: PathBuf,
}

/// The arguments of `hook`.
#[derive(Clone, Debug, Args)]
pub struct HookArgs {
    /// Whether the call is about to run, or has ended.
    pub moment: HookMoment,
    /// For how many seconds a call may wait for a person before it runs. The program has to wait longer for this hook: 20 s more at least.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub wait: u64,
    #[command(flatten)]
    pub end: ProgramEnd,
}

/// When a program calls its hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HookMoment {
    /// Before a tool runs.
    Before,
    /// After it has ended.
    After,
}

/// How a program's children reach the runtime. They inherit it from the program.
#[derive(Clone, Args)]
pub struct ProgramEnd {
    /// The runtime's socket.
    #[arg(long, hide = true, env = env::PROGRAM_SOCKET)]
    pub socket: PathBuf,
    /// The token of the run.
    #[arg(long, hide = true, env = env::PROGRAM_TOKEN, hide_env_values = true)]
    pub token: String,
}

impl std::fmt::Debug for ProgramEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProgramEnd").field("socket", &self.socket).finish_non_exhaustive()
    }
}

/// Where the volumes of a Pod are that both commands use.
#[derive(Clone, Debug, Args)]
struct MountArgs {
    #[arg(long, hide = true, env = "YOI_SESSION", default_value = identity::SESSION_MOUNT)]
    session: PathBuf,
    #[arg(long, hide = true, env = "YOI_TOKEN", default_value_os_t = PathBuf::from(identity::TOKEN_MOUNT).join(identity::TOKEN_FILE))]
    token: PathBuf,
    #[arg(long, hide = true, env = "YOI_SHIM_SOCKET", default_value_os_t = PathBuf::from(identity::RUNTIME_MOUNT).join(identity::SHIM_SOCKET))]
    shim_socket: PathBuf,
}

/// The flags of `read`. They are hidden because only tests set them.
#[derive(Clone, Debug, Args)]
pub struct ReadArgs {
    #[arg(long, hide = true, env = env::READER, value_parser = reader_manifest)]
    manifest: ReaderManifest,
    #[command(flatten)]
    mounts: MountArgs,
    /// Only a test of a reader without a frame.
    #[arg(long, hide = true, env = "YOI_FRAME", default_value_t = true, action = clap::ArgAction::Set)]
    frame: bool,
}

fn reader_manifest(text: &str) -> Result<ReaderManifest, serde_json::Error> {
    serde_json::from_str(text)
}

/// Everything that a reader gets from outside at its start.
#[derive(Clone, Debug)]
pub struct ReaderSettings {
    pub manifest: ReaderManifest,
    /// git is in the frame.
    pub frame: bool,
    pub session: PathBuf,
    pub token: PathBuf,
    pub shim_socket: PathBuf,
}

impl From<ReadArgs> for ReaderSettings {
    fn from(ReadArgs { manifest, frame, mounts: MountArgs { session, token, shim_socket } }: ReadArgs) -> Self {
        Self { manifest, frame, session, token, shim_socket }
    }
}

/// The flags of `agent`. They are hidden because only tests set them.
#[derive(Clone, Debug, Args)]
pub struct AgentArgs {
    #[arg(long, hide = true, env = "YOI_MANIFEST", default_value_os_t = PathBuf::from(identity::MANIFEST_MOUNT).join(identity::MANIFEST_FILE))]
    manifest: PathBuf,
    #[command(flatten)]
    mounts: MountArgs,
    /// Only a test that compares starts without a frame. The report then says so.
    #[arg(long, hide = true, env = "YOI_FRAME", default_value_t = true, action = clap::ArgAction::Set)]
    frame: bool,
    #[arg(long, hide = true, env = env::RUN_GENERATION)]
    run_generation: u64,
    #[arg(long, hide = true, env = env::POD_UID)]
    pod_uid: String,
    #[arg(long, hide = true, env = env::NEW_SESSION)]
    new_session: bool,
    #[arg(long, hide = true, env = "YOI_MODEL_BACKOFF_MS", default_value_t = 1000)]
    model_backoff_ms: u64,
    /// Three numbers of milliseconds: until the head of an answer, between two chunks of it, for all of it.
    #[arg(long, hide = true, env = "YOI_MODEL_TIMEOUTS_MS", value_delimiter = ',', num_args = 3)]
    model_timeouts_ms: Option<Vec<u64>>,
    /// How long this process runs before it may end for another content of the Secrets, unless it is the Pod's first one, which may end after a tenth of
    /// that. Longer than the ten minutes after which the kubelet resets its restart back-off.
    #[arg(long, hide = true, env = "YOI_SECRET_RESTART_SECONDS", default_value_t = 610)]
    secret_restart_seconds: u64,
    /// How long an agent that may rest stays awake at least, so that whoever woke it reaches it.
    #[arg(long, hide = true, env = "YOI_AWAKE_SECONDS", default_value_t = 15)]
    awake_seconds: u64,
    /// The most bytes of a program's HOME; half of the session volume when absent.
    #[arg(long, hide = true, env = "YOI_HOME_BYTES")]
    home_bytes: Option<u64>,
}

/// Everything that the runtime gets from outside at its start.
#[derive(Clone, Debug)]
pub struct RuntimeSettings {
    pub manifest: AgentManifest,
    /// Hex SHA-256 of the manifest's bytes.
    pub manifest_digest: String,
    /// Folder or file of the manifest.
    pub manifest_path: PathBuf,
    /// Processes of the agent are in the frame.
    pub frame: bool,
    pub session: PathBuf,
    pub token: PathBuf,
    pub shim_socket: PathBuf,
    pub run_generation: u64,
    pub pod_uid: String,
    /// Nothing may be on the session volume that this Pod has not written.
    pub new_session: bool,
    pub retries: RetryPolicy,
    pub timeouts: ModelTimeouts,
    pub secret_restart: Duration,
    pub awake: Duration,
    /// The most bytes of a program's HOME; absent: half of the session volume.
    pub home_bytes: Option<u64>,
    /// A folder that lives as long as the Pod.
    pub scratch: PathBuf,
    /// Keys, headers and certificates of the model.
    pub model_secrets: TakenVariables,
    /// Variables that the Pod's owner set. Tools get them.
    pub user_env: Vec<(OsString, OsString)>,
}

#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("failed to read the manifest {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("failed to understand the manifest {}", path.display())]
    Parse { path: PathBuf, source: serde_json::Error },
}

impl RuntimeSettings {
    /// Reads manifest and environment.
    ///
    /// # Errors
    /// The manifest cannot be read or parsed.
    pub fn read(args: AgentArgs, model_secrets: TakenVariables) -> Result<Self, SettingsError> {
        let path = args.manifest;
        let bytes = std::fs::read(&path).map_err(|source| SettingsError::Read { path: path.clone(), source })?;
        let mut manifest: AgentManifest =
            serde_json::from_slice(&bytes).map_err(|source| SettingsError::Parse { path: path.clone(), source })?;
        manifest.model.iter_mut().for_each(|model| model_secrets.set_certificates(model));
        Ok(Self {
            manifest,
            manifest_digest: hex::encode(Sha256::digest(&bytes)),
            manifest_path: path,
            frame: args.frame,
            session: args.mounts.session,
            token: args.mounts.token,
            shim_socket: args.mounts.shim_socket,
            run_generation: args.run_generation,
            pod_uid: args.pod_uid,
            new_session: args.new_session,
            retries: RetryPolicy { first: Duration::from_millis(args.model_backoff_ms), ..RetryPolicy::default() },
            timeouts: args.model_timeouts_ms.map_or_else(ModelTimeouts::default, |millis| model_timeouts(&millis)),
            secret_restart: Duration::from_secs(args.secret_restart_seconds),
            awake: Duration::from_secs(args.awake_seconds),
            home_bytes: args.home_bytes,
            scratch: std::env::temp_dir(),
            model_secrets,
            user_env: user_env(std::env::vars_os()),
        })
    }
}

fn model_timeouts(millis: &[u64]) -> ModelTimeouts {
    let value = |index: usize, default: Duration| millis.get(index).map_or(default, |millis| Duration::from_millis(*millis));
    let ModelTimeouts { head, idle, total } = ModelTimeouts::default();
    ModelTimeouts { head: value(0, head), idle: value(1, idle), total: value(2, total) }
}

fn user_env(all: impl Iterator<Item = (OsString, OsString)>) -> Vec<(OsString, OsString)> {
    all.filter(|(name, _)| {
        let name = name.as_encoded_bytes();
        // The last four come from a shell that may have started this process; nobody set them for the agent.
        !name.starts_with(b"YOI_")
            && !name.starts_with(b"KUBERNETES_")
            && name != b"PWD"
            && name != b"OLDPWD"
            && name != b"SHLVL"
            && name != b"_"
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_yoi_and_kubernetes_are_not_the_users() {
        let all = ["YOI_MODEL_API_KEY", "KUBERNETES_SERVICE_HOST", "FOO", "PATH", "YOIK", "_"].map(|name| (name.into(), "x".into()));
        let names: Vec<OsString> = user_env(all.into_iter()).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["FOO", "PATH", "YOIK"]);
    }
}
