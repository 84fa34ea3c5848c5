//! The program that is the agent: its preset, and what its runs reach of this process.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::OnceCell;
use yoi_engine::error_text::error_text;
use yoi_engine::model::ModelSecrets;
use yoi_engine::processes::ProcessSupervisor;
use yoi_engine::program::access::{ProgramAccess, RunAccess, RunBudget};
use yoi_engine::program::agent::{ProgramAgent, ProgramVersion, RESULT_GRACE, command_preset};
use yoi_engine::program::calls::ProgramCalls;
use yoi_engine::program::proxy::{ModelProxy, served_format};
use yoi_wire::hub::ReportReason;
use yoi_wire::manifest::{ModelApi, ModelEndpoint, ModelProvider, Program};
use yoi_wire::preset::{Preset, ProgramFormat};

use crate::args::RuntimeSettings;
use crate::program_socket::{BoundSocket, ProgramSocket};
use crate::status::{NotReady, RuntimeStatus};

/// Bytes of a preset.
const MAX_PRESET_BYTES: usize = 128 << 10;
/// Folder of the socket, in that for temporary files.
const SOCKET_FOLDER: &str = "yoi-program";
/// Folder of the programs' HOMEs on the session volume.
const HOMES: &str = "home";

/// What is needed of a program before it is known whether it can run.
#[derive(Debug)]
pub struct ProgramSetup {
    /// How it is driven.
    pub preset: Preset,
    /// Its arguments have no placeholders.
    pub literal: bool,
    /// Its HOME; absent: that of all processes.
    pub home: Option<PathBuf>,
    /// Its model, whose wire format is named.
    pub model: Option<ModelEndpoint>,
}

fn invalid(message: String) -> NotReady {
    NotReady { reason: ReportReason::PresetInvalid, message, volume_run_generation: None }
}

/// The program of the manifest; `None` for the runtime's own loop.
///
/// # Errors
/// The preset cannot be used.
pub fn program_setup(settings: &RuntimeSettings) -> Result<Option<ProgramSetup>, NotReady> {
    let Some(program) = &settings.manifest.program else { return Ok(None) };
    if let Some(preset) = command_preset(&program.command) {
        return Ok(Some(ProgramSetup { preset, literal: true, home: None, model: settings.manifest.model.clone() }));
    }
    let preset = read_preset(program)?;
    let preset = if program.credentials.is_some() { preset.with_login() } else { preset };
    let model = settings.manifest.model.clone().map(|model| with_format(model, &preset));
    let format = model.as_ref().map(served_format);
    if let Some(format) = format.filter(|format| format.is_none_or(|format| !preset.speaks.contains(&format))) {
        let answers = format.map_or_else(|| "one that this version does not know".to_owned(), |format| format.title().to_owned());
        let speaks: Vec<&str> = preset.speaks.iter().map(|format| format.title()).collect();
        let message = format!("the model answers in the format {answers}, and program {} speaks only: {}", preset.name, speaks.join(", "));
        return Err(NotReady { reason: ReportReason::ModelFormatNotSpoken, message, volume_run_generation: None });
    }
    let home = settings.session.join(HOMES).join(&preset.name);
    Ok(Some(ProgramSetup { preset, literal: false, home: Some(home), model }))
}

/// The endpoint, with the format in which the program asks it.
fn with_format(model: ModelEndpoint, preset: &Preset) -> ModelEndpoint {
    let is_compatible = model.provider == ModelProvider::OpenAI && model.api.is_none() && model.base_url.is_some();
    match preset.format_of_compatible_endpoint() {
        ProgramFormat::Responses if is_compatible => ModelEndpoint { api: Some(ModelApi::Responses), ..model },
        ProgramFormat::Responses | ProgramFormat::Anthropic | ProgramFormat::ChatCompletions | ProgramFormat::Gemini => model,
    }
}

fn read_preset(program: &Program) -> Result<Preset, NotReady> {
    let preset = match (&program.preset, &program.preset_file) {
        (Some(preset), _) => preset.clone(),
        (None, Some(file)) => {
            let text = std::fs::read_to_string(file).map_err(|error| invalid(format!("failed to read the preset {file}: {error}")))?;
            if text.len() > MAX_PRESET_BYTES {
                return Err(invalid(format!("the preset {file} has {} bytes, and at most {MAX_PRESET_BYTES} are allowed", text.len())));
            }
            serde_yaml::from_str(&text).map_err(|error| invalid(format!("failed to understand the preset {file}: {error}")))?
        }
        (None, None) => return Err(invalid("the manifest names neither a preset nor a command".to_owned())),
    };
    preset.check().map_err(|error| invalid(format!("preset {}: {error}", preset.name)))?;
    Ok(preset)
}

