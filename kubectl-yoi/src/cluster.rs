//! The client of the API server: our objects, and the aggregated API.

mod agent_api;
mod connect;
mod objects;
mod project_api;
mod wait;

use std::fmt::Debug;

use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use yoi_crds::YoiPod;

use crate::args::DryRun;
use crate::error::{Error, ErrorTarget, RefusalKind};

pub use agent_api::{lines, operation};
pub use connect::{context_name, has_context, place};
pub use objects::{Listed, UnreadableObject, understood};
pub use wait::{Wait, blocked};

pub struct Cluster {
    pub client: Client,
    pub namespace: String,
    /// How far the verbs that write go; `None` is all the way.
    pub dry_run: Option<DryRun>,
    /// Percent of the usual time for which a wait is patient with a reason that only a person can fix.
    pub patience_percent: u32,
    /// The conversation that requests to an agent are about; `None` is `main`.
    pub conversation: Option<String>,
}

/// A kind whose objects are in a namespace.
pub trait NamespacedObject:
    Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
    + Clone
    + Debug
    + DeserializeOwned
    + Serialize
    + Send
    + Sync
    + 'static
{
}
impl<K> NamespacedObject for K where
    K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize
        + Send
        + Sync
        + 'static
{
}

impl Cluster {
    /// The same API server, for objects of another namespace.
    pub fn in_namespace(&self, namespace: String) -> Self {
        Self { client: self.client.clone(), namespace, conversation: self.conversation.clone(), ..*self }
    }

    /// Returns `Kind namespace/name`, the name of an object in messages.
    pub fn display_name<K: NamespacedObject>(&self, name: &str) -> String {
        format!("{} {}/{name}", K::kind(&()), self.namespace)
    }

    /// Returns the command that lists the objects of a kind. Messages about a missing object name it as the next step.
    pub fn list_command<K: NamespacedObject>(&self) -> String {
        let list = match &*K::plural(&()) {
            "yoipods" => return self.plugin_command("ls agents"),
            "agentworkspaces" => return self.plugin_command("ls workspaces"),
            "yoipeers" => return self.plugin_command("ls peers"),
            other => format!("kubectl get {other}"),
        };
        format!("{list} -n {}", self.namespace)
    }

    /// Returns the command `kubectl yoi` with these words and with `-n`, so that it works in whatever namespace the user's context is.
    pub fn plugin_command(&self, words: &str) -> String {
        format!("kubectl yoi {words} -n {}", self.namespace)
    }

    /// Returns the command of the doctor that looks at the same objects.
    pub fn doctor_command(&self, all_namespaces: bool) -> String {
        if all_namespaces { "kubectl yoi doctor -A".to_owned() } else { self.plugin_command("doctor") }
    }

    /// Returns the error for a failed operation on one object, or on the conversation of it that `--conversation` names.
    fn api_error<K: NamespacedObject>(&self, operation: &str, name: &str) -> impl FnOnce(kube::Error) -> Error {
        let of_object = self.object_error::<K>(operation, name);
        let of_conversation = self.conversation.as_ref().map(|conversation| self.conversation_error(operation, name, conversation));
        move |error| match of_conversation {
            Some(of_conversation) => of_conversation(error),
            None => of_object(error),
        }
    }

    /// Returns the error for a failed operation on a conversation of an agent.
    fn conversation_error(&self, operation: &str, name: &str, conversation: &str) -> impl FnOnce(kube::Error) -> Error {
        let of_agent = self.object_error::<YoiPod>(operation, name);
        let agent = self.display_name::<YoiPod>(name);
        let (what, next) = (format!("conversation {conversation} of {agent}"), self.plugin_command(&format!("conversation ls {name}")));
        move |error| match &error {
            // The agent is there, and says that the conversation is not.
            kube::Error::Api(status) if status.code == 404 && status.message.starts_with(&format!("{agent}: ")) => {
                Error::Missing { what, next }
            }
            _ => of_agent(error),
        }
    }

    fn object_error<K: NamespacedObject>(&self, operation: &str, name: &str) -> impl FnOnce(kube::Error) -> Error {
        let target = ErrorTarget {
            name: self.display_name::<K>(name),
            list_command: self.list_command::<K>(),
            doctor_command: self.doctor_command(false),
        };
        let operation = format!("{operation} {}", target.name);
        move |error| Error::api(operation, &target, error)
    }

