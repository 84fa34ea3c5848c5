//! Storage: our driver and classes, and a default class for session volumes.

use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;
use yoi_crds::name::{CLASS_IMMEDIATE, CLASS_LATE};
use yoi_crds::pod::SessionSettings;

use super::super::finding::Finding;
use super::super::world::{World, called, seen};
use super::or_ok;

const DRIVER: &str = "csi.yoi.dev";
const DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";

pub fn check(world: &World) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Ok(classes) = &world.classes {
        for (name, binding) in [(CLASS_LATE, "WaitForFirstConsumer"), (CLASS_IMMEDIATE, "Immediate")] {
            found.extend(ours(world, classes, name, binding));
        }
        found.extend(default(world, classes));
    }
    if let Ok(drivers) = &world.drivers {
        let restore = world.reapply("yoi-operator");
        match drivers.iter().find(|d| d.name_any() == DRIVER) {
            None => found.push(Finding::error(format!("CSIDriver {DRIVER}"), "it is missing: no tree can be mounted inline", restore)),
            Some(driver) => {
                let modes = driver.spec.volume_lifecycle_modes.clone().unwrap_or_default();
                let right = ["Persistent", "Ephemeral"].iter().all(|m| modes.iter().any(|has| has == m))
                    && driver.spec.pod_info_on_mount == Some(true)
                    && driver.spec.attach_required == Some(false)
                    && driver.spec.fs_group_policy.as_deref() == Some("None");
                if !right {
                    let what = format!("it was changed (modes {}): mounts will fail or change trees", modes.join(", "));
                    // Most of its fields cannot be changed in place.
                    found.push(Finding::error(called(driver), what, format!("kubectl delete csidriver {DRIVER} && {restore}")));
                }
            }
        }
    }
    let complete = world.classes.is_ok() && world.drivers.is_ok();
    or_ok(found, complete, "storage", || "our classes and driver are as the chart makes them, and there is a default class".to_owned())
}

fn ours(world: &World, classes: &[StorageClass], name: &str, binding: &str) -> Option<Finding> {
    let restore = world.reapply("yoi-operator");
    let Some(class) = classes.iter().find(|c| c.name_any() == name) else {
        return Some(Finding::error(format!("StorageClass {name}"), "it is missing: claims of workspaces cannot bind", restore));
    };
    let bound = class.volume_binding_mode.as_deref().unwrap_or("Immediate");
    (class.provisioner != DRIVER || bound != binding).then(|| {
        let what = format!("it is {} / {bound}, and must be {DRIVER} / {binding}", class.provisioner);
        Finding::error(called(class), what, format!("kubectl delete storageclass {name} && {restore}"))
    })
}

fn default(world: &World, classes: &[StorageClass]) -> Option<Finding> {
    let is_default = |c: &&StorageClass| c.annotations().get(DEFAULT).is_some_and(|v| v == "true");
    let marked: Vec<_> = classes.iter().filter(is_default).collect();
    if !marked.is_empty() {
        return None;
    }
    let foreign = classes.iter().find(|c| c.provisioner != DRIVER).map_or_else(|| "NAME".to_owned(), ResourceExt::name_any);
    let command = format!("kubectl annotate storageclass {foreign} {DEFAULT}=true --overwrite");
    let unsaid = |s: &SessionSettings| {
        s.claim_name.is_none() && s.claim_template.as_ref().is_none_or(|template| template.storage_class_name.is_none())
    };
    let users = seen(&world.yoipods).iter().filter(|y| unsaid(&y.spec.session)).count();
    let what =
        format!("no StorageClass is the default: session volumes that name no class cannot be made ({users} YoiPods here name none)");
    Some(Finding::error("StorageClass", what, command))
}

#[cfg(test)]
mod tests {
    use super::super::sample::{found, healthy};

    #[test]
    fn classes_that_are_gone_or_not_ours_are_told() {
        let mut world = healthy();
        world.classes.as_mut().unwrap().retain(|c| c.metadata.name.as_deref() != Some("yoi"));
        assert!(found(&world, "classes", "it is missing").command.unwrap().contains("kubectl apply"));
        let mut world = healthy();
        for class in world.classes.as_mut().unwrap() {
            class.provisioner = "other".to_owned();
        }
        assert!(found(&world, "classes", "must be csi.yoi.dev").command.unwrap().starts_with("kubectl delete storageclass"));
    }

    #[test]
    fn without_a_default_class_a_foreign_one_is_proposed() {
        let mut world = healthy();
        for class in world.classes.as_mut().unwrap() {
            class.metadata.annotations = None;
        }
        let command = found(&world, "classes", "is the default").command.unwrap();
        assert_eq!(command, "kubectl annotate storageclass standard storageclass.kubernetes.io/is-default-class=true --overwrite");
    }

    #[test]
    fn a_driver_that_is_gone_or_changed_is_told() {
        let mut world = healthy();
        world.drivers.as_mut().unwrap()[0].spec.volume_lifecycle_modes = Some(vec!["Persistent".to_owned()]);
        found(&world, "classes", "it was changed");
        world.drivers.as_mut().unwrap().clear();
        found(&world, "classes", "mounted inline");
    }
}
