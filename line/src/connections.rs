//! Who is connected: how many strangers, for how long, and how many connections one client may have.
//!
//! A connection is a *stranger's* until the service has judged one of its requests and says whose it is, by the [`Connection`] in the request's
//! extensions. Strangers are few, have little time, and few of them come from one address; so whoever can only open connections cannot keep
//! others from opening theirs.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Connections of strangers at once; one more is closed unheard.
    pub unauthenticated: usize,
    /// The same from one address.
    pub unauthenticated_per_address: usize,
    /// How long a connection may stay a stranger's.
    pub authenticate_within: Duration,
    /// Connections of one client that was named; one more ends its oldest.
    pub per_client: usize,
}

/// A connection, as the service sees it: in the extensions of each of its requests.
#[derive(Clone, Debug)]
pub struct Connection {
    id: u64,
    connections: Weak<Connections>,
}

impl Connection {
    /// The connection is `who`'s, and may stay. Said again for each request; the first word counts.
    pub fn set_client(&self, who: &str) {
        if let Some(connections) = self.connections.upgrade() {
            connections.set_identity(self.id, Some(who));
        }
    }

    /// The connection may stay, and is not counted among anybody's.
    pub fn set_trusted(&self) {
        if let Some(connections) = self.connections.upgrade() {
            connections.set_identity(self.id, None);
        }
    }

    /// Nobody that is known here: the connection ends after the answers under way, unless it was named before.
    pub fn reject(&self) {
        if let Some(connections) = self.connections.upgrade() {
            connections.reject(self.id);
        }
    }
}

#[derive(Debug)]
pub(crate) struct Connections {
    limits: ConnectionLimits,
    slots: Mutex<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    last_id: u64,
    slots: HashMap<u64, Slot>,
    unauthenticated: usize,
    unauthenticated_by_address: HashMap<IpAddr, usize>,
    by_client: HashMap<String, VecDeque<u64>>,
}

#[derive(Debug)]
struct Slot {
    address: IpAddr,
    identity: Identity,
    abort: CancellationToken,
    end: CancellationToken,
}

#[derive(Debug, PartialEq, Eq)]
enum Identity {
    Unauthenticated,
    Trusted,
    Client(String),
}

/// A connection's slot, free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    id: u64,
    connections: Arc<Connections>,
    /// End at once.
    pub abort: CancellationToken,
    /// End after the answers under way.
    pub end: CancellationToken,
}

impl Connections {
    pub fn new(limits: ConnectionLimits) -> Arc<Self> {
        Arc::new(Self { limits, slots: Mutex::default() })
    }

    /// A slot for a connection from here; `None` when strangers, or those of this address, have all of theirs.
    pub fn admit(self: &Arc<Self>, address: SocketAddr) -> Option<Permit> {
        let address = address.ip().to_canonical();
        let mut slots = self.lock();
        let here = slots.unauthenticated_by_address.get(&address).copied().unwrap_or_default();
        if slots.unauthenticated >= self.limits.unauthenticated || here >= self.limits.unauthenticated_per_address {
            return None;
        }
        slots.unauthenticated += 1;
        slots.unauthenticated_by_address.insert(address, here + 1);
        slots.last_id += 1;
        let (id, abort, end) = (slots.last_id, CancellationToken::new(), CancellationToken::new());
        slots.slots.insert(id, Slot { address, identity: Identity::Unauthenticated, abort: abort.clone(), end: end.clone() });
        Some(Permit { id, connections: self.clone(), abort, end })
    }

    fn set_identity(&self, id: u64, who: Option<&str>) {
        let mut slots = self.lock();
        let Some(slot) = slots.slots.get_mut(&id).filter(|slot| slot.identity == Identity::Unauthenticated) else { return };
        slot.identity = who.map_or(Identity::Trusted, |who| Identity::Client(who.to_owned()));
        let address = slot.address;
        slots.remove_unauthenticated(address);
        let Some(who) = who else { return };
        let theirs = slots.by_client.entry(who.to_owned()).or_default();
        theirs.push_back(id);
        let oldest = if theirs.len() > self.limits.per_client { theirs.pop_front() } else { None };
        if let Some(slot) = oldest.and_then(|id| slots.slots.get(&id)) {
            slot.abort.cancel();
        }
    }

