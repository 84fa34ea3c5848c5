//! What the user may not see. It is said and counted, never passed.

use super::super::finding::{Finding, Severity};
use super::super::world::{Because, World};

pub fn check(world: &World) -> Vec<Finding> {
    let missed = world.not_looked();
    if missed.is_empty() {
        return vec![Finding::ok("your rights", "everything could be looked at")];
    }
    let finding = |missed: &&super::super::world::NotLooked| {
        let right = &missed.right;
        let (why, command) = match &missed.because {
            Because::Forbidden => (format!("could not look: you may not {right}"), format!("kubectl auth can-i {right}{}", place(world))),
            Because::Absent => ("could not look: the API server knows no such kind".to_owned(), "kubectl api-resources".to_owned()),
            Because::Late => {
                ("could not look: the API server did not answer in time".to_owned(), "kubectl get --raw /readyz?verbose".to_owned())
            }
            Because::Failed(words) => (format!("could not look: {words}"), "kubectl get --raw /readyz?verbose".to_owned()),
        };
        Finding::of(Severity::Unknown, right, why, command)
    };
    missed.iter().map(finding).collect()
}

fn place(world: &World) -> String {
    world.scope.as_ref().map_or_else(|| " -A".to_owned(), |namespace| format!(" -n {namespace}"))
}
