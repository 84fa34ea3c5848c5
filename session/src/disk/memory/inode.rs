//! The content of one file: as it is read, as a power cut would leave it, and the changes between the two.

use super::Retained;

const SECTOR: usize = 512;

#[derive(Debug, Default)]
pub(super) struct Inode {
    pub(super) content: Vec<u8>,
    durable: Vec<u8>,
    changes: Vec<Change>,
}

#[derive(Debug)]
enum Change {
    Write {
        at: usize,
        bytes: Vec<u8>,
        /// A sync of it failed. It stays readable, and the next sync leaves it out.
        lost: bool,
    },
    Truncate(usize),
}

impl Change {
    fn apply(&self, to: &mut Vec<u8>, with_content: bool) {
        match self {
            Self::Write { at, bytes, .. } => {
                if to.len() < at + bytes.len() {
                    to.resize(at + bytes.len(), 0);
                }
                if with_content {
                    to[*at..at + bytes.len()].copy_from_slice(bytes);
                }
            }
            Self::Truncate(len) => to.resize(*len, 0),
        }
    }
}

impl Inode {
    pub(super) fn with_durable(bytes: &[u8]) -> Self {
        Self { content: bytes.to_vec(), durable: bytes.to_vec(), changes: Vec::new() }
    }

    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) {
        self.change(Change::Write { at, bytes: bytes.to_vec(), lost: false });
    }

    pub(super) fn truncate(&mut self, len: usize) {
        self.change(Change::Truncate(len));
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.content, true);
        self.changes.push(change);
    }

    pub(super) fn sync(&mut self) {
        for change in self.changes.drain(..) {
            let with_content = !matches!(change, Change::Write { lost: true, .. });
            change.apply(&mut self.durable, with_content);
        }
    }

    pub(super) fn fail_sync(&mut self) {
        for change in &mut self.changes {
            if let Change::Write { lost, .. } = change {
                *lost = true;
            }
        }
    }

    pub(super) fn crash(&mut self, retained: Retained, rng: &mut Rng) {
        match retained {
            Retained::Synced => self.content.clone_from(&self.durable),
            Retained::Written => {}
            Retained::Random { .. } => self.content = self.random_subset(rng),
        }
        *self = Self::with_durable(&self.content);
    }

    fn random_subset(&self, rng: &mut Rng) -> Vec<u8> {
        let until = if rng.below(2) == 0 { self.changes.len() } else { rng.below(self.changes.len() + 1) };
        let (mut old, mut new) = (self.durable.clone(), self.durable.clone());
        for change in &self.changes[..until] {
            change.apply(&mut old, false);
            change.apply(&mut new, true);
        }
        for (old, new) in old.chunks_mut(SECTOR).zip(new.chunks(SECTOR)) {
            if rng.below(2) == 0 {
                old.copy_from_slice(new);
            }
        }
        if old.len() > self.durable.len() && rng.below(3) == 0 {
            old.truncate(self.durable.len() + rng.below(old.len() - self.durable.len()));
        }
        old
    }
}

/// SplitMix64. The same seed gives the same power cut.
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(retained: Retained) -> Self {
        match retained {
            Retained::Random { seed } => Self(seed),
            Retained::Synced | Retained::Written => Self(0),
        }
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) >> 32).unwrap_or(0) % bound
    }
}
