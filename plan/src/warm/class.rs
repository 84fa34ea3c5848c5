//! Which StorageClass a session claim has, and whether it is worth a warm one.

use std::sync::Arc;

use k8s_openapi::api::storage::v1::StorageClass;
use yoi_crds::pod::ClaimTemplate;
use yoi_crds::quota::quota_bytes;

use crate::meta;
use crate::settings::Settings;

/// Of the class that claims without one get.
const DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";

/// The StorageClasses of the cluster.
#[derive(Clone, Debug, Default)]
pub struct Classes(pub Vec<Arc<StorageClass>>);

impl Classes {
    /// The class of this name; the cluster's default without a name: the newest one that is marked so, as in Kubernetes.
    fn find(&self, name: Option<&str>) -> Option<&StorageClass> {
        let mut all = self.0.iter().map(AsRef::as_ref);
        match name {
            Some(name) => all.find(|class| meta::name(&class.metadata) == name),
            None => all.filter(|class| meta::annotation(&class.metadata, DEFAULT) == Some("true")).max_by_key(|class| {
                (class.metadata.creation_timestamp.as_ref().map(|at| at.0), std::cmp::Reverse(meta::name(&class.metadata)))
            }),
        }
    }
}

/// Class and size that a session claim is to have.
#[derive(Clone, Debug)]
pub(crate) struct Wanted<'a> {
    name: Option<String>,
    class: Option<&'a StorageClass>,
    pub size: String,
}

/// Whether warm claims are worth anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Claims,
    /// A claim is bound as fast without.
    None(String),
    /// They cannot be made.
    Refused(String),
}

impl<'a> Wanted<'a> {
    pub(crate) fn new(template: Option<&ClaimTemplate>, settings: &Settings, classes: &'a Classes) -> Self {
        let template = template.cloned().unwrap_or_default();
        let name = template.storage_class_name.or_else(|| settings.default_session_class.clone());
        let class = classes.find(name.as_deref());
        let name = name.or_else(|| class.map(|class| meta::name(&class.metadata).to_owned()));
        Wanted { name, class, size: template.size }
    }

    /// For sentences, and for the claim.
    pub(crate) fn class_name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    pub(crate) fn need(&self) -> Need {
        let name = self.class_name();
        let Some(class) = self.class else {
            let which = if name.is_empty() {
                "the cluster has no default StorageClass".to_owned()
            } else {
                format!("StorageClass {name} does not exist")
            };
            return Need::Refused(format!("{which}: name one in spec.warm.claimTemplate.storageClassName"));
        };
        if class.volume_binding_mode.as_deref() != Some("WaitForFirstConsumer") {
            return Need::None(format!("StorageClass {name} binds claims at once, so none need to stand ready"));
        }
        if class.provisioner == "kubernetes.io/no-provisioner" {
            return Need::Refused(format!("StorageClass {name} has no provisioner: its volumes are bound with Pods only"));
        }
        if class.reclaim_policy.as_deref() == Some("Retain") {
            let why = "keeps the volumes of deleted claims (reclaimPolicy Retain), so each claim that is given back would leave one behind";
            return Need::Refused(format!("StorageClass {name} {why}: name a class with Delete; sessions are kept by session.retain"));
        }
        Need::Claims
    }

    /// Whether a claim of this class and size is what is wanted.
    pub(crate) fn is_met_by(&self, class: Option<&str>, size: Option<&str>) -> bool {
        let is_same = |size: &str| size == self.size || quota_bytes(size).is_some_and(|bytes| Some(bytes) == quota_bytes(&self.size));
        class.is_some() && class == self.name.as_deref() && size.is_some_and(is_same)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn class(name: &str, default: bool, made: &str, more: &Value) -> Arc<StorageClass> {
        let mut value = json!({"metadata": {"name": name, "creationTimestamp": made}, "provisioner": "example.com/p", "reclaimPolicy": "Delete",
            "volumeBindingMode": "WaitForFirstConsumer"});
        if default {
            value["metadata"]["annotations"] = json!({DEFAULT: "true"});
        }
        for (key, of) in more.as_object().unwrap() {
            value[key] = of.clone();
        }
        Arc::new(serde_json::from_value(value).unwrap())
    }

    fn settings(default: Option<&str>) -> Settings {
        let gateway = yoi_wire::manifest::Gateway { lines: "l".into(), service: "s".into(), server_name: "s".into(), ca: "ca".into() };
        Settings { default_session_class: default.map(str::to_owned), ..Settings::new("agent", gateway) }
    }

    #[test]
    fn the_class_is_that_of_the_template_then_that_of_the_chart_then_the_newest_default_of_the_cluster() {
        let none = json!({});
        let classes = Classes(vec![
            class("old", true, "2025-01-01T00:00:00Z", &none),
            class("new", true, "2026-01-01T00:00:00Z", &none),
            class("own", false, "2026-02-01T00:00:00Z", &none),
        ]);
        let named = ClaimTemplate { storage_class_name: Some("own".into()), size: "2Gi".into() };
        let name = |template: Option<&ClaimTemplate>, chart| Wanted::new(template, &settings(chart), &classes).class_name().to_owned();
        assert_eq!(
            (name(None, None), name(None, Some("old")), name(Some(&named), Some("old"))),
            ("new".into(), "old".into(), "own".into())
        );
    }

    #[test]
    fn a_class_that_binds_at_once_needs_none_and_one_that_cannot_be_given_back_is_refused() {
        let need = |more: Value| {
            let classes = Classes(vec![class("c", true, "2026-01-01T00:00:00Z", &more)]);
            Wanted::new(None, &settings(None), &classes).need()
        };
        assert_eq!(need(json!({})), Need::Claims);
        assert!(matches!(need(json!({"volumeBindingMode": "Immediate"})), Need::None(_)));
        assert!(matches!(need(json!({"volumeBindingMode": null})), Need::None(_)));
        for refused in [json!({"provisioner": "kubernetes.io/no-provisioner"}), json!({"reclaimPolicy": "Retain"})] {
            assert!(matches!(need(refused.clone()), Need::Refused(_)), "{refused}");
        }
        assert!(matches!(Wanted::new(None, &settings(Some("gone")), &Classes::default()).need(), Need::Refused(_)));
    }

    #[test]
    fn a_size_is_the_same_in_other_units() {
        let classes = Classes(vec![class("c", true, "2026-01-01T00:00:00Z", &json!({}))]);
        let settings = settings(None);
        let wanted = Wanted::new(None, &settings, &classes);
        let met = |class, size| wanted.is_met_by(class, size);
        assert!(met(Some("c"), Some("1Gi")) && met(Some("c"), Some("1024Mi")));
        assert!(!met(Some("c"), Some("2Gi")) && !met(Some("d"), Some("1Gi")) && !met(None, Some("1Gi")) && !met(Some("c"), None));
    }
}
