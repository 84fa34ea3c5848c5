//! Answers of the API server as errors.

use kube::core::Status;
use kube::runtime::watcher;
use yoi_wire::error_chain;

use super::{Error, LOOK_AT_CLUSTER, NextStep, RefusalKind, SAME_VERSION};
use crate::show::one_line;

/// What an operation acts on, for its error.
#[derive(Clone, Debug)]
pub struct ErrorTarget {
    /// `YoiPod ns/a`.
    pub name: String,
    /// The command that lists it.
    pub list_command: String,
    /// The command of the doctor that looks at it.
    pub doctor_command: String,
}

impl Error {
    /// Returns the error for an answer of the API server. `operation` follows "failed to".
    #[must_use]
    pub fn api(operation: impl Into<String>, target: &ErrorTarget, error: kube::Error) -> Self {
        let operation = operation.into();
        match error {
            kube::Error::Api(status) => Self::status(operation, target, &status),
            // The server answered something else than what was asked for.
            other @ (kube::Error::SerdeError(_) | kube::Error::FromUtf8(_)) => Error::refused_error(
                operation,
                format!("the answer cannot be understood: {}", error_chain(&other)),
                SAME_VERSION,
                RefusalKind::Other,
            ),
            other => Error::Unreachable { operation, message: error_chain(&other), next: LOOK_AT_CLUSTER },
        }
    }

    fn status(operation: String, target: &ErrorTarget, status: &Status) -> Self {
        let ErrorTarget { name, list_command, doctor_command } = target;
        // A message of the gateway begins with the object's name too, which would then stand there twice.
        let rest = status.message.strip_prefix(name.as_str()).filter(|rest| rest.starts_with([':', ' ']));
        // An agent may have written a part of it, and must not add a line to it.
        let message = one_line(rest.map_or(&*status.message, |rest| rest.trim_start_matches([':', ' '])));
        let missing_api = status.message.contains("could not find the requested resource");
        let missing_namespace = status.details.as_ref().filter(|details| details.kind == "namespaces").map(|details| &details.name);
        match status.code {
            404 if missing_api => {
                let next = format!("install the charts yoi-crds and yoi-operator, or ask what is wrong: {doctor_command}");
                Error::refused_error(operation, "the cluster does not know this API", next, RefusalKind::Other)
            }
            404 => match missing_namespace {
                Some(namespace) => {
                    Error::Missing { what: format!("namespace {namespace}"), next: format!("kubectl create namespace {namespace}") }
                }
                None => Error::Missing { what: name.clone(), next: list_command.clone() },
            },
            401 | 403 => Error::refused_error(
                operation,
                message,
                "ask for the role yoi-edit (or yoi-view to read) in this namespace",
                RefusalKind::Forbidden,
            ),
            409 if status.reason == "AlreadyExists" => Error::refused_error(
                operation,
                format!("{name} exists already"),
                format!("take another name, or look at it: {list_command}"),
                RefusalKind::Other,
            ),
            // The aggregated API answers 409 for a stopped agent. Our patches carry no resourceVersion, so they cannot conflict.
            409 | 429 | 502..=504 => {
                // A message of the gateway names the next step. Without one, no gateway has answered.
                let next = if message.contains("kubectl") {
                    NextStep::InMessage
                } else {
                    NextStep::Text(format!("try again; if it stays so, ask what is wrong: {doctor_command}"))
                };
                Error::Refused { operation, message, next, kind: RefusalKind::Unreachable }
            }
            422 => Error::refused_error(operation, invalid_message(status, message), "change what the message says", RefusalKind::Other),
            _ => Error::refused_error(operation, message, format!("see {list_command}"), RefusalKind::Other),
        }
    }
}

/// Returns what is wrong with an object, a sentence for each field. The server's own message repeats the whole object, and names no field for a rule
/// about all of it: `<nil>: Invalid value: "object": the name must ...`.
fn invalid_message(status: &Status, message: String) -> String {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let sentence = |cause: &kube::core::response::StatusCause| {
        let words = match cause.message.strip_prefix("Invalid value: ") {
            // The value stands between quotes, and a rule's sentence behind it.
            Some(value) => value.split_once("\": ").map_or(value, |(_, words)| words),
            None => &cause.message,
        };
        if ["", "<nil>"].contains(&&*cause.field) { words.to_owned() } else { format!("{}: {words}", cause.field) }
    };
    let sentences: Vec<String> = causes.map(sentence).collect();
    if sentences.is_empty() { message } else { sentences.join("; ") }
}

