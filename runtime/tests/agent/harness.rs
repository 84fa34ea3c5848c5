//! The folders of a Pod, the runtime's binary, a fake gateway and a scripted model.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::watch;
use yoi_session::disk::{Disk, RealDisk};
use yoi_session::{Reader, Token, current};
use yoi_test_support::{eventually, eventually_in};
use yoi_wire::entry::{Body, Entry, RunOutcome, ToolEnded};
use yoi_wire::hub::runtime_api;
use yoi_wire::identity::env;
use yoi_wire::people::UsageResponse;

use crate::gateway::Gateway;
use crate::{script, server};

pub struct Harness {
    pub dir: TempDir,
    pub gateway: Gateway,
    pub model_url: String,
    pub provider: &'static str,
    pub model: &'static str,
    pub needs_key: bool,
    pub key: Option<&'static str>,
    pub user_env: Vec<(&'static str, &'static str)>,
    pub limits: serde_json::Value,
    /// More fields of the manifest's model.
    pub model_settings: serde_json::Value,
    /// More fields of the manifest.
    pub manifest_settings: serde_json::Value,
    pub shim_socket: PathBuf,
    /// More variables for the runtime.
    pub env: Vec<(&'static str, String)>,
    /// The runtime runs as this user; as the test's own when absent.
    pub uid: Option<u32>,
    /// Another build of the runtime, for measurements; `YOI_RUNTIME_BINARY` or this one when absent.
    pub binary: Option<PathBuf>,
    /// Requests to the model, in order.
    pub requests: ModelRequests,
}

/// Bodies of requests to the model.
pub type ModelRequests = Arc<Mutex<Vec<serde_json::Value>>>;

/// The running binary. Killed when it is dropped.
pub struct Runtime {
    pub child: Child,
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How often a wait looks.
const PAUSE: Duration = Duration::from_millis(25);
/// What the runtime logs when a stop hangs for 9 s, and it ends with its log open.
const STOP_HANGS: &str = "stopping took too long";

impl Runtime {
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub async fn terminate(&mut self) -> ExitStatus {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.wait_for_exit().await
    }

    pub async fn wait_for_exit(&mut self) -> ExitStatus {
        eventually("the end of the runtime", async || self.child.try_wait().unwrap()).await
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }
}

impl Harness {
    pub async fn new(script: &str) -> Self {
        Self::with_key(script, None).await
    }

    /// The model requires `key`, if there is one.
    pub async fn with_key(script: &str, key: Option<&'static str>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["tree", "session", "tmp", "home"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        std::fs::write(dir.path().join("token"), "the-token\n").unwrap();
        std::fs::write(dir.path().join("script.yaml"), script).unwrap();
        let script_file = Arc::new(script::ScriptFile::new(dir.path().join("script.yaml")));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        // Without a slash at the end, which the runtime has to add.
        let model_url = format!("http://{}/v1", listener.local_addr().unwrap());
        let requests = ModelRequests::default();
        let router = record_requests(&requests, server::router(script_file, key.map(str::to_owned)));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self {
            shim_socket: dir.path().join("shim.sock"),
            dir,
            gateway: Gateway::start().await,
            model_url,
            provider: "OpenAI",
            model: "scripted",
            needs_key: false,
            key: None,
            user_env: Vec::new(),
            env: Vec::new(),
            uid: None,
            binary: None,
            requests,
            model_settings: json!({}),
            manifest_settings: json!({}),
            limits: json!({"turnsPerRun": 20, "toolSeconds": 30, "toolOutputBytes": 4096}),
        }
    }

    pub fn tree(&self) -> PathBuf {
        self.dir.path().join("tree")
    }

    pub fn session(&self) -> PathBuf {
        self.dir.path().join("session")
    }

