//! An agent in a terminal, on any folder, without a cluster and without root.
//!
//! ```sh
//! export YOI_MODEL=NAME YOI_MODEL_URL=https://HOST/v1/ YOI_MODEL_KEY=KEY
//! cargo run -p yoi-engine --example project -- FOLDER                   # lines of the terminal are messages; Ctrl-D ends
//! cargo run -p yoi-engine --example project -- FOLDER "Fix the build."  # one message, and ends with its run
//! ```
//!
//! Its programs write that folder, a HOME and a folder for temporary files of their own, and nothing else, where the kernel has Landlock. Folders of the
//! person's with keys are closed to them. The record is kept under `~/.local/state/yoi`, so the next start goes on with the conversation.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::{Parser, ValueEnum};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use uuid::Uuid;
use yoi_assets::{AssetSnapshot, AssetState, Level};
use yoi_engine::engine::Engine;
use yoi_engine::model::ApiKey;
use yoi_engine::project::{Project, ProjectOptions};
use yoi_session::Token;
use yoi_wire::approval::ApprovalRequest;
use yoi_wire::control::{AttachLine, ControlAction, DeltaKind};
use yoi_wire::entry::{Body, RunEnded, RunOutcome, ToolOutcome};
use yoi_wire::manifest::{ModelEndpoint, ModelProvider};
use yoi_wire::policy::ToolPolicy;

/// What people keep keys in, beneath their home.
const CLOSED: [&str; 9] = [".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".config/gcloud", ".config/gh"];

#[derive(Parser)]
#[command(about = "An agent that works in a folder, without a cluster")]
struct Args {
    /// The folder that it works in.
    folder: PathBuf,
    /// One message; the program ends with the run that it starts. Without it, lines of the standard input are messages.
    text: Option<String>,
    /// Name of the model, as its endpoint knows it.
    #[arg(long, env = "YOI_MODEL")]
    model: String,
    /// Base URL of the endpoint, with the version: `https://HOST/v1/`. Without it, that of the provider.
    #[arg(long, env = "YOI_MODEL_URL")]
    url: Option<String>,
    /// The endpoint's key. Only from the environment, because others see arguments.
    #[arg(long, env = "YOI_MODEL_KEY", hide_env_values = true, hide = true)]
    key: Option<String>,
    /// The endpoint's wire format.
    #[arg(long, env = "YOI_MODEL_PROVIDER", default_value = "openai")]
    provider: Provider,
    /// Seconds for which a call of the model that fails is tried again.
    #[arg(long, default_value_t = 120)]
    patience: u64,
    /// A policy: a file of YAML or JSON, in the form of `spec.policy`.
    #[arg(long)]
    policy: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Provider {
    Openai,
    Anthropic,
    Gemini,
}

#[tokio::main]
async fn main() -> ExitCode {
    // What waits, and why: an endpoint that does not answer is tried again.
    let log = tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_target(false).without_time();
    log.with_ansi(std::io::stderr().is_terminal()).with_writer(std::io::stderr).init();
    match run(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<()> {
    let engine = Engine::default();
    let project = engine.start_project(options(&args)?).await?;
    if let Some(lacks) = project.unframed() {
        eprintln!("Not all is kept from its programs: {lacks}");
    }
    tell_assets(&project.assets());
    let result = match &args.text {
        Some(text) => one_run(&project, text).await,
        None => talk(&project).await,
    };
    engine.stop_project(project.id()).await?;
    result
}

/// What of the folder's skills and commands was loaded, and what was not.
fn tell_assets(assets: &AssetSnapshot) {
    let valid = |states: &mut dyn Iterator<Item = &AssetState>| states.filter(|state| state.is_valid()).count();
    let skills = valid(&mut assets.skills.iter().map(|skill| &skill.state));
    let commands = valid(&mut assets.commands.iter().map(|command| &command.state));
    if skills + commands > 0 {
        eprintln!("{skills} skills and {commands} commands of the folder");
    }
    for one in assets.diagnostics.iter().filter(|one| one.level == Level::Error) {
        eprintln!("not loaded: {one}");
    }
}

fn options(args: &Args) -> Result<ProjectOptions> {
    let root = args.folder.canonicalize().with_context(|| format!("failed to find the folder {}", args.folder.display()))?;
    let home = std::env::home_dir().context("failed to find your home directory: HOME is not set")?;
    let place = hex::encode(&Sha256::digest(root.as_os_str().as_encoded_bytes())[..8]);
    let provider = match args.provider {
        Provider::Openai => ModelProvider::OpenAI,
        Provider::Anthropic => ModelProvider::Anthropic,
        Provider::Gemini => ModelProvider::Gemini,
    };
    let model =
        ModelEndpoint { base_url: args.url.clone(), patience_seconds: Some(args.patience), ..ModelEndpoint::new(provider, &args.model) };
    let mut options = ProjectOptions::new("local", root, home.join(".local/state/yoi").join(place), model);
    options.secrets = vec![args.key.clone().map(ApiKey::new).into()];
    options.closed = CLOSED.iter().map(|name| home.join(name)).filter(|path| path.exists()).collect();
    options.env = ["PATH", "LANG"].into_iter().filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?))).collect();
    if let Some(path) = &args.policy {
        options.policy = policy(path)?;
    }
    Ok(options)
}

fn policy(path: &Path) -> Result<ToolPolicy> {
    let text = std::fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))?;
    serde_yaml::from_str(&text).with_context(|| format!("{} is no policy", path.display()))
}

