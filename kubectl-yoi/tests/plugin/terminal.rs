//! A terminal that a test types into, and whose screen it reads.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::process::Child;
use tokio::sync::watch;
use yoi_test_support::{in_time, limit};

use crate::plugin::Plugin;

const ROWS: u16 = 20;
const COLUMNS: u16 = 80;

/// The plugin in a terminal of 80 columns and 20 rows.
pub struct Terminal {
    child: Child,
    keys: File,
    screen: Arc<Mutex<vt100::Parser>>,
    /// All that came.
    all: Arc<Mutex<Vec<u8>>>,
    /// Raised whenever the screen has changed; closed at the end.
    changed: watch::Receiver<u64>,
}

impl Terminal {
    pub fn start(plugin: &Plugin, words: &[&str]) -> Result<Self> {
        Self::start_in(plugin, plugin.folder.path(), words)
    }

    /// As [`Terminal::start`], in this working directory.
    pub fn start_in(plugin: &Plugin, folder: &Path, words: &[&str]) -> Result<Self> {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        grantpt(&controller)?;
        unlockpt(&controller)?;
        tcsetwinsize(&controller, Winsize { ws_row: ROWS, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 })?;
        let name = ptsname(&controller, Vec::new())?;
        let terminal = File::options().read(true).write(true).open(name.to_str()?)?;
        let mut command = plugin.command(&plugin.program, words);
        command.current_dir(folder);
        command.env("TERM", "xterm-256color").stdin(Stdio::from(terminal.try_clone()?)).stdout(terminal.try_clone()?).stderr(terminal);
        let mut command = tokio::process::Command::from(command);
        let child = command.kill_on_drop(true).spawn()?;
        // It holds the terminal open.
        drop(command);
        let mut reader = File::from(controller);
        let keys = reader.try_clone()?;
        let screen = Arc::new(Mutex::new(vt100::Parser::new(ROWS, COLUMNS, 0)));
        let (sender, changed) = watch::channel(0);
        let parser = screen.clone();
        let all = Arc::<Mutex<Vec<u8>>>::default();
        let came = all.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                came.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&buffer[..count]);
                parser.lock().unwrap_or_else(PoisonError::into_inner).process(&buffer[..count]);
                sender.send_modify(|version| *version += 1);
            }
        });
        Ok(Terminal { child, keys, screen, all, changed })
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
        let met = tokio::time::timeout(limit(Duration::ZERO), waiting).await.ok().flatten();
        met.with_context(|| format!("waited in vain for {what}; the screen is\n{}", self.screen()))
    }

    /// The exit code.
    pub async fn end(self) -> Result<i32> {
        Ok(self.end_with_all().await?.0)
    }

    /// The exit code, and all that the terminal got.
    pub async fn end_with_all(mut self) -> Result<(i32, String)> {
        let status = in_time("the end of the plugin", self.child.wait()).await?;
        in_time("the end of what it shows", async { while self.changed.changed().await.is_ok() {} }).await;
        let all = String::from_utf8_lossy(&self.all.lock().unwrap_or_else(PoisonError::into_inner)).into_owned();
        Ok((status.code().unwrap_or(-1), all))
    }
}