/// Returns the error of a watch as text: the message of the server where there is one.
#[must_use]
pub fn watch_error_message(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => status.message.clone(),
        other => error_chain(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api_status(code: u16, reason: &str, message: &str) -> Status {
        Status { code, reason: reason.into(), message: message.into(), ..Default::default() }
    }

    fn target() -> ErrorTarget {
        ErrorTarget {
            name: "YoiPod ns/a".into(),
            list_command: "kubectl yoi ls agents -n ns".into(),
            doctor_command: "kubectl yoi doctor -n ns".into(),
        }
    }

    fn of(status: Status) -> Error {
        Error::api("read the log of YoiPod ns/a", &target(), kube::Error::Api(Box::new(status)))
    }

    #[test]
    fn every_kind_of_refusal_has_its_own_exit_code() {
        for (code, reason, exit) in [
            (404, "NotFound", 3),
            (401, "Unauthorized", 4),
            (403, "Forbidden", 4),
            (409, "Conflict", 5),
            (409, "AlreadyExists", 1),
            (429, "TooManyRequests", 5),
            (500, "InternalError", 1),
            (503, "ServiceUnavailable", 5),
            (504, "Timeout", 5),
            (400, "BadRequest", 1),
            (422, "Invalid", 1),
        ] {
            assert_eq!(of(api_status(code, reason, "no")).exit_code(), exit, "{code} {reason}");
        }
    }

    #[test]
    fn every_error_names_the_object_and_what_to_do_and_shows_no_rust() {
        let broken = kube::Error::Service(Box::new(std::io::Error::other("connection refused")));
        let garbled = kube::Error::SerdeError(serde_json::from_str::<u8>("x").unwrap_err());
        let other = |error| Error::api("read the log of YoiPod ns/a", &target(), error);
        let errors = [
            of(api_status(404, "NotFound", "yoipods.yoi.dev \"a\" not found")),
            of(api_status(403, "Forbidden", "may not")),
            of(api_status(404, "NotFound", "the server could not find the requested resource")),
            of(api_status(409, "AlreadyExists", "is there")),
            of(api_status(429, "TooManyRequests", "wait")),
            of(api_status(500, "InternalError", "no")),
            of(api_status(503, "ServiceUnavailable", "nobody")),
            other(broken),
            other(garbled),
        ];
        for error in errors {
            let text = error.to_string();
            assert!(text.contains("YoiPod ns/a") && text.contains("\n  next: "), "{text}");
            assert!(!text.contains("Status {") && !text.contains("Error("), "{text}");
        }
        assert_eq!(other(kube::Error::Service(Box::new(std::io::Error::other("no")))).exit_code(), 5);
        assert_eq!(other(kube::Error::SerdeError(serde_json::from_str::<u8>("x").unwrap_err())).exit_code(), 1);
    }

    #[test]
    fn the_object_is_named_once_and_a_next_step_is_told_once() {
        let stopped = of(api_status(409, "Conflict", "YoiPod ns/a: is Stopped: start it with kubectl yoi start a -n ns")).to_string();
        assert_eq!(stopped, "failed to read the log of YoiPod ns/a: is Stopped: start it with kubectl yoi start a -n ns");
        assert_eq!(of(api_status(409, "Conflict", "YoiPod ns/a is Stopped: start it with kubectl yoi start a -n ns")).to_string(), stopped);
        let nobody = of(api_status(503, "ServiceUnavailable", "the server is currently unable to handle the request")).to_string();
        assert!(nobody.contains("\n  next: ") && nobody.ends_with("kubectl yoi doctor -n ns"), "{nobody}");
    }

    #[test]
    fn an_invalid_object_is_answered_by_the_rule_alone() {
        let mut status =
            api_status(422, "Invalid", "YoiPod.yoi.dev \"x\" is invalid: <nil>: Invalid value: \"object\": the name must be short");
        status.details = serde_json::from_value(serde_json::json!({ "name": "x", "kind": "YoiPod", "causes": [
            { "reason": "FieldValueInvalid", "message": "Invalid value: \"object\": the name must be short", "field": "<nil>" },
            { "reason": "FieldValueInvalid", "message": "Invalid value: \"git@h:p\": url must begin so", "field": "spec.source.git.url" },
            { "reason": "FieldValueRequired", "message": "Required value", "field": "spec.agent" },
        ] }))
        .unwrap();
        let text = of(status).to_string();
        let words = "the name must be short; spec.source.git.url: url must begin so; spec.agent: Required value\n  next: ";
        assert!(text.contains(words) && !text.contains("<nil>") && !text.contains("Invalid value"), "{text}");
    }

    #[test]
    fn a_missing_namespace_is_not_a_missing_object() {
        let mut status = api_status(404, "NotFound", "namespaces \"ns\" not found");
        status.details = serde_json::from_value(serde_json::json!({ "name": "ns", "kind": "namespaces" })).unwrap();
        let error = of(status);
        assert!(error.exit_code() == 3 && error.to_string().starts_with("namespace ns does not exist"), "{error}");
    }

    #[test]
    fn a_broken_watch_is_told_in_the_servers_words() {
        let refused = Box::new(api_status(403, "Forbidden", "you may not watch"));
        assert_eq!(watch_error_message(&watcher::Error::InitialListFailed(kube::Error::Api(refused.clone()))), "you may not watch");
        assert_eq!(watch_error_message(&watcher::Error::WatchError(refused)), "you may not watch");
    }
}
