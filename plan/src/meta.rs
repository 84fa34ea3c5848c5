//! Reading parts of objects' metadata.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

pub(crate) const API_VERSION: &str = "yoi.dev/v1alpha1";

/// Empty when absent.
#[must_use]
pub fn name(meta: &ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}

/// Empty when absent, as for cluster-scoped kinds.
#[must_use]
pub fn namespace(meta: &ObjectMeta) -> &str {
    meta.namespace.as_deref().unwrap_or_default()
}

/// Empty for an object that the API server has not stored.
#[must_use]
pub fn uid(meta: &ObjectMeta) -> &str {
    meta.uid.as_deref().unwrap_or_default()
}

/// Whether somebody has deleted the object; finalizers may still keep it.
#[must_use]
pub fn deleting(meta: &ObjectMeta) -> bool {
    meta.deletion_timestamp.is_some()
}

/// Value of a label.
#[must_use]
pub fn label<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.labels.as_ref()?.get(key).map(String::as_str)
}

/// Value of an annotation.
#[must_use]
pub fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

/// The controlling owner, if there is one.
#[must_use]
pub fn controller(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.as_ref()?.iter().find(|o| o.controller == Some(true))
}

/// Whether the object of this UID is the controlling owner.
#[must_use]
pub fn controlled_by(meta: &ObjectMeta, owner_uid: &str) -> bool {
    controller(meta).is_some_and(|o| o.uid == owner_uid)
}
