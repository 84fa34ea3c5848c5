//! One process of a program: it is started, read to its end, and ended with everything that it left behind.

use std::borrow::Cow;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep, sleep_until};
use yoi_wire::identity::env;
use yoi_wire::preset::{ParserName, PresetInput};

use super::access::RunAccess;
use super::agent::{ProgramAgent, RunValues};
use super::event::{OutputParser, OutputStream, ProgramEvent};
use super::home::ProgramHome;
use super::home_size;
use super::lines::{Lines, Tail};
use super::live_lines::LiveLines;
use super::output_parser::{parser, reports_result, settings_that_end_a_run};
use crate::conversation::program::{ProgramEnd, ProgramExit};
use crate::error_text::without_os_error_number;
use crate::processes::SupervisedProcess;

/// Bytes of output in one run of which the log keeps what they say. The rest is read and dropped.
const MAX_KEPT_BYTES: u64 = 64 << 20;
const LAST_WORDS_BYTES: usize = 2048;
/// How long to read on after all processes of the program have ended.
const PIPE_DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Longer than any run.
const NO_DEADLINE: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// How long a program may go on after the proxy has refused it for a limit.
const LIMIT_GRACE: Duration = Duration::from_secs(10);

/// Stands before a text that begins with a slash.
const NO_COMMAND: &str = "[What follows is text, and no command of your own:]";

/// Takes what a program says.
pub trait ProgramLog: Send + Sync {
    /// Returns when these are in the log.
    fn say(&self, said: Vec<ProgramEvent>) -> BoxFuture<'_, ()>;
    /// Shows text that is not in the log yet.
    fn show(&self, text: &str);
    /// Whether a call of the program waits for a person. It is not silent then by its own doing.
    fn waits_for_person(&self) -> bool {
        false
    }
}

/// What a run is given.
pub struct RunInput<'a> {
    /// What the agent is asked.
    pub input: &'a str,
    /// The program's own session, in which it goes on.
    pub session: Option<&'a str>,
    /// The run's token.
    pub token: &'a str,
    /// What it may reach.
    pub access: &'a RunAccess,
    /// Notified when a limit is used up.
    pub used_up: &'a Notify,
}

/// Runs the program to its end. Every process of it has ended on return, and when the future is dropped.
pub async fn run(agent: &ProgramAgent, given: RunInput<'_>, log: &dyn ProgramLog) -> ProgramEnd {
    let expects_result = reports_result(agent.preset.parser);
    let not_started = |exit, last_words| ProgramEnd { exit, last_words, expects_result, turns_used_up: None };
    let RunInput { input, session, token, access, used_up } = given;
    let input = &as_text(agent, input);
    let values = RunValues { input, session, proxy: access.proxy.as_deref().unwrap_or_default(), token };
    if let Some(most) = agent.home_bytes.filter(|most| block_in_place(|| home_size::is_above(&agent.home, *most))) {
        // The log has to say first that the program's session is gone.
        if session.is_some() {
            return not_started(ProgramExit::HomeFull, home_size::message(&agent.preset.name, &agent.home, most));
        }
        if let Err(error) = block_in_place(|| clear_home(agent)) {
            let message = format!("failed to empty {}, which takes more than {} MiB: {error}", agent.home.display(), most >> 20);
            return not_started(ProgramExit::NotStarted, without_os_error_number(&message));
        }
    }
    if let Err(error) = block_in_place(|| prepare_home(agent, &values)) {
        let message = format!("failed to write the files of the preset {} to {}: {error}", agent.preset.name, agent.home.display());
        return not_started(ProgramExit::NotStarted, without_os_error_number(&message));
    }
    let process = match start(agent, &values, access) {
        Ok(process) => process,
        Err(_) if !agent.processes.has_program(&agent.preset.program) => {
            return not_started(ProgramExit::Missing, agent.missing_message());
        }
        Err(error) => {
            let message = format!("failed to start {}: {error}", agent.preset.program);
            return not_started(ProgramExit::NotStarted, without_os_error_number(&message));
        }
    };
    let stdin = (agent.preset.input == PresetInput::Stdin).then_some(input.as_bytes());
    let home_full = home_size::until_above(agent.home.clone(), agent.home_bytes);
    let (exit, last_words) = Reading::new(agent, log).read(process, stdin, used_up, home_full).await;
    let last_words = match (&exit, agent.home_bytes, agent.silence) {
        (ProgramExit::HomeFull, Some(most), _) => home_size::message(&agent.preset.name, &agent.home, most),
        (ProgramExit::Silent, _, Some(silence)) => {
            let (name, seconds) = (&agent.preset.name, silence.as_secs());
            let before = if last_words.is_empty() { String::new() } else { format!("; its last words: {last_words}") };
            format!("{name} was ended, because it wrote nothing for {seconds} s (spec.limits.silenceSeconds){before}")
        }
        (ProgramExit::Code(code), ..) if *code != 0 => with_remedy(agent, last_words),
        _ => last_words,
    };
    ProgramEnd { exit, last_words, expects_result, turns_used_up: None }
}

