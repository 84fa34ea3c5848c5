//! How many connections may be unauthenticated, for how long, and how many connections one client may have.
//!
//! A connection is *unauthenticated* until the service has checked one of its requests and calls [`Connection::set_client`] or
//! [`Connection::set_trusted`] on the [`Connection`] in the request's extensions. Unauthenticated connections are few in all and few per
//! address, and they have a deadline.
//!
//! A new connection takes the place of an older unauthenticated one that has no request in flight: the oldest of its own address, or else of the
//! address that has the most. So clients that only open connections lose their own, however many addresses they have, and a client that sends
//! its request at once is answered. A request in flight is being authenticated. It is not given up for a newcomer: when many clients come at
//! once, the first ones get in.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// The limits on the connections of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Unauthenticated connections at once. One more aborts the oldest of the address that has the most, among those without a request in
    /// flight. The server closes the new one when there is none.
    pub unauthenticated: usize,
    /// Unauthenticated connections at once from one IP address. One more aborts the address's oldest in the same way.
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

    /// The client is known, and may not come in as yet. After so many times the connection ends as by [`Connection::reject`].
    pub fn refuse(&self, most: u32) {
        let Some(connections) = self.connections.upgrade() else { return };
        let refused = connections.lock().by_id.get_mut(&self.id).map_or(0, |slot| {
            slot.refused = slot.refused.saturating_add(1);
            slot.refused
        });
        if refused >= most {
            connections.reject(self.id);
        }
    }

    /// The client is unknown: the connection ends after its responses in flight, unless it is authenticated already.
    pub fn reject(&self) {
        if let Some(connections) = self.connections.upgrade() {
            connections.reject(self.id);
        }
    }
}

impl Connection {
    pub(crate) fn begin_request(&self) -> RequestInFlight {
        self.count_requests(|in_flight| in_flight.saturating_add(1));
        RequestInFlight(self.clone())
    }

    fn count_requests(&self, count: impl Fn(usize) -> usize) {
        if let Some(connections) = self.connections.upgrade()
            && let Some(slot) = connections.lock().by_id.get_mut(&self.id)
        {
            slot.in_flight = count(slot.in_flight);
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
    /// Requests that have no response yet.
    in_flight: usize,
    /// Calls of [`Connection::refuse`].
    refused: u32,
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

    /// A slot for a new connection from `address`. At a limit, another unauthenticated connection is aborted for it. `None` when each of these
    /// has a request in flight.
    pub fn admit(self: &Arc<Self>, address: SocketAddr) -> Option<Permit> {
        let address = address.ip().to_canonical();
        let mut slots = self.lock();
        let here = slots.unauthenticated_by_address.get(&address).map_or(0, VecDeque::len);
        if here >= self.limits.unauthenticated_per_address {
            let oldest = slots.oldest_idle(address)?;
            slots.abort(oldest);
        } else if slots.unauthenticated >= self.limits.unauthenticated {
            let oldest = slots.oldest_idle_of_the_most()?;
            slots.abort(oldest);
        }
        slots.last_id += 1;
        let (id, abort, end) = (slots.last_id, CancellationToken::new(), CancellationToken::new());
        slots.unauthenticated += 1;
        slots.unauthenticated_by_address.entry(address).or_default().push_back(id);
        slots.by_id.insert(
            id,
            Slot { address, identity: Identity::Unauthenticated, in_flight: 0, refused: 0, abort: abort.clone(), end: end.clone() },
        );
        Some(Permit { id, connections: self.clone(), abort, end })
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
    /// The oldest unauthenticated connection of an address that has no request in flight.
    fn oldest_idle(&self, address: IpAddr) -> Option<u64> {
        let ids = self.unauthenticated_by_address.get(&address)?;
        ids.iter().copied().find(|id| self.by_id.get(id).is_some_and(|slot| slot.in_flight == 0))
    }

    /// The same of the address that has the most unauthenticated connections. Among addresses with as many, the oldest connection.
    fn oldest_idle_of_the_most(&self) -> Option<u64> {
        let oldest = self.unauthenticated_by_address.iter().filter_map(|(address, ids)| Some((ids.len(), self.oldest_idle(*address)?)));
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

/// A request of a connection that has no response yet, until it is dropped. It may outlive the connection, and does not hold its slot.
pub(crate) struct RequestInFlight(Connection);

impl Drop for RequestInFlight {
    fn drop(&mut self) {
        self.0.count_requests(|in_flight| in_flight.saturating_sub(1));
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
        let permits: Vec<_> = [1, 2, 1, 1].map(|last| connections.admit(at(last)).unwrap()).into();
        assert_eq!(aborted(&permits), [true, false, false, false]);
        assert_eq!(connections.lock().unauthenticated, 3);
        drop(permits);
        assert!(connections.lock().unauthenticated_by_address.is_empty() && connections.lock().by_id.is_empty());
    }

    #[test]
    fn many_addresses_together_lose_their_own_connections_and_not_that_of_one_that_has_a_single_one() {
        let connections = connections();
        let single = connections.admit(at(1)).unwrap();
        let mut others: Vec<_> = [2, 2, 3, 3, 4].map(|last| connections.admit(at(last)).unwrap()).into();
        assert!(!single.abort.is_cancelled());
        assert_eq!(aborted(&others), [true, false, true, false, false]);
        assert_eq!(connections.lock().unauthenticated, 4);
        // Among addresses with as many, the oldest connection goes.
        others.extend([5, 6, 7].map(|last| connections.admit(at(last)).unwrap()));
        assert!(single.abort.is_cancelled());
        assert_eq!(connections.lock().unauthenticated, 4);
    }

    #[test]
    fn a_request_that_is_being_authenticated_is_not_given_up_for_a_newcomer() {
        let connections = connections();
        let permits: Vec<_> = [1, 1, 2, 2].map(|last| connections.admit(at(last)).unwrap()).into();
        let mut requests: Vec<_> = permits.iter().map(|permit| permit.connection().begin_request()).collect();
        assert!(connections.admit(at(1)).is_none() && connections.admit(at(3)).is_none());
        // A second request of the third connection ends, and then its first one.
        drop(permits[2].connection().begin_request());
        assert!(connections.admit(at(3)).is_none());
        drop(requests.remove(2));
        let _newcomer = connections.admit(at(3)).unwrap();
        assert_eq!(aborted(&permits), [false, false, true, false]);
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
        assert_eq!(aborted(&permits), [true, false, false]);
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

    #[test]
    fn a_connection_that_is_refused_too_often_ends() {
        let connections = connections();
        let permit = connections.admit(at(1)).unwrap();
        permit.connection().refuse(3);
        permit.connection().refuse(3);
        assert!(!permit.end.is_cancelled());
        permit.connection().refuse(3);
        assert!(permit.end.is_cancelled());
    }

    /// tokio's clock stands still while anything can go on, so the days pass at once.
    #[tokio::test(start_paused = true)]
    async fn an_unauthenticated_connection_has_a_deadline_and_a_trusted_one_has_none() {
        let within = Duration::from_secs(20);
        let connections = Connections::new(ConnectionLimits { authenticate_within: within, ..connections().limits });
        let (unauthenticated, trusted) = (connections.admit(at(1)).unwrap(), connections.admit(at(2)).unwrap());
        trusted.connection().set_trusted();
        let began = tokio::time::Instant::now();
        unauthenticated.wait_for_abort().await;
        assert_eq!(began.elapsed().as_secs(), within.as_secs());
        assert!(tokio::time::timeout(within * 10_000, trusted.wait_for_abort()).await.is_err());
    }
}
