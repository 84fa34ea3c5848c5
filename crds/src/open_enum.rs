//! Enums and unions that another version may extend. A value that this version does not know is read as unknown: it breaks no watch, and is
//! never taken for another value.

use crate::assets::Assets;
use crate::pod::{Completion, DesiredState, ImagePullPolicy, Model, PodSettings, SessionRetain};
use crate::policy::{Policy, SecretsInResults};
use crate::prepare::{Prepare, PrepareEgress};
use crate::source::{GitSource, LinkedContent, ProjectSource, ProviderName, WorkspaceSource};
use crate::workspace::Binding;
use crate::{AgentWorkspaceSpec, YoiPodSpec, YoiProjectSpec};

/// Implements `Deserialize` and `Display` for an enum. Every value that is not listed is read as `Unknown`, which the schema refuses.
macro_rules! open_enum {
    ($type:ident: $($value:ident),+) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(from)?;
                Ok(match &*text {
                    $(stringify!($value) => Self::$value,)+
                    _ => Self::Unknown,
                })
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self {
                    $(Self::$value => stringify!($value),)+
                    Self::Unknown => "a word of another version",
                })
            }
        }
    };
}
pub(crate) use open_enum;

fn first_unknown(found: &[(bool, &'static str)]) -> Option<&'static str> {
    found.iter().find(|(is_unknown, _)| *is_unknown).map(|(_, field)| *field)
}

fn has_unknown_pod_settings(pod: &PodSettings) -> bool {
    pod.image_pull_policy == Some(ImagePullPolicy::Unknown)
}

/// Whether a field of the endpoint, or of one of the fallbacks, is unknown.
fn has_unknown(model: Option<&Model>, field: &str) -> bool {
    model.is_some_and(|m| std::iter::once(&m.endpoint).chain(&m.fallbacks).any(|endpoint| endpoint.unknown_field() == Some(field)))
}

fn has_unknown_policy(policy: Option<&Policy>) -> bool {
    policy.is_some_and(|policy| policy.secrets_in_results == Some(SecretsInResults::Unknown))
}

fn has_unknown_egress(prepare: Option<&Prepare>) -> bool {
    prepare.is_some_and(|prepare| prepare.egress == PrepareEgress::Unknown)
}

fn has_unknown_set(assets: Option<&Assets>) -> bool {
    assets.is_some_and(|assets| assets.from.iter().any(|set| set.is_unknown()))
}

fn is_unknown_source(source: &WorkspaceSource) -> bool {
    let WorkspaceSource { project, workspace, git, host, empty } = source;
    [project.is_some(), workspace.is_some(), git.is_some(), host.is_some(), empty.is_some()].iter().filter(|set| **set).count() != 1
}

fn is_unknown_project_source(source: &ProjectSource) -> bool {
    let ProjectSource { git, host, empty } = source;
    [git.is_some(), host.is_some(), empty.is_some()].iter().filter(|set| **set).count() != 1
}

fn has_unknown_content(git: Option<&GitSource>) -> bool {
    git.is_some_and(|git| [git.submodules, git.lfs].contains(&Some(LinkedContent::Unknown)))
}

impl YoiProjectSpec {
    /// The first field whose value this version does not know, as a path. A schema of another version allowed it.
    #[must_use]
    pub fn unknown_field(&self) -> Option<&'static str> {
        let defaults = &self.defaults;
        first_unknown(&[
            (is_unknown_project_source(&self.source), "spec.source"),
            (has_unknown_content(self.source.git.as_deref()), "spec.source.git"),
            (self.provider == ProviderName::Unknown, "spec.provider"),
            (has_unknown_policy(self.policy.as_deref()), "spec.policy.secretsInResults"),
            (has_unknown_egress(self.prepare.as_deref()), "spec.prepare.egress"),
            (has_unknown_set(self.assets.as_deref()), "spec.assets.from"),
            (has_unknown(defaults.model.as_ref(), "provider"), "spec.defaults.model.provider"),
            (has_unknown(defaults.model.as_ref(), "api"), "spec.defaults.model.api"),
            (defaults.pod.as_ref().is_some_and(has_unknown_pod_settings), "spec.defaults.pod.imagePullPolicy"),
        ])
    }
}

impl AgentWorkspaceSpec {
    /// As [`YoiProjectSpec::unknown_field`].
    #[must_use]
    pub fn unknown_field(&self) -> Option<&'static str> {
        first_unknown(&[
            (is_unknown_source(&self.source), "spec.source"),
            (has_unknown_content(self.source.git.as_deref()), "spec.source.git"),
            (self.provider == ProviderName::Unknown, "spec.provider"),
            (self.binding == Binding::Unknown, "spec.binding"),
            (has_unknown_egress(self.base.as_ref().and_then(|base| base.prepare.as_deref())), "spec.base.prepare.egress"),
        ])
    }
}

impl YoiPodSpec {
    /// As [`YoiProjectSpec::unknown_field`].
    #[must_use]
    pub fn unknown_field(&self) -> Option<&'static str> {
        let template = self.workspace.as_ref().and_then(|w| w.template.as_ref());
        if let Some(field) = self.agent.unknown_field() {
            return Some(field);
        }
        first_unknown(&[
            (self.workspace.as_ref().is_some_and(|w| w.ref_.is_some() == w.template.is_some()), "spec.workspace"),
            (template.and_then(|t| t.source.as_ref()).is_some_and(is_unknown_source), "spec.workspace.template.source"),
            (has_unknown_content(template.and_then(|t| t.source.as_ref()?.git.as_deref())), "spec.workspace.template.source.git"),
            (template.is_some_and(|t| t.provider == Some(ProviderName::Unknown)), "spec.workspace.template.provider"),
            (self.completion == Completion::Unknown, "spec.completion"),
            (has_unknown(self.model.as_ref(), "provider"), "spec.model.provider"),
            (has_unknown(self.model.as_ref(), "api"), "spec.model.api"),
            (has_unknown_pod_settings(&self.pod), "spec.pod.imagePullPolicy"),
            (has_unknown_policy(self.policy.as_deref()), "spec.policy.secretsInResults"),
            (self.scope.as_ref().is_some_and(|scope| scope.has_unknown()), "spec.scope"),
            (self.delegation.as_ref().is_some_and(|delegation| delegation.has_unknown()), "spec.delegation"),
            (self.desired_state == DesiredState::Unknown, "spec.desiredState"),
            (self.session.retain == SessionRetain::Unknown, "spec.session.retain"),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_another_version_is_read_and_named_and_in_no_schema() {
        let spec = r#"{"source":{"empty":{}},"provider":"Tomorrow"}"#;
        let spec: AgentWorkspaceSpec = serde_json::from_str(spec).expect("it is read");
        assert_eq!(spec.provider, ProviderName::Unknown);
        assert_eq!(spec.unknown_field(), Some("spec.provider"));
        let known: AgentWorkspaceSpec = serde_json::from_str(r#"{"source":{"empty":{}},"provider":"Copy"}"#).expect("it is read");
        assert_eq!((known.provider, known.unknown_field()), (ProviderName::Copy, None));
        for crd in crate::all() {
            let text = serde_json::to_string(&crd.spec.versions[0].schema).expect("schemas are JSON");
            // A condition's status is an enum of Kubernetes.
            let text = text.replace(r#"["True","False","Unknown"]"#, "");
            assert!(!text.contains(r#""Unknown""#), "{} may be written as Unknown", crd.spec.names.kind);
        }
    }

    #[test]
    fn a_union_whose_member_is_of_another_version_is_not_taken_for_an_empty_one() {
        let tree: AgentWorkspaceSpec = serde_json::from_str(r#"{"source":{}}"#).expect("it is read");
        assert_eq!(tree.unknown_field(), Some("spec.source"));
        let agent: YoiPodSpec = serde_json::from_str(r#"{"projectRef":{"name":"p"},"agent":{}}"#).expect("it is read");
        assert_eq!(agent.unknown_field(), Some("spec.agent"));
    }
}
