//! `attach`: watches an agent work, steers it and talks with it. Without a terminal it prints lines.
//!
//! What comes (lines of the stream, keys, answers) is an event; [`state::AttachState`] turns events into effects and does nothing itself; [`draw`] shows
//! a state. The terminal and the requests are in [`terminal`] and [`requests`].

mod blocks;
mod command;
mod draw;
mod edit_diff;
mod input_line;
mod lines;
mod requests;
mod seen;
mod state;
mod stream;
mod terminal;
mod transcript;
mod wrap;

use std::io::IsTerminal;

use crate::args::{AttachOptions, OutputFormat};
use crate::cluster::Cluster;
use crate::error::Error;
use stream::{AttachStream, Start};

pub async fn attach(cluster: &Cluster, output: Option<OutputFormat>, args: &AttachOptions) -> Result<(), Error> {
    let start = args.after.clone().map_or(Start::Tail(args.tail), Start::After);
    // What cannot begin is an error like that of any other verb, before the terminal becomes another one.
    let stream = AttachStream::open(cluster, &args.name, start).await?;
    let in_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if in_terminal && output.is_none() {
        terminal::run(cluster, &args.name, stream).await
    } else {
        lines::print(cluster, output, &args.name, stream).await
    }
}
