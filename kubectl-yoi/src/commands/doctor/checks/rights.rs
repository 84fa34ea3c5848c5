//! What could not be read, mostly because the user has not got the permission. Each is one finding of severity unknown.

use super::super::finding::{Finding, Severity};
use super::super::observed::{ObservedCluster, ReadFailureCause};

pub fn check(observed: &ObservedCluster) -> Vec<Finding> {
    let failures = observed.read_failures();
    if failures.is_empty() {
        return vec![Finding::ok("your rights", "everything could be looked at")];
    }
    let finding = |failure: &&super::super::observed::ReadFailure| {
        let permission = &failure.permission;
        let (why, command) = match &failure.cause {
            ReadFailureCause::Forbidden => (
                format!("could not look: you may not {permission}"),
                format!("kubectl auth can-i {permission}{}", namespace_flag(observed)),
            ),
            ReadFailureCause::Absent => {
                ("could not look: the API server knows no such kind".to_owned(), "kubectl api-resources".to_owned())
            }
            ReadFailureCause::TimedOut => {
                ("could not look: the API server did not answer in time".to_owned(), "kubectl get --raw /readyz?verbose".to_owned())
            }
            ReadFailureCause::Failed(words) => (format!("could not look: {words}"), "kubectl get --raw /readyz?verbose".to_owned()),
        };
        Finding::of(Severity::Unknown, permission, why, command)
    };
    failures.iter().map(finding).collect()
}

fn namespace_flag(observed: &ObservedCluster) -> String {
    observed.scope.as_ref().map_or_else(|| " -A".to_owned(), |namespace| format!(" -n {namespace}"))
}
