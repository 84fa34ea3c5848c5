//! The table of checks. Each is a pure function of the observed cluster.

mod agents;
mod aggregation;
mod charts;
mod classes;
mod dns;
mod loans;
mod nodes;
mod pod;
mod policies;
mod programs;
mod pushes;
mod rights;
mod sources;
mod stuck;
mod tokens;
mod unclaimed;
mod versions;

#[cfg(test)]
mod sample;

use super::finding::{Finding, Severity};
use super::observed::ObservedCluster;

type Check = fn(&ObservedCluster) -> Vec<Finding>;

const CHECKS: &[(&str, Check)] = &[
    ("versions", versions::check),
    ("charts", charts::check),
    ("aggregation", aggregation::check),
    ("tokens", tokens::check),
    ("nodes", nodes::check),
    ("trees", unclaimed::check),
    ("classes", classes::check),
    ("dns", dns::check),
    ("policies", policies::check),
    ("sources", sources::check),
    ("pushes", pushes::check),
    ("agents", agents::check),
    ("loans", loans::check),
    ("programs", programs::check),
    ("stuck", stuck::check),
    ("rights", rights::check),
];

/// Returns the findings of all checks, the worst last. Two checks with the same sentence about one object make one finding.
pub fn all(observed: &ObservedCluster) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for (name, check) in CHECKS {
        for finding in check(observed) {
            if !findings.iter().any(|f| f.object == finding.object && f.message == finding.message) {
                findings.push(Finding { check: name, ..finding });
            }
        }
    }
    findings.sort_by_key(|f| f.severity);
    findings
}

/// Returns `findings`, with an ok finding when they hold nothing worse than a note and `all_read`: the check could read all that it needs.
fn or_ok(mut findings: Vec<Finding>, all_read: bool, object: &str, message: impl FnOnce() -> String) -> Vec<Finding> {
    if all_read && findings.iter().all(|f| f.severity == Severity::Note) {
        findings.push(Finding::ok(object, message()));
    }
    findings
}

/// Returns the findings of one check.
#[cfg(test)]
fn check_named(observed: &ObservedCluster, name: &str) -> Vec<Finding> {
    all(observed).into_iter().filter(|f| f.check == name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_healthy_cluster_has_no_error_and_no_warning_and_every_check_says_so() {
        let findings = all(&sample::healthy());
        for finding in &findings {
            assert!(finding.severity <= Severity::Note, "{finding:?}");
        }
        for (name, _) in CHECKS {
            let good = findings.iter().any(|f| f.check == *name && f.severity == Severity::Ok);
            assert!(good, "{name} does not say that all is well: {findings:#?}");
        }
    }

    #[test]
    fn a_check_that_could_not_read_everything_is_never_ok() {
        let findings = all(&sample::without_permissions());
        assert!(findings.iter().all(|f| f.severity != Severity::Ok), "{findings:#?}");
        let unknown = findings.iter().filter(|f| f.severity == Severity::Unknown).count();
        assert_eq!(unknown, 27, "each refused request is counted");
    }

    #[test]
    fn what_is_not_ok_comes_with_a_command_and_a_sentence() {
        for observed in [sample::healthy(), sample::without_permissions(), sample::empty()] {
            for finding in all(&observed) {
                assert_eq!(finding.command.is_some(), finding.severity != Severity::Ok, "{finding:?}");
                assert!(!finding.message.is_empty() && !finding.message.contains("{:?}"), "{finding:?}");
            }
        }
    }
}
