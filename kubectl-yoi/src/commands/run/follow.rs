//! `run --follow`: as `--wait`, with each entry of the log as a line when it comes.

use std::convert::Infallible;
use std::future::pending;
use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use yoi_crds::{YoiPod, YoiProject};
use yoi_wire::people::LogLine;

use super::end::{self, Ended};
use crate::cluster::{Cluster, Wait};
use crate::commands::log::render_entry;
use crate::error::Error;
use crate::progress;
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
    let mut reader = LogReader { cluster, agent: name, follow: true, after: None, tail: None };
    let ended = {
        let shown = async {
            until_it_runs(cluster, name, timeout).await?;
            let show = |line: LogLine| {
                begun.store(true, Ordering::Relaxed);
                print(&line)
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
        }
    };
    // The end is told by the object, which may be ahead of what came of the log.
    let mut rest = LogReader { follow: false, after: reader.after.take(), ..reader };
    if let Err(error) = rest.for_each(|_, line| print(&line)).await {
        eprintln!("the end of its log cannot be shown: {}", show::visible(&error.to_string()));
    }
    Ok(ended)
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
