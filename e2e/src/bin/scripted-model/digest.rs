//! Digests, so that the model recognises what it once answered without keeping it.

/// A digest that grows with what is added to it: FNV-1a with 64 bits. Equal in every build and on every machine.
#[derive(Clone, Copy, Debug)]
pub struct Digest(u64);

impl Digest {
    pub const EMPTY: Self = Self(0xcbf2_9ce4_8422_2325);

    pub fn of(text: &str) -> Self {
        Self::EMPTY.with(text.as_bytes())
    }

    pub fn with(self, bytes: &[u8]) -> Self {
        Self(bytes.iter().fold(self.0, |state, byte| (state ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)))
    }

    pub fn value(self) -> u64 {
        self.0
    }

    pub fn hex(self) -> String {
        format!("{:016x}", self.0)
    }
}

/// Signs a model's thoughts.
pub fn signature(thoughts: &str) -> String {
    format!("c2ln{}", Digest::of("signature").with(thoughts.as_bytes()).hex())
}

/// Seals the thoughts of the answer `key`. [`is_sealed`] recognises what it returns, and nothing that was altered.
pub fn sealed(key: &str) -> String {
    format!("gAAAAA{key}{}", Digest::of("sealed").with(key.as_bytes()).hex())
}

pub fn is_sealed(content: &str) -> bool {
    let parts = content.strip_prefix("gAAAAA").and_then(|rest| rest.split_at_checked(rest.len().checked_sub(16)?));
    parts.is_some_and(|(key, seal)| Digest::of("sealed").with(key.as_bytes()).hex() == seal)
}
