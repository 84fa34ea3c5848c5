//! The objects and their index, without the watch that fills them.

use std::borrow::Borrow;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::num::NonZeroU64;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::digest::{Digest, digest};

/// Namespace (empty for cluster-scoped kinds), a NUL and name. They sort as pairs of namespace and name do.
pub(crate) type Id = Arc<str>;

/// More deletions than can happen while one answer of the API server is on its way.
const REMEMBERED_DELETIONS: usize = 256;

/// An object with the identity of the one that was watched.
pub(crate) struct Cached<T> {
    pub(crate) id: Id,
    /// `None` if it has none.
    uid: Option<Digest>,
    /// `None` if the resource version is not a number above zero.
    version: Option<NonZeroU64>,
    pub(crate) object: Arc<T>,
}

impl<T> Clone for Cached<T> {
    fn clone(&self) -> Self {
        Cached { id: Arc::clone(&self.id), uid: self.uid, version: self.version, object: Arc::clone(&self.object) }
    }
}

impl<T> Cached<T> {
    pub(crate) fn new(metadata: &ObjectMeta, object: Arc<T>) -> Self {
        Cached {
            id: id_of(metadata).into(),
            uid: metadata.uid.as_deref().filter(|uid| !uid.is_empty()).map(digest),
            version: metadata.resource_version.as_deref().and_then(|version| version.parse().ok()),
            object,
        }
    }

    fn is_newer_than(&self, other: &Cached<T>) -> bool {
        matches!((self.version, other.version), (Some(this), Some(other)) if this > other)
    }

    fn is_other_than(&self, other: &Cached<T>) -> bool {
        matches!((self.uid, other.uid), (Some(this), Some(other)) if this != other)
    }
}

