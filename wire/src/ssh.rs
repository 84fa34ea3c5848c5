//! A shell in an agent's Pod: `yoipods/proxy/ssh`, and the OpenSSH server that a runtime starts for it.
//!
//! A `GET` answers [`SshHost`]. A `GET` that asks for a WebSocket with the protocol [`PROTOCOL`] and a [`SshQuery`] becomes the stream of one server. Both need
//! `get` of `yoipods/proxy`, which is what the API server asks for, and `create` of `yoipods/ssh`, which the gateway asks for.

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::entry::{Body, Extension};

/// The subresource whose right, with verb `create`, lets a person connect to agents, beside that to [`crate::engine_api::SUBRESOURCE`].
pub const RIGHT: &str = "ssh";
/// The path below [`crate::engine_api::SUBRESOURCE`].
pub const PREFIX: &str = "ssh";
/// The protocol of the WebSocket, which is that of `kubectl exec`: the first byte of a message says what the rest is.
pub const PROTOCOL: &str = "v5.channel.k8s.io";
/// First byte of a message whose rest is for the server.
pub const TO_SERVER: u8 = 0;
/// First byte of a message whose rest is of the server.
pub const FROM_SERVER: u8 = 1;
/// First byte of a message whose rest is one byte: the channel that has ended.
pub const CLOSED: u8 = 255;
/// The most bytes of a message.
pub const MAX_MESSAGE: usize = 1 << 20;
/// The most servers of one agent at the same time.
pub const MAX_SERVERS: usize = 16;

/// Name of the entries in the log.
pub const EXTENSION: &str = "yoi/ssh";

/// The most bytes of a public key.
const MAX_KEY: usize = 1024;

/// What a client of SSH has to know of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SshHost {
    /// The user as whom the agent works.
    pub user: String,
    /// The server's public key, as known_hosts has it. It lives as long as the Pod.
    pub host_key: String,
    /// Where the agent's tree is.
    pub path: String,
}

/// Whom a server lets in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SshQuery {
    /// The person's public key.
    pub key: Option<String>,
}

/// Whether this is one public key as OpenSSH writes it, without options and without a comment.
#[must_use]
pub fn is_public_key(text: &str) -> bool {
    let Some((kind, data)) = text.split_once(' ') else { return false };
    let is_kind = !kind.is_empty() && kind.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.@".contains(&byte));
    let is_data = data.len() >= 16 && data.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
    is_kind && is_data && text.len() <= MAX_KEY && ["ssh-", "ecdsa-", "sk-"].iter().any(|start| kind.starts_with(start))
}

/// Begin or end of an SSH connection, as the session log has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SshEntry {
    /// Id of the server.
    pub id: String,
    /// The authenticated user name of the person.
    pub user: String,
    /// Absent: the connection begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<SshEnd>,
}

/// How a server ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SshEnd {
    /// For how long it ran.
    pub seconds: u64,
    /// Processes that were left and were ended with it.
    pub killed: usize,
}

impl SshEntry {
    /// As an entry of the log.
    #[must_use]
    pub fn body(&self) -> Body {
        Body::Extension(Extension { name: EXTENSION.to_owned(), data: json!(self) })
    }

    /// The entry, where this is one.
    #[must_use]
    pub fn of(extension: &Extension) -> Option<Self> {
        (extension.name == EXTENSION).then(|| serde_json::from_value(extension.data.clone()).ok()).flatten()
    }

    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        let Self { user, ended, .. } = self;
        match ended {
            None => format!("{user} connected by SSH"),
            Some(SshEnd { seconds, killed: 0 }) => format!("{user} was connected by SSH for {seconds} s"),
            Some(SshEnd { seconds, killed }) => {
                format!("{user} was connected by SSH for {seconds} s; processes that were left running were ended: {killed}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_key_has_a_kind_and_data_and_nothing_else() {
        let data = "AAAAC3NzaC1lZDI1NTE5AAAAIJ7";
        for kind in ["ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256", "sk-ssh-ed25519@openssh.com"] {
            assert!(is_public_key(&format!("{kind} {data}")), "{kind}");
        }
        for text in [
            String::new(),
            data.to_owned(),
            format!("ssh-ed25519 {data} a comment"),
            format!("command=\"x\" ssh-ed25519 {data}"),
            format!("ssh-ed25519 {data}\nssh-rsa {data}"),
            format!("none {data}"),
            "ssh-ed25519 short".to_owned(),
            format!("ssh-rsa {}", "A".repeat(MAX_KEY)),
        ] {
            assert!(!is_public_key(&text), "{text}");
        }
    }

    #[test]
    fn an_entry_comes_back_from_the_log_and_says_who() {
        let begins = SshEntry { id: "i".into(), user: "ann".into(), ended: None };
        let ends = SshEntry { ended: Some(SshEnd { seconds: 3, killed: 1 }), ..begins.clone() };
        for entry in [begins, ends] {
            let Body::Extension(extension) = entry.body() else { panic!("another entry") };
            assert_eq!(SshEntry::of(&extension), Some(entry.clone()));
            assert!(entry.text().starts_with("ann"), "{}", entry.text());
            assert_eq!(SshEntry::of(&Extension { name: "other".into(), data: extension.data }), None);
        }
    }
}
