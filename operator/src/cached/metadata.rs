//! The metadata that plans read.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use yoi_crds::name::annotation;

use super::text::Text;
use super::uid::Uid;

type Pairs = Box<[(Text, Text)]>;

/// The metadata of a Pod, a claim, a volume or a manifest, with the labels and annotations that plans read.
#[derive(Clone, Debug)]
pub struct CachedMetadata {
    namespace: Option<Text>,
    name: Box<str>,
    uid: Uid,
    resource_version: Option<Box<str>>,
    labels: Pairs,
    annotations: Pairs,
    owners: Box<[Owner]>,
    finalizers: Box<[Text]>,
    created: Option<Time>,
    /// Few objects are being deleted.
    deleted: Option<Box<Time>>,
}

#[derive(Clone, Debug)]
struct Owner {
    api_version: Text,
    kind: Text,
    name: Text,
    uid: Uid,
    controller: Option<bool>,
    block_owner_deletion: Option<bool>,
}

/// Whether plans read the label or annotation of this key, or may in another version.
pub(crate) fn is_read(key: &str) -> bool {
    key.starts_with("yoi.dev/") || key == annotation::SELECTED_NODE
}

fn pairs(all: Option<BTreeMap<String, String>>) -> Pairs {
    all.into_iter().flatten().filter(|(key, _)| is_read(key)).map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect()
}

fn map(pairs: &Pairs) -> Option<BTreeMap<String, String>> {
    (!pairs.is_empty()).then(|| pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect())
}

fn value<'a>(pairs: &'a Pairs, key: &str) -> Option<&'a str> {
    pairs.iter().find(|(of, _)| **of == *key).map(|(_, value)| &**value)
}

impl From<ObjectMeta> for CachedMetadata {
    fn from(whole: ObjectMeta) -> Self {
        let owner = |owner: OwnerReference| Owner {
            api_version: owner.api_version.as_str().into(),
            kind: owner.kind.as_str().into(),
            name: owner.name.as_str().into(),
            uid: owner.uid.as_str().into(),
            controller: owner.controller,
            block_owner_deletion: owner.block_owner_deletion,
        };
        CachedMetadata {
            namespace: whole.namespace.as_deref().map(Text::from),
            name: whole.name.unwrap_or_default().into(),
            uid: whole.uid.as_deref().unwrap_or_default().into(),
            resource_version: whole.resource_version.map(String::into_boxed_str),
            labels: pairs(whole.labels),
            annotations: pairs(whole.annotations),
            owners: whole.owner_references.into_iter().flatten().map(owner).collect(),
            finalizers: whole.finalizers.iter().flatten().map(|finalizer| finalizer.as_str().into()).collect(),
            created: whole.creation_timestamp,
            deleted: whole.deletion_timestamp.map(Box::new),
        }
    }
}

impl CachedMetadata {
    /// The metadata as plans read it.
    pub(crate) fn observed(&self) -> ObjectMeta {
        let owner = |owner: &Owner| OwnerReference {
            api_version: owner.api_version.to_string(),
            kind: owner.kind.to_string(),
            name: owner.name.to_string(),
            uid: owner.uid.to_string(),
            controller: owner.controller,
            block_owner_deletion: owner.block_owner_deletion,
        };
        ObjectMeta {
            namespace: self.namespace.as_deref().map(str::to_owned),
            name: Some(self.name.to_string()).filter(|name| !name.is_empty()),
            uid: Some(self.uid()).filter(|uid| !uid.is_empty()),
            resource_version: self.resource_version.as_deref().map(str::to_owned),
            labels: map(&self.labels),
            annotations: map(&self.annotations),
            owner_references: (!self.owners.is_empty()).then(|| self.owners.iter().map(owner).collect()),
            finalizers: (!self.finalizers.is_empty()).then(|| self.finalizers.iter().map(|text| text.to_string()).collect()),
            creation_timestamp: self.created.clone(),
            deletion_timestamp: self.deleted.as_deref().cloned(),
            ..ObjectMeta::default()
        }
    }

    /// Empty for a cluster-scoped kind.
    pub(crate) fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or_default()
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn uid(&self) -> String {
        self.uid.to_string()
    }

    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        value(&self.labels, key)
    }

    pub(crate) fn annotation(&self, key: &str) -> Option<&str> {
        value(&self.annotations, key)
    }

    pub(crate) fn is_deleting(&self) -> bool {
        self.deleted.is_some()
    }

    /// UID of the controlling owner.
    pub(crate) fn controller(&self) -> Option<String> {
        self.owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.to_string())
    }
}
