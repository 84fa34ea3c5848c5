//! `send`: sends a message to an agent. It is durable when the verb returns.

mod message_run;

use std::io::Read;
use std::ops::ControlFlow;
use std::time::Duration;

use yoi_crds::YoiPod;
use yoi_wire::hub::SendResponse;
use yoi_wire::people::PersonMessage;

use crate::args::{OutputFormat, SendOptions};
use crate::cluster::Cluster;
use crate::error::{Error, NextStep, RefusalKind};
use crate::progress::{Progress, unless_over_soon};
use crate::session_log::LogReader;
use crate::show;
use message_run::{MessageRun, RunEnd};

pub async fn send(cluster: &Cluster, output: Option<OutputFormat>, args: &SendOptions) -> Result<(), Error> {
    let repeated = args.id.is_some();
    let id = args.id.clone().unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
    let text = text_or_stdin(args.text.clone())?;
    // Read before the message is sent, so that nothing of its run is missed. A message that was sent before may stand anywhere.
    let after = if args.wait && !repeated { last_token(cluster, &args.name).await? } else { None };
    let message = PersonMessage { message_id: id.clone(), text };
    let what = format!("{}: the message is on its way", cluster.display_name::<YoiPod>(&args.name));
    let sent: SendResponse = match unless_over_soon(&what, cluster.post(&args.name, "message", &message)).await {
        Ok(sent) => sent,
        Err(Error::Unreachable { operation, message, next: _ }) => {
            // It may have arrived all the same.
            let next = cluster.plugin_command(&format!("send {} --id {id} TEXT", args.name));
            let message = format!("{message}\n  It may have been delivered. Under the same id it is delivered once");
            return Err(Error::refused_error(operation, message, next, RefusalKind::Unreachable));
        }
        // Refused for now, as by an agent that is being woken: under the same id another try is safe, whatever became of this one.
        Err(Error::Refused { operation, message, next: NextStep::Text(otherwise), kind: RefusalKind::Unreachable }) => {
            let again = cluster.plugin_command(&format!("send {} --id {id} TEXT", args.name));
            return Err(Error::refused_error(operation, message, format!("{again}; else {otherwise}"), RefusalKind::Unreachable));
        }
        Err(error) => return Err(error),
    };
    let shown_id = show::one_line(&sent.message_id);
    if args.wait {
        let answer = wait(cluster, &args.name, &sent.message_id, after, args.timeout).await?;
        let value = serde_json::json!({ "messageId": sent.message_id, "duplicate": sent.duplicate, "answer": answer });
        return show::object(output, &value, &shown_id, show::visible(&answer).trim_end());
    }
    let follow = cluster.plugin_command(&format!("log {} -f", args.name));
    let how = if sent.duplicate { "was delivered before" } else { "delivered" };
    let sentence = format!("{how} to {} as {shown_id}\nits answer: {follow}", args.name);
    show::object(output, &sent, &shown_id, &sentence)
}

/// The token of the last entry of an agent's log; `None` where there is none yet.
async fn last_token(cluster: &Cluster, agent: &str) -> Result<Option<String>, Error> {
    // No reader is started for a message that a stopped agent does not take. Whoever may not read the object learns it from the answer.
    if cluster.get::<YoiPod>(agent).await.is_ok_and(|agent| yoi_plan::yoipod::is_stopped(&agent)) {
        return Ok(None);
    }
    let mut reader = LogReader { cluster, agent, follow: false, after: None, tail: Some(1) };
    match reader.for_each(|_, _| Ok(ControlFlow::<()>::Continue(()))).await {
        Ok(_) => Ok(reader.after),
        // There is no session yet, so nothing can be missed. If it is something else, sending says so.
        Err(Error::Refused { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Waits until the run that reads the message has ended, and returns the agent's last words in it.
async fn wait(cluster: &Cluster, agent: &str, id: &str, after: Option<String>, timeout: Duration) -> Result<String, Error> {
    let mut progress = Progress::start();
    progress.set(&format!("{agent}: the message is delivered"));
    let mut run = MessageRun::new(id);
    let mut reader = LogReader { cluster, agent, follow: true, after, tail: None };
    let reading = reader.for_each(|_, line| {
        let end = run.record(&line.entry);
        if end.is_none() {
            progress.set(&format!("{agent}: {}", run.progress()));
        }
        Ok(end.map_or(ControlFlow::Continue(()), ControlFlow::Break))
    });
    let what = || cluster.display_name::<YoiPod>(agent);
    let next = cluster.plugin_command(&format!("log {agent} --tail 20"));
    match tokio::time::timeout(timeout, reading).await {
        Ok(Ok(Some(RunEnd::Finished(answer)))) => Ok(answer),
        Ok(Ok(Some(RunEnd::Failed(why)))) => Err(Error::RunFailed { what: what(), why: show::one_line(&why), next }),
        Ok(Err(error)) => Err(error),
        Ok(Ok(None)) => Err(Error::RunFailed { what: what(), why: "the agent stopped before the run ended".to_owned(), next }),
        Err(_) => {
            let why = "the message is delivered, and its run has not ended".to_owned();
            Err(Error::TimedOut { what: format!("{}: run ended", what()), seconds: timeout.as_secs(), why, next })
        }
    }
}

/// Returns the text, or standard input when it is `-`.
pub fn text_or_stdin(text: String) -> Result<String, Error> {
    if text != "-" {
        return Ok(text);
    }
    let mut read = String::new();
    let no_text = |e| Error::local("read standard input", e, "give it text in UTF-8, or say the words themselves in place of `-`");
    std::io::stdin().read_to_string(&mut read).map_err(no_text)?;
    Ok(read)
}
