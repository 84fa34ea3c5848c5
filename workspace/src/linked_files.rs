//! Files with several names, each counted once.

use std::collections::HashSet;

use rustix::fs::Stat;

use crate::dir;

/// So many files with several names are remembered at once, in some 3 MB: an agent decides how many there are.
pub(crate) const MOST_LINKED: usize = 100_000;

/// The files with several names that a visit of a tree has met.
pub(crate) struct LinkedFiles {
    met: HashSet<(u64, u64)>,
    most: usize,
}

impl LinkedFiles {
    /// Remembers at most so many files.
    pub fn of_at_most(most: usize) -> Self {
        Self { met: HashSet::new(), most }
    }

    /// Into how many parts a file is divided of which this name counts one: a file is counted whole at its first name. None: it is counted already.
    ///
    /// A file that is not remembered, because there are too many, counts one part at each of its names. If all of them are visited, that is the
    /// same sum but for what the divisions leave over.
    pub fn parts(&mut self, stat: &Stat) -> Option<u64> {
        let (links, identity) = (dir::links(stat), (stat.st_dev, stat.st_ino));
        if links <= 1 {
            return Some(1);
        }
        if self.is_full() {
            return if self.met.contains(&identity) { None } else { Some(links) };
        }
        self.met.insert(identity).then_some(1)
    }

    /// Whether there may be files that are not remembered.
    pub fn is_full(&self) -> bool {
        self.met.len() >= self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_counts_once_whether_or_not_it_is_remembered() {
        let folder = tempfile::tempdir().unwrap();
        for file in 0..10 {
            let first = folder.path().join(file.to_string());
            std::fs::write(&first, [0; 100]).unwrap();
            (0..file % 5).for_each(|n| std::fs::hard_link(&first, folder.path().join(format!("{file}-{n}"))).unwrap());
        }
        let opened = rustix::fs::open(folder.path(), rustix::fs::OFlags::DIRECTORY, rustix::fs::Mode::empty()).unwrap();
        for most in [0, 1, 4, 8, 100] {
            let (mut files, mut bytes) = (LinkedFiles::of_at_most(most), 0);
            dir::for_each_name(&opened, "read", |name| {
                let stat = dir::stat(&opened, name).unwrap();
                bytes += files.parts(&stat).map_or(0, |parts| stat.st_size as u64 / parts);
                Ok(())
            })
            .unwrap();
            // A third part of 100 bytes leaves one over.
            assert!((998..=1000).contains(&bytes), "{bytes} with {most}");
            assert!(files.met.len() <= most);
        }
    }
}
