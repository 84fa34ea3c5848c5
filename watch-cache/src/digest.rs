//! Short stand-ins for keys and UIDs, which a cache holds by the hundred thousand.

use std::hash::{BuildHasher, Hash, RandomState};
use std::num::NonZeroU64;
use std::sync::LazyLock;

/// 128 bits of a hash with keys of this process. Different values have different digests, but for a chance of one in 2^88 among a million of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Digest(NonZeroU64, u64);

pub(crate) fn digest(value: &(impl Hash + ?Sized)) -> Digest {
    static HASHERS: LazyLock<[RandomState; 2]> = LazyLock::new(|| [RandomState::new(), RandomState::new()]);
    // Zero stands for an absent digest, which takes no room beside a present one.
    Digest(NonZeroU64::new(HASHERS[0].hash_one(value)).unwrap_or(NonZeroU64::MIN), HASHERS[1].hash_one(value))
}
