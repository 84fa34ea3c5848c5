//! A terminal that a test types into, and whose screen it reads.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::sync::watch;

use crate::plugin::Plugin;

/// No step of these tests takes longer.
const LONGEST: Duration = Duration::from_secs(60);
const ROWS: u16 = 20;
const COLUMNS: u16 = 80;

/// The plugin in a terminal of 80 columns and 20 rows.
pub struct Terminal {
    child: Child,
    keys: File,
    screen: Arc<Mutex<vt100::Parser>>,
    /// Raised whenever the screen has changed; closed at the end.
    changed: watch::Receiver<u64>,
}

impl Terminal {
    pub fn start(plugin: &Plugin, words: &[&str]) -> Result<Self> {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        grantpt(&controller)?;
        unlockpt(&controller)?;
        tcsetwinsize(&controller, Winsize { ws_row: ROWS, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 })?;
        let name = ptsname(&controller, Vec::new())?;
        let terminal = File::options().read(true).write(true).open(name.to_str()?)?;
        let mut command = plugin.command(&plugin.program, words);
        command.env("TERM", "xterm-256color").stdin(Stdio::from(terminal.try_clone()?)).stdout(terminal.try_clone()?).stderr(terminal);
        let child = command.spawn()?;
        drop(command);
        let mut reader = File::from(controller);
        let keys = reader.try_clone()?;
        let screen = Arc::new(Mutex::new(vt100::Parser::new(ROWS, COLUMNS, 0)));
        let (sender, changed) = watch::channel(0);
        let parser = screen.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                parser.lock().unwrap_or_else(PoisonError::into_inner).process(&buffer[..count]);
                sender.send_modify(|version| *version += 1);
            }
        });
        Ok(Terminal { child, keys, screen, changed })
    }

    pub fn type_keys(&mut self, keys: &str) -> Result<()> {
        Ok(self.keys.write_all(keys.as_bytes())?)
    }

    pub fn screen(&self) -> String {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner).screen().contents()
    }

    /// Whether the program shows a screen of its own.
    pub fn is_alternate(&self) -> bool {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner).screen().alternate_screen()
    }

    /// Waits until the screen meets the condition.
    pub async fn wait_until(&mut self, what: &str, condition: impl Fn(&str) -> bool) -> Result<String> {
        let waiting = async {
            loop {
                self.changed.mark_unchanged();
                let screen = self.screen();
                if condition(&screen) {
                    return Some(screen);
                }
                self.changed.changed().await.ok()?;
            }
        };
        let met = tokio::time::timeout(LONGEST, waiting).await.ok().flatten();
        met.with_context(|| format!("waited in vain for {what}; the screen is\n{}", self.screen()))
    }

    /// The exit code.
    pub async fn end(mut self) -> Result<i32> {
        let status =
            tokio::time::timeout(LONGEST, tokio::task::spawn_blocking(move || self.child.wait())).await.context("it does not end")???;
        Ok(status.code().unwrap_or(-1))
    }
}