/// The last words of a run that failed, with what to do where they name a file of the tree that ends each run.
fn with_remedy(agent: &ProgramAgent, words: String) -> String {
    let names = |file: &&&str| words.contains(&*agent.processes.root().join(file).to_string_lossy());
    let Some(file) = settings_that_end_a_run(agent.preset.parser).iter().find(names) else { return words };
    let name = &agent.preset.name;
    format!(
        "{words}\n{name} reads {file} of the agent's tree before anything else, and ends each run while it cannot: mend or remove that file there, or in \
         the project's repository, and send the message again"
    )
}

/// The input as the program reads it. What begins with a slash would be a command of its own to a program that talks with people.
fn as_text<'a>(agent: &ProgramAgent, input: &'a str) -> Cow<'a, str> {
    if agent.preset.parser != ParserName::Text && input.trim_start().starts_with('/') {
        Cow::Owned(format!("{NO_COMMAND}\n{input}"))
    } else {
        Cow::Borrowed(input)
    }
}

/// Empties HOME but for the credentials: the program may have renewed them, and the Secret has the first ones only.
fn clear_home(agent: &ProgramAgent) -> io::Result<()> {
    let home = ProgramHome::open(&agent.home)?;
    let credentials = agent.credentials.iter().flat_map(|_| &agent.preset.credentials);
    let kept: Vec<_> = credentials.filter_map(|credential| Some((&credential.path, home.read(&credential.path)?))).collect();
    home.clear()?;
    kept.into_iter().try_for_each(|(path, content)| home.write(path, &content))
}

fn prepare_home(agent: &ProgramAgent, values: &RunValues<'_>) -> io::Result<()> {
    let home = ProgramHome::open(&agent.home)?;
    for file in &agent.preset.files {
        home.write(&file.path, agent.fill(&file.content, values).as_bytes())?;
    }
    if let Some(folder) = &agent.credentials {
        for credential in &agent.preset.credentials {
            let from = folder.join(&credential.key);
            // The Secret need not hold every key that the program can use.
            if from.exists() {
                home.write_once(&credential.path, &from)?;
            }
        }
    }
    Ok(())
}

fn start(agent: &ProgramAgent, values: &RunValues<'_>, access: &RunAccess) -> io::Result<SupervisedProcess> {
    agent.processes.start(&agent.preset.program, |command| {
        command.args(agent.arguments(values)).env("HOME", &agent.home);
        command.envs(agent.preset.env.iter().map(|(name, value)| (name, agent.fill(value, values))));
        if let Some(socket) = &access.socket {
            command.env(env::PROGRAM_SOCKET, socket).env(env::PROGRAM_TOKEN, values.token);
        }
        if agent.preset.input == PresetInput::Stdin {
            command.stdin(Stdio::piped());
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
    })
}

struct Reading<'a> {
    parser: Box<dyn OutputParser>,
    log: &'a dyn ProgramLog,
    lines: Lines,
    /// Tells the lines of both streams; absent: the parser understands the output.
    live: Option<LiveLines>,
    out_tail: Tail,
    err_tail: Tail,
    /// Bytes read so far.
    read: u64,
    result_grace: Duration,
    silence: Duration,
    /// The program has told a result, and nothing that it does since.
    has_result: bool,
}

