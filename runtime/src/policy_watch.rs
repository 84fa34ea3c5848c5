//! `spec.policy` of project and agent, which may change while the process runs.

use std::path::Path;
use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use yoi_engine::error_text::error_text;
use yoi_engine::policy::{Policy, PolicyError};
use yoi_wire::identity::POLICY_FILE;
use yoi_wire::policy::ToolPolicy;

use crate::annotation_file::watch_annotation;

/// Why the file has no policy.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error("failed to parse the policy of the Pod's annotation")]
    Json(#[source] serde_json::Error),
    #[error(transparent)]
    Policy(#[from] PolicyError),
}

/// The policy as it is now, by the file beside the token in `folder`; that of the manifest where there is no such file. One that cannot be carried out
/// leaves the last one in force, and is told in the process's log. Ends with `stop`.
///
/// # Errors
/// Neither the file's nor the manifest's can be carried out.
pub fn watch_policy(folder: &Path, of_manifest: &ToolPolicy, stop: CancellationToken) -> Result<watch::Receiver<Arc<Policy>>, PolicyError> {
    let mut text = watch_annotation(folder.join(POLICY_FILE), String::new(), |text| Some(text.to_owned()), "the policy's annotation", stop);
    let secret_variables = of_manifest.secret_variables.clone();
    let first = usable(&text.borrow_and_update(), &secret_variables);
    let first = first.map_or_else(|| Policy::new(of_manifest).map(Arc::new), Ok)?;
    let (sender, receiver) = watch::channel(first);
    // The watch of the file ends with `stop`, and this with it.
    tokio::spawn(async move {
        while text.changed().await.is_ok() {
            let Some(policy) = usable(&text.borrow_and_update(), &secret_variables) else { continue };
            // Another operator may write the same policy in other words.
            sender.send_if_modified(|known| {
                let changed = known.source() != policy.source();
                *known = policy;
                changed
            });
        }
    });
    Ok(receiver)
}

/// `None` where there is no policy, or none that can be carried out.
fn usable(text: &str, secret_variables: &[String]) -> Option<Arc<Policy>> {
    if text.is_empty() {
        return None;
    }
    match read(text, secret_variables) {
        Ok(policy) => Some(Arc::new(policy)),
        Err(error) => {
            tracing::error!(error = error_text(&error), "the policy of the Pod's annotation is not usable; the last one stays in force");
            None
        }
    }
}

fn read(text: &str, secret_variables: &[String]) -> Result<Policy, Unusable> {
    let policy: ToolPolicy = serde_json::from_str(text).map_err(Unusable::Json)?;
    // They follow from the Pod's environment, which does not change.
    Ok(Policy::new(&ToolPolicy { secret_variables: secret_variables.to_vec(), ..policy })?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotation_file::LOOK_EVERY;

    #[tokio::test(start_paused = true)]
    async fn the_files_policy_wins_over_the_manifests_and_one_that_cannot_be_carried_out_leaves_the_last_one() {
        let folder = tempfile::tempdir().unwrap();
        let stop = CancellationToken::new();
        let file = folder.path().join(POLICY_FILE);
        let of_manifest = ToolPolicy { deny: vec!["Edit".to_owned()], secret_variables: vec!["TOKEN".to_owned()], ..ToolPolicy::default() };
        let watch = || watch_policy(folder.path(), &of_manifest, stop.clone()).unwrap();
        assert_eq!(watch().borrow().source(), &of_manifest);
        std::fs::write(&file, "{}").unwrap();
        let mut policy = watch();
        let of_file = ToolPolicy { deny: Vec::new(), ..of_manifest.clone() };
        assert_eq!(policy.borrow_and_update().source(), &of_file);
        for unusable in ["", "none", r#"{"deny":["Wriet"]}"#, r#"{ "deny": [] }"#] {
            std::fs::write(&file, unusable).unwrap();
            // By tokio's clock, which runs ahead here: it is read again, and nothing comes of it.
            tokio::time::sleep(LOOK_EVERY * 2).await;
            assert!(!policy.has_changed().unwrap(), "{unusable}");
        }
        std::fs::write(&file, r#"{"deny":["Write"]}"#).unwrap();
        policy.changed().await.unwrap();
        assert_eq!(policy.borrow_and_update().source(), &ToolPolicy { deny: vec!["Write".to_owned()], ..of_manifest.clone() });
        let broken = ToolPolicy { deny: vec!["Wriet".to_owned()], ..ToolPolicy::default() };
        assert!(watch_policy(folder.path(), &broken, stop.clone()).is_ok(), "the file has one");
        std::fs::remove_file(&file).unwrap();
        assert!(watch_policy(folder.path(), &broken, stop.clone()).is_err());
        stop.cancel();
        assert!(policy.changed().await.is_err(), "the watch goes on after the stop");
    }
}
