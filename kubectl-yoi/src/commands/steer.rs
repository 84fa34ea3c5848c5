//! `pause`, `resume`, `cancel`, `mode`, `compact` and `rewind`: what a person asks of a running agent, without attaching to it.

use yoi_crds::YoiPod;
use yoi_wire::control::{ControlAction, ControlDone, ControlReason, ControlRefusal, ControlResponse, RewindTargets};

use crate::args::{OutputFormat, RewindOptions};
use crate::cluster::{Cluster, operation};
use crate::error::{Error, SAME_VERSION};
use crate::show;

pub async fn steer(cluster: &Cluster, output: Option<OutputFormat>, name: &str, action: ControlAction) -> Result<(), Error> {
    let (response, done) = ask(cluster, name, action).await?;
    print(output, name, &response, &done)
}

/// Lists the inputs, or turns the conversation back to before one of them.
pub async fn rewind(cluster: &Cluster, output: Option<OutputFormat>, args: &RewindOptions) -> Result<(), Error> {
    let name = &args.name;
    let (response, done) = ask(cluster, name, ControlAction::RewindTargets {}).await?;
    let RewindTargets { segment, head, inputs } = done.rewind.clone().unwrap_or_default();
    let Some(seq) = args.seq else {
        return match output {
            None | Some(OutputFormat::Wide) if inputs.is_empty() => show::print("there is no input to turn back to\n"),
            None | Some(OutputFormat::Wide) => {
                let mut table = show::table(&["seq", "input"]);
                for input in &inputs {
                    table.add_row([show::cell(input.seq.to_string()), show::cell(show::shortened(&show::one_line(&input.text), 100))]);
                }
                show::print(&show::lines(&table))
            }
            Some(OutputFormat::Name) => show::print(&inputs.iter().map(|input| format!("{}\n", input.seq)).collect::<String>()),
            Some(format) => show::print_as(format, &response),
        };
    };
    if !inputs.iter().any(|input| input.seq == seq) {
        let next = format!("take a number of the list: {}", cluster.plugin_command(&format!("rewind {name}")));
        let message = format!("entry {seq} is no input that its conversation can be turned back to");
        return Err(cluster.refused_error::<YoiPod>("rewind", name, message, next));
    }
    let (response, done) = ask(cluster, name, ControlAction::RewindTo { segment, seq, head }).await?;
    print(output, name, &response, &done)
}

/// Asks, and turns a refusal into an error.
async fn ask(cluster: &Cluster, name: &str, action: ControlAction) -> Result<(ControlResponse, ControlDone), Error> {
    let operation = operation(&action);
    let response = cluster.ask(name, action).await?;
    match (&response.refused, &response.done) {
        (Some(refusal), _) => Err(refused(cluster, operation, name, refusal)),
        (None, Some(done)) => {
            let done = done.clone();
            Ok((response, done))
        }
        (None, None) => Err(cluster.refused_error::<YoiPod>(operation, name, "its answer says nothing", SAME_VERSION)),
    }
}

fn refused(cluster: &Cluster, operation: &str, name: &str, refusal: &ControlRefusal) -> Error {
    let command = |words: &str| cluster.plugin_command(&format!("{words} {name}"));
    let next = match refusal.reason {
        ControlReason::AlreadyRunning => format!("wait until its run ends, or end it: {}", command("cancel")),
        ControlReason::NotRunning => format!("see what it does: {}", command("top")),
        ControlReason::NotPaused => format!("see what it does: {}", command("top")),
        ControlReason::Paused => format!("let it go on, or end it: {} or {}", command("resume"), command("cancel")),
        ControlReason::HeadChanged => format!("take a number of the list as it is now: {}", command("rewind")),
        ControlReason::NotReady => format!("see why: kubectl describe yoipod {name} -n {}", cluster.namespace),
        ControlReason::NotSupported => format!("send it a message instead: {}", command("send")),
        ControlReason::Failed => format!("ask what is wrong: {}", cluster.doctor_command(false)),
        ControlReason::Invalid | ControlReason::Unknown => SAME_VERSION.to_owned(),
    };
    cluster.refused_error::<YoiPod>(operation, name, show::one_line(&refusal.message), next)
}

fn print(output: Option<OutputFormat>, name: &str, response: &ControlResponse, done: &ControlDone) -> Result<(), Error> {
    let mut sentence = show::one_line(&done.message);
    for effect in &done.remaining_effects {
        sentence.push_str(&format!("\n  its effect remains: {}", show::one_line(effect)));
    }
    if let Some(input) = &done.input {
        sentence.push_str(&format!("\nthe input was:\n{}", show::visible(input).trim_end()));
    }
    show::object(output, response, &format!("yoipod.yoi.dev/{name}"), &sentence)
}
