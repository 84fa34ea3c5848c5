//! Storage: the CSIDriver and StorageClasses of the chart, and a default class for session volumes.

use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;
use yoi_crds::name::{CLASS_IMMEDIATE, CLASS_LATE};
use yoi_crds::pod::SessionSettings;

use super::super::finding::Finding;
use super::super::observed::{ObservedCluster, display_name, listed};
use super::or_ok;

const DRIVER: &str = "csi.yoi.dev";
const DEFAULT_CLASS_ANNOTATION: &str = "storageclass.kubernetes.io/is-default-class";

pub fn check(observed: &ObservedCluster) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Ok(classes) = &observed.classes {
        for (name, binding) in [(CLASS_LATE, "WaitForFirstConsumer"), (CLASS_IMMEDIATE, "Immediate")] {
            found.extend(class_finding(observed, classes, name, binding));
        }
        found.extend(default_class_finding(observed, classes));
    }
    if let Ok(drivers) = &observed.drivers {
        let restore = observed.reapply_command("yoi-operator");
        match drivers.iter().find(|d| d.name_any() == DRIVER) {
            None => found.push(Finding::error(format!("CSIDriver {DRIVER}"), "it is missing: no tree can be mounted inline", restore)),
            Some(driver) => {
                let modes = driver.spec.volume_lifecycle_modes.clone().unwrap_or_default();
                let is_as_installed = ["Persistent", "Ephemeral"].iter().all(|m| modes.iter().any(|has| has == m))
                    && driver.spec.pod_info_on_mount == Some(true)
                    && driver.spec.attach_required == Some(false)
                    && driver.spec.fs_group_policy.as_deref() == Some("None");
                if !is_as_installed {
                    let what = format!("it was changed (modes {}): mounts will fail or change trees", modes.join(", "));
                    // Most fields of a CSIDriver are immutable, so it is deleted first.
                    found.push(Finding::error(display_name(driver), what, format!("kubectl delete csidriver {DRIVER} && {restore}")));
                }
            }
        }
    }
    let complete = observed.classes.is_ok() && observed.drivers.is_ok();
    or_ok(found, complete, "storage", || "our classes and driver are as the chart makes them, and there is a default class".to_owned())
}

fn class_finding(observed: &ObservedCluster, classes: &[StorageClass], name: &str, binding: &str) -> Option<Finding> {
    let restore = observed.reapply_command("yoi-operator");
    let Some(class) = classes.iter().find(|c| c.name_any() == name) else {
        return Some(Finding::error(format!("StorageClass {name}"), "it is missing: claims of workspaces cannot bind", restore));
    };
    let bound = class.volume_binding_mode.as_deref().unwrap_or("Immediate");
    (class.provisioner != DRIVER || bound != binding).then(|| {
        let what = format!("it is {} / {bound}, and must be {DRIVER} / {binding}", class.provisioner);
        Finding::error(display_name(class), what, format!("kubectl delete storageclass {name} && {restore}"))
    })
}

fn default_class_finding(observed: &ObservedCluster, classes: &[StorageClass]) -> Option<Finding> {
    let is_default = |c: &&StorageClass| c.annotations().get(DEFAULT_CLASS_ANNOTATION).is_some_and(|v| v == "true");
    let marked: Vec<_> = classes.iter().filter(is_default).collect();
    if !marked.is_empty() {
        return None;
    }
    let foreign = classes.iter().find(|c| c.provisioner != DRIVER).map_or_else(|| "NAME".to_owned(), ResourceExt::name_any);
    let command = format!("kubectl annotate storageclass {foreign} {DEFAULT_CLASS_ANNOTATION}=true --overwrite");
    let names_no_class = |s: &SessionSettings| {
        s.claim_name.is_none() && s.claim_template.as_ref().is_none_or(|template| template.storage_class_name.is_none())
    };
    let users = listed(&observed.yoipods).iter().filter(|y| names_no_class(&y.spec.session)).count();
    let what =
        format!("no StorageClass is the default: session volumes that name no class cannot be made ({users} YoiPods here name none)");
    Some(Finding::error("StorageClass", what, command))
}

#[cfg(test)]
mod tests {
    use super::super::sample::{expect_finding, healthy};

    #[test]
    fn classes_that_are_gone_or_not_ours_are_told() {
        let mut observed = healthy();
        observed.classes.as_mut().unwrap().retain(|c| c.metadata.name.as_deref() != Some("yoi"));
        assert!(expect_finding(&observed, "classes", "it is missing").command.unwrap().contains("kubectl apply"));
        let mut observed = healthy();
        for class in observed.classes.as_mut().unwrap() {
            class.provisioner = "other".to_owned();
        }
        assert!(expect_finding(&observed, "classes", "must be csi.yoi.dev").command.unwrap().starts_with("kubectl delete storageclass"));
    }

    #[test]
    fn without_a_default_class_a_foreign_one_is_proposed() {
        let mut observed = healthy();
        for class in observed.classes.as_mut().unwrap() {
            class.metadata.annotations = None;
        }
        let command = expect_finding(&observed, "classes", "is the default").command.unwrap();
        assert_eq!(command, "kubectl annotate storageclass standard storageclass.kubernetes.io/is-default-class=true --overwrite");
    }

    #[test]
    fn a_driver_that_is_gone_or_changed_is_told() {
        let mut observed = healthy();
        observed.drivers.as_mut().unwrap()[0].spec.volume_lifecycle_modes = Some(vec!["Persistent".to_owned()]);
        expect_finding(&observed, "classes", "it was changed");
        observed.drivers.as_mut().unwrap().clear();
        expect_finding(&observed, "classes", "mounted inline");
    }
}
