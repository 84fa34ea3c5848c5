//! Rewrites the `:authority` header of the kubelet's registration client to `localhost`.
//!
//! That client sends the path of the socket as the authority, which is not a valid authority. The HTTP/2 library `h2` ends such a stream with
//! PROTOCOL_ERROR (kubernetes/kubernetes#109081 is fixed for CSI calls only; hyperium/h2#487 is open). Frames that this module cannot parse pass
//! unchanged.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tonic::transport::server::Connected;

/// Length of the HTTP/2 connection preface.
const PREFACE: usize = 24;
/// Length, type, flags and stream of a frame.
const FRAME_HEADER: usize = 9;
const HEADERS: u8 = 1;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
/// Index of `:authority` in HPACK's static table.
const AUTHORITY: usize = 1;
const LOCALHOST: &[u8] = b"\x09localhost";

/// A connection whose requests all have the authority `localhost`.
pub struct LocalhostAuthority {
    inner: UnixStream,
    /// Bytes that were read and do not yet make a whole frame.
    raw: Vec<u8>,
    /// Whole frames that the reader has not taken yet.
    whole: Vec<u8>,
    preface_seen: bool,
}

impl LocalhostAuthority {
    pub fn new(inner: UnixStream) -> Self {
        LocalhostAuthority { inner, raw: Vec::new(), whole: Vec::new(), preface_seen: false }
    }

    fn translate(&mut self) {
        let mut at = 0;
        if !self.preface_seen && self.raw.len() >= PREFACE {
            self.preface_seen = true;
            at = PREFACE;
            self.whole.extend_from_slice(&self.raw[..PREFACE]);
        }
        while self.preface_seen
            && let Some(frame) = frame(&self.raw[at..])
        {
            at += frame.len();
            match rewritten(frame) {
                Some(other) => self.whole.extend_from_slice(&other),
                None => self.whole.extend_from_slice(frame),
            }
        }
        self.raw.drain(..at);
    }
}

impl AsyncRead for LocalhostAuthority {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        while self.whole.is_empty() {
            let mut space = [0; 4096];
            let mut read = ReadBuf::new(&mut space);
            ready!(Pin::new(&mut self.inner).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.raw.extend_from_slice(read.filled());
            self.translate();
        }
        let n = self.whole.len().min(buf.remaining());
        buf.put_slice(&self.whole[..n]);
        self.whole.drain(..n);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for LocalhostAuthority {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

impl Connected for LocalhostAuthority {
    type ConnectInfo = ();
    fn connect_info(&self) {}
}

/// The first whole frame of `bytes`.
fn frame(bytes: &[u8]) -> Option<&[u8]> {
    let length = usize::from(*bytes.first()?) << 16 | usize::from(*bytes.get(1)?) << 8 | usize::from(*bytes.get(2)?);
    bytes.get(..FRAME_HEADER + length)
}

/// The frame with the authority `localhost`, if it is a HEADERS frame with a literal `:authority`.
fn rewritten(frame: &[u8]) -> Option<Vec<u8>> {
    let (header, body) = frame.split_at_checked(FRAME_HEADER)?;
    if header[3] != HEADERS {
        return None;
    }
    let flags = header[4];
    let padding = if flags & PADDED == 0 { 0 } else { usize::from(*body.first()?) };
    let lead = usize::from(flags & PADDED != 0) + if flags & PRIORITY == 0 { 0 } else { 5 };
    let end = body.len().checked_sub(padding)?;
    let value = authority(body.get(..end)?, lead)?;
    let mut other = [header, &body[..value.start], LOCALHOST, &body[value.end..]].concat();
    let length = u32::try_from(other.len() - FRAME_HEADER).ok()?.to_be_bytes();
    other[..3].copy_from_slice(&length[1..]);
    Some(other)
}

/// The position of the value of a literal `:authority` in a header block that begins at `at`. Values are skipped and never decoded.
fn authority(block: &[u8], mut at: usize) -> Option<std::ops::Range<usize>> {
    while at < block.len() {
        let first = block[at];
        let prefix = match first {
            0x80.. => 7,
            0x40..0x80 => 6,
            0x20..0x40 => 5,
            ..0x20 => 4,
        };
        let name = integer(block, &mut at, prefix)?;
        // An indexed field, or a new size of the dynamic table.
        if first >= 0x80 || (0x20..0x40).contains(&first) {
            continue;
        }
        if name == 0 {
            skip_string(block, &mut at)?;
        }
        let start = at;
        skip_string(block, &mut at)?;
        if name == AUTHORITY {
            return Some(start..at);
        }
    }
    None
}

fn skip_string(block: &[u8], at: &mut usize) -> Option<()> {
    let length = integer(block, at, 7)?;
    *at = at.checked_add(length).filter(|end| *end <= block.len())?;
    Some(())
}

/// Reads an HPACK integer with a prefix of `bits` bits (RFC 7541, section 5.1).
fn integer(block: &[u8], at: &mut usize, bits: u32) -> Option<usize> {
    let most = (1usize << bits) - 1;
    let mut value = usize::from(*block.get(*at)?) & most;
    *at += 1;
    if value < most {
        return Some(value);
    }
    for shift in (0..28).step_by(7) {
        let byte = usize::from(*block.get(*at)?);
        *at += 1;
        value += (byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opening(flags: u8, block: &[u8]) -> Vec<u8> {
        let length = u8::try_from(block.len()).unwrap();
        [&[0, 0, length, HEADERS, flags, 0, 0, 0, 1], block].concat()
    }

    #[test]
    fn the_authority_becomes_localhost_and_the_rest_stays() {
        // :method POST, :scheme http, :path literal, :authority literal, and one after it.
        let block = |authority: &[u8]| [b"\x83\x86\x44\x04/a/b\x41", authority, b"\x40\x01x\x01y"].concat();
        let path = b"\x1c%2Fvar%2Flib%2Fkubelet%2Fx.s";
        for (flags, lead, tail) in [(4, &b""[..], &b""[..]), (0x2c, b"\x02\0\0\0\0\x10", b"\0\0")] {
            let frame = opening(flags, &[lead, &block(path)[..], tail].concat());
            let wanted = opening(flags, &[lead, &block(LOCALHOST)[..], tail].concat());
            assert_eq!(rewritten(&frame).unwrap(), wanted);
        }
    }

    #[test]
    fn what_is_not_understood_passes() {
        for frame in [
            &opening(4, b"\x83\x86")[..],
            &opening(4, b"\x41\x7f\xff\xff\xff\xff\xff"),
            &opening(4, b"\x41\x05ab"),
            &[0, 0, 0, 4, 1, 0, 0, 0, 0],
        ] {
            assert_eq!(rewritten(frame), None);
        }
    }

    #[test]
    fn a_frame_is_taken_when_it_is_whole() {
        let whole = opening(4, b"\x83");
        assert_eq!(frame(&whole[..whole.len() - 1]), None);
        assert_eq!(frame(&[&whole[..], b"\0"].concat()), Some(&whole[..]));
    }
}
