//! The frames on the socket: four bytes of length, big endian, then JSON. One request and one response per connection.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Large enough for the inventory of 100,000 trees.
const MAX_BODY_BYTES: u32 = 64 << 20;

fn length(header: [u8; 4]) -> io::Result<usize> {
    match u32::from_be_bytes(header) {
        n if n <= MAX_BODY_BYTES => Ok(n as usize),
        n => Err(io::Error::other(format!("a frame of {n} bytes is too long"))),
    }
}

fn encode<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; 4];
    serde_json::to_writer(&mut frame, message)?;
    let body = u32::try_from(frame.len() - 4).ok().filter(|n| *n <= MAX_BODY_BYTES);
    frame[..4].copy_from_slice(&body.ok_or_else(|| io::Error::other("the frame is too long"))?.to_be_bytes());
    Ok(frame)
}

/// Reads one frame and blocks meanwhile.
pub fn read<T: DeserializeOwned>(mut from: impl Read) -> io::Result<T> {
    let mut header = [0; 4];
    from.read_exact(&mut header)?;
    let mut body = vec![0; length(header)?];
    from.read_exact(&mut body)?;
    Ok(serde_json::from_slice(&body)?)
}

/// Writes one frame and blocks meanwhile.
pub fn write<T: Serialize>(mut to: impl Write, message: &T) -> io::Result<()> {
    to.write_all(&encode(message)?)
}

/// Reads one frame.
pub async fn receive<T: DeserializeOwned>(from: &mut (impl AsyncReadExt + Unpin)) -> io::Result<T> {
    let mut header = [0; 4];
    from.read_exact(&mut header).await?;
    let mut body = vec![0; length(header)?];
    from.read_exact(&mut body).await?;
    Ok(serde_json::from_slice(&body)?)
}

/// Writes one frame.
pub async fn send<T: Serialize>(to: &mut (impl AsyncWriteExt + Unpin), message: &T) -> io::Result<()> {
    to.write_all(&encode(message)?).await
}
