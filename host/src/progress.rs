//! Progress on standard error: one line per step, and a spinner with the time spent where there is a terminal.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

pub struct Progress {
    what: String,
    began: Instant,
    bar: Option<ProgressBar>,
}

/// Starts a step and shows it.
pub fn start(what: impl Into<String>) -> Progress {
    let what = what.into();
    let bar = std::io::stderr().is_terminal().then(|| {
        let style =
            ProgressStyle::with_template("{spinner:.cyan} {msg} {elapsed:.dim}").unwrap_or_else(|_| ProgressStyle::default_spinner());
        let bar = ProgressBar::new_spinner().with_style(style).with_message(what.clone());
        bar.enable_steady_tick(Duration::from_millis(120));
        bar
    });
    if bar.is_none() {
        eprintln!("  .. {what}");
    }
    Progress { what, began: Instant::now(), bar }
}

impl Progress {
    /// Ends the step as done and shows its result.
    pub fn done(self, result: impl AsRef<str>) {
        let line = match result.as_ref() {
            "" => self.what.clone(),
            result => format!("{}: {result}", self.what),
        };
        let seconds = self.began.elapsed().as_secs_f32();
        match self.bar {
            Some(bar) => {
                bar.finish_and_clear();
                eprintln!("\x1b[32m✓\x1b[0m {line} \x1b[2m{seconds:.1}s\x1b[0m");
            }
            None => eprintln!("  ok {line} ({seconds:.1}s)"),
        }
    }

    /// Says what a part of the step has done, while it goes on.
    pub fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(format!("     {text}")),
            None => note(text),
        }
    }

    pub fn progress(&self, now: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{}: {now}", self.what));
        }
    }
}

/// Formats a time as minutes and seconds: `12:03`.
pub fn minutes(time: Duration) -> String {
    format!("{:02}:{:02}", time.as_secs() / 60, time.as_secs() % 60)
}

pub fn note(text: &str) {
    eprintln!("     {text}");
}

pub fn failure(text: &str) {
    if std::io::stderr().is_terminal() {
        eprintln!("\x1b[31m✗\x1b[0m {text}");
    } else {
        eprintln!("error: {text}");
    }
}
