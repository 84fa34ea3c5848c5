//! Finds out by trying whether trees can be datasets.

use super::Zfs;
use crate::SysError;

impl Zfs {
    /// Makes a dataset, mounts it and destroys it. It has the name of the data root, which no tree has.
    pub fn try_here(&self) -> Result<(), SysError> {
        let probe = self.layout.name;
        self.require_parent()?;
        self.remove_dataset(probe, None)?;
        let attempt = || -> Result<(), SysError> {
            self.commands.create(probe, &self.mountpoint(probe)?)?;
            self.open_dataset(probe).map(drop)
        };
        let tried = attempt();
        let removed = self.remove_dataset(probe, None);
        tried.and(removed)
    }
}
