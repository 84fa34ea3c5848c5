//! Servers that stand by: one that carries, and one that must never be spoken to.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// An HTTP proxy that knows CONNECT.
pub struct Proxy {
    pub url: String,
    /// First lines of all requests.
    pub seen: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&seen);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let kept = Arc::clone(&kept);
                std::thread::spawn(move || tunnel(&client, &kept));
            }
        });
        Proxy { url, seen }
    }
}

fn tunnel(client: &TcpStream, seen: &Mutex<Vec<String>>) -> Option<()> {
    let mut reader = BufReader::new(client.try_clone().ok()?);
    let mut first = String::new();
    reader.read_line(&mut first).ok()?;
    seen.lock().unwrap().push(first.trim_end().to_owned());
    let mut line = String::from("x");
    while !line.trim_end().is_empty() {
        line.clear();
        reader.read_line(&mut line).ok()?;
    }
    let server = TcpStream::connect(first.split(' ').nth(1)?).ok()?;
    (&*client).write_all(b"HTTP/1.1 200 OK\r\n\r\n").ok()?;
    let mut up = server.try_clone().ok()?;
    std::thread::spawn(move || {
        _ = std::io::copy(&mut reader, &mut up);
        _ = up.shutdown(std::net::Shutdown::Write);
    });
    std::io::copy(&mut &server, &mut &*client).ok()?;
    client.shutdown(std::net::Shutdown::Write).ok()
}

/// A server that must never be spoken to.
pub struct CanaryServer {
    port: u16,
    visits: Arc<Mutex<u32>>,
}

impl CanaryServer {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let visits = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&visits);
        std::thread::spawn(move || listener.incoming().for_each(|_| *counted.lock().unwrap() += 1));
        CanaryServer { port, visits }
    }

    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn visits(&self) -> u32 {
        *self.visits.lock().unwrap()
    }
}
