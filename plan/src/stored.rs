//! Observed objects with an identity that is checked once.
//!
//! Metadata holds name, namespace and UID as options, because an object that nobody has stored yet has none. A plan decides only about objects that
//! the API server has stored, so each input builds its [`Stored`] objects first and never meets an empty UID afterwards.

use std::ops::Deref;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use yoi_crds::{AgentWorkspace, WorkspaceNode, YoiPeer, YoiPod, YoiProject};

use crate::meta;
use crate::observed_pod::ObservedPod;
use crate::step::{Kind, Step, Target};

/// UID of a stored object; never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Uid<'a>(&'a str);

impl<'a> Uid<'a> {
    /// `None` for an empty text.
    pub(crate) fn new(text: &'a str) -> Option<Self> {
        (!text.is_empty()).then_some(Uid(text))
    }

    pub(crate) fn as_str(self) -> &'a str {
        self.0
    }
}

/// A kind of which a plan reads objects.
pub(crate) trait Object {
    /// The kind as owner references write it.
    const KIND: &'static str;
    const NAMESPACED: bool;
    fn metadata(&self) -> &ObjectMeta;
}

/// A kind whose objects steps change or delete.
pub(crate) trait StepObject: Object {
    const STEP_KIND: Kind;
}

macro_rules! objects {
    ($($type:ty: $namespaced:literal $kind:literal),+) => {$(
        impl Object for $type {
            const KIND: &'static str = $kind;
            const NAMESPACED: bool = $namespaced;
            fn metadata(&self) -> &ObjectMeta { &self.metadata }
        }
    )+};
}
objects!(
    YoiProject: true "YoiProject",
    AgentWorkspace: true "AgentWorkspace",
    YoiPod: true "YoiPod",
    YoiPeer: true "YoiPeer",
    WorkspaceNode: false "WorkspaceNode",
    ObservedPod: true "Pod",
    PersistentVolumeClaim: true "PersistentVolumeClaim",
    PersistentVolume: false "PersistentVolume",
    ConfigMap: true "ConfigMap"
);

macro_rules! step_objects {
    ($($type:ty: $kind:ident),+) => {$(impl StepObject for $type { const STEP_KIND: Kind = Kind::$kind; })+};
}
step_objects!(
    YoiProject: Project,
    AgentWorkspace: Workspace,
    YoiPod: YoiPod,
    WorkspaceNode: WorkspaceNode,
    ObservedPod: Pod,
    PersistentVolumeClaim: Claim,
    PersistentVolume: Volume,
    ConfigMap: ConfigMap
);

/// An object that the API server has stored: it has a name and a UID, and a namespace where its kind has one. Dereferences to the object.
#[derive(Debug)]
pub(crate) struct Stored<'a, K> {
    object: &'a K,
    namespace: &'a str,
    name: &'a str,
    uid: Uid<'a>,
}

impl<K> Clone for Stored<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Stored<'_, K> {}

impl<K> Deref for Stored<'_, K> {
    type Target = K;
    fn deref(&self) -> &K {
        self.object
    }
}

impl<'a, K: Object> Stored<'a, K> {
    /// `None` for an object without name, UID or, where its kind has one, namespace.
    pub(crate) fn new(object: &'a K) -> Option<Self> {
        let meta = object.metadata();
        let present = |text: &'a Option<String>| text.as_deref().filter(|text| !text.is_empty());
        let namespace = if K::NAMESPACED { present(&meta.namespace)? } else { "" };
        Some(Stored { object, namespace, name: present(&meta.name)?, uid: Uid::new(meta.uid.as_deref()?)? })
    }

    /// The object behind `object`, if there is one and it is stored.
    pub(crate) fn of(object: &'a Option<Arc<K>>) -> Option<Self> {
        Self::new(object.as_deref()?)
    }

    /// Those of `objects` that are stored, in their order.
    pub(crate) fn all(objects: &'a [Arc<K>]) -> Vec<Self> {
        objects.iter().filter_map(|object| Self::new(object)).collect()
    }

