//! `send`: sends a message to an agent. It is durable when the verb returns.

use std::io::Read;

use yoi_wire::hub::SendResponse;
use yoi_wire::people::PersonMessage;

use crate::args::{OutputFormat, SendOptions};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::show;

pub async fn send(cluster: &Cluster, output: Option<OutputFormat>, args: &SendOptions) -> Result<(), Error> {
    let message = PersonMessage { message_id: uuid::Uuid::now_v7().to_string(), text: text_or_stdin(args.text.clone())? };
    let sent: SendResponse = cluster.post(&args.name, "message", &message).await?;
    let follow = cluster.plugin_command(&format!("log {} -f", args.name));
    let sentence = format!("delivered to {} as {}\nits answer: {follow}", args.name, sent.message_id);
    show::object(output, &sent, &sent.message_id, &sentence)
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
