//! What the caches hold of Pods, claims, volumes and manifests. A cluster has one of each for every agent, so the caches hold only what plans read, and one
//! copy of each text that repeats. [`observe`](crate::observe) makes the types that plans take from it, of the few objects that one plan reads.
//!
//! `yoi-plan` must not read what is left out here. Nothing is ever written back from a cache.

mod claim;
mod manifest;
mod metadata;
mod pod;
mod text;
mod uid;
mod volume;

pub use claim::CachedClaim;
pub use manifest::CachedManifest;
pub use metadata::CachedMetadata;
pub(crate) use metadata::is_read;
pub use pod::CachedPod;
pub use volume::CachedVolume;

#[cfg(test)]
mod tests;
