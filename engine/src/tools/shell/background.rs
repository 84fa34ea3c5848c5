//! Commands that outlive the call that started them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::memory_kills::MemoryKills;
use super::terminal_text::TerminalText;
use super::{PIPE_DRAIN_TIMEOUT, StartedCommand, describe_end, end_line, read_rest};
use crate::tools::output_limit::truncate;

/// Commands that run at once.
pub const MAX_BACKGROUND: usize = 8;
/// Commands that have ended, and whose output can still be read.
const MAX_ENDED: usize = 8;
/// Bytes of unread output that are kept of each command.
const MAX_UNREAD_BYTES: usize = 256 << 10;

/// Why a background command cannot be started or used. The text is for the model.
#[derive(Debug, thiserror::Error)]
pub enum BackgroundError {
    #[error("background_slots_full: {MAX_BACKGROUND} commands run in the background ({ids}); end one with ShellStop")]
    Full { ids: String },
    #[error("there is no background command {id:?}; there are {ids}. They end when the agent's process restarts")]
    Unknown { id: String, ids: String },
    #[error("{message}")]
    Start { message: String },
}

/// What a background command wrote since it was last read, and whether it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackgroundOutput {
    /// New output, ending in a newline unless it is empty.
    pub text: String,
    /// How it ended, in brackets; `None` while it runs.
    pub end: Option<String>,
}

/// The background commands of one conversation. All end when this value is dropped.
#[derive(Debug, Default)]
pub struct BackgroundProcesses {
    all: Mutex<VecDeque<Arc<BackgroundProcess>>>,
    /// How many run.
    running: watch::Sender<usize>,
}

/// One background command.
#[derive(Debug)]
pub struct BackgroundProcess {
    id: String,
    output: Mutex<Unread>,
    progress: watch::Sender<Progress>,
    stop: CancellationToken,
}

#[derive(Clone, Debug, Default)]
struct Progress {
    /// Bytes that the command wrote.
    received: u64,
    /// How it ended.
    end: Option<String>,
}

/// The output that nobody has read.
#[derive(Debug, Default)]
struct Unread {
    terminal: TerminalText,
    text: String,
    /// Bytes of text that were dropped because nobody read them in time.
    dropped: u64,
    /// [`Progress::received`] at the last read.
    read_at: u64,
}

impl BackgroundProcesses {
    /// Starts a command by `start` and returns its id.
    pub fn start(&self, kills: &MemoryKills, start: impl FnOnce() -> Result<StartedCommand, String>) -> Result<String, BackgroundError> {
        let mut all = self.lock();
        let running = all.iter().filter(|process| process.is_running());
        let ids: Vec<&str> = running.map(|process| process.id.as_str()).collect();
        if ids.len() >= MAX_BACKGROUND {
            return Err(BackgroundError::Full { ids: ids.join(", ") });
        }
        let started = start().map_err(|message| BackgroundError::Start { message })?;
        // Random, so that an id from before a restart never names another command.
        let id = format!("sh-{}", &Uuid::new_v4().simple().to_string()[..8]);
        let process = Arc::new(BackgroundProcess {
            id: id.clone(),
            output: Mutex::default(),
            progress: watch::Sender::new(Progress::default()),
            stop: CancellationToken::new(),
        });
        process.lock().text.push_str(&started.note);
        let (running, kept) = (self.running.clone(), process.clone().keep(started, kills.clone()));
        running.send_modify(|running| *running += 1);
        tokio::spawn(async move {
            kept.await;
            running.send_modify(|running| *running = running.saturating_sub(1));
        });
        let over = all.iter().filter(|process| !process.is_running()).count().saturating_sub(MAX_ENDED);
        for _ in 0..over {
            if let Some(oldest) = all.iter().position(|process| !process.is_running()) {
                all.remove(oldest);
            }
        }
        all.push_back(process);
        Ok(id)
    }

    /// The command with this id.
    pub fn get(&self, id: &str) -> Result<Arc<BackgroundProcess>, BackgroundError> {
        let all = self.lock();
        all.iter().find(|process| process.id == id).cloned().ok_or_else(|| {
            let ids: Vec<&str> = all.iter().map(|process| process.id.as_str()).collect();
            let ids = if ids.is_empty() { "none".to_owned() } else { ids.join(", ") };
            BackgroundError::Unknown { id: id.to_owned(), ids }
        })
    }

