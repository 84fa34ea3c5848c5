//! What the volumes show whose agents may lend paths of their trees, as this process has had it laid last. After a restart nothing is known: it is laid once more.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use yoi_workspace::mount::Cover;

use crate::volume::PodVolume;

/// Views by volume.
#[derive(Default)]
pub struct Views(Mutex<HashMap<PodVolume, Vec<Cover>>>);

impl Views {
    /// Whether the volume is known to show exactly this.
    pub fn is(&self, volume: &PodVolume, view: &[Cover]) -> bool {
        self.lock().get(volume).is_some_and(|known| known == view)
    }

    /// Notes what the volume shows.
    pub fn set(&self, volume: PodVolume, view: Vec<Cover>) {
        self.lock().insert(volume, view);
    }

    /// Notes that it is not known what the volume shows, or that it shows nothing.
    pub fn forget(&self, volume: &PodVolume) {
        self.lock().remove(volume);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PodVolume, Vec<Cover>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