fn user() -> String {
    std::env::var("USER").unwrap_or_else(|_| "me".to_owned())
}

/// Gives it one message and prints what comes of it, until the run that answers it has ended.
async fn one_run(project: &Project, text: &str) -> Result<()> {
    let mut followed = project.follow(Token::Start, Some(0)).await?.into_receiver();
    let id = Uuid::now_v7();
    project.send(&user(), id, text).await?;
    let (mut screen, mut taken) = (Screen::default(), false);
    loop {
        let lines = tokio::select! {
            lines = followed.recv() => lines,
            _ = tokio::signal::ctrl_c() => bail!("interrupted; the record has what was done"),
        };
        let Some(lines) = lines else { bail!("{}", project.ended().await) };
        for line in lines? {
            screen.print(&line)?;
            let AttachLine::Entry { entry, .. } = line else { continue };
            match &entry.body {
                Body::Input(input) => taken |= input.message_id == id.to_string(),
                Body::ToolAsked(_) => {
                    let because = Some("nobody is there to answer: there is one message and no terminal for more".to_owned());
                    project.approve(&user(), ApprovalRequest { call: entry.seq, approve: false, always: false, because }).await?;
                }
                Body::RunEnded(end) if taken && end.outcome == RunOutcome::Finished => return Ok(()),
                Body::RunEnded(end) if taken => bail!("the run has not finished: {:?}", end.outcome),
                _ => {}
            }
        }
    }
}