    fn reject(&self, id: u64) {
        if let Some(slot) = self.lock().slots.get(&id).filter(|slot| slot.identity == Identity::Unauthenticated) {
            slot.end.cancel();
        }
    }

    fn remove(&self, id: u64) {
        let mut slots = self.lock();
        let Some(Slot { address, identity, .. }) = slots.slots.remove(&id) else { return };
        match identity {
            Identity::Unauthenticated => slots.remove_unauthenticated(address),
            Identity::Trusted => {}
            Identity::Client(who) => {
                if let Some(theirs) = slots.by_client.get_mut(&who) {
                    theirs.retain(|slot| *slot != id);
                    if theirs.is_empty() {
                        slots.by_client.remove(&who);
                    }
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slots {
    fn remove_unauthenticated(&mut self, address: IpAddr) {
        self.unauthenticated = self.unauthenticated.saturating_sub(1);
        if let Some(here) = self.unauthenticated_by_address.get_mut(&address) {
            *here = here.saturating_sub(1);
            if *here == 0 {
                self.unauthenticated_by_address.remove(&address);
            }
        }
    }
}

impl Permit {
    pub fn connection(&self) -> Connection {
        Connection { id: self.id, connections: Arc::downgrade(&self.connections) }
    }

    /// Resolves when the connection is to be abort: it is still a stranger's after its time, or its client has newer ones.
    pub async fn must_abort(&self) {
        tokio::select! {
            () = self.abort.cancelled() => return,
            () = tokio::time::sleep(self.connections.limits.authenticate_within) => {}
        }
        let stranger = self.connections.lock().slots.get(&self.id).is_some_and(|slot| slot.identity == Identity::Unauthenticated);
        if !stranger {
            self.abort.cancelled().await;
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.connections.remove(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connections() -> Arc<Connections> {
        Connections::new(ConnectionLimits {
            unauthenticated: 4,
            unauthenticated_per_address: 2,
            authenticate_within: Duration::from_secs(10),
            per_client: 2,
        })
    }

    fn at(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 1))
    }

    #[test]
    fn one_address_cannot_take_the_seats_of_others_and_all_together_not_more_than_there_are() {
        let connections = connections();
        let first: Vec<_> = (0..2).map(|_| connections.admit(at(1)).unwrap()).collect();
        assert!(connections.admit(at(1)).is_none());
        let second: Vec<_> = (0..2).map(|_| connections.admit(at(2)).unwrap()).collect();
        assert!(connections.admit(at(3)).is_none());
        drop(second);
        assert!(connections.admit(at(3)).is_some());
        drop(first);
        assert!(connections.lock().unauthenticated_by_address.is_empty() && connections.lock().slots.is_empty());
    }

    #[test]
    fn who_was_named_takes_no_strangers_seat_and_has_so_many_connections() {
        let connections = connections();
        let permits: Vec<_> = (0..3)
            .map(|_| {
                let permit = connections.admit(at(1)).unwrap();
                permit.connection().set_client("a");
                permit.connection().set_client("a");
                permit
            })
            .collect();
        let abort: Vec<_> = permits.iter().map(|permit| permit.abort.is_cancelled()).collect();
        assert_eq!(abort, [true, false, false]);
        assert_eq!(connections.lock().unauthenticated, 0);
        drop(permits);
        assert!(connections.lock().by_client.is_empty() && connections.lock().slots.is_empty());
    }

    #[test]
    fn nobody_is_sent_away_and_somebody_stays_whatever_a_later_request_proves() {
        let connections = connections();
        let (nobody, somebody) = (connections.admit(at(1)).unwrap(), connections.admit(at(1)).unwrap());
        nobody.connection().reject();
        somebody.connection().set_client("a");
        somebody.connection().reject();
        assert!(nobody.end.is_cancelled() && !somebody.end.is_cancelled());
    }

    #[tokio::test]
    async fn a_stranger_has_so_much_time_and_somebody_all_of_it() {
        let limits = ConnectionLimits { authenticate_within: Duration::from_millis(20), ..connections().limits };
        let connections = Connections::new(limits);
        let (stranger, trusted) = (connections.admit(at(1)).unwrap(), connections.admit(at(2)).unwrap());
        trusted.connection().set_trusted();
        tokio::time::timeout(Duration::from_secs(30), stranger.must_abort()).await.unwrap();
        assert!(tokio::time::timeout(Duration::from_millis(200), trusted.must_abort()).await.is_err());
    }
}
