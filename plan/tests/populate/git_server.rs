//! A git server over http and https with tokens: `git http-backend` behind a small HTTP server, objects of git LFS, and plain files.
//!
//! `/private/...` wants a user and a token, and `/open/...` wants none. `/dumb/...` are files, and `/moved/...`
//! leads to `/open/...` on another host.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use yoi_test_support::limit;

use base64::Engine as _;
use serde_json::{Value, json};
use sha2::Digest as _;

use crate::populator::{holds, require};

pub const USER: &str = "reader";
/// What the gateway takes from a pusher.
pub const GATEWAY_TOKEN: &str = "projected-token";

pub struct GitServer {
    shared: Arc<Shared>,
    pub ca: String,
    https: u16,
    http: u16,
}

struct Shared {
    folder: PathBuf,
    token: String,
    looks_for_leaks: bool,
    /// By SHA-256.
    objects: Mutex<BTreeMap<String, Vec<u8>>>,
    requests: Mutex<Vec<String>>,
    /// Where the token was seen while requests were served.
    leaks: Mutex<Vec<String>>,
    /// The answer to each request for objects of git LFS, in place of the right one.
    lfs_status: Mutex<Option<u16>>,
    /// Status and body of the gateway's answer to a pusher, which comes to whoever has the token of the same name.
    commits: Mutex<(u16, Vec<u8>)>,
    breaks: Mutex<Breaks>,
    /// How many requests for objects break off before their answer.
    broken_fetches: Mutex<u32>,
    /// How many requests are being served.
    open: Mutex<u32>,
    closed: Condvar,
}

/// What happens to the next requests that change a repository.
#[derive(Clone, Copy, Default)]
struct Breaks {
    count: u32,
    /// They change it all the same.
    done: bool,
    /// The connection stays open, and nothing comes.
    silent: bool,
}

impl GitServer {
    /// Serves `folder` until the process ends.
    pub fn start(folder: &Path, token: &str) -> Self {
        Self::start_with(folder, token, true)
    }

    /// As `start`. Without `looks_for_leaks` a request takes no longer on a machine of many processes.
    pub fn start_with(folder: &Path, token: &str, looks_for_leaks: bool) -> Self {
        require("git", "git");
        fs::create_dir_all(folder).unwrap();
        let certified = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let tls = builder.with_no_client_auth().with_single_cert(vec![certified.cert.der().clone()], key).unwrap();
        let shared = Arc::new(Shared {
            folder: folder.to_owned(),
            token: token.to_owned(),
            looks_for_leaks,
            objects: Mutex::default(),
            requests: Mutex::default(),
            leaks: Mutex::default(),
            lfs_status: Mutex::default(),
            commits: Mutex::default(),
            breaks: Mutex::default(),
            broken_fetches: Mutex::default(),
            open: Mutex::default(),
            closed: Condvar::new(),
        });
        let https = listen(&shared, Some(Arc::new(tls)));
        let http = listen(&shared, None);
        GitServer { shared, ca: certified.cert.pem(), https, http }
    }

    /// `127.0.0.1:PORT`, of https.
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.https)
    }

    /// The same server under another name.
    pub fn other_host(&self) -> String {
        format!("localhost:{}", self.https)
    }

    pub fn url(&self, path: &str) -> String {
        format!("https://{}/{path}", self.host())
    }

    pub fn http_url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.http)
    }

    /// Keeps an object of git LFS, and returns its pointer.
    pub fn keep_object(&self, content: &[u8]) -> String {
        let pointer = pointer(content);
        let id = hex::encode(sha2::Sha256::digest(content));
        self.shared.objects.lock().unwrap().insert(id, content.to_vec());
        pointer
    }

    pub fn fail_lfs_with(&self, status: u16) {
        *self.shared.lfs_status.lock().unwrap() = Some(status);
    }

    /// What a gateway answers at `/v1/push` from now on.
    pub fn answer_pushers(&self, status: u16, body: Vec<u8>) {
        *self.shared.commits.lock().unwrap() = (status, body);
    }

    /// The next `count` pushes get no answer; with `done` they are carried out.
    pub fn break_pushes(&self, count: u32, done: bool) {
        *self.shared.breaks.lock().unwrap() = Breaks { count, done, silent: false };
    }

    /// The next push gets no answer, and its connection stays open; with `done` it is carried out.
    pub fn hang_push(&self, done: bool) {
        *self.shared.breaks.lock().unwrap() = Breaks { count: 1, done, silent: true };
    }

    /// The next `count` fetches get no answer.
    pub fn break_fetches(&self, count: u32) {
        *self.shared.broken_fetches.lock().unwrap() = count;
    }

    /// Waits until every request is served, also those of clients that were killed.
    pub fn wait_until_idle(&self) {
        let open = self.shared.open.lock().unwrap();
        let (open, waited) = self.shared.closed.wait_timeout_while(open, limit(Duration::from_secs(60)), |open| *open > 0).unwrap();
        assert!(!waited.timed_out(), "{open} requests are still being served");
    }

    /// Method, path, a pusher's query and whether a user was given, of each request.
    pub fn requests(&self) -> Vec<String> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// Fails if the token was in an argument or the environment of any process while the server was asked.
    pub fn expect_no_leak(&self) {
        let leaks = self.shared.leaks.lock().unwrap();
        assert!(leaks.is_empty(), "{leaks:?}");
    }
}

