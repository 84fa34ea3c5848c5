//! `send`: a person's words to an agent, durable when this returns.

use std::io::Read;

use yoi_wire::hub::Sent;
use yoi_wire::people::Message;

use crate::args::{Output, Send};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::show;

pub async fn send(cluster: &Cluster, output: Option<Output>, args: &Send) -> Result<(), Error> {
    let message = Message { message_id: uuid::Uuid::now_v7().to_string(), text: text_or_stdin(args.text.clone())? };
    let sent: Sent = cluster.post(&args.name, "message", &message).await?;
    let sentence = format!("delivered to {0} as {1}\nits answer: kubectl yoi log {0} -f", args.name, sent.message_id);
    show::object(output, &sent, &sent.message_id, &sentence)
}

/// `-` means standard input.
pub fn text_or_stdin(text: String) -> Result<String, Error> {
    if text != "-" {
        return Ok(text);
    }
    let mut read = String::new();
    std::io::stdin().read_to_string(&mut read).map_err(|e| Error::Local { deed: "read standard input", source: Box::new(e) })?;
    Ok(read)
}
