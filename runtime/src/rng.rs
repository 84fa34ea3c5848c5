//! Random numbers. Nothing else in this process is random, but for UUIDs.

use uuid::Uuid;

/// A random number in `0.0..1.0`.
#[must_use]
pub fn random_fraction() -> f64 {
    (Uuid::new_v4().as_u128() >> 96) as f64 / f64::from(u32::MAX)
}
