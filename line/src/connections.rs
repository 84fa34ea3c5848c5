//! How many connections may be unauthenticated, for how long, and how many connections one client may have.
//!
//! A connection is *unauthenticated* until the service has checked one of its requests and calls [`Connection::set_client`] or
//! [`Connection::set_trusted`] on the [`Connection`] in the request's extensions. Unauthenticated connections are few in all and few per
//! address, and they have a deadline. So a client that can only open connections cannot keep other clients from opening theirs.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// The limits on the connections of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Unauthenticated connections at once. The server closes one more without reading from it.
    pub unauthenticated: usize,
    /// Unauthenticated connections at once from one IP address.
    pub unauthenticated_per_address: usize,
    /// How long a connection may stay unauthenticated.
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

    /// A slot for a new connection from `address`. `None` when the unauthenticated connections, of all or of this address, are at their limit.
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
        slots.by_id.insert(id, Slot { address, identity: Identity::Unauthenticated, abort: abort.clone(), end: end.clone() });
        Some(Permit { id, connections: self.clone(), abort, end })
    }

    fn set_identity(&self, id: u64, identity: Identity) {
        let mut slots = self.lock();
        let Some(slot) = slots.by_id.get_mut(&id).filter(|slot| slot.identity == Identity::Unauthenticated) else { return };
        slot.identity = identity.clone();
        let address = slot.address;
        slots.remove_unauthenticated(address);
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

    fn remove(&self, id: u64) {
        let mut slots = self.lock();
        let Some(Slot { address, identity, .. }) = slots.by_id.remove(&id) else { return };
        match identity {
            Identity::Unauthenticated => slots.remove_unauthenticated(address),
            Identity::Trusted => {}
            Identity::Client(client) => {
                if let Some(ids) = slots.by_client.get_mut(&client) {
                    ids.retain(|other| *other != id);
                    if ids.is_empty() {
                        slots.by_client.remove(&client);
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

    /// Resolves when the connection must end at once: it is unauthenticated after its deadline, or its client has too many newer ones.
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
    fn one_address_cannot_take_the_slots_of_others_and_all_together_stay_within_the_limit() {
        let connections = connections();
        let first: Vec<_> = (0..2).map(|_| connections.admit(at(1)).unwrap()).collect();
        assert!(connections.admit(at(1)).is_none());
        let second: Vec<_> = (0..2).map(|_| connections.admit(at(2)).unwrap()).collect();
        assert!(connections.admit(at(3)).is_none());
        drop(second);
        assert!(connections.admit(at(3)).is_some());
        drop(first);
        assert!(connections.lock().unauthenticated_by_address.is_empty() && connections.lock().by_id.is_empty());
    }

    #[test]
    fn an_authenticated_connection_no_longer_counts_as_unauthenticated_and_a_client_keeps_its_newest_connections() {
        let connections = connections();
        let permits: Vec<_> = (0..3)
            .map(|_| {
                let permit = connections.admit(at(1)).unwrap();
                permit.connection().set_client("a");
                permit.connection().set_client("a");
                permit
            })
            .collect();
        let aborted: Vec<_> = permits.iter().map(|permit| permit.abort.is_cancelled()).collect();
        assert_eq!(aborted, [true, false, false]);
        assert_eq!(connections.lock().unauthenticated, 0);
        drop(permits);
        assert!(connections.lock().by_client.is_empty() && connections.lock().by_id.is_empty());
    }

    #[test]
    fn a_rejected_connection_ends_and_an_authenticated_one_stays_whatever_a_later_request_shows() {
        let connections = connections();
        let (unknown, client) = (connections.admit(at(1)).unwrap(), connections.admit(at(1)).unwrap());
        unknown.connection().reject();
        client.connection().set_client("a");
        client.connection().reject();
        assert!(unknown.end.is_cancelled() && !client.end.is_cancelled());
    }

    #[tokio::test]
    async fn an_unauthenticated_connection_has_a_deadline_and_a_trusted_one_has_none() {
        let limits = ConnectionLimits { authenticate_within: Duration::from_millis(20), ..connections().limits };
        let connections = Connections::new(limits);
        let (unauthenticated, trusted) = (connections.admit(at(1)).unwrap(), connections.admit(at(2)).unwrap());
        trusted.connection().set_trusted();
        tokio::time::timeout(Duration::from_secs(30), unauthenticated.wait_for_abort()).await.unwrap();
        assert!(tokio::time::timeout(Duration::from_millis(200), trusted.wait_for_abort()).await.is_err());
    }
}