/// Sends each line that is typed and prints all that happens. Ctrl-C cancels a run. At the end of the input it waits for the answers, unless a person ended it.
async fn talk(project: &Project) -> Result<()> {
    let mut screen = Screen::default();
    let mut followed = project.follow(Token::Start, Some(20)).await?.into_receiver();
    let mut typed = BufReader::new(tokio::io::stdin()).lines();
    // Messages that are not in the log yet, whether a run is open, and whether more may come.
    let (mut waiting, mut in_run, mut open) = (BTreeSet::new(), false, true);
    if std::io::stdin().is_terminal() {
        eprintln!("A line is a message. Ctrl-C cancels a run, Ctrl-D ends.");
    }
    while open || in_run || !waiting.is_empty() {
        tokio::select! {
            lines = followed.recv() => {
                let Some(lines) = lines else { bail!("{}", project.ended().await) };
                for line in lines? {
                    screen.print(&line)?;
                    let AttachLine::Entry { entry, .. } = line else { continue };
                    match &entry.body {
                        Body::Input(input) => _ = waiting.remove(&input.message_id),
                        Body::RunStarted(_) => in_run = true,
                        Body::RunEnded(_) => in_run = false,
                        _ => {}
                    }
                }
            }
            line = typed.next_line(), if open => match line? {
                Some(line) if line.trim().is_empty() => {}
                Some(line) if answer(project, &line).await? => {}
                Some(line) => {
                    let id = Uuid::now_v7();
                    project.send(&user(), id, &line).await?;
                    waiting.insert(id.to_string());
                }
                None if std::io::stdin().is_terminal() => return Ok(()),
                None => open = false,
            },
            _ = tokio::signal::ctrl_c() => {
                let response = project.control(&user(), ControlAction::Cancel {}).await?;
                if let Some(refused) = response.refused {
                    eprintln!("{}", refused.message);
                }
            }
        }
    }
    Ok(())
}

/// Takes the line as the answer to the call that has waited longest: `y`, `a` (yes, and to all that the same rules ask about) or `n REASON`. False: none
/// waits, or it is no answer.
async fn answer(project: &Project, line: &str) -> Result<bool> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let (approve, always) = match (word, rest) {
        ("y", "") => (true, false),
        ("a", "") => (true, true),
        ("n", _) => (false, false),
        _ => return Ok(false),
    };
    let Some(call) = project.waiting_calls().await?.into_iter().next() else { return Ok(false) };
    let because = Some(rest.to_owned()).filter(|rest| !rest.is_empty());
    match project.approve(&user(), ApprovalRequest { call: call.call, approve, always, because }).await {
        Ok(_) => {}
        Err(error) => eprintln!("{error}"),
    }
    Ok(true)
}

/// Prints what is followed: answers to the standard output as they come, all else to the standard error.
#[derive(Default)]
struct Screen {
    /// Pieces of the answer that is not in the log yet have been printed.
    begun: bool,
}

impl Screen {
    fn print(&mut self, line: &AttachLine) -> Result<()> {
        match line {
            AttachLine::Delta(delta) if delta.kind == DeltaKind::Text => {
                print!("{}", safe(&delta.text));
                self.begun = true;
            }
            AttachLine::Delta(delta) if delta.kind == DeltaKind::Discarded && self.begun => {
                println!(" [this answer broke off]");
                self.begun = false;
            }
            AttachLine::Entry { entry, .. } => self.print_entry(&entry.body),
            _ => {}
        }
        Ok(std::io::stdout().flush()?)
    }

    fn print_entry(&mut self, body: &Body) {
        match body {
            Body::Assistant(answer) => {
                match (self.begun, answer.text.is_empty()) {
                    (true, _) => println!(),
                    (false, false) => println!("{}", safe(&answer.text)),
                    (false, true) => {}
                }
                self.begun = false;
                for call in &answer.tool_calls {
                    eprintln!("> {} {}", safe(&call.tool), safe(&call.args.to_string()));
                }
            }
            Body::ToolEnded(end) if end.outcome != ToolOutcome::Succeeded => eprintln!("  {:?}: {}", end.outcome, safe(&end.output)),
            Body::ToolAsked(asked) => {
                eprintln!("{} waits for you, by the rule {}: y, a (always) or n REASON", safe(&asked.tool), safe(&asked.rules.join(", ")));
            }
            Body::Notice(notice) => eprintln!("{}: {}", notice.reason, safe(&notice.message)),
            Body::RunEnded(RunEnded { outcome, reason, message, .. }) if *outcome != RunOutcome::Finished => {
                eprintln!(
                    "run ended: {outcome:?} {} {}",
                    reason.as_deref().unwrap_or_default(),
                    safe(message.as_deref().unwrap_or_default())
                );
            }
            _ => {}
        }
    }
}

/// Text of a model or a program, without what a terminal would carry out.
fn safe(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c }).collect()
}
