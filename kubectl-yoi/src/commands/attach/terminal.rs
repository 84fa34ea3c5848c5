//! The terminal of an attached person: keys come in, the screen goes out.
//!
//! The terminal is given back on every way out, a panic included (`ratatui::init`).

use std::io::stdout;
use std::pin::pin;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, DisableBracketedPaste, EnableBracketedPaste};
use ratatui::crossterm::execute;
use tokio::sync::{Mutex, mpsc};

use super::draw::draw;
use super::requests::carry_out;
use super::state::{AttachState, Effect, Event};
use super::stream::{AttachStream, StreamEvent};
use crate::cluster::Cluster;
use crate::error::Error;

/// Events that wait to be shown. A stream that is faster waits, and the runtime tells when it is too far behind.
const WAITING_EVENTS: usize = 256;

/// Shows the agent until the person leaves or it cannot be attached to any more.
pub async fn run(cluster: &Cluster, agent: &str, mut stream: AttachStream<'_>) -> Result<(), Error> {
    let (sender, events) = mpsc::channel(WAITING_EVENTS);
    let lines = sender.clone();
    let streaming = async move {
        loop {
            let event = match stream.next().await? {
                StreamEvent::Line(_, line) => Event::Line(line),
                StreamEvent::Broken(why) => Event::Broken(why),
                StreamEvent::Stopped => Event::Stopped,
            };
            if lines.send(event).await.is_err() {
                return Ok(());
            }
        }
    };
    let mut terminal = ratatui::try_init().map_err(terminal_error)?;
    // A terminal without it sends what is pasted as keys.
    let _ = execute!(stdout(), EnableBracketedPaste);
    read_keys(sender);
    let mut streaming = pin!(streaming);
    let done = tokio::select! {
        done = show(cluster, agent, &mut terminal, events) => done,
        end = &mut streaming => end,
    };
    let _ = execute!(stdout(), DisableBracketedPaste);
    ratatui::restore();
    done
}

/// Sends the keys from a thread of its own, because reading them blocks. It ends with the process.
fn read_keys(sender: mpsc::Sender<Event>) {
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            let event = match event {
                event::Event::Key(key) => Event::Key(key),
                event::Event::Paste(text) => Event::Paste(text),
                event::Event::Resize(_, _) => Event::Resized,
                event::Event::FocusGained | event::Event::FocusLost | event::Event::Mouse(_) => continue,
            };
            if sender.blocking_send(event).is_err() {
                return;
            }
        }
        // The terminal is gone.
        let _ = sender.blocking_send(Event::Terminated);
    });
}

/// Applies what comes and draws, until the state says to leave.
async fn show(cluster: &Cluster, agent: &str, terminal: &mut DefaultTerminal, mut events: mpsc::Receiver<Event>) -> Result<(), Error> {
    let mut state = AttachState::new(agent);
    // What a person says arrives in the order in which it was said. A pause overtakes it.
    let turn = Mutex::new(());
    let mut requests = FuturesUnordered::new();
    let mut terminated = pin!(terminated());
    loop {
        terminal.draw(|frame| state.scroll = draw(&state, frame)).map_err(terminal_error)?;
        let first = tokio::select! {
            biased;
            () = &mut terminated => Event::Terminated,
            Some(Some(answer)) = requests.next(), if !requests.is_empty() => answer,
            Some(event) = events.recv() => event,
            else => return Ok(()),
        };
        // What has come meanwhile is drawn at once with it.
        let mut next = Some(first);
        let mut left = WAITING_EVENTS;
        while let Some(event) = next.take() {
            for effect in state.apply(event) {
                if effect == Effect::Leave {
                    return Ok(());
                }
                requests.push(carry_out(cluster, agent, &turn, effect));
            }
            left -= 1;
            if left > 0 {
                next = events.try_recv().ok();
            }
        }
    }
}

/// Resolves when somebody ends this program, which in a terminal of keys is not Ctrl-C.
#[cfg(unix)]
async fn terminated() {
    use tokio::signal::unix::{SignalKind, signal};
    match (signal(SignalKind::terminate()), signal(SignalKind::hangup())) {
        (Ok(mut terminate), Ok(mut hangup)) => {
            tokio::select! { _ = terminate.recv() => {}, _ = hangup.recv() => {} }
        }
        // The terminal then stays as it is when the program is ended.
        _ => std::future::pending().await,
    }
}

#[cfg(not(unix))]
async fn terminated() {
    std::future::pending().await
}

fn terminal_error(error: std::io::Error) -> Error {
    Error::local("use the terminal", error, "take another terminal, or send the output through a pipe: `| cat`")
}
