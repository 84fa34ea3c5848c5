//! A digest of many facts, in whatever order they come.

/// The sum of the hashes of all facts: no order is needed, so what is digested need not be in memory. It finds every difference that comes by chance or by work on
/// files; it is no proof against somebody who computes two sets with the same sum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SetDigest([u64; 4]);

impl SetDigest {
    /// Adds a fact.
    pub fn add(&mut self, fact: blake3::Hash) {
        for (sum, part) in self.0.iter_mut().zip(fact.as_bytes().as_chunks::<8>().0) {
            *sum = sum.wrapping_add(u64::from_le_bytes(*part));
        }
    }

    /// The digest of all that was added.
    pub fn hash(&self) -> blake3::Hash {
        let mut hash = blake3::Hasher::new();
        self.0.iter().for_each(|part| _ = hash.update(&part.to_le_bytes()));
        hash.finalize()
    }
}
