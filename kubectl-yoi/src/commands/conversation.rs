//! `conversation`: starts, lists and stops the conversations of an agent.

use yoi_crds::YoiPod;
use yoi_wire::conversation::{ConversationList, ConversationStatus};

use crate::args::{ConversationListOptions, ConversationOptions, OutputFormat};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::show;

pub async fn start(cluster: &Cluster, output: Option<OutputFormat>, args: &ConversationOptions) -> Result<(), Error> {
    let (agent, name) = (&args.name, &args.conversation);
    let status = cluster.start_conversation(agent, name).await?;
    let next = cluster.plugin_command(&format!("send {agent} --conversation {name} TEXT"));
    print(
        output,
        args,
        &status,
        &format!("conversation {name} of {} is started; talk to it: {next}", cluster.display_name::<YoiPod>(agent)),
    )
}

pub async fn stop(cluster: &Cluster, output: Option<OutputFormat>, args: &ConversationOptions) -> Result<(), Error> {
    let (agent, name) = (&args.name, &args.conversation);
    let status = cluster.stop_conversation(agent, name).await?;
    let next = cluster.plugin_command(&format!("log {agent} --conversation {name}"));
    print(output, args, &status, &format!("conversation {name} of {} is stopped; read it: {next}", cluster.display_name::<YoiPod>(agent)))
}

pub async fn ls(cluster: &Cluster, output: Option<OutputFormat>, args: &ConversationListOptions) -> Result<(), Error> {
    let list: ConversationList = cluster.fetch(&args.name, "conversations", "").await?;
    show::objects(output, &list.conversations, |status| show::one_line(&status.name), || table(&list.conversations))
}

fn print(output: Option<OutputFormat>, args: &ConversationOptions, status: &ConversationStatus, sentence: &str) -> Result<(), Error> {
    show::object(output, status, &args.conversation, sentence)
}

fn table(conversations: &[ConversationStatus]) -> String {
    let mut table = show::table(&["conversation", "state", "activity", "mode", "tokens", "message"]);
    for ConversationStatus { name, state, message, activity, tokens, mode, session: _ } in conversations {
        let tokens = tokens.map(|usage| usage.input_tokens.saturating_add(usage.output_tokens).to_string());
        let activity = activity.as_ref().map(|activity| activity.as_str().to_owned());
        let mode = mode.as_ref().map(|mode| mode.as_str().to_owned());
        let row = [Some(name.clone()), Some(state.as_str().to_owned()), activity, mode, tokens, message.clone()];
        table.add_row(row.map(|cell| show::cell(cell.unwrap_or_default())));
    }
    show::lines(&table)
}
