//! Agents whose processes are not kept in their frame, and whose image lacks git; agents that are programs: a version that nobody knows, a session that is
//! lost, a key that is missing. What keeps an agent from being Ready, such as a program that its image lacks, is found with the other agents.

use kube::ResourceExt;
use yoi_crds::YoiPod;
use yoi_crds::condition::{ConditionStatus, find};
use yoi_crds::pod::{DesiredState, Model};
use yoi_crds::reason::{Reason, condition};

use super::super::finding::{Finding, Severity};
use super::super::observed::{ObservedCluster, display_name, listed};
use super::or_ok;
use crate::remedy::fix_command;

pub fn check(observed: &ObservedCluster) -> Vec<Finding> {
    let mut found = Vec::new();
    let runs = |yoipod: &&YoiPod| yoipod.metadata.deletion_timestamp.is_none() && yoipod.spec.desired_state == DesiredState::Running;
    for yoipod in listed(&observed.yoipods).iter().filter(runs) {
        let conditions = yoipod.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        let told = [
            (condition::SCOPE_ENFORCED, Severity::Warning),
            (condition::PROGRAM_KNOWN, Severity::Warning),
            (condition::PROGRAM_SESSION_KEPT, Severity::Note),
            (condition::GIT_FOUND, Severity::Note),
        ];
        for (type_, severity) in told {
            let Some(said) = find(conditions, type_).filter(|c| c.status != ConditionStatus::True) else { continue };
            let Some(reason) = Reason::from_name(&said.reason) else { continue };
            let advice = reason.advice().map(|advice| format!(" {advice}")).unwrap_or_default();
            let what = format!("{}: {}.{advice}", said.reason, said.message.trim_end_matches('.'));
            found.push(Finding::of(severity, display_name(yoipod), what, fix_command(yoipod, reason)));
        }
        if let Some(model) = model_without_key(observed, yoipod) {
            let what = format!(
                "model {} is asked at the provider's own endpoint, and neither spec.model nor the project names a key for it (authSecretRef)",
                model.endpoint.name
            );
            let command = format!("kubectl edit yoipod {} -n {}", yoipod.name_any(), yoipod.namespace().unwrap_or_default());
            found.push(Finding::of(Severity::Warning, display_name(yoipod), what, command));
        }
    }
    let complete = observed.yoipods.is_ok() && observed.projects.is_ok();
    or_ok(found, complete, "programs", || "agents are kept in their frames, and programs have what they need".to_owned())
}

/// The model of a program that cannot answer: its provider wants a key. An endpoint of one's own may want none.
fn model_without_key<'a>(observed: &'a ObservedCluster, yoipod: &'a YoiPod) -> Option<&'a Model> {
    if yoipod.spec.agent.cli.is_none() || !yoipod.spec.agent.needs_model() {
        return None;
    }
    let of_project = || observed.project_of(yoipod)?.spec.defaults.model.as_ref();
    let model = yoipod.spec.model.as_ref().or_else(of_project)?;
    let endpoint = &model.endpoint;
    let has_key = endpoint.auth_secret_ref.is_some() || !endpoint.headers.is_empty() || endpoint.base_url.is_some();
    (!has_key).then_some(model)
}

#[cfg(test)]
mod tests {
    use super::super::check_named;
    use super::super::sample::{expect_finding, healthy, set_condition};
    use super::*;
    use serde_json::{Value, json};

    fn with(agent: Value, model: Value) -> ObservedCluster {
        let mut observed = healthy();
        let spec = &mut observed.yoipods.as_mut().unwrap()[0].spec;
        spec.agent = serde_json::from_value(agent).unwrap();
        spec.model = serde_json::from_value(model).unwrap();
        observed
    }

    #[test]
    fn a_frame_that_the_kernel_does_not_hold_is_told() {
        let mut observed = healthy();
        set_condition(&mut observed, "ScopeEnforced", "FrameIncomplete", "the kernel has no Landlock");
        let finding = expect_finding(&observed, "programs", "FrameIncomplete: the kernel has no Landlock. Give the node a newer kernel");
        assert_eq!((finding.severity, finding.command.unwrap().as_str()), (Severity::Warning, "kubectl get nodes -o wide"));
        observed.yoipods.as_mut().unwrap()[0].spec.desired_state = DesiredState::Stopped;
        assert_eq!(check_named(&observed, "programs")[0].severity, Severity::Ok, "nothing of it runs");
    }

    #[test]
    fn a_program_that_its_preset_does_not_know_is_told_with_the_versions() {
        let mut observed = with(json!({ "cli": { "preset": "claude" } }), Value::Null);
        set_condition(&mut observed, "ProgramKnown", "ProgramVersionUnknown", "claude is 3.0.1, and 2. is known");
        assert_eq!(expect_finding(&observed, "programs", "claude is 3.0.1, and 2. is known").severity, Severity::Warning);
    }

    #[test]
    fn a_program_that_has_lost_its_session_is_noted() {
        let mut observed = with(json!({ "cli": { "preset": "claude" } }), Value::Null);
        set_condition(&mut observed, "ProgramSessionKept", "ProgramSessionLost", "program claude began a new one");
        let finding =
            expect_finding(&observed, "programs", "ProgramSessionLost: program claude began a new one. Nothing: the agent goes on");
        assert_eq!((finding.severity, finding.command.unwrap().as_str()), (Severity::Note, "kubectl yoi log a -n ns"));
    }

    #[test]
    fn a_program_at_its_providers_own_endpoint_without_a_key_is_told_and_no_other() {
        let cli = json!({ "cli": { "preset": "claude" } });
        let model = json!({ "provider": "Anthropic", "name": "m" });
        let finding = expect_finding(&with(cli.clone(), model.clone()), "programs", "names a key for it (authSecretRef)");
        assert_eq!(finding.command.unwrap(), "kubectl edit yoipod a -n ns");
        let with_key = json!({ "provider": "Anthropic", "name": "m", "authSecretRef": { "name": "key" } });
        let own = json!({ "provider": "Anthropic", "name": "m", "baseUrl": "http://m.example/v1/" });
        let login = json!({ "cli": { "preset": "claude", "credentialsSecretRef": { "name": "login" } } });
        for (agent, model) in [(cli.clone(), with_key), (cli, own), (login, model.clone()), (json!({ "command": ["true"] }), model)] {
            assert_eq!(check_named(&with(agent.clone(), model), "programs")[0].severity, Severity::Ok, "{agent}");
        }
    }

    #[test]
    fn what_keeps_a_program_from_being_ready_comes_with_what_to_do() {
        for (reason, message, advice) in [
            ("ProgramMissing", "the image has no claude", "Name an image that holds the program and git"),
            ("ModelFormatNotSpoken", "program claude speaks only: Anthropic messages", "Name a model with one of the formats"),
            ("PresetUnknown", "there is no preset claud; there are: claude", "Name one of the presets that the message lists"),
        ] {
            let mut observed = with(json!({ "cli": { "preset": "claude" } }), Value::Null);
            set_condition(&mut observed, "Ready", reason, message);
            let finding = expect_finding(&observed, "agents", message);
            assert!(finding.severity == Severity::Error && finding.message.contains(advice), "{finding:?}");
        }
    }
}
