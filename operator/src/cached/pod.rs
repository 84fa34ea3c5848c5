use std::mem::take;

use k8s_openapi::api::core::v1::Pod;
use yoi_plan::ObservedPod;

use super::CachedMetadata;

/// A Pod of an agent, a reader, or one that fills a base.
#[derive(Clone, Debug)]
pub struct CachedPod {
    pub(crate) metadata: CachedMetadata,
    /// Without its metadata.
    rest: ObservedPod,
}

impl From<Pod> for CachedPod {
    fn from(pod: Pod) -> Self {
        let mut rest = ObservedPod::from(pod);
        CachedPod { metadata: take(&mut rest.metadata).into(), rest }
    }
}

impl CachedPod {
    /// The Pod as plans read it.
    pub(crate) fn observed(&self) -> ObservedPod {
        let mut pod = self.rest.clone();
        pod.metadata = self.metadata.observed();
        pod
    }
}