    pub fn start(&self, generation: u64, task: Option<&str>) -> Runtime {
        let path = |name: &str| self.dir.path().join(name);
        let mut manifest = json!({
            "agent": {"namespace": "ns", "name": "a", "uid": "uid-a"},
            "project": "p",
            "path": self.tree(),
            "builtin": {"instruction": "You are tested."},
            "model": {"provider": self.provider, "name": self.model, "baseUrl": self.model_url, "keySecret": self.needs_key.then(|| json!({"secret": "model-key", "key": "api-key"}))},
            "task": task.map(|text| json!({"id": format!("task-{text}"), "text": text})),
            "gateway": {"lines": self.gateway.address, "service": self.gateway.address, "serverName": "gateway.test", "ca": self.gateway.ca},
            "limits": self.limits,
        });
        let settings = self.model_settings.as_object().unwrap().clone();
        manifest["model"].as_object_mut().unwrap().extend(settings);
        manifest.as_object_mut().unwrap().extend(self.manifest_settings.as_object().unwrap().clone());
        std::fs::write(path("manifest.json"), serde_json::to_vec(&manifest).unwrap()).unwrap();
        let log = std::fs::OpenOptions::new().create(true).append(true).open(path("stderr")).unwrap();
        let by_variable = || std::env::var_os("YOI_RUNTIME_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_yoi-runtime").into());
        let mut command = Command::new(self.binary.clone().map_or_else(by_variable, Into::into));
        command.arg("agent").env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command.envs([
            ("PATH", std::env::var_os("PATH").unwrap_or_default()),
            ("HOME", path("home").into()),
            ("TMPDIR", path("tmp").into()),
        ]);
        command.envs([("YOI_MANIFEST", path("manifest.json")), ("YOI_SESSION", path("session")), ("YOI_TOKEN", path("token"))]);
        command.env("YOI_SHIM_SOCKET", &self.shim_socket).env("YOI_MODEL_BACKOFF_MS", "20");
        command.env(env::RUN_GENERATION, generation.to_string()).env(env::POD_UID, format!("pod-{generation}"));
        command.env("KUBERNETES_SERVICE_HOST", "10.0.0.1").envs(self.user_env.iter().copied());
        command.envs(self.key.map(|key| (env::MODEL_API_KEY, key)));
        command.envs(self.env.iter().map(|(name, value)| (*name, value)));
        if let Some(uid) = self.uid {
            for path in
                [self.dir.path().to_owned()].into_iter().chain(["tree", "session", "tmp", "home", "token", "manifest.json"].map(path))
            {
                std::os::unix::fs::chown(path, Some(uid), Some(uid)).unwrap();
            }
            std::os::unix::process::CommandExt::uid(&mut command, uid);
        }
        Runtime { child: command.spawn().unwrap() }
    }

    /// Asks a runtime to stop, and checks that it has stopped by itself: before it would have been ended with its log open.
    pub async fn stop(&self, runtime: &mut Runtime) {
        assert!(runtime.terminate().await.success(), "{}", self.stderr());
        assert!(!self.stderr().contains(STOP_HANGS), "{}", self.stderr());
    }

    /// The process's own log.
    pub fn stderr(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("stderr")).unwrap_or_default()
    }

    /// A scripted model with the same script, whose requests are recorded too.
    pub fn model(&self) -> axum::Router {
        record_requests(&self.requests, server::router(Arc::new(script::ScriptFile::new(self.dir.path().join("script.yaml"))), None))
    }