pub fn pointer(content: &[u8]) -> String {
    let id = hex::encode(sha2::Sha256::digest(content));
    format!("version https://git-lfs.github.com/spec/v1\noid sha256:{id}\nsize {}\n", content.len())
}

/// The value of the header Authorization.
pub fn basic(user: &str, token: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(format!("{user}:{token}"))
}

fn listen(shared: &Arc<Shared>, tls: Option<Arc<rustls::ServerConfig>>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let shared = Arc::clone(shared);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (shared, tls) = (Arc::clone(&shared), tls.clone());
            *shared.open.lock().unwrap() += 1;
            std::thread::spawn(move || {
                match tls {
                    Some(tls) => {
                        let connection = rustls::ServerConnection::new(tls).unwrap();
                        let mut stream = rustls::StreamOwned::new(connection, stream);
                        shared.serve(&mut stream);
                        stream.conn.send_close_notify();
                        _ = stream.flush();
                    }
                    None => shared.serve(&mut { stream } as &mut TcpStream),
                }
                *shared.open.lock().unwrap() -= 1;
                shared.closed.notify_all();
            });
        }
    });
    port
}

struct Request {
    method: String,
    path: String,
    query: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Request {
    fn read(stream: &mut impl Read) -> Option<Self> {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let mut words = line.split_whitespace().map(str::to_owned);
        let (method, target) = (words.next()?, words.next()?);
        let mut headers = BTreeMap::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        let mut body = Vec::new();
        if headers.get("transfer-encoding").is_some_and(|value| value == "chunked") {
            loop {
                let mut size = String::new();
                reader.read_line(&mut size).ok()?;
                let size = u64::from_str_radix(size.trim(), 16).ok()?;
                (&mut reader).take(size).read_to_end(&mut body).ok()?;
                reader.read_line(&mut String::new()).ok()?;
                if size == 0 {
                    break;
                }
            }
        } else if let Some(length) = headers.get("content-length").and_then(|length| length.parse().ok()) {
            (&mut reader).take(length).read_to_end(&mut body).ok()?;
        }
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        Some(Request { method, path: path.to_owned(), query: query.to_owned(), headers, body })
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

fn respond(stream: &mut impl Write, status: &str, headers: &str, body: &[u8]) {
    let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n", body.len());
    _ = stream.write_all(head.as_bytes());
    _ = stream.write_all(body);
    _ = stream.flush();
}

impl Shared {
    fn serve<S: Read + Write>(&self, stream: &mut S) {
        let Some(request) = Request::read(stream) else { return };
        if self.looks_for_leaks {
            self.look_for_leaks();
        }
        let given = request.header("authorization");
        let query = if request.path == "/v1/push" && !request.query.is_empty() { format!("?{}", request.query) } else { String::new() };
        let user = if given.is_empty() { "-" } else { "user" };
        self.requests.lock().unwrap().push(format!("{} {}{query} {user}", request.method, request.path));
        if request.path.starts_with("/private/") && given != format!("Basic {}", basic(USER, &self.token)) {
            // The worst server says back what it was sent.
            let body = format!("no entry with {given}, the token is {}\n", self.token);
            return respond(
                stream,
                "401 Unauthorized",
                "WWW-Authenticate: Basic realm=\"git\"\r\nContent-Type: text/plain\r\n",
                body.as_bytes(),
            );
        }
        if let Some(path) = request.path.strip_prefix("/moved/") {
            let port = request.header("host").rsplit(':').next().unwrap_or_default();
            let location = format!("Location: https://localhost:{port}/open/{path}?{}\r\n", request.query);
            return respond(stream, "301 Moved Permanently", &location, b"");
        }
        if request.path == "/v1/push" {
            let (status, body) = self.commits.lock().unwrap().clone();
            let status = if given == format!("Bearer {GATEWAY_TOKEN}") { status } else { 401 };
            // As the gateway, which sends its line alone when the branch is at that commit.
            let line = body.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            let is_there = request.query.strip_prefix("at=").is_some_and(|at| body.starts_with(format!("{at} ").as_bytes()));
            return respond(stream, &format!("{status} Said"), "", if is_there { &body[..line] } else { &body });
        }
        if request.path.ends_with("/git-receive-pack") {
            let breaks = {
                let mut breaks = self.breaks.lock().unwrap();
                let before = *breaks;
                breaks.count = before.count.saturating_sub(1);
                before
            };
            if breaks.count > 0 {
                if breaks.done {
                    self.http_backend(&mut std::io::sink(), &request);
                }
                if breaks.silent {
                    // It says nothing until the other side goes.
                    _ = std::io::copy(stream, &mut std::io::sink());
                }
                return;
            }
        }
        if request.path.ends_with("/git-upload-pack") && holds(&request.body, "command=fetch") {
            let mut left = self.broken_fetches.lock().unwrap();
            if *left > 0 {
                *left -= 1;
                return;
            }
        }
        if request.path.ends_with("/info/lfs/objects/batch") {
            self.lfs_batch(stream, &request);
        } else if let Some((_, id)) = request.path.split_once("/lfs-objects/") {
            match self.objects.lock().unwrap().get(id) {
                Some(content) => respond(stream, "200 OK", "Content-Type: application/octet-stream\r\n", content),
                None => respond(stream, "404 Not Found", "", b"no such object"),
            }
        } else if let Some(file) = request.path.strip_prefix("/dumb/") {
            match fs::read(self.folder.join(file)) {
                Ok(content) => respond(stream, "200 OK", "Content-Type: text/plain\r\n", &content),
                Err(_) => respond(stream, "404 Not Found", "", b""),
            }
        } else {
            self.http_backend(stream, &request);
        }
    }

    fn lfs_batch(&self, stream: &mut impl Write, request: &Request) {
        if let Some(status) = *self.lfs_status.lock().unwrap() {
            return respond(stream, &format!("{status} Broken"), "", b"");
        }
        let asked: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let kept = self.objects.lock().unwrap();
        let base = request.path.trim_end_matches("/info/lfs/objects/batch");
        let objects: Vec<Value> = asked["objects"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|object| {
                let id = object["oid"].as_str().unwrap_or_default();
                let href = format!("https://{}{base}/lfs-objects/{id}", request.header("host"));
                let size = object["size"].clone();
                if kept.contains_key(id) {
                    json!({ "oid": id, "size": size, "actions": { "download": { "href": href } } })
                } else {
                    json!({ "oid": id, "size": size, "error": { "code": 404, "message": "Object does not exist" } })
                }
            })
            .collect();
        let body = json!({ "transfer": "basic", "objects": objects }).to_string();
        respond(stream, "200 OK", "Content-Type: application/vnd.git-lfs+json\r\n", body.as_bytes());
    }

    fn http_backend(&self, stream: &mut impl Write, request: &Request) {
        let mut backend = Command::new("git");
        backend.arg("http-backend").env_clear().env("PATH", "/usr/bin:/bin").env("HOME", &self.folder).env("GIT_CONFIG_NOSYSTEM", "1");
        backend.env("GIT_PROJECT_ROOT", &self.folder).env("GIT_HTTP_EXPORT_ALL", "1");
        backend.env("REQUEST_METHOD", &request.method).env("PATH_INFO", &request.path).env("QUERY_STRING", &request.query);
        backend.env("CONTENT_TYPE", request.header("content-type")).env("HTTP_CONTENT_ENCODING", request.header("content-encoding"));
        backend.env("CONTENT_LENGTH", request.body.len().to_string()).env("GIT_PROTOCOL", request.header("git-protocol"));
        if !request.header("authorization").is_empty() {
            // Who is known may push.
            backend.env("REMOTE_USER", USER);
        }
        let mut child = backend.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let body = request.body.clone();
        let writer = std::thread::spawn(move || _ = input.write_all(&body));
        let output = child.wait_with_output().unwrap().stdout;
        writer.join().unwrap();
        let end = output.windows(4).position(|window| window == b"\r\n\r\n").unwrap_or(0);
        let (head, body) = (String::from_utf8_lossy(&output[..end]).into_owned(), output.get(end + 4..).unwrap_or_default());
        let status = head.lines().find_map(|line| line.strip_prefix("Status: ")).unwrap_or("200 OK").to_owned();
        let headers: String = head.lines().filter(|line| !line.starts_with("Status: ")).map(|line| format!("{line}\r\n")).collect();
        respond(stream, &status, &headers, body);
    }

    /// In arguments and environment of every process of this machine. The token is of one test.
    fn look_for_leaks(&self) {
        for process in fs::read_dir("/proc").unwrap().filter_map(Result::ok) {
            for name in ["cmdline", "environ"] {
                let path = process.path().join(name);
                let content = fs::read(&path).unwrap_or_default();
                if holds(&content, &self.token) || holds(&content, &basic(USER, &self.token)) {
                    self.leaks.lock().unwrap().push(format!("{}: {}", path.display(), String::from_utf8_lossy(&content)));
                }
            }
        }
    }
}