/// A set of them has one object of each name.
impl<T> PartialEq for Cached<T> {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl<T> Eq for Cached<T> {}

impl<T> Hash for Cached<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

impl<T> Borrow<str> for Cached<T> {
    fn borrow(&self) -> &str {
        &self.id
    }
}

/// The id of the object of this name.
pub(crate) fn id(namespace: &str, name: &str) -> String {
    format!("{namespace}\0{name}")
}

pub(crate) fn id_of(metadata: &ObjectMeta) -> String {
    id(metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}

/// The objects that have one key. Most keys have one object.
#[expect(clippy::box_collection, reason = "a set takes three times as much as one id, and few keys have one")]
enum Ids {
    One(Id),
    More(Box<HashSet<Id>>),
}

impl Ids {
    fn iter(&self) -> impl Iterator<Item = &Id> {
        let (one, more) = match self {
            Ids::One(id) => (Some(id), None),
            Ids::More(ids) => (None, Some(ids.iter())),
        };
        one.into_iter().chain(more.into_iter().flatten())
    }

    fn insert(&mut self, id: &Id) {
        match self {
            Ids::One(only) if only == id => {}
            Ids::One(only) => *self = Ids::More(Box::new(HashSet::from([Arc::clone(only), Arc::clone(id)]))),
            Ids::More(ids) => drop(ids.insert(Arc::clone(id))),
        }
    }

    /// Returns whether none is left.
    fn remove(&mut self, id: &Id) -> bool {
        match self {
            Ids::One(only) => only == id,
            Ids::More(ids) => {
                ids.remove(id);
                ids.is_empty()
            }
        }
    }
}

/// A listing that is under way.
struct Listing<T> {
    listed: HashSet<Cached<T>>,
    /// Objects that [`State::learn`] took in since the listing began. The listing may be older than they are.
    learned: HashSet<Id>,
}

impl<T> Default for Listing<T> {
    fn default() -> Self {
        Listing { listed: HashSet::new(), learned: HashSet::new() }
    }
}

/// Each method that changes it returns the keys that the changed objects had before and have now.
///
/// The keys themselves are not kept: they can be computed from the object, and their digests find it.
pub(crate) struct State<T, X> {
    entries: HashSet<Cached<T>>,
    by_key: HashMap<Digest, Ids>,
    listing: Option<Listing<T>>,
    /// UIDs of objects that were deleted lately, the latest last.
    deleted: VecDeque<Digest>,
    keys: fn(&T) -> Vec<X>,
}

impl<T, X: Clone + Eq + Hash> State<T, X> {
    pub(crate) fn new(keys: fn(&T) -> Vec<X>) -> Self {
        State { entries: HashSet::new(), by_key: HashMap::new(), listing: None, deleted: VecDeque::new(), keys }
    }

    pub(crate) fn get(&self, id: &str) -> Option<&Cached<T>> {
        self.entries.get(id)
    }

    pub(crate) fn all(&self) -> impl ExactSizeIterator<Item = &Cached<T>> {
        self.entries.iter()
    }

    /// In no order.
    pub(crate) fn by_key(&self, key: &X) -> impl Iterator<Item = &Cached<T>> {
        self.by_key.get(&digest(key)).into_iter().flat_map(Ids::iter).filter_map(|id| self.get(id))
    }

    pub(crate) fn contains_key(&self, key: &X) -> bool {
        self.by_key.contains_key(&digest(key))
    }

    /// Stores what the watch showed, unless a newer version is known.
    pub(crate) fn apply(&mut self, cached: Cached<T>) -> Vec<X> {
        if self.get(&cached.id).is_some_and(|known| known.is_newer_than(&cached)) {
            return Vec::new();
        }
        self.insert(cached)
    }

    /// Stores the object that a request of this process returned (a create, a patch, a get), without waiting until the watch shows it. Stores
    /// nothing if a newer version is known or if the object was deleted.
    pub(crate) fn learn(&mut self, cached: Cached<T>) -> Vec<X> {
        let known = self.get(&cached.id);
        let was_deleted = cached.uid.is_some_and(|uid| self.deleted.contains(&uid));
        let is_deleted = known.is_none_or(|known| known.is_other_than(&cached)) && was_deleted;
        if is_deleted || known.is_some_and(|known| known.is_newer_than(&cached)) {
            return Vec::new();
        }
        if let Some(listing) = &mut self.listing {
            listing.learned.insert(Arc::clone(&cached.id));
        }
        self.insert(cached)
    }

    /// Removes the object; a namesake with another UID stays.
    pub(crate) fn delete(&mut self, cached: &Cached<T>) -> Vec<X> {
        let is_known = self.get(&cached.id).is_some_and(|known| !known.is_other_than(cached));
        let touched = if is_known { self.remove(&cached.id) } else { Vec::new() };
        self.remember_deleted(cached.uid.into_iter().collect());
        touched
    }

    pub(crate) fn begin_listing(&mut self) {
        self.listing = Some(Listing::default());
    }

    pub(crate) fn list(&mut self, cached: Cached<T>) {
        self.listing.get_or_insert_default().listed.replace(cached);
    }

    /// Replaces all objects by the listed ones.
    pub(crate) fn end_listing(&mut self) -> Vec<X> {
        let Listing { listed, learned } = self.listing.take().unwrap_or_default();
        let gone: Vec<Cached<T>> = self.all().filter(|known| !listed.contains(*known)).cloned().collect();
        let mut touched: Vec<X> = gone.iter().flat_map(|known| self.remove(&known.id)).collect();
        self.remember_deleted(gone.into_iter().filter_map(|known| known.uid).collect());
        for cached in listed {
            let learned_later = learned.contains(&cached.id) && self.get(&cached.id).is_some_and(|known| known.is_newer_than(&cached));
            if !learned_later {
                touched.extend(self.insert(cached));
            }
        }
        touched
    }

    fn insert(&mut self, cached: Cached<T>) -> Vec<X> {
        let mut touched = self.remove(&cached.id);
        let keys = (self.keys)(&cached.object);
        for key in &keys {
            match self.by_key.entry(digest(key)) {
                Entry::Occupied(mut ids) => ids.get_mut().insert(&cached.id),
                Entry::Vacant(none) => drop(none.insert(Ids::One(Arc::clone(&cached.id)))),
            }
        }
        touched.extend(keys);
        self.entries.insert(cached);
        touched
    }

    fn remove(&mut self, id: &Id) -> Vec<X> {
        let keys = self.entries.take(&**id).map(|cached| (self.keys)(&cached.object)).unwrap_or_default();
        for key in &keys {
            if let Entry::Occupied(mut ids) = self.by_key.entry(digest(key))
                && ids.get_mut().remove(id)
            {
                ids.remove();
            }
        }
        keys
    }

    /// One listing may miss more objects than are remembered otherwise.
    fn remember_deleted(&mut self, uids: Vec<Digest>) {
        let most = REMEMBERED_DELETIONS.max(uids.len());
        self.deleted.extend(uids);
        self.deleted.drain(..self.deleted.len().saturating_sub(most));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The object is its only key.
    fn state() -> State<&'static str, &'static str> {
        State::new(|object| vec![*object])
    }

    fn cached(name: &str, uid: &str, version: u64, object: &'static str) -> Cached<&'static str> {
        let metadata = ObjectMeta {
            namespace: Some("ns".to_owned()),
            name: Some(name.to_owned()),
            uid: Some(uid.to_owned()),
            resource_version: Some(version.to_string()),
            ..ObjectMeta::default()
        };
        Cached::new(&metadata, Arc::new(object))
    }

    fn cached_object(state: &State<&'static str, &'static str>, name: &str) -> Option<&'static str> {
        state.get(&id("ns", name)).map(|cached| *cached.object)
    }

    #[test]
    fn a_change_touches_the_keys_before_and_after() {
        let mut state = state();
        assert_eq!(state.apply(cached("a", "u", 1, "old")), ["old"]);
        assert_eq!(state.apply(cached("a", "u", 2, "new")), ["old", "new"]);
        assert!(!state.contains_key(&"old"));
        assert_eq!(state.by_key(&"new").count(), 1);
        assert_eq!(state.delete(&cached("a", "u", 3, "new")), ["new"]);
        assert!(!state.contains_key(&"new"));
    }

    #[test]
    fn an_older_version_does_not_replace_a_newer_one() {
        let mut state = state();
        state.learn(cached("a", "u", 10, "new"));
        assert!(state.apply(cached("a", "u", 9, "old")).is_empty());
        assert!(state.learn(cached("a", "u", 9, "old")).is_empty());
        assert_eq!(cached_object(&state, "a"), Some("new"));
    }

    #[test]
    fn an_answer_that_is_older_than_the_deletion_does_not_bring_the_object_back() {
        let mut state = state();
        state.apply(cached("a", "u", 1, "a"));
        state.delete(&cached("a", "u", 3, "a"));
        assert!(state.learn(cached("a", "u", 2, "a")).is_empty());
        assert_eq!(cached_object(&state, "a"), None);
        // Watch events always win: an object may leave a field selector and come back.
        state.apply(cached("a", "u", 4, "again"));
        assert_eq!(state.learn(cached("a", "u", 5, "newer")), ["again", "newer"]);
    }

    #[test]
    fn an_answer_does_not_bring_back_what_a_listing_lacked() {
        let mut state = state();
        let names: Vec<String> = (0..2 * REMEMBERED_DELETIONS).map(|n| n.to_string()).collect();
        for name in &names {
            state.apply(cached(name, name, 1, "x"));
        }
        state.begin_listing();
        assert_eq!(state.end_listing().len(), names.len());
        for name in &names {
            assert!(state.learn(cached(name, name, 2, "x")).is_empty(), "{name}");
        }
    }

    #[test]
    fn deleting_a_former_object_leaves_its_namesake() {
        let mut state = state();
        state.apply(cached("a", "second", 5, "a"));
        assert!(state.delete(&cached("a", "first", 4, "a")).is_empty());
        assert_eq!(cached_object(&state, "a"), Some("a"));
    }

    #[test]
    fn a_listing_replaces_everything_at_its_end() {
        let mut state = state();
        state.apply(cached("a", "a", 7, "a7"));
        state.apply(cached("b", "b", 7, "b7"));
        state.begin_listing();
        state.list(cached("a", "a", 5, "a5"));
        assert_eq!((cached_object(&state, "a"), cached_object(&state, "b")), (Some("a7"), Some("b7")));
        let mut touched = state.end_listing();
        touched.sort_unstable();
        assert_eq!(touched, ["a5", "a7", "b7"]);
        assert_eq!((cached_object(&state, "a"), cached_object(&state, "b")), (Some("a5"), None));
    }

    #[test]
    fn what_was_learned_during_a_listing_outlives_an_older_listed_version() {
        let mut state = state();
        state.begin_listing();
        state.list(cached("a", "a", 5, "a5"));
        state.learn(cached("a", "a", 6, "a6"));
        state.end_listing();
        assert_eq!(cached_object(&state, "a"), Some("a6"));
    }

    #[test]
    fn objects_that_share_a_key_leave_it_one_by_one() {
        let mut state = state();
        let names =
            |state: &State<&'static str, &'static str>| state.by_key(&"key").map(|cached| cached.id.to_string()).collect::<HashSet<_>>();
        for name in ["a", "b", "c"] {
            state.apply(cached(name, name, 1, "key"));
        }
        assert_eq!(names(&state), ["a", "b", "c"].map(|name| id("ns", name)).into());
        state.apply(cached("a", "a", 2, "other"));
        state.delete(&cached("b", "b", 2, "key"));
        assert_eq!(names(&state), [id("ns", "c")].into());
        state.delete(&cached("c", "c", 2, "key"));
        assert!(!state.contains_key(&"key") && state.contains_key(&"other"));
    }
}