impl<'a> Reading<'a> {
    fn new(agent: &ProgramAgent, log: &'a dyn ProgramLog) -> Self {
        let tail = || Tail::new(LAST_WORDS_BYTES);
        Self {
            parser: parser(agent.preset.parser),
            log,
            lines: Lines::default(),
            live: (agent.preset.parser == ParserName::Text).then(LiveLines::default),
            out_tail: tail(),
            err_tail: tail(),
            read: 0,
            result_grace: agent.result_grace,
            silence: agent.silence.unwrap_or(NO_DEADLINE),
            has_result: false,
        }
    }

    async fn read(
        mut self,
        mut process: SupervisedProcess,
        stdin: Option<&[u8]>,
        limit: &Notify,
        home_full: impl Future<Output = ()>,
    ) -> (ProgramExit, String) {
        let (pipe_in, out, err) = process.take_pipes();
        let (Some(mut out), Some(mut err)) = (out, err) else { return (ProgramExit::NotStarted, "it has no output".to_owned()) };
        let mut write = pin!(async move {
            if let (Some(mut pipe), Some(text)) = (pipe_in, stdin) {
                // A program may read only a part of it.
                let _ = pipe.write_all(text).await;
            }
        });
        let mut home_full = pin!(home_full);
        let mut is_home_full = false;
        let mut deadline = pin!(sleep(NO_DEADLINE));
        let mut silence = pin!(sleep(self.silence));
        let mut is_silent = false;
        let (mut out_buffer, mut err_buffer) = (vec![0; 64 << 10], vec![0; 16 << 10]);
        let (mut writes, mut out_open, mut err_open) = (true, true, true);
        let (mut status, mut used_up): (Option<io::Result<ExitStatus>>, bool) = (None, false);
        while out_open || err_open || status.is_none() {
            let lines_due = self.live.as_ref().and_then(LiveLines::due);
            tokio::select! {
                () = sleep_until(lines_due.unwrap_or_else(Instant::now)), if lines_due.is_some() => {
                    let lines = self.live.as_mut().map(LiveLines::take).unwrap_or_default();
                    log_events(self.log, lines).await;
                }
                () = &mut write, if writes => writes = false,
                read = out.read(&mut out_buffer), if out_open => match read {
                    Ok(0) | Err(_) => out_open = false,
                    Ok(read) => {
                        let had_result = self.has_result;
                        self.take(&out_buffer[..read]).await;
                        // After the log has it: a slow disk is no silence.
                        silence.as_mut().reset(Instant::now() + self.silence);
                        if status.is_none() && !used_up && !is_home_full && !is_silent && had_result != self.has_result {
                            let wait = if self.has_result { self.result_grace } else { NO_DEADLINE };
                            deadline.as_mut().reset(Instant::now() + wait);
                        }
                    }
                },
                read = err.read(&mut err_buffer), if err_open => match read {
                    Ok(0) | Err(_) => err_open = false,
                    Ok(read) => {
                        self.err_tail.push(&err_buffer[..read]);
                        self.push_live(OutputStream::Stderr, &err_buffer[..read]).await;
                        silence.as_mut().reset(Instant::now() + self.silence);
                    }
                },
                ended = process.wait(), if status.is_none() => {
                    status = Some(ended);
                    // What it left behind would keep the pipes open, and write to the tree between runs.
                    block_in_place(|| process.kill_tree());
                    deadline.as_mut().reset(Instant::now() + PIPE_DRAIN_TIMEOUT);
                }
                () = &mut home_full, if !is_home_full && status.is_none() => {
                    is_home_full = true;
                    block_in_place(|| process.kill_tree());
                    deadline.as_mut().reset(Instant::now() + PIPE_DRAIN_TIMEOUT);
                }
                // A call of it that waits for a person is no silence of its own.
                () = &mut silence, if !is_silent && status.is_none() => {
                    if self.log.waits_for_person() {
                        silence.as_mut().reset(Instant::now() + self.silence);
                    } else {
                        is_silent = true;
                        block_in_place(|| process.kill_tree());
                        deadline.as_mut().reset(Instant::now() + PIPE_DRAIN_TIMEOUT);
                    }
                }
                () = limit.notified(), if !used_up && status.is_none() => {
                    used_up = true;
                    deadline.as_mut().reset(Instant::now() + LIMIT_GRACE);
                }
                () = &mut deadline => {
                    if status.is_some() {
                        break;
                    }
                    block_in_place(|| process.kill_tree());
                    deadline.as_mut().reset(Instant::now() + PIPE_DRAIN_TIMEOUT);
                }
            }
        }
        self.finish().await;
        let exit = match status.and_then(Result::ok) {
            Some(status) if is_home_full => (ProgramExit::HomeFull, status),
            Some(status) if is_silent && !status.success() => (ProgramExit::Silent, status),
            Some(status) if used_up && !status.success() => (ProgramExit::Limit, status),
            Some(status) => match (status.code(), status.signal()) {
                (Some(code), _) => (ProgramExit::Code(code), status),
                (None, Some(signal)) => (ProgramExit::Signal(signal), status),
                (None, None) => (ProgramExit::Code(-1), status),
            },
            None => return (ProgramExit::NotStarted, "how it ended is not known".to_owned()),
        };
        let words = self.err_tail.words();
        (exit.0, if words.is_empty() { self.out_tail.words() } else { words })
    }

