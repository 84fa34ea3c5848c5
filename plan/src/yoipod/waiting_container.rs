//! Why the agent's container does not start, in the words of the kubelet.

use yoi_crds::condition::ConditionValue;
use yoi_crds::reason::{self, Reason};
use yoi_wire::identity::env;

use super::model_endpoint;
use crate::observed_pod::{ObservedPod, Reference, ReferenceKind, Use};
use crate::stored::Stored;

/// `why` and `message` are those of the container's state.
pub(super) fn waiting(pod: Stored<'_, ObservedPod>, why: Option<&str>, message: Option<&str>) -> ConditionValue {
    let title = pod.name();
    let why = why.unwrap_or("waiting");
    let reason = reason_of(why);
    if reason == reason::CONTAINER_NOT_CREATED
        && let Some(missing) = message.and_then(|message| pod.references.iter().find(|reference| is_named(reference, message)))
    {
        return missing_value(missing, pod.namespace());
    }
    let more = match message.filter(|_| reason != reason::POD_NOT_RUNNING) {
        Some(message) => format!(": {message}"),
        None if reason == reason::POD_PENDING => needed_by_volumes(pod),
        None => String::new(),
    };
    ConditionValue::no(reason, format!("the container of Pod {title} waits: {why}{more}"))
}

/// Whether the container waits for its image, and gets none now.
pub(super) fn is_not_pulled(why: &str) -> bool {
    [reason::IMAGE_PULL_FAILED, reason::INVALID_IMAGE_NAME].contains(&reason_of(why))
}

/// The kubelet's reasons, of `pkg/kubelet/images` and `pkg/kubelet/kuberuntime`. It changes between two of them while it tries an image again, and these have
/// one reason here.
fn reason_of(why: &str) -> Reason {
    match why {
        "ErrImagePull"
        | "ImagePullBackOff"
        | "ErrImageNeverPull"
        | "ImageInspectError"
        | "RegistryUnavailable"
        | "SignatureValidationFailed" => reason::IMAGE_PULL_FAILED,
        "InvalidImageName" => reason::INVALID_IMAGE_NAME,
        "CreateContainerConfigError" | "CreateContainerError" | "PreCreateHookError" | "PreStartHookError" | "RunContainerError" => {
            reason::CONTAINER_NOT_CREATED
        }
        "CrashLoopBackOff" => reason::POD_NOT_RUNNING,
        _ => reason::POD_PENDING,
    }
}

/// Whether the kubelet's message is about this object: `secret "later" not found`, `couldn't find key k in Secret ns/later`, and the same of a ConfigMap.
/// The container does not start for another message either; it is then repeated as it is.
fn is_named(reference: &Reference, message: &str) -> bool {
    let kind = match reference.kind {
        ReferenceKind::Secret => "secret",
        ReferenceKind::ConfigMap => "configmap",
        ReferenceKind::Claim => return false,
    };
    let Use::Variable { key, .. } = &reference.used_by else { return false };
    let words: Vec<String> = message
        .split(|letter: char| !letter.is_ascii_alphanumeric() && !"-._/".contains(letter))
        .map(|word| word.trim_end_matches('.').to_owned())
        .filter(|word| !word.is_empty())
        .collect();
    let at_name = |word: &String| word == &reference.name || word.rsplit_once('/').is_some_and(|(_, name)| name == reference.name);
    let names_it = words.windows(2).any(|pair| pair[0].eq_ignore_ascii_case(kind) && at_name(&pair[1]));
    let names_a_key = words.windows(2).any(|pair| pair[0] == "key");
    names_it && (!names_a_key || words.contains(key))
}

fn missing_value(missing: &Reference, namespace: &str) -> ConditionValue {
    let Reference { kind, name, used_by } = missing;
    let (variable, key) = match used_by {
        Use::Variable { name, key } => (name.as_str(), key.as_str()),
        Use::Volume => ("", ""),
    };
    let for_what = model_endpoint::purpose(variable);
    let (reason, make) = match kind {
        ReferenceKind::Secret => (reason::SECRET_MISSING, format!("kubectl create secret generic {name}")),
        ReferenceKind::ConfigMap | ReferenceKind::Claim => (reason::SOURCE_NOT_FOUND, format!("kubectl create configmap {name}")),
    };
    let value = match variable {
        env::PRESET | env::CREDENTIAL => format!("--from-file={key}=FILE"),
        _ => format!("--from-literal={key}=VALUE"),
    };
    let message = format!(
        "{kind} {name} {for_what} does not exist in namespace {namespace}, or has no key {key}; the agent goes on by itself once it has: \
         {make} -n {namespace} {value}"
    );
    ConditionValue::no(reason, message)
}

/// What the Pod's volumes need: the kubelet says only in Events which of it is missing. Empty when they need nothing of the user's.
pub(super) fn needed_by_volumes(pod: Stored<'_, ObservedPod>) -> String {
    let of_volumes = pod.references.iter().filter(|reference| reference.used_by == Use::Volume);
    let named: Vec<String> = of_volumes.map(|reference| format!("{} {}", reference.kind, reference.name)).collect();
    if named.is_empty() {
        return String::new();
    }
    let (pod, namespace) = (pod.name(), pod.namespace());
    format!("; its volumes need {}, and `kubectl describe pod {pod} -n {namespace}` says which of them is missing", named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(kind: ReferenceKind, name: &str, key: &str) -> Reference {
        Reference { kind, name: name.to_owned(), used_by: Use::Variable { name: "V".to_owned(), key: key.to_owned() } }
    }

    #[test]
    fn the_kubelets_words_name_the_object_that_is_missing() {
        let secret = reference(ReferenceKind::Secret, "later", "apiKey");
        let map = reference(ReferenceKind::ConfigMap, "later", "apiKey");
        let table = [
            (r#"secret "later" not found"#, true, false),
            (r#"configmap "later" not found"#, false, true),
            ("couldn't find key apiKey in Secret ns/later", true, false),
            ("couldn't find key apiKey in ConfigMap ns/later", false, true),
            // Another key of the same Secret.
            ("couldn't find key other in Secret ns/later", false, false),
            (r#"secret "later-2" not found"#, false, false),
            ("couldn't find key apiKey in Secret later/other", false, false),
            ("failed to prepare subPath for volumeMount \"later\" of container \"agent\"", false, false),
            ("failed to sync secret cache: timed out waiting for the condition", false, false),
        ];
        for (message, is_secret, is_map) in table {
            assert_eq!((is_named(&secret, message), is_named(&map, message)), (is_secret, is_map), "{message}");
        }
    }

    #[test]
    fn what_the_kubelet_tries_again_has_one_reason() {
        assert_eq!(reason_of("ErrImagePull"), reason_of("ImagePullBackOff"));
        assert_eq!(reason_of("InvalidImageName"), reason::INVALID_IMAGE_NAME);
        assert_eq!(reason_of("CreateContainerConfigError"), reason::CONTAINER_NOT_CREATED);
        assert_eq!((reason_of("ContainerCreating"), reason_of("Tomorrow")), (reason::POD_PENDING, reason::POD_PENDING));
    }
}
