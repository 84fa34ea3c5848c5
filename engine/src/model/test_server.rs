//! A server over HTTP and HTTPS, of which each test says what it writes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;

pub const PING: &str = ": ping\n\n";
/// Time that a server lets pass before a ping. All pings of a test together take longer than the client waits in silence.
pub const PING_INTERVAL: Duration = Duration::from_millis(500);

pub type Seen = Arc<Mutex<Vec<String>>>;

pub fn stream_head() -> String {
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n".to_owned()
}

pub fn status(status: &str, headers: &str, body: &str) -> Vec<Option<String>> {
    vec![Some(format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len()))]
}

/// Writes what is given, then closes. `None` writes nothing more until the client goes.
pub async fn respond(stream: impl AsyncRead + AsyncWrite + Unpin, pieces: Vec<Option<String>>, seen: &Seen) {
    respond_by(stream, |_| pieces, seen).await;
}

/// As [`respond`], by what the request says.
async fn respond_by(mut stream: impl AsyncRead + AsyncWrite + Unpin, choose: impl FnOnce(&str) -> Vec<Option<String>>, seen: &Seen) {
    let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
    let pieces = loop {
        let Ok(count @ 1..) = stream.read(&mut buffer).await else { return };
        request.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&request).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok()).unwrap_or_default();
        if body.len() >= length {
            let pieces = choose(&text);
            seen.lock().unwrap().push(text);
            break pieces;
        }
    };
    for piece in pieces {
        match piece {
            Some(piece) => {
                if piece == PING {
                    tokio::time::sleep(PING_INTERVAL).await;
                }
                let _ = stream.write_all(piece.as_bytes()).await;
                let _ = stream.flush().await;
            }
            // The client closes the connection, which ends the read.
            None => while matches!(stream.read(&mut buffer).await, Ok(1..)) {},
        }
    }
    let _ = stream.shutdown().await;
}

/// Serves one connection after another, each with the next of these answers.
pub async fn serve(answers: Vec<Vec<Option<String>>>) -> (String, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = listener.local_addr().unwrap();
    let seen = Seen::default();
    let requests = seen.clone();
    tokio::spawn(async move {
        for pieces in answers {
            let (stream, _) = listener.accept().await.unwrap();
            respond(stream, pieces, &requests).await;
        }
    });
    (format!("http://{place}/v1"), seen)
}

/// Serves connections side by side, each with the answer that its request is given.
pub async fn serve_by(choose: impl Fn(&str) -> Vec<Option<String>> + Send + Sync + 'static) -> (String, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = listener.local_addr().unwrap();
    let (seen, choose) = (Seen::default(), Arc::new(choose));
    let requests = seen.clone();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (requests, choose) = (requests.clone(), choose.clone());
            tokio::spawn(async move { respond_by(stream, |request| choose(request), &requests).await });
        }
    });
    (format!("http://{place}/v1"), seen)
}
