//! `run --follow`: as `--wait`, with each entry of the log as a line when it comes.

use std::convert::Infallible;
use std::future::pending;
use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use yoi_crds::{YoiPod, YoiProject};
use yoi_wire::entry::Body;
use yoi_wire::people::LogLine;

use super::end::{self, Ended};
use crate::cluster::{Cluster, Wait};
use crate::commands::log::render_entry;
use crate::error::Error;
use crate::progress::{self, Progress, QUIET};
use crate::session_log::LogReader;
use crate::show::{self, Written};

/// Waits for the end, and shows what the agent says and does until then.
///
/// # Errors
/// As the wait itself. A log that cannot be read is told and ends no wait.
pub async fn wait(
    cluster: &Cluster,
    name: &str,
    project: &YoiProject,
    has_task: bool,
    timeout: Duration,
) -> Result<(Ended, String), Error> {
    let begun = AtomicBool::new(false);
    let ((last, lines), what) = (watch::channel(None), cluster.display_name::<YoiPod>(name));
    let mut reader = LogReader { cluster, agent: name, follow: true, after: None, tail: None };
    let ended = {
        let shown = async {
            until_it_runs(cluster, name, timeout).await?;
            let show = |line: LogLine| {
                begun.store(true, Ordering::Relaxed);
                let written = print(&line);
                last.send_replace(Some(waits_for(&line.entry.body)));
                written
            };
            reader.for_each(|_, line| show(line)).await.map(drop)
        };
        let shown = async {
            // Whoever cannot read the log, or closed the output, still waits for the end.
            if let Err(error) = shown.await {
                eprintln!("its log cannot be shown: {}", show::visible(&error.to_string()));
            }
            pending::<Infallible>().await
        };
        tokio::select! {
            ended = end::wait(cluster, name, project, has_task, timeout, Some(&begun)) => ended?,
            never = shown => match never {},
            never = tell_of_silence(&what, lines) => match never {},
        }
    };
    // The end is told by the object, which may be ahead of what came of the log.
    let mut rest = LogReader { follow: false, after: reader.after.take(), ..reader };
    if let Err(error) = rest.for_each(|_, line| print(&line)).await {
        eprintln!("the end of its log cannot be shown: {}", show::visible(&error.to_string()));
    }
    Ok(ended)
}

/// Says what the agent waits for, whenever its log has had no line for a while.
async fn tell_of_silence(agent: &str, mut lines: watch::Receiver<Option<&'static str>>) -> Infallible {
    loop {
        let waits_for = *lines.borrow_and_update();
        let line = match tokio::time::timeout(QUIET, lines.changed()).await {
            Ok(line) => line,
            Err(_) => {
                let _shown = waits_for.map(|waits_for| {
                    let mut progress = Progress::start();
                    progress.set(&format!("{agent}: {waits_for}"));
                    progress
                });
                lines.changed().await
            }
        };
        if line.is_err() {
            return pending().await;
        }
    }
}

/// What comes after this entry, as an agent works.
fn waits_for(body: &Body) -> &'static str {
    match body {
        Body::ToolRequested(_) | Body::ToolAnswered(_) | Body::ToolStarted(_) => "a tool works",
        Body::ToolAsked(_) => "a call of a tool waits for a person",
        Body::Paused(_) => "its run is paused, and goes on when a person resumes it",
        Body::CompactionStarted(_) => "what was said is summed up",
        Body::RunEnded(_) => "its run has ended, and the object is to say so",
        Body::SessionStarted(_) | Body::RuntimeStarted(_) | Body::SegmentStarted(_) | Body::Carried(_) => "its task is given to it",
        Body::RunStarted(_) | Body::Resumed(_) | Body::Assistant(_) | Body::ToolEnded(_) | Body::Input(_) | Body::PeerMessage(_) => {
            "the model works"
        }
        Body::Abandoned(_)
        | Body::Notice(_)
        | Body::ConfigChanged(_)
        | Body::SystemItem(_)
        | Body::RolledBack(_)
        | Body::Rewound(_)
        | Body::Usage(_)
        | Body::ModeSwitched(_)
        | Body::CompactionEnded(_)
        | Body::Extension(_)
        | Body::Unknown { .. } => "it works",
    }
}

/// Waits until there is a session to read. Why it is not there yet is shown by the other wait.
async fn until_it_runs(cluster: &Cluster, name: &str, timeout: Duration) -> Result<(), Error> {
    let has_session = |pod: Option<&YoiPod>| {
        let session = pod.and_then(|pod| pod.status.as_ref()).and_then(|status| status.session.as_ref());
        Ok(session.map_or_else(|| Wait::Pending("it has no session yet".to_owned()), |_| Wait::Done(())))
    };
    cluster.watch(name, timeout, "ready", has_session, |_| {}).await
}

fn print(line: &LogLine) -> Result<ControlFlow<()>, Error> {
    let text = render_entry(&line.entry, std::io::stdout().is_terminal()).unwrap_or_default();
    Ok(match progress::beside(|| show::write(&text))? {
        Written::Done => ControlFlow::Continue(()),
        Written::Closed => ControlFlow::Break(()),
    })
}