impl ProgramSetup {
    /// The program, started by `processes`.
    #[must_use]
    pub fn agent(self, settings: &RuntimeSettings, processes: &Arc<ProcessSupervisor>) -> ProgramAgent {
        let program = settings.manifest.program.clone().unwrap_or_default();
        let endpoint = self.model;
        let has_own_login = program.credentials.is_some() && self.preset.login.is_some();
        let access = PodAccess {
            secrets: endpoint.as_ref().and_then(|endpoint| settings.model_secrets.of(endpoint).into_iter().next()).unwrap_or_default(),
            model: endpoint.clone().filter(|_| !self.literal && !has_own_login),
            folder: (!self.literal).then(|| settings.scratch.join(SOCKET_FOLDER)),
            processes: processes.clone(),
            opened: OnceCell::new(),
        };
        let home_bytes = self.home.as_ref().and(settings.home_bytes.or_else(|| half_of_volume(&settings.session)));
        ProgramAgent {
            home_bytes,
            home: self.home.unwrap_or_else(|| processes.home().to_owned()),
            preset: self.preset,
            literal: self.literal,
            args: program.args,
            credentials: program.credentials.map(PathBuf::from),
            model: endpoint.map(|endpoint| endpoint.name).unwrap_or_default(),
            runtime: std::env::current_exe().unwrap_or_else(|_| Path::new("yoi-runtime").to_owned()),
            processes: processes.clone(),
            access: Arc::new(access),
            version: OnceCell::new(),
            result_grace: RESULT_GRACE,
            silence: settings.manifest.limits.silence_seconds.map(|seconds| Duration::from_secs(u64::from(seconds))),
            noted: AtomicBool::new(false),
        }
    }
}

/// Half of the bytes of the file system that a folder is on.
fn half_of_volume(folder: &Path) -> Option<u64> {
    let volume = rustix::fs::statvfs(folder).ok()?;
    Some(volume.f_blocks.saturating_mul(volume.f_frsize) / 2)
}

/// Model proxy and socket, opened with the first run.
#[derive(Debug)]
struct PodAccess {
    model: Option<ModelEndpoint>,
    secrets: ModelSecrets,
    /// Where the socket is; absent: a command needs none.
    folder: Option<PathBuf>,
    processes: Arc<ProcessSupervisor>,
    opened: OnceCell<Opened>,
}

/// Reports a program that is missing or of another version than its parser knows.
pub async fn report_program(program: &ProgramAgent, status: &RuntimeStatus) {
    match (program.version().await, program.version_message().await) {
        (ProgramVersion::Missing, message) => status.set_program_failure(Some(NotReady {
            reason: ReportReason::ProgramMissing,
            message: message.unwrap_or_default(),
            volume_run_generation: None,
        })),
        (ProgramVersion::Other(_) | ProgramVersion::Known, message) => status.set_program_version(message),
    }
}

#[derive(Debug)]
struct Opened {
    proxy: Option<ModelProxy>,
    socket: Option<ProgramSocket>,
}

impl PodAccess {
    async fn start(&self) -> Result<Opened, String> {
        let proxy = match &self.model {
            Some(model) => Some(ModelProxy::start(model, &self.secrets).map_err(|error| error_text(&error))?),
            None => None,
        };
        let socket = match &self.folder {
            Some(folder) => {
                let folder = folder.clone();
                let bound = self.processes.run_in_frame(move || BoundSocket::bind(&folder)).await.map_err(|error| error_text(&error))?;
                Some(bound.and_then(ProgramSocket::serve).map_err(|error| error_text(&error))?)
            }
            None => None,
        };
        Ok(Opened { proxy, socket })
    }
}

impl ProgramAccess for PodAccess {
    fn open<'a>(
        &'a self,
        token: &'a str,
        calls: Arc<dyn ProgramCalls>,
        budget: Arc<dyn RunBudget>,
    ) -> BoxFuture<'a, Result<RunAccess, String>> {
        async move {
            let opened = self.opened.get_or_try_init(|| self.start()).await?;
            let proxy_grant = opened.proxy.as_ref().map(|proxy| proxy.allow(token, budget));
            let socket_grant = opened.socket.as_ref().map(|socket| socket.allow(token, calls));
            Ok(RunAccess {
                proxy: opened.proxy.as_ref().map(ModelProxy::base_url),
                socket: opened.socket.as_ref().map(|socket| socket.path().to_owned()),
                guard: Box::new((proxy_grant, socket_grant)),
            })
        }
        .boxed()
    }
}
