//! The aggregated API: what agents answer themselves.

use std::time::{Duration, Instant};

use futures::{AsyncBufRead, TryStreamExt};
use kube::client::Connection;
use serde::Serialize;
use serde::de::DeserializeOwned;
use yoi_crds::YoiPod;
use yoi_wire::approval::{ApprovalRequest, ApprovalResponse};
use yoi_wire::assets::{ReloadAssets, ReloadedAssets};
use yoi_wire::bundle::{CommitRequest, CommitResponse, query_value};
use yoi_wire::control::{ControlAction, ControlRequest, ControlResponse};
use yoi_wire::conversation::ConversationStatus;
use yoi_wire::engine_api::{PREFIX, SUBRESOURCE};
use yoi_wire::merge::{MergeOutcome, PersonMerge};
use yoi_wire::people::{GROUP, VERSION, WaitsFor};
use yoi_wire::push::{PushRequest, PushResponse};
use yoi_wire::ssh::{self, SshHost};

use super::Cluster;
use crate::error::Error;
use crate::progress::Progress;
use crate::show::one_line;

/// How long a read waits for the reader of a stopped agent: an image may have to be pulled.
const READER_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a request waits for an agent to learn of a gateway that has just started: answers of DNS may be kept for half a minute.
const LINE_TIMEOUT: Duration = Duration::from_secs(45);
pub(super) const RETRY_AFTER: Duration = Duration::from_millis(300);
/// How often a request whose answer was lost is sent again under its id.
pub(super) const REPEAT_LOST: u32 = 3;

/// What a person does with an agent by SSH, before its name.
const INTO: &str = "come by SSH into";

/// Subresources that are asked of one conversation.
const OF_CONVERSATION: [&str; 5] = ["approval", "attach", "control", "log", "message"];

impl Cluster {
    /// Returns the error for a request to an agent that cannot be built.
    fn invalid_request(&self, name: &str, error: impl std::error::Error + Send + Sync + 'static) -> Error {
        let operation = format!("write a request to {}", self.display_name::<YoiPod>(name));
        Error::local(operation, error, "check its name, the namespace and the words of the command line")
    }

    fn runtime_path(&self, name: &str, subresource: &str) -> String {
        // A gateway that knows one conversation only does not serve the longer path, so nothing meant for another one reaches that.
        let conversation = self.conversation.as_ref().filter(|_| OF_CONVERSATION.contains(&subresource));
        let conversation = conversation.map_or(String::new(), |name| format!("/{name}"));
        format!("/apis/{GROUP}/{VERSION}/namespaces/{}/yoipods/{name}/{subresource}{conversation}", self.namespace)
    }

    /// Opens a `GET` of a subresource of the aggregated API. Of an agent that has stopped, it shows what it waits for meanwhile.
    pub async fn stream(&self, name: &str, subresource: &str, query: &str) -> Result<impl AsyncBufRead + use<>, Error> {
        self.stream_of(name, subresource, subresource, query).await
    }

    /// As [`Cluster::stream`], with a word for errors.
    pub async fn stream_of(&self, name: &str, what: &str, subresource: &str, query: &str) -> Result<impl AsyncBufRead + use<>, Error> {
        let query = format!("{query}{}", self.conversation_query(subresource));
        self.read(name, what, subresource, &query, |request| self.client.request_stream(request)).await
    }

    /// Makes one of the engine's calls that answer with JSON. `what` is the word for errors.
    pub async fn engine<T: DeserializeOwned>(&self, name: &str, what: &str, call: &str) -> Result<T, Error> {
        let subresource = format!("{SUBRESOURCE}/{PREFIX}/{call}");
        let query = self.conversation_query(&subresource);
        self.read(name, what, &subresource, &query, |request| self.client.request(request)).await
    }

    /// Makes one of the engine's calls that act. It has its effect once, so it is sent again when its answer was lost. `operation` is for errors.
    pub async fn act<T: DeserializeOwned>(&self, name: &str, operation: &str, call: &str, body: &impl Serialize) -> Result<T, Error> {
        let bytes = serde_json::to_vec(body).map_err(|e| self.invalid_request(name, e))?;
        let subresource = format!("{SUBRESOURCE}/{PREFIX}/{call}");
        let query = self.conversation_query(&subresource);
        let path = query.strip_prefix('&').map_or(subresource.clone(), |query| format!("{subresource}?{query}"));
        self.send_again(name, &path, &bytes).await.map_err(self.api_error::<YoiPod>(operation, name))
    }

    /// The conversation as the engine's calls are told it, with `&` before it.
    fn conversation_query(&self, subresource: &str) -> String {
        let conversation = self.conversation.as_ref().filter(|_| subresource.starts_with(SUBRESOURCE));
        conversation.map_or(String::new(), |name| format!("&conversation={name}"))
    }

