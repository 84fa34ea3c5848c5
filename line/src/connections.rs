//! How many connections may be unauthenticated, for how long, and how many connections one client may have.
//!
//! A connection is *unauthenticated* until the service has checked one of its requests and calls [`Connection::set_client`] or
//! [`Connection::set_trusted`] on the [`Connection`] in the request's extensions. Unauthenticated connections are few in all and few per
//! address, and they have a deadline.
//!
//! A new connection is never refused. It takes the place of the oldest unauthenticated connection of its own address, or else of the address
//! that has the most. So clients that only open connections lose their own, however many addresses they have, and a client that sends its
//! request at once is answered.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// The limits on the connections of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Unauthenticated connections at once. One more aborts the oldest of the address that has the most.
    pub unauthenticated: usize,
    /// Unauthenticated connections at once from one IP address. One more aborts the address's oldest.
    pub unauthenticated_per_address: usize,
    /// How long a connection may stay unauthenticated, from its acceptance.
    pub authenticate_within: Duration,
    /// Connections of one client. One more aborts the client's oldest.
    pub per_client: usize,
}

/// The connection of a request, in the request's extensions. The service tells with it whether the client is authenticated.
#[derive(Clone, Debug)]
pub struct Connection {
    id: u64,
    connections: Weak<Connections>,
}

impl Connection {
    /// The client of this connection is `client`, and the connection may stay. Only the first call for a connection counts.
    pub fn set_client(&self, client: &str) {
        if let Some(connections) = self.connections.upgrade() {
            connections.set_identity(self.id, Identity::Client(client.to_owned()));
        }
    }

    /// The connection may stay, and is not counted toward any client's limit. Only the first call for a connection counts.
    pub fn set_trusted(&self) {
        if let Some(connections) = self.connections.upgrade() {
            connections.set_identity(self.id, Identity::Trusted);
        }
    }

    /// The client is unknown: the connection ends after its responses in flight, unless it is authenticated already.
    pub fn reject(&self) {
        if let Some(connections) = self.connections.upgrade() {
            connections.reject(self.id);
        }
    }
}

/// The connections of one server.
#[derive(Debug)]
pub(crate) struct Connections {
    limits: ConnectionLimits,
    slots: Mutex<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    last_id: u64,
    by_id: HashMap<u64, Slot>,
    unauthenticated: usize,
    /// The oldest first. No list is empty.
    unauthenticated_by_address: HashMap<IpAddr, VecDeque<u64>>,
    by_client: HashMap<String, VecDeque<u64>>,
}

#[derive(Debug)]
struct Slot {
    address: IpAddr,
    identity: Identity,
    abort: CancellationToken,
    end: CancellationToken,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Identity {
    Unauthenticated,
    Trusted,
    Client(String),
}

/// The right to a slot. Dropping it frees the slot.
#[derive(Debug)]
pub(crate) struct Permit {
    id: u64,
    connections: Arc<Connections>,
    /// Cancelled when the connection must end at once.
    pub abort: CancellationToken,
    /// Cancelled when the connection must end after its responses in flight.
    pub end: CancellationToken,
}

impl Connections {
    pub fn new(limits: ConnectionLimits) -> Arc<Self> {
        Arc::new(Self { limits, slots: Mutex::default() })
    }

    /// A slot for a new connection from `address`. At a limit, another unauthenticated connection is aborted for it.
    pub fn admit(self: &Arc<Self>, address: SocketAddr) -> Permit {
        let address = address.ip().to_canonical();
        let mut slots = self.lock();
        if let Some(id) = slots.unauthenticated_to_abort(address, self.limits) {
            slots.abort(id);
        }
        slots.last_id += 1;
        let (id, abort, end) = (slots.last_id, CancellationToken::new(), CancellationToken::new());
        slots.unauthenticated += 1;
        slots.unauthenticated_by_address.entry(address).or_default().push_back(id);
        slots.by_id.insert(id, Slot { address, identity: Identity::Unauthenticated, abort: abort.clone(), end: end.clone() });
        Permit { id, connections: self.clone(), abort, end }
    }

    fn set_identity(&self, id: u64, identity: Identity) {
        let mut slots = self.lock();
        let Some(slot) = slots.by_id.get_mut(&id).filter(|slot| slot.identity == Identity::Unauthenticated) else { return };
        slot.identity = identity.clone();
        let address = slot.address;
        slots.remove_unauthenticated(id, address);
        let Identity::Client(client) = identity else { return };
        let ids = slots.by_client.entry(client).or_default();
        ids.push_back(id);
        let oldest = if ids.len() > self.limits.per_client { ids.pop_front() } else { None };
        if let Some(slot) = oldest.and_then(|id| slots.by_id.get(&id)) {
            slot.abort.cancel();
        }
    }