    /// Whether one runs.
    pub fn is_running(&self) -> bool {
        self.lock().iter().any(|process| process.is_running())
    }

    /// How many run, and every change of that.
    pub fn count(&self) -> watch::Receiver<usize> {
        self.running.subscribe()
    }

    /// Ends all. Their processes have ended on return.
    pub async fn stop_all(&self) {
        let all: Vec<_> = self.lock().iter().cloned().collect();
        for process in &all {
            process.stop.cancel();
        }
        for process in &all {
            process.stop().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<BackgroundProcess>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for BackgroundProcesses {
    fn drop(&mut self) {
        for process in self.lock().iter() {
            process.stop.cancel();
        }
    }
}

impl BackgroundProcess {
    fn is_running(&self) -> bool {
        self.progress.borrow().end.is_none()
    }

    /// Ends it with all its processes. They have ended on return.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.wait_for_end().await;
    }

    /// Waits until it has ended with all its processes.
    pub async fn wait_for_end(&self) {
        // An error would mean that the sender is gone, and it is a field of this value.
        let _ = self.progress.subscribe().wait_for(|progress| progress.end.is_some()).await;
    }

    /// Takes what was written since the last read, in at most `bytes` bytes. Waits up to `wait` for something new or for the end.
    pub async fn read(&self, wait: Duration, bytes: usize) -> BackgroundOutput {
        let read_at = self.lock().read_at;
        let mut changes = self.progress.subscribe();
        let news = changes.wait_for(|progress| progress.received > read_at || progress.end.is_some());
        let _ = tokio::time::timeout(wait, news).await;
        let progress = self.progress.borrow().clone();
        let mut unread = self.lock();
        unread.read_at = progress.received;
        let Unread { terminal, text, .. } = &mut *unread;
        terminal.flush(text);
        let mut text = std::mem::take(&mut unread.text);
        let dropped = std::mem::take(&mut unread.dropped);
        drop(unread);
        if dropped > 0 {
            text.insert_str(0, &format!("[{dropped} bytes before this were dropped, because nobody read them]\n"));
        }
        end_line(&mut text);
        BackgroundOutput { text: truncate(text, bytes), end: progress.end }
    }

    /// Collects the output until the command ends or is stopped. Dropping this ends the command too.
    async fn keep(self: Arc<Self>, started: StartedCommand, kills: MemoryKills) {
        let StartedCommand { mut process, output: mut pipe, last_directory: _, directory: _, kills_before, note: _ } = started;
        let mut buffer = vec![0; 16 << 10];
        let (mut open, mut status, mut stopped) = (true, None, false);
        let mut drained = std::pin::pin!(tokio::time::sleep(Duration::MAX));
        while open || status.is_none() {
            tokio::select! {
                read = pipe.read(&mut buffer), if open => match read {
                    Ok(0) | Err(_) => open = false,
                    Ok(read) => self.push(&buffer[..read]),
                },
                ended = process.wait(), if status.is_none() => {
                    status = Some(ended.ok());
                    process.kill_tree();
                    drained.as_mut().reset(tokio::time::Instant::now() + PIPE_DRAIN_TIMEOUT);
                }
                () = self.stop.cancelled(), if !stopped => {
                    stopped = true;
                    process.kill_tree();
                    drained.as_mut().reset(tokio::time::Instant::now() + PIPE_DRAIN_TIMEOUT);
                }
                () = &mut drained => {
                    read_rest(&pipe, &mut buffer, |bytes| self.push(bytes));
                    break;
                }
            }
        }
        let end = if stopped { "[stopped]".to_owned() } else { describe_end(status.flatten(), kills_before, kills.count()).1 };
        let mut unread = self.lock();
        let Unread { terminal, text, .. } = &mut *unread;
        terminal.finish(text);
        drop(unread);
        // Its processes have ended before anybody learns that it has.
        drop(process);
        self.progress.send_modify(|progress| progress.end = Some(end));
    }

    fn push(&self, bytes: &[u8]) {
        let mut unread = self.lock();
        let Unread { terminal, text, dropped, .. } = &mut *unread;
        terminal.push(bytes, text);
        if text.len() > MAX_UNREAD_BYTES {
            let over = text.ceil_char_boundary(text.len() - MAX_UNREAD_BYTES);
            text.drain(..over);
            *dropped += over as u64;
        }
        drop(unread);
        self.progress.send_modify(|progress| progress.received += bytes.len() as u64);
    }

    fn lock(&self) -> MutexGuard<'_, Unread> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
