//! What to do about a reason: its command, filled in for one object.

use kube::ResourceExt;
use yoi_crds::pod::SecretKeyRef;
use yoi_crds::reason::{self, Reason};
use yoi_crds::{Condition, YoiPod, YoiProject};

/// Returns the command of the reason, or `kubectl describe`, for this object.
pub fn fix_command<K: kube::Resource<DynamicType = ()>>(object: &K, reason: Reason) -> String {
    fill_command(reason, &K::kind(&()).to_lowercase(), &object.name_any(), &object.namespace().unwrap_or_default())
}

/// As [`fix_command`], by the object's kind in lower case, its name and its namespace.
pub fn fill_command(reason: Reason, kind: &str, name: &str, namespace: &str) -> String {
    // `$NAMESPACE` is replaced first, because `$NAME` is its beginning.
    let command = reason.command().unwrap_or("kubectl describe $KIND $NAME -n $NAMESPACE");
    command.replace("$NAMESPACE", namespace).replace("$NAME", name).replace("$KIND", kind)
}

/// Returns the Secret and its key that hold the key of an agent's model. `project` is the agent's.
fn model_secret(yoipod: &YoiPod, project: Option<&YoiProject>) -> Option<SecretKeyRef> {
    let model = yoipod.spec.model.as_ref().or_else(|| project?.spec.defaults.model.as_ref())?;
    model.endpoint.auth_secret_ref.clone()
}

/// Returns the command that makes the model's Secret or that of a program's login, if the condition says that this one is missing.
pub fn missing_secret_command(pod: &YoiPod, project: Option<&YoiProject>, ready: Option<&Condition>, namespace: &str) -> Option<String> {
    let ready = ready.filter(|ready| ready.reason == reason::SECRET_MISSING)?;
    // Another one may be missing: what a variable of the Pod needs.
    let is_named = |name: &str| ready.message.split_whitespace().any(|word| word == name);
    if let Some(login) =
        pod.spec.agent.cli.as_ref().and_then(|cli| cli.credentials_secret_ref.as_ref()).filter(|login| is_named(&login.name))
    {
        return Some(format!("kubectl create secret generic {} -n {namespace} --from-file=KEY=FILE", login.name));
    }
    let secret = model_secret(pod, project)?;
    is_named(&secret.name).then(|| create_secret_command(&secret, namespace))
}

/// Returns the command that makes this Secret.
fn create_secret_command(secret: &SecretKeyRef, namespace: &str) -> String {
    format!("kubectl create secret generic {} -n {namespace} --from-literal={}=\"$MODEL_KEY\"", secret.name, secret.key)
}

/// Returns the command after which a volume goes with its claim, and the data with the volume. A volume whose claim is gone goes at once.
pub fn delete_data_command(volumes: &[&str]) -> String {
    format!(r#"kubectl patch pv {} -p '{{"spec":{{"persistentVolumeReclaimPolicy":"Delete"}}}}'"#, volumes.join(" "))
}
