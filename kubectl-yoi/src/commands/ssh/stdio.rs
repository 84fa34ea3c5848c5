//! One connection of SSH between standard input and output, and an agent's server.

use std::io;

use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::Message;
use yoi_wire::ssh::{CLOSED, FROM_SERVER, TO_SERVER};

use crate::cluster::Cluster;
use crate::error::{Error, RefusalKind};

/// Bytes that are read at once.
const PIECE: usize = 32 << 10;

/// Ends this process when the connection is over: standard input may still be read then.
pub async fn carry(cluster: &Cluster, name: &str, key: &str) -> Result<(), Error> {
    let (mut sink, mut source) = cluster.ssh_stream(name, key).await?.into_stream().split();
    let to_server = async {
        let mut input = tokio::io::stdin();
        loop {
            let mut piece = Vec::with_capacity(PIECE + 1);
            piece.push(TO_SERVER);
            let read = input.read_buf(&mut piece).await.unwrap_or_default();
            let message = if read == 0 { vec![CLOSED, TO_SERVER] } else { piece };
            if sink.send(Message::binary(message)).await.is_err() || read == 0 {
                break;
            }
        }
        // What the server still says comes, and so does the reason of an end.
        std::future::pending::<()>().await;
    };
    let from_server = async {
        let mut output = tokio::io::stdout();
        while let Some(message) = source.next().await {
            match message.map_err(io::Error::other)? {
                Message::Binary(data) if data.first() == Some(&FROM_SERVER) => {
                    output.write_all(data.get(1..).unwrap_or_default()).await?;
                    output.flush().await?;
                }
                Message::Close(_) => break,
                _ => {}
            }
        }
        Ok::<_, io::Error>(())
    };
    let done = tokio::select! {
        () = to_server => Ok(()),
        done = from_server => done,
    };
    match done {
        Ok(()) => std::process::exit(0),
        // The client has closed its end.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            let next = "connect again".to_owned();
            let lost = Error::refused_error(
                format!("carry on with YoiPod {}/{name}", cluster.namespace),
                error.to_string(),
                next,
                RefusalKind::Unreachable,
            );
            eprintln!("error: {}", crate::show::visible(&lost.to_string()));
            std::process::exit(lost.exit_code().into())
        }
    }
}
