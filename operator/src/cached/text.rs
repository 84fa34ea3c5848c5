//! Texts that many objects have: names of namespaces, nodes and owners, labels, what a project says.

use std::collections::HashSet;
use std::ops::Deref;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// A text of which the process holds one copy, however many objects have it. Reads as `&str`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Text(Arc<str>);

/// All texts, and those that nobody has any more until the next sweep.
struct Texts {
    all: HashSet<Arc<str>>,
    sweep_at: usize,
}

/// A sweep comes when there are twice as many as the last one left, and some more.
const SWEEP: usize = 1024;

static TEXTS: LazyLock<Mutex<Texts>> = LazyLock::new(|| Mutex::new(Texts { all: HashSet::new(), sweep_at: SWEEP }));

impl Texts {
    fn get(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.all.get(text) {
            return Arc::clone(known);
        }
        if self.all.len() >= self.sweep_at {
            self.all.retain(|text| Arc::strong_count(text) > 1);
            self.sweep_at = 2 * self.all.len() + SWEEP;
        }
        let new: Arc<str> = text.into();
        self.all.insert(Arc::clone(&new));
        new
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Text(TEXTS.lock().unwrap_or_else(PoisonError::into_inner).get(text))
    }
}

impl Deref for Text {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_held_once_and_not_for_ever() {
        let mut texts = Texts { all: HashSet::new(), sweep_at: SWEEP };
        let held = texts.get("held");
        assert!(Arc::ptr_eq(&held, &texts.get("held")));
        for n in 0..10 * SWEEP {
            texts.get(&n.to_string());
        }
        assert!(texts.all.len() <= 2 * SWEEP, "{}", texts.all.len());
        assert!(Arc::ptr_eq(&held, &texts.get("held")));
    }
}