    /// As [`Cluster::stream`], and of an agent whose reader is only starting the refusal: whoever reads a terminal of its own waits there.
    pub async fn stream_now(&self, name: &str, subresource: &str, query: &str) -> Result<impl AsyncBufRead + use<>, Error> {
        let request = self.waiting_request(name, subresource, query, 0, None)?;
        self.client.request_stream(request).await.map_err(self.api_error::<YoiPod>(&format!("read the {subresource} of"), name))
    }

    /// Opens a `GET` of an agent's segments, a tar archive. It may take longer than the minute after which the API server ends other streams.
    pub async fn export(&self, name: &str) -> Result<impl AsyncBufRead + use<>, Error> {
        self.read(name, "session", "log", "export=true", |request| self.client.request_stream(request)).await
    }

    /// Opens a `GET` of what an agent has committed, of one branch or of what is checked out. It may take longer than that minute, too.
    pub async fn bundle(&self, name: &str, branch: Option<&str>) -> Result<impl AsyncBufRead + use<>, Error> {
        let branch = branch.map_or(String::new(), |branch| format!("&branch={}", query_value(branch)));
        self.read(name, "commits", "log", &format!("bundle=true{branch}"), |request| self.client.request_stream(request)).await
    }

    /// As [`Cluster::bundle`], of what is checked out, and what is not committed with it.
    pub async fn work(&self, name: &str) -> Result<impl AsyncBufRead + use<>, Error> {
        self.read(name, "work", "log", "bundle=true&work=true", |request| self.client.request_stream(request)).await
    }

    /// Commits as the agent what it has not committed.
    pub async fn commit(&self, name: &str, body: &CommitRequest) -> Result<CommitResponse, Error> {
        let bytes = serde_json::to_vec(body).map_err(|e| self.invalid_request(name, e))?;
        let request = http::Request::post(self.runtime_path(name, "bundle"))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(bytes)
            .map_err(|e| self.invalid_request(name, e))?;
        self.client.request(request).await.map_err(self.api_error::<YoiPod>("commit what is in the tree of", name))
    }

    /// Merges another agent's work into the tree of this one.
    pub async fn merge_into(&self, name: &str, body: &PersonMerge) -> Result<MergeOutcome, Error> {
        let bytes = serde_json::to_vec(body).map_err(|e| self.invalid_request(name, e))?;
        self.send_again(name, "merge", &bytes).await.map_err(self.api_error::<YoiPod>("merge into the tree of", name))
    }

    /// Asks for a push of what an agent has committed. Of an agent that has stopped, it shows what it waits for meanwhile.
    pub async fn push(&self, name: &str, body: &PushRequest) -> Result<PushResponse, Error> {
        let body = serde_json::to_vec(body).map_err(|e| self.invalid_request(name, e))?;
        self.read_with(name, "push the commits of", "push", "", Some(&body), |request| self.client.request(request)).await
    }

    /// As [`Cluster::stream`], of an answer that is one JSON object.
    pub async fn fetch<T: DeserializeOwned>(&self, name: &str, subresource: &str, query: &str) -> Result<T, Error> {
        self.read(name, subresource, subresource, query, |request| self.client.request(request)).await
    }

    /// As [`Cluster::fetch`], and of an agent that cannot answer yet the refusal.
    pub async fn fetch_now<T: DeserializeOwned>(&self, name: &str, subresource: &str) -> Result<T, Error> {
        let request = self.waiting_request(name, subresource, "", 0, None)?;
        self.client.request(request).await.map_err(self.api_error::<YoiPod>(&format!("read the {subresource} of"), name))
    }

    /// What a client of SSH has to know of an agent. One that rests is woken.
    pub async fn ssh_host(&self, name: &str) -> Result<SshHost, Error> {
        let path = format!("{SUBRESOURCE}/{}", ssh::PREFIX);
        self.read_with(name, INTO, &path, "", None, |request| self.client.request(request)).await
    }

    /// The stream of a server of SSH that lets in who has this key.
    pub async fn ssh_stream(&self, name: &str, key: &str) -> Result<Connection, Error> {
        let path = format!("{}?key={}", self.runtime_path(name, &format!("{SUBRESOURCE}/{}", ssh::PREFIX)), query_value(key));
        let mut wait = Wait::new(name);
        loop {
            let request = http::Request::get(&path).body(Vec::new()).map_err(|e| self.invalid_request(name, e))?;
            match self.client.connect(request).await {
                Ok(connection) => return Ok(connection),
                Err(error) if wait.goes_on(&error).await => {}
                Err(error) => return Err(self.api_error::<YoiPod>(INTO, name)(error)),
            }
        }
    }