    /// The object, for as long as what was observed lives.
    pub(crate) fn get(self) -> &'a K {
        self.object
    }

    pub(crate) fn meta(self) -> &'a ObjectMeta {
        self.object.metadata()
    }

    pub(crate) fn name(self) -> &'a str {
        self.name
    }

    /// Empty for a cluster-scoped kind.
    pub(crate) fn namespace(self) -> &'a str {
        self.namespace
    }

    pub(crate) fn uid(self) -> Uid<'a> {
        self.uid
    }

    pub(crate) fn is_deleting(self) -> bool {
        meta::deleting(self.meta())
    }

    pub(crate) fn is_controlled_by(self, owner: Uid<'_>) -> bool {
        meta::controlled_by(self.meta(), owner.as_str())
    }

    pub(crate) fn has_finalizer(self, finalizer: &str) -> bool {
        self.meta().finalizers.iter().flatten().any(|f| f == finalizer)
    }

    /// A reference that makes this object the controlling owner of another.
    pub(crate) fn owner_reference(self) -> OwnerReference {
        OwnerReference {
            api_version: meta::API_VERSION.to_owned(),
            kind: K::KIND.to_owned(),
            name: self.name.to_owned(),
            uid: self.uid.as_str().to_owned(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }
    }
}

impl<K: StepObject> Stored<'_, K> {
    pub(crate) fn target(self) -> Target {
        Target { kind: K::STEP_KIND, namespace: self.namespace.to_owned(), name: self.name.to_owned(), uid: self.uid.as_str().to_owned() }
    }

    /// The step that deletes this object; `None` when it is being deleted already.
    pub(crate) fn delete(self) -> Option<Step> {
        (!self.is_deleting()).then(|| Step::Delete(self.target()))
    }

    /// The step that deletes this object unless it has changed since it was observed; `None` when it is being deleted already.
    pub(crate) fn delete_unchanged(self) -> Option<Step> {
        (!self.is_deleting()).then(|| Step::DeleteUnchanged { of: self.target(), resource_version: self.resource_version() })
    }

    /// The step that adds those of `wanted` that are missing; `None` when all are there.
    pub(crate) fn add_finalizers(self, wanted: &[&str]) -> Option<Step> {
        let missing: Vec<_> = wanted.iter().filter(|finalizer| !self.has_finalizer(finalizer)).collect();
        (!missing.is_empty()).then(|| Step::AddFinalizers {
            of: self.target(),
            resource_version: self.resource_version(),
            all: self.meta().finalizers.iter().flatten().cloned().chain(missing.into_iter().map(|f| (*f).to_owned())).collect(),
        })
    }

    /// The step that removes `finalizer`; `None` when it is not there.
    pub(crate) fn remove_finalizer(self, finalizer: &'static str) -> Option<Step> {
        self.has_finalizer(finalizer).then(|| Step::RemoveFinalizer {
            of: self.target(),
            resource_version: self.resource_version(),
            finalizer,
            left: self.meta().finalizers.iter().flatten().filter(|f| *f != finalizer).cloned().collect(),
        })
    }

    /// Where it is absent, the API server refuses the change.
    pub(crate) fn resource_version(self) -> String {
        self.meta().resource_version.clone().unwrap_or_default()
    }
}

/// Steps that delete those of `objects` that are not being deleted already.
pub(crate) fn delete_all<'a, K: StepObject + 'a>(objects: impl IntoIterator<Item = Stored<'a, K>>) -> Vec<Step> {
    objects.into_iter().filter_map(Stored::delete).collect()
}

/// `status.phase` of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimPhase {
    Bound,
    Lost,
    /// Pending, or not reported yet.
    Other,
}

impl Stored<'_, PersistentVolumeClaim> {
    pub(crate) fn phase(self) -> ClaimPhase {
        match self.get().status.as_ref().and_then(|status| status.phase.as_deref()) {
            Some("Bound") => ClaimPhase::Bound,
            Some("Lost") => ClaimPhase::Lost,
            Some(_) | None => ClaimPhase::Other,
        }
    }
}