    /// What fills an entry is logged before more is read.
    async fn push_live(&mut self, stream: OutputStream, bytes: &[u8]) {
        let Some(live) = &mut self.live else { return };
        live.push(stream, bytes);
        if live.due().is_some_and(|due| due <= Instant::now()) {
            log_events(self.log, live.take()).await;
        }
    }

    async fn take(&mut self, bytes: &[u8]) {
        self.out_tail.push(bytes);
        self.push_live(OutputStream::Stdout, bytes).await;
        self.read += bytes.len() as u64;
        let (parser, mut said) = (&mut self.parser, Vec::new());
        self.lines.push(bytes, |line| said.extend(parser.push_line(line)));
        self.pass_on(said).await;
    }

    async fn finish(&mut self) {
        let lines = self.live.as_mut().map(LiveLines::finish).unwrap_or_default();
        log_events(self.log, lines).await;
        let (parser, mut said) = (&mut self.parser, Vec::new());
        self.lines.finish(|line| said.extend(parser.push_line(line)));
        self.pass_on(said).await;
        let mut last = self.parser.finish();
        if self.read > MAX_KEPT_BYTES {
            let line = format!(
                "[the program wrote {} bytes; of those after the first {MAX_KEPT_BYTES} only its session, its result and its end are kept]",
                self.read
            );
            last.push(ProgramEvent::Other { line });
        }
        log_events(self.log, last).await;
    }

    async fn pass_on(&mut self, mut said: Vec<ProgramEvent>) {
        for event in &said {
            match event {
                ProgramEvent::Result { .. } => self.has_result = true,
                // It goes on, for example because a task of its own has ended.
                ProgramEvent::Answer(_) | ProgramEvent::CallStarted { .. } | ProgramEvent::Delta { .. } => self.has_result = false,
                ProgramEvent::Session { .. }
                | ProgramEvent::CallEnded { .. }
                | ProgramEvent::Usage(_)
                | ProgramEvent::Notice { .. }
                | ProgramEvent::Output { .. }
                | ProgramEvent::Other { .. } => {}
            }
        }
        if self.read > MAX_KEPT_BYTES {
            said.retain(|event| match event {
                ProgramEvent::Session { .. } | ProgramEvent::Result { .. } | ProgramEvent::Usage(_) | ProgramEvent::Notice { .. } => true,
                ProgramEvent::Delta { .. }
                | ProgramEvent::Answer(_)
                | ProgramEvent::CallStarted { .. }
                | ProgramEvent::CallEnded { .. }
                | ProgramEvent::Output { .. }
                | ProgramEvent::Other { .. } => false,
            });
        }
        log_events(self.log, said).await;
    }
}

async fn log_events(log: &dyn ProgramLog, said: Vec<ProgramEvent>) {
    let (mut shown, mut logged) = (String::new(), Vec::new());
    for event in said {
        match event {
            ProgramEvent::Delta { text } => shown.push_str(&text),
            other => logged.push(other),
        }
    }
    if !shown.is_empty() {
        log.show(&shown);
    }
    if !logged.is_empty() {
        log.say(logged).await;
    }
}

#[cfg(test)]
mod tests;
