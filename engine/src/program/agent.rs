//! A program that is the agent: its preset, and what its placeholders stand for.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::sync::OnceCell;
use yoi_wire::preset::{ParserName, Preset, PresetInput};

use super::access::ProgramAccess;
use crate::conversation::program::ProgramRole;
use crate::processes::ProcessSupervisor;

/// Name of an agent that is a command.
pub const COMMAND: &str = "command";
/// How long the processes of a program may go on after it has told the result of a run.
pub const RESULT_GRACE: Duration = Duration::from_secs(30);
const VERSION_TIMEOUT: Duration = Duration::from_secs(20);
const MAX_VERSION_BYTES: usize = 4096;

/// A program that is the agent.
pub struct ProgramAgent {
    /// How it is driven.
    pub preset: Preset,
    /// Its arguments are as the user wrote them: they have no placeholders.
    pub literal: bool,
    /// Added to the preset's arguments.
    pub args: Vec<String>,
    /// The folder of the user's credentials, one file a key.
    pub credentials: Option<PathBuf>,
    /// Its HOME.
    pub home: PathBuf,
    /// The most bytes that HOME may have; absent: it is not bounded.
    pub home_bytes: Option<u64>,
    /// Name of its model.
    pub model: String,
    /// The binary of this process.
    pub runtime: PathBuf,
    /// Starts it.
    pub processes: Arc<ProcessSupervisor>,
    /// What its runs may reach of this process.
    pub access: Arc<dyn ProgramAccess>,
    /// What the program says of itself, once it was asked.
    pub version: OnceCell<ProgramVersion>,
    /// How long its processes may go on after it has told the result of a run and nothing more.
    pub result_grace: Duration,
    /// How long it may write nothing before it is ended; absent: for ever.
    pub silence: Option<Duration>,
    /// The log has a notice of its version.
    pub noted: AtomicBool,
}

impl fmt::Debug for ProgramAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProgramAgent").field("preset", &self.preset.name).field("home", &self.home).finish_non_exhaustive()
    }
}

/// The preset of an agent that is a command; `None` without a program.
#[must_use]
pub fn command_preset(command: &[String]) -> Option<Preset> {
    let (program, args) = command.split_first()?;
    Some(Preset {
        name: COMMAND.to_owned(),
        program: program.clone(),
        version_args: Vec::new(),
        versions: Vec::new(),
        first_args: args.to_vec(),
        resumed_args: None,
        input: PresetInput::Stdin,
        env: std::collections::BTreeMap::new(),
        files: Vec::new(),
        speaks: Vec::new(),
        parser: ParserName::Text,
        hooks: false,
        credentials: Vec::new(),
        login: None,
    })
}

/// What the program in the image says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramVersion {
    /// The parser knows it, or the preset names no versions.
    Known,
    /// Another one.
    Other(String),
    /// It is not in the image.
    Missing,
}

/// What stands for the placeholders in one run.
#[derive(Clone, Debug)]
pub struct RunValues<'a> {
    /// What the agent is asked.
    pub input: &'a str,
    /// The program's own session.
    pub session: Option<&'a str>,
    /// Base URL of the proxy.
    pub proxy: &'a str,
    /// The run's token.
    pub token: &'a str,
}

impl ProgramAgent {
    /// What the conversation has to know of it.
    #[must_use]
    pub fn role(&self) -> ProgramRole {
        let login = self.preset.login.as_ref().filter(|_| self.credentials.is_some());
        ProgramRole {
            name: self.preset.name.clone(),
            resumes: self.preset.resumed_args.is_some(),
            login_prompts: login.map(|login| login.prompts.clone()).unwrap_or_default(),
        }
    }

    /// Its arguments for a run.
    #[must_use]
    pub fn arguments(&self, values: &RunValues<'_>) -> Vec<String> {
        let preset = match (values.session, &self.preset.resumed_args) {
            (Some(_), Some(resumed)) => resumed,
            (None, _) | (_, None) => &self.preset.first_args,
        };
        // A login has a model of its own when the agent names none.
        let has_model = |arg: &&String| self.literal || !self.model.is_empty() || !arg.contains("${model}");
        let filled = preset.iter().filter(has_model).map(|arg| if self.literal { arg.clone() } else { self.fill(arg, values) });
        filled.chain(self.args.iter().cloned()).collect()
    }

    /// `text` with its placeholders filled in. What is filled in is not looked through again.
    #[must_use]
    pub fn fill(&self, text: &str, values: &RunValues<'_>) -> String {
        let (home, tree) = (self.home.to_string_lossy(), self.processes.root().to_string_lossy());
        let runtime = self.runtime.to_string_lossy();
        let (mut filled, mut rest) = (String::with_capacity(text.len()), text);
        while let Some(at) = rest.find("${") {
            filled.push_str(&rest[..at]);
            rest = &rest[at..];
            let end = rest.find('}').map_or(rest.len(), |end| end + 1);
            filled.push_str(match &rest[..end] {
                "${input}" => values.input,
                "${session}" => values.session.unwrap_or_default(),
                "${model}" => &self.model,
                "${proxy}" => values.proxy,
                "${token}" => values.token,
                "${runtime}" => &runtime,
                "${home}" => &home,
                "${tree}" => &tree,
                other => other,
            });
            rest = &rest[end..];
        }
        filled + rest
    }

    /// Asks the program for its version once, where the preset says how.
    pub async fn version(&self) -> &ProgramVersion {
        self.version.get_or_init(|| self.ask_version()).await
    }

    /// What differs, in a sentence for people; `None` where nothing does.
    pub async fn version_message(&self) -> Option<String> {
        match self.version().await {
            ProgramVersion::Known => None,
            ProgramVersion::Missing => Some(self.missing_message()),
            ProgramVersion::Other(version) => Some(format!(
                "the program {} is of the version {version:?}, and its preset knows {}; it runs, and lines that are not understood stand in the log as they came",
                self.preset.program,
                self.preset.versions.join(", ")
            )),
        }
    }

    async fn ask_version(&self) -> ProgramVersion {
        let Preset { program, version_args, versions, .. } = &self.preset;
        if !self.processes.has_program(program) {
            return ProgramVersion::Missing;
        }
        if version_args.is_empty() || versions.is_empty() {
            return ProgramVersion::Known;
        }
        let args: Vec<&str> = version_args.iter().map(String::as_str).collect();
        let env = [("HOME", self.home.as_os_str())];
        let said = match self.processes.capture(program, &args, &env, VERSION_TIMEOUT, MAX_VERSION_BYTES).await {
            Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned() + &output.stderr,
            Err(error) => format!("no version: {error}"),
        };
        let mut words = said.split(|letter: char| letter.is_whitespace() || letter == '/').map(|word| word.trim_start_matches('v'));
        if words.any(|word| versions.iter().any(|known| word.starts_with(known.as_str()))) {
            ProgramVersion::Known
        } else {
            ProgramVersion::Other(
                said.lines().find(|line| !line.trim().is_empty()).unwrap_or("no version").trim().chars().take(200).collect(),
            )
        }
    }

    /// Whether the image holds it.
    #[must_use]
    pub fn is_in_image(&self) -> bool {
        self.processes.has_program(&self.preset.program)
    }

    /// Why the program cannot run, in a sentence for people.
    #[must_use]
    pub fn missing_message(&self) -> String {
        let program = &self.preset.program;
        format!(
            "the program {program} is not in the image of this Pod, or not in its PATH {}; name an image that holds it in spec.pod.image",
            self.processes.path().to_string_lossy()
        )
    }
}
