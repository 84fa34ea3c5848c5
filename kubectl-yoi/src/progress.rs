//! What a wait is waiting for: a line that changes on a terminal, and a line for each change where there is none.

use std::io::IsTerminal;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::show;

/// The lines of the terminal: waits that go on side by side have one each.
static LINES: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

/// Writes something while the lines of waits are out of its way.
pub fn beside<T>(write: impl FnOnce() -> T) -> T {
    LINES.suspend(write)
}

/// How long nothing is said of what is waited for. Most waits are over by then.
pub const QUIET: Duration = Duration::from_secs(1);

/// Awaits `work`, and says after a while what is waited for.
pub async fn unless_over_soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    if let Ok(done) = tokio::time::timeout(QUIET, &mut work).await {
        return done;
    }
    let mut progress = Progress::start();
    progress.set(what);
    work.await
}

pub struct Progress {
    shown: Shown,
    begun: Instant,
    last: String,
}

enum Shown {
    Spinner(ProgressBar),
    Lines,
    Nothing,
}

impl Progress {
    /// Begins to show, on standard error.
    pub fn start() -> Self {
        let shown = if std::io::stderr().is_terminal() {
            let bar = LINES.add(ProgressBar::new_spinner());
            let style = ProgressStyle::with_template("{spinner} {elapsed:>4} {wide_msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            bar.enable_steady_tick(Duration::from_millis(120));
            Shown::Spinner(bar)
        } else {
            Shown::Lines
        };
        Progress { shown, begun: Instant::now(), last: String::new() }
    }

    /// One that shows nothing.
    pub fn silent() -> Self {
        Progress { shown: Shown::Nothing, begun: Instant::now(), last: String::new() }
    }

    /// Shows what is waited for now.
    pub fn set(&mut self, text: &str) {
        let text = show::one_line(text);
        match &self.shown {
            Shown::Spinner(bar) => bar.set_message(text),
            Shown::Lines if text != self.last => {
                eprintln!("{:>4} {text}", show::duration(i64::try_from(self.begun.elapsed().as_secs()).unwrap_or(i64::MAX)));
                self.last = text;
            }
            Shown::Lines | Shown::Nothing => {}
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        match &self.shown {
            Shown::Spinner(bar) => {
                bar.finish_and_clear();
                LINES.remove(bar);
            }
            Shown::Lines | Shown::Nothing => {}
        }
    }
}