    fn reject(&self, id: u64) {
        if let Some(slot) = self.lock().by_id.get(&id).filter(|slot| slot.identity == Identity::Unauthenticated) {
            slot.end.cancel();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slots {
    /// The connection that has to make room for one more from `address`. `None` while there is room.
    fn unauthenticated_to_abort(&self, address: IpAddr, limits: ConnectionLimits) -> Option<u64> {
        let here = self.unauthenticated_by_address.get(&address);
        if let Some(ids) = here.filter(|ids| ids.len() >= limits.unauthenticated_per_address) {
            return ids.front().copied();
        }
        if self.unauthenticated < limits.unauthenticated {
            return None;
        }
        let oldest = self.unauthenticated_by_address.values().filter_map(|ids| Some((ids.len(), *ids.front()?)));
        oldest.max_by_key(|(count, id)| (*count, Reverse(*id))).map(|(_, id)| id)
    }

    /// Aborts a connection. Its slot is free at once, and not only when its task has ended.
    fn abort(&mut self, id: u64) {
        if let Some(slot) = self.remove(id) {
            slot.abort.cancel();
        }
    }

    fn remove(&mut self, id: u64) -> Option<Slot> {
        let slot = self.by_id.remove(&id)?;
        match &slot.identity {
            Identity::Unauthenticated => self.remove_unauthenticated(id, slot.address),
            Identity::Trusted => {}
            Identity::Client(client) => {
                if let Some(ids) = self.by_client.get_mut(client) {
                    ids.retain(|other| *other != id);
                    if ids.is_empty() {
                        self.by_client.remove(client);
                    }
                }
            }
        }
        Some(slot)
    }

    fn remove_unauthenticated(&mut self, id: u64, address: IpAddr) {
        self.unauthenticated = self.unauthenticated.saturating_sub(1);
        if let Some(ids) = self.unauthenticated_by_address.get_mut(&address) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.unauthenticated_by_address.remove(&address);
            }
        }
    }
}

impl Permit {
    pub fn connection(&self) -> Connection {
        Connection { id: self.id, connections: Arc::downgrade(&self.connections) }
    }

    /// Resolves when the connection must end at once: it is unauthenticated after its deadline, or had to make room for a newer one.
    pub async fn wait_for_abort(&self) {
        tokio::select! {
            () = self.abort.cancelled() => return,
            () = tokio::time::sleep(self.connections.limits.authenticate_within) => {}
        }
        let unauthenticated = self.connections.lock().by_id.get(&self.id).is_some_and(|slot| slot.identity == Identity::Unauthenticated);
        if !unauthenticated {
            self.abort.cancelled().await;
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.connections.lock().remove(self.id);
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

    fn aborted(permits: &[Permit]) -> Vec<bool> {
        permits.iter().map(|permit| permit.abort.is_cancelled()).collect()
    }

    #[test]
    fn a_connection_too_many_takes_the_place_of_its_own_addresss_oldest() {
        let connections = connections();
        let permits: Vec<_> = [1, 2, 1, 1].map(|last| connections.admit(at(last))).into();
        assert_eq!(aborted(&permits), [true, false, false, false]);
        assert_eq!(connections.lock().unauthenticated, 3);
        drop(permits);
        assert!(connections.lock().unauthenticated_by_address.is_empty() && connections.lock().by_id.is_empty());
    }

    #[test]
    fn many_addresses_together_lose_their_own_connections_and_not_that_of_one_that_has_a_single_one() {
        let connections = connections();
        let single = connections.admit(at(1));
        let mut others: Vec<_> = [2, 2, 3, 3, 4].map(|last| connections.admit(at(last))).into();
        assert!(!single.abort.is_cancelled());
        assert_eq!(aborted(&others), [true, false, true, false, false]);
        assert_eq!(connections.lock().unauthenticated, 4);
        // Among addresses with as many, the oldest connection goes.
        others.extend([5, 6, 7].map(|last| connections.admit(at(last))));
        assert!(single.abort.is_cancelled());
        assert_eq!(connections.lock().unauthenticated, 4);
    }

    #[test]
    fn an_authenticated_connection_no_longer_counts_as_unauthenticated_and_a_client_keeps_its_newest_connections() {
        let connections = connections();
        let permits: Vec<_> = (0..3)
            .map(|_| {
                let permit = connections.admit(at(1));
                permit.connection().set_client("a");
                permit.connection().set_client("a");
                permit
            })
            .collect();
        assert_eq!(aborted(&permits), [true, false, false]);
        assert_eq!(connections.lock().unauthenticated, 0);
        drop(permits);
        assert!(connections.lock().by_client.is_empty() && connections.lock().by_id.is_empty());
    }

    #[test]
    fn a_rejected_connection_ends_and_an_authenticated_one_stays_whatever_a_later_request_shows() {
        let connections = connections();
        let (unknown, client) = (connections.admit(at(1)), connections.admit(at(1)));
        unknown.connection().reject();
        client.connection().set_client("a");
        client.connection().reject();
        assert!(unknown.end.is_cancelled() && !client.end.is_cancelled());
    }

    #[tokio::test]
    async fn an_unauthenticated_connection_has_a_deadline_and_a_trusted_one_has_none() {
        let limits = ConnectionLimits { authenticate_within: Duration::from_millis(20), ..connections().limits };
        let connections = Connections::new(limits);
        let (unauthenticated, trusted) = (connections.admit(at(1)), connections.admit(at(2)));
        trusted.connection().set_trusted();
        tokio::time::timeout(Duration::from_secs(30), unauthenticated.wait_for_abort()).await.unwrap();
        assert!(tokio::time::timeout(Duration::from_millis(200), trusted.wait_for_abort()).await.is_err());
    }
}