    /// A `GET`, or a `POST` of this body, that waits so many seconds for the reader of a stopped agent.
    fn waiting_request(
        &self,
        name: &str,
        subresource: &str,
        query: &str,
        seconds: u32,
        body: Option<&[u8]>,
    ) -> Result<http::Request<Vec<u8>>, Error> {
        let path = format!("{}?{query}&waitSeconds={seconds}", self.runtime_path(name, subresource));
        let request = match body {
            None => http::Request::get(path),
            Some(_) => http::Request::post(path).header(http::header::CONTENT_TYPE, "application/json"),
        };
        request.body(body.unwrap_or_default().to_vec()).map_err(|e| self.invalid_request(name, e))
    }

    /// Sends a read again for as long as the gateway says that the reader of a stopped agent is only starting. `what` is the word for errors.
    async fn read<T, R: Future<Output = kube::Result<T>>>(
        &self,
        name: &str,
        what: &str,
        subresource: &str,
        query: &str,
        send: impl Fn(http::Request<Vec<u8>>) -> R,
    ) -> Result<T, Error> {
        self.read_with(name, &format!("read the {what} of"), subresource, query, None, send).await
    }

    /// As [`Cluster::read`], with a body for a `POST`, and the whole operation for errors.
    async fn read_with<T, R: Future<Output = kube::Result<T>>>(
        &self,
        name: &str,
        operation: &str,
        subresource: &str,
        query: &str,
        body: Option<&[u8]>,
        send: impl Fn(http::Request<Vec<u8>>) -> R,
    ) -> Result<T, Error> {
        let mut wait = Wait::new(name);
        loop {
            // An agent that runs, and a reader that is there, answer at once. What else is waited for is shown at once, and then as it changes.
            let seconds = if wait.progress.is_none() { 0 } else { 3 };
            let request = self.waiting_request(name, subresource, query, seconds, body)?;
            let error = match send(request).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            if !wait.goes_on(&error).await {
                return Err(self.api_error::<YoiPod>(operation, name)(error));
            }
        }
    }

    pub async fn post<T: DeserializeOwned>(&self, name: &str, subresource: &str, body: &impl Serialize) -> Result<T, Error> {
        let bytes = serde_json::to_vec(body).map_err(|e| self.invalid_request(name, e))?;
        let mut wait = Wait::new(name);
        loop {
            let request = http::Request::post(self.runtime_path(name, subresource))
                .header(http::header::CONTENT_TYPE, "application/json")
                .body(bytes.clone())
                .map_err(|e| self.invalid_request(name, e))?;
            match self.client.request(request).await {
                Ok(answer) => return Ok(answer),
                Err(error) if wait.goes_on(&error).await => {}
                Err(error) => return Err(self.api_error::<YoiPod>(&format!("post a {subresource} to"), name)(error)),
            }
        }
    }
}

impl Cluster {
    /// Asks a running agent for something. A request whose answer was lost is sent again under the same id, and has its effect once.
    pub async fn ask(&self, name: &str, action: ControlAction) -> Result<ControlResponse, Error> {
        let operation = operation(&action);
        let body = ControlRequest { id: uuid::Uuid::now_v7().to_string(), action };
        let bytes = serde_json::to_vec(&body).map_err(|e| self.invalid_request(name, e))?;
        self.send_again(name, "control", &bytes).await.map_err(self.api_error::<YoiPod>(operation, name))
    }
}

impl Cluster {
    /// Starts a conversation of an agent.
    pub async fn start_conversation(&self, name: &str, conversation: &str) -> Result<ConversationStatus, Error> {
        self.change_conversation(name, conversation, http::Method::POST, "start a conversation of").await
    }

    /// Stops a conversation of an agent.
    pub async fn stop_conversation(&self, name: &str, conversation: &str) -> Result<ConversationStatus, Error> {
        self.change_conversation(name, conversation, http::Method::DELETE, "stop a conversation of").await
    }

    async fn change_conversation(
        &self,
        name: &str,
        conversation: &str,
        method: http::Method,
        operation: &str,
    ) -> Result<ConversationStatus, Error> {
        let path = format!("{}/{conversation}", self.runtime_path(name, "conversations"));
        let mut wait = Wait::new(name);
        loop {
            let request = http::Request::builder().method(method.clone()).uri(&path).body(Vec::new());
            match self.client.request(request.map_err(|e| self.invalid_request(name, e))?).await {
                Ok(status) => return Ok(status),
                Err(error) if wait.goes_on(&error).await => {}
                Err(error) => return Err(self.conversation_error(operation, name, conversation)(error)),
            }
        }
    }
}

