//! What the caches hold of Pods, claims, volumes and manifests, of which a cluster has one each for every agent: only what plans read, and each text that
//! repeats once. [`observe`](crate::observe) makes of it what a plan takes, of the few that one plan reads.
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
