//! I/O that fails once a token is cancelled.
//!
//! hyper's HTTP/2 client moves its I/O into a task of its own, which lives as long as any stream. Dropping the client therefore ends new
//! requests only. To end the requests in flight as well, the I/O itself has to fail.

use hyper::rt::{Read, ReadBufCursor, Write};
use std::io::{Error, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

pub(crate) struct AbortableIo<T> {
    io: T,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl<T> AbortableIo<T> {
    pub(crate) fn new(io: T, cut: CancellationToken) -> Self {
        Self { io, cut: Box::pin(cut.cancelled_owned()) }
    }
}

impl<T: Read + Unpin> Read for AbortableIo<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<Result<(), Error>> {
        // HTTP/2 always reads, so an idle connection notices the cancellation here as well.
        match self.cut.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(Error::new(ErrorKind::ConnectionAborted, "the line was closed"))),
            Poll::Pending => Pin::new(&mut self.io).poll_read(cx, buf),
        }
    }
}

impl<T: Write + Unpin> Write for AbortableIo<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<Result<usize, Error>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<Result<usize, Error>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }
}