    /// Returns the error for an operation on one object that the verb itself refuses.
    pub fn refused_error<K: NamespacedObject>(
        &self,
        operation: &str,
        name: &str,
        message: impl Into<String>,
        next: impl Into<String>,
    ) -> Error {
        Error::refused_error(format!("{operation} {}", self.display_name::<K>(name)), message, next, RefusalKind::Other)
    }

    /// Returns the error for an object that was deleted while a verb waited for it.
    pub fn gone_error<K: NamespacedObject>(&self, name: &str) -> Error {
        Error::Gone { what: self.display_name::<K>(name), next: self.list_command::<K>() }
    }

    pub fn task_failed(&self, name: &str, why: &str) -> Error {
        let next = self.plugin_command(&format!("log {name}"));
        Error::TaskFailed { what: self.display_name::<YoiPod>(name), why: crate::show::one_line(why), next }
    }
}

/// A cluster for tests that gives the same answer to every request.
#[cfg(test)]
pub fn fake_cluster(answer: serde_json::Value) -> Cluster {
    use kube::client::Body;
    let service = tower::service_fn(move |_: http::Request<Body>| {
        let answer = http::Response::new(Body::from(answer.to_string().into_bytes()));
        std::future::ready(Ok::<_, std::convert::Infallible>(answer))
    });
    Cluster {
        client: Client::new(service, "default"),
        namespace: "ns".to_owned(),
        dry_run: None,
        patience_percent: 100,
        conversation: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use serde_json::json;
    use yoi_crds::AgentWorkspace;

    #[tokio::test]
    async fn what_ended_while_it_was_waited_for_is_told_with_the_next_command_of_its_namespace() {
        let cluster = fake_cluster(json!({}));
        for (error, words, code) in [
            (cluster.gone_error::<YoiPod>("a"), "YoiPod ns/a was deleted meanwhile\n  next: kubectl yoi ls agents -n ns", 3),
            (
                cluster.gone_error::<AgentWorkspace>("w"),
                "AgentWorkspace ns/w was deleted meanwhile\n  next: kubectl yoi ls workspaces -n ns",
                3,
            ),
            (cluster.task_failed("a", "no"), "the task of YoiPod ns/a failed: no\n  next: kubectl yoi log a -n ns", 6),
            (cluster.refused_error::<YoiPod>("stop", "a", "no", "look"), "failed to stop YoiPod ns/a: no\n  next: look", 1),
        ] {
            assert_eq!((error.to_string().as_str(), error.exit_code()), (words, code));
        }
        assert_eq!([cluster.doctor_command(false), cluster.doctor_command(true)], ["kubectl yoi doctor -n ns", "kubectl yoi doctor -A"]);
    }

    /// The verbs refuse these lines by themselves, on a cluster where every object is this one.
    #[tokio::test]
    async fn every_refusal_of_a_verb_names_its_object_and_a_next_step_of_its_namespace() {
        let object = json!({ "metadata": { "name": "a", "namespace": "ns" },
            "spec": { "projectRef": { "name": "p" }, "agent": { "builtin": {} }, "source": { "empty": {} } },
            "status": { "pod": { "name": "a-1", "uid": "u" } } });
        let cluster = fake_cluster(object);
        for (line, words, next) in [
            ("peer a a", "failed to give a peer to YoiPod ns/a: an agent cannot be its own peer", "kubectl yoi ls agents -n ns"),
            ("rm a", "failed to delete YoiPod ns/a: its Pod is still there", "kubectl yoi stop --wait a -n ns"),
            ("run a -p p", "failed to run YoiPod ns/a: neither the command nor YoiProject ns/p says which", "give --model-provider"),
        ] {
            let cli = Cli::from_words(["kubectl-yoi"].into_iter().chain(line.split(' '))).unwrap();
            let result = match cli.command {
                Command::Peer(args) => crate::commands::peer::peer(&cluster, None, &args).await,
                Command::Rm(args) => crate::commands::rm::rm(&cluster, None, &args).await,
                Command::Run(args) => crate::commands::run::run(&cluster, None, *args).await,
                _ => panic!("no row calls `{line}`"),
            };
            let text = result.unwrap_err().to_string();
            let (why, step) = text.split_once("\n  next: ").unwrap_or_else(|| panic!("no next step: {text}"));
            assert!(why.starts_with(words) && step.contains(next), "{text}");
        }
    }
}