    /// With a model that takes its first request at once, and all others when the sender has sent true; it requires no key. The retries of
    /// these tests take milliseconds, and reports are merged while one is on its way: without the wait, what is reported in between may never
    /// be sent.
    pub async fn held_after_first_request(self) -> (Self, watch::Sender<bool>) {
        let (release, released) = watch::channel(false);
        let first = Arc::new(AtomicBool::new(true));
        let model = self.model().layer(from_fn(move |request: Request, next: Next| {
            let (first, mut released) = (first.clone(), released.clone());
            async move {
                if !first.swap(false, Ordering::Relaxed) {
                    let _ = released.wait_for(|released| *released).await;
                }
                next.run(request).await
            }
        }));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let model_url = format!("http://{}/v1", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, model).await });
        (Self { model_url, ..self }, release)
    }

    pub fn entries(&self) -> Vec<Entry> {
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let Ok(Some(session)) = current::read(&*disk, &self.session()) else { return Vec::new() };
        let read = Reader::new(disk, &self.session(), session).read(Token::Start, usize::MAX);
        read.map(|(entries, _)| entries.into_iter().map(|raw| raw.entry).collect()).unwrap_or_default()
    }

    pub async fn wait_until(&self, what: &str, done: impl Fn(&[Entry]) -> bool) -> Vec<Entry> {
        self.wait_until_in(Duration::ZERO, what, done).await
    }

    /// As [`Harness::wait_until`], for what may take `usual` on a quiet machine.
    pub async fn wait_until_in(&self, usual: Duration, what: &str, done: impl Fn(&[Entry]) -> bool) -> Vec<Entry> {
        let look = async || {
            let entries = self.entries();
            Ok(done(&entries).then_some(entries))
        };
        let late = |late| format!("not in time: {what}: {late}\n{}\n{}", kinds(&self.entries()), self.stderr());
        eventually_in(usual, PAUSE, what, late, look).await.unwrap_or_else(|late| panic!("{late}"))
    }

    pub async fn usage(&self) -> UsageResponse {
        let (_, body) = self.gateway.request("GET", runtime_api::USAGE, "").await;
        serde_json::from_slice(&body).unwrap()
    }

    /// The usage that the runtime tells once it is `wanted`: a moment after its entries are on the disk.
    pub async fn wait_for_usage(&self, wanted: impl Fn(&UsageResponse) -> bool) -> UsageResponse {
        let look = async || Some(self.usage().await).filter(&wanted);
        eventually("such a usage", look).await
    }

    /// Waits until `count` runs have ended.
    pub async fn wait_for_runs(&self, count: usize) -> Vec<Entry> {
        self.wait_until("runs", |entries| outcomes(entries).len() >= count).await
    }
}

/// The router with each request recorded.
pub fn record_requests(requests: &ModelRequests, router: axum::Router) -> axum::Router {
    let requests = requests.clone();
    router.layer(from_fn(move |request: Request, next: Next| {
        let requests = requests.clone();
        async move {
            let (head, body) = request.into_parts();
            let body = axum::body::to_bytes(body, 64 << 20).await.unwrap();
            requests.lock().unwrap().push(serde_json::from_slice(&body).unwrap_or_default());
            next.run(Request::from_parts(head, body.into())).await
        }
    }))
}

pub fn kinds(entries: &[Entry]) -> String {
    entries.iter().map(|entry| entry.body.kind()).collect::<Vec<_>>().join(" ")
}

pub fn outcomes(entries: &[Entry]) -> Vec<RunOutcome> {
    let ends = entries.iter().filter_map(|entry| match &entry.body {
        Body::RunEnded(end) => Some(end.outcome),
        _ => None,
    });
    ends.collect()
}

pub fn tool_ends(entries: &[Entry]) -> Vec<ToolEnded> {
    let ends = entries.iter().filter_map(|entry| match &entry.body {
        Body::ToolEnded(end) => Some(end.clone()),
        _ => None,
    });
    ends.collect()
}

pub fn texts(entries: &[Entry]) -> Vec<String> {
    let answers = entries.iter().filter_map(|entry| match &entry.body {
        Body::Assistant(answer) => Some(answer.text.clone()),
        _ => None,
    });
    answers.collect()
}

/// A value of `/proc/PID/status`, in KiB.
pub fn status_kib(pid: u32, what: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(':')).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

pub fn lines(path: &Path) -> usize {
    std::fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

pub const EXAMPLE: &str = include_str!("../../../e2e/src/bin/scripted-model/example.yaml");