impl Cluster {
    /// Answers a call that waits for a person. An answer that was lost is sent again: the first one to a call counts.
    pub async fn answer_call(&self, name: &str, operation: &str, body: &ApprovalRequest) -> Result<ApprovalResponse, Error> {
        let bytes = serde_json::to_vec(body).map_err(|e| self.invalid_request(name, e))?;
        let agent = self.display_name::<YoiPod>(name);
        let error = match self.send_again(name, "approval", &bytes).await {
            Ok(response) => return Ok(response),
            Err(error) => error,
        };
        // The agent is there, and says of the call that it is not, or is over.
        let of_call = match &error {
            kube::Error::Api(status) if matches!(status.code, 404 | 410) => status.message.strip_prefix(&format!("{agent}: ")),
            _ => None,
        };
        match of_call {
            Some(message) => {
                let next = format!("see what waits: {}", self.plugin_command(&format!("approvals {name}")));
                Err(self.refused_error::<YoiPod>(operation, name, one_line(message), next))
            }
            None => Err(self.api_error::<YoiPod>(operation, name)(error)),
        }
    }

    /// Has a running agent read the skills and commands of its tree again. A request whose answer was lost is sent again, and reads them once more.
    pub async fn reload_assets(&self, name: &str, body: &ReloadAssets) -> Result<ReloadedAssets, Error> {
        let bytes = serde_json::to_vec(body).map_err(|e| self.invalid_request(name, e))?;
        self.send_again(name, "assets", &bytes).await.map_err(self.api_error::<YoiPod>("reload the assets of", name))
    }

    /// Posts what has its effect once, again while its answer is lost or the agent learns of a gateway that has just started.
    async fn send_again<T: DeserializeOwned>(&self, name: &str, subresource: &str, bytes: &[u8]) -> kube::Result<T> {
        let mut tried = 0;
        let mut wait = Wait::new(name);
        loop {
            let request = http::Request::post(self.runtime_path(name, subresource))
                .header(http::header::CONTENT_TYPE, "application/json")
                .body(bytes.to_vec())
                .map_err(kube::Error::HttpError)?;
            match self.client.request(request).await {
                Ok(response) => return Ok(response),
                Err(error) if is_lost(&error) && tried < REPEAT_LOST => tried += 1,
                Err(error) if wait.goes_on(&error).await => continue,
                Err(error) => return Err(error),
            }
            tokio::time::sleep(RETRY_AFTER).await;
        }
    }
}

/// What an error says was tried, before the agent's name.
pub fn operation(action: &ControlAction) -> &'static str {
    match action {
        ControlAction::Run { .. } => "start a run of",
        ControlAction::Pause {} => "pause",
        ControlAction::Resume {} => "resume",
        ControlAction::Cancel {} => "cancel the run of",
        ControlAction::SetMode { .. } => "set the mode of",
        ControlAction::Compact {} => "compact the conversation of",
        ControlAction::RegisterPeer { .. } => "give a peer to",
        ControlAction::RewindTargets {} | ControlAction::RewindTo { .. } => "rewind",
    }
}

/// Whether the agent may have done what it was asked although there is no answer.
pub(super) fn is_lost(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => matches!(status.code, 502 | 504),
        kube::Error::Service(_) | kube::Error::HyperError(_) | kube::Error::ReadEvents(_) => true,
        _ => false,
    }
}

/// The wait for an agent that will answer soon. The gateway says so by `retryAfterSeconds`, and by a cause why.
struct Wait<'a> {
    name: &'a str,
    begun: Instant,
    /// Absent until there is something to wait for.
    progress: Option<Progress>,
}

impl<'a> Wait<'a> {
    fn new(name: &'a str) -> Self {
        Wait { name, begun: Instant::now(), progress: None }
    }

    /// Shows what is waited for and pauses; false at once if the error says of no such wait, or it took too long.
    async fn goes_on(&mut self, error: &kube::Error) -> bool {
        let kube::Error::Api(status) = error else { return false };
        let Some(details) = status.details.as_ref().filter(|details| status.code == 503 && details.retry_after_seconds > 0) else {
            return false;
        };
        let cause = details.causes.first();
        let why = cause.map_or(&status.message, |cause| &cause.message);
        let (timeout, sentence) = match cause.filter(|cause| [WaitsFor::Line, WaitsFor::Wake].iter().any(|of| cause.reason == of.as_str()))
        {
            Some(_) => (LINE_TIMEOUT, format!("waiting for {}: {why}", self.name)),
            None => (READER_TIMEOUT, format!("starting a reader of {}'s session: {why}", self.name)),
        };
        if self.begun.elapsed() >= timeout {
            return false;
        }
        self.progress.get_or_insert_with(Progress::start).set(&sentence);
        tokio::time::sleep(RETRY_AFTER).await;
        true
    }
}

/// Splits a stream into lines without their newline.
pub fn lines(reader: impl AsyncBufRead + Unpin) -> impl futures::Stream<Item = std::io::Result<String>> {
    futures::AsyncBufReadExt::lines(reader).into_stream()
}
