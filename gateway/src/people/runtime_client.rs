//! A person's request to an agent's runtime: it goes over the agent's line, and the gateway says who asks.

use axum::http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};
use yoi_line::RequestError;
use yoi_wire::control::USER_HEADER;
use yoi_wire::hub::Refusal;

use super::ApiFailure;
use super::target::{no_line, unreachable};
use crate::GatewayState;
use crate::agent_index::AgentRecord;
use crate::front_proxy::User;

/// Bytes of an answer that the gateway looks into.
pub const MAX_READ_ANSWER: usize = 64 * 1024;

/// Asks one agent's runtime once.
pub struct RuntimeClient<'a> {
    gateway: &'a GatewayState,
    user: &'a User,
    record: &'a AgentRecord,
    deadline: Instant,
    /// What stands behind `lost` words: that it may have been done, and what to do then.
    when_lost: &'static str,
    /// What an agent that rests is woken for; `None`: it is not.
    wakes_for: Option<String>,
}

impl<'a> RuntimeClient<'a> {
    /// Of an agent. From now on an answer may take as long as the gateway's settings say.
    pub fn new(gateway: &'a GatewayState, user: &'a User, record: &'a AgentRecord, when_lost: &'static str) -> Self {
        RuntimeClient { gateway, user, record, deadline: Instant::now() + gateway.settings.control_timeout, when_lost, wakes_for: None }
    }

    /// The same, and an agent that rests is woken for it.
    pub fn waking(self, wakes_for: Option<String>) -> Self {
        RuntimeClient { wakes_for, ..self }
    }

    /// Sends JSON over the agent's line, and over another line when that one closes before the runtime can have seen it.
    ///
    /// # Errors
    /// The agent has no line, or it is not known whether the runtime has seen the request.
    pub async fn send(&self, method: &Method, path: &str, body: &Bytes) -> Result<Response<Incoming>, ApiFailure> {
        loop {
            let line = self.gateway.delivery.line_to(self.record, self.wakes_for.as_deref()).await;
            let line = line.map_err(|refusal| no_line(self.record, &refusal))?;
            let request = person_request(self.user, method.clone(), path, body.clone())?;
            return match timeout_at(self.deadline, line.request(request)).await {
                Ok(Ok(response)) => Ok(response),
                Ok(Err(RequestError::Unsent(_))) if line.is_closed() && Instant::now() < self.deadline => continue,
                Ok(Err(RequestError::Unsent(_))) => Err(unreachable(self.record)),
                Ok(Err(_)) => Err(self.lost("broke off")),
                Err(_) => Err(self.lost(&format!("did not answer within {}", crate::seconds(self.gateway.settings.control_timeout)))),
            };
        }
    }

    /// Awaits a part of the answer; `None` when it takes too long.
    pub async fn in_time<T>(&self, part: impl Future<Output = T>) -> Option<T> {
        timeout_at(self.deadline, part).await.ok()
    }

    /// The whole of a short answer; `None` when it is too long, breaks off or takes too long.
    pub async fn read(&self, body: Incoming) -> Option<Bytes> {
        let body = self.in_time(Limited::new(body, MAX_READ_ANSWER).collect()).await?;
        Some(body.ok()?.to_bytes())
    }

    /// What an answer means that is no success.
    pub fn refused(&self, status: StatusCode, answer: &[u8]) -> ApiFailure {
        let (namespace, name) = (&self.record.name.namespace, &self.record.name.name);
        match serde_json::from_slice::<Refusal>(answer) {
            Ok(refusal) => ApiFailure::from_refusal(namespace, name, &refusal),
            // A runtime older than this gateway may not serve the path.
            Err(_) if status == StatusCode::NOT_FOUND => ApiFailure::older_runtime(namespace, name),
            Err(_) => self.lost(&format!("answered {status}")),
        }
    }

    /// It is not known whether the runtime has done it.
    pub fn lost(&self, why: &str) -> ApiFailure {
        let (namespace, name) = (&self.record.name.namespace, &self.record.name.name);
        let message = format!("YoiPod {namespace}/{name} {why}, and {}", self.when_lost);
        ApiFailure::new(StatusCode::GATEWAY_TIMEOUT, message).about(name)
    }
}

/// A request to the runtime in the name of a person.
fn person_request(user: &User, method: Method, path: &str, body: Bytes) -> Result<Request<Full<Bytes>>, ApiFailure> {
    let mut request = person_head(user, method, path)?.map(|()| Full::new(body));
    request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(request)
}

/// The same without a body.
pub fn person_head(user: &User, method: Method, path: &str) -> Result<Request<()>, ApiFailure> {
    let mut request = Request::new(());
    *request.method_mut() = method;
    *request.uri_mut() = path
        .parse::<Uri>()
        .map_err(|error| ApiFailure::new(StatusCode::BAD_REQUEST, format!("{path} is no path of a request: {error}")))?;
    let user = HeaderValue::from_str(&header_text(&user.name))
        .map_err(|error| ApiFailure::new(StatusCode::BAD_REQUEST, format!("the user's name fits no header: {error}")))?;
    request.headers_mut().insert(USER_HEADER, user);
    Ok(request)
}

/// A name as printable ASCII. Whoever decodes the percent signs gets the name, whatever is in it.
fn header_text(name: &str) -> String {
    let escaped = |byte: u8| match byte {
        b'%' => "%25".to_owned(),
        b' '..=b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    name.bytes().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_name_becomes_printable_ascii_that_decodes_to_itself() {
        for (name, header) in [
            ("jane", "jane"),
            ("system:serviceaccount:ns:ci", "system:serviceaccount:ns:ci"),
            ("jürgen", "j%C3%BCrgen"),
            ("50%41", "50%2541"),
            ("a\r\nx-yoi-user: root", "a%0D%0Ax-yoi-user: root"),
        ] {
            assert_eq!(header_text(name), header);
            assert!(HeaderValue::from_str(&header_text(name)).is_ok());
        }
    }
}
