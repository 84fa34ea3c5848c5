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
pub struct UnauthenticatedLimits {
    /// Connections of strangers at once; one more is closed unheard.
    pub unauthenticated: usize,
    /// The same from one address.
    pub unauthenticated_per_address: usize,
    /// How long a connection may stay a stranger's.
    pub authenticate_within: Duration,
    /// Connections of one client that was named; one more ends its oldest.
    pub connections_per_client: usize,
}

/// A connection, as the service sees it: in the extensions of each of its requests.
#[derive(Clone, Debug)]
pub struct Connection {
    id: u64,
    connections: Weak<Connections>,
}

impl Connection {
    /// The connection is `who`'s, and may stay. Said again for each request; the first word counts.
    pub fn authenticated_as(&self, who: &str) {
        if let Some(connections) = self.connections.upgrade() {
            connections.named(self.id, Some(who));
        }
    }

    /// The connection may stay, and is not counted among anybody's.
    pub fn set_trusted(&self) {
        if let Some(connections) = self.connections.upgrade() {
            connections.named(self.id, None);
        }
    }

    /// Nobody that is known here: the connection ends after the answers under way, unless it was named before.
    pub fn reject(&self) {
        if let Some(connections) = self.connections.upgrade() {
            connections.turned_away(self.id);
        }
    }
}

#[derive(Debug)]
pub(crate) struct Connections {
    limits: UnauthenticatedLimits,
    seats: Mutex<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    last_id: u64,
    seats: HashMap<u64, Slot>,
    unauthenticated: usize,
    unauthenticated_at: HashMap<IpAddr, usize>,
    of: HashMap<String, VecDeque<u64>>,
}

#[derive(Debug)]
struct Slot {
    address: IpAddr,
    standing: Standing,
    cut: CancellationToken,
    end: CancellationToken,
}

#[derive(Debug, PartialEq, Eq)]
enum Standing {
    Unauthenticated,
    Trusted,
    Named(String),
}

/// A connection's seat, free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    id: u64,
    connections: Arc<Connections>,
    /// End at once.
    pub cut: CancellationToken,
    /// End after the answers under way.
    pub end: CancellationToken,
}

impl Connections {
    pub fn new(limits: UnauthenticatedLimits) -> Arc<Self> {
        Arc::new(Self { limits, seats: Mutex::default() })
    }

    /// A seat for a connection from here; `None` when strangers, or those of this address, have all of theirs.
    pub fn admit(self: &Arc<Self>, address: SocketAddr) -> Option<Permit> {
        let address = address.ip().to_canonical();
        let mut seats = self.lock();
        let here = seats.unauthenticated_at.get(&address).copied().unwrap_or_default();
        if seats.unauthenticated >= self.limits.unauthenticated || here >= self.limits.unauthenticated_per_address {
            return None;
        }
        seats.unauthenticated += 1;
        seats.unauthenticated_at.insert(address, here + 1);
        seats.last_id += 1;
        let (id, cut, end) = (seats.last_id, CancellationToken::new(), CancellationToken::new());
        seats.seats.insert(id, Slot { address, standing: Standing::Unauthenticated, cut: cut.clone(), end: end.clone() });
        Some(Permit { id, connections: self.clone(), cut, end })
    }

    fn named(&self, id: u64, who: Option<&str>) {
        let mut seats = self.lock();
        let Some(seat) = seats.seats.get_mut(&id).filter(|seat| seat.standing == Standing::Unauthenticated) else { return };
        seat.standing = who.map_or(Standing::Trusted, |who| Standing::Named(who.to_owned()));
        let address = seat.address;
        seats.release_unauthenticated(address);
        let Some(who) = who else { return };
        let theirs = seats.of.entry(who.to_owned()).or_default();
        theirs.push_back(id);
        let oldest = if theirs.len() > self.limits.connections_per_client { theirs.pop_front() } else { None };
        if let Some(seat) = oldest.and_then(|id| seats.seats.get(&id)) {
            seat.cut.cancel();
        }
    }

    fn turned_away(&self, id: u64) {
        if let Some(seat) = self.lock().seats.get(&id).filter(|seat| seat.standing == Standing::Unauthenticated) {
            seat.end.cancel();
        }
    }

    fn leave(&self, id: u64) {
        let mut seats = self.lock();
        let Some(Slot { address, standing, .. }) = seats.seats.remove(&id) else { return };
        match standing {
            Standing::Unauthenticated => seats.release_unauthenticated(address),
            Standing::Trusted => {}
            Standing::Named(who) => {
                if let Some(theirs) = seats.of.get_mut(&who) {
                    theirs.retain(|seat| *seat != id);
                    if theirs.is_empty() {
                        seats.of.remove(&who);
                    }
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slots {
    fn release_unauthenticated(&mut self, address: IpAddr) {
        self.unauthenticated = self.unauthenticated.saturating_sub(1);
        if let Some(here) = self.unauthenticated_at.get_mut(&address) {
            *here = here.saturating_sub(1);
            if *here == 0 {
                self.unauthenticated_at.remove(&address);
            }
        }
    }
}

impl Permit {
    pub fn guest(&self) -> Connection {
        Connection { id: self.id, connections: Arc::downgrade(&self.connections) }
    }

    /// Resolves when the connection is to be cut: it is still a stranger's after its time, or its client has newer ones.
    pub async fn overstayed(&self) {
        tokio::select! {
            () = self.cut.cancelled() => return,
            () = tokio::time::sleep(self.connections.limits.authenticate_within) => {}
        }
        let stranger = self.connections.lock().seats.get(&self.id).is_some_and(|seat| seat.standing == Standing::Unauthenticated);
        if !stranger {
            self.cut.cancelled().await;
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.connections.leave(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connections() -> Arc<Connections> {
        Connections::new(UnauthenticatedLimits {
            unauthenticated: 4,
            unauthenticated_per_address: 2,
            authenticate_within: Duration::from_secs(10),
            connections_per_client: 2,
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
        assert!(connections.lock().unauthenticated_at.is_empty() && connections.lock().seats.is_empty());
    }

    #[test]
    fn who_was_named_takes_no_strangers_seat_and_has_so_many_connections() {
        let connections = connections();
        let places: Vec<_> = (0..3)
            .map(|_| {
                let place = connections.admit(at(1)).unwrap();
                place.guest().authenticated_as("a");
                place.guest().authenticated_as("a");
                place
            })
            .collect();
        let cut: Vec<_> = places.iter().map(|place| place.cut.is_cancelled()).collect();
        assert_eq!(cut, [true, false, false]);
        assert_eq!(connections.lock().unauthenticated, 0);
        drop(places);
        assert!(connections.lock().of.is_empty() && connections.lock().seats.is_empty());
    }

    #[test]
    fn nobody_is_sent_away_and_somebody_stays_whatever_a_later_request_proves() {
        let connections = connections();
        let (nobody, somebody) = (connections.admit(at(1)).unwrap(), connections.admit(at(1)).unwrap());
        nobody.guest().reject();
        somebody.guest().authenticated_as("a");
        somebody.guest().reject();
        assert!(nobody.end.is_cancelled() && !somebody.end.is_cancelled());
    }

    #[tokio::test]
    async fn a_stranger_has_so_much_time_and_somebody_all_of_it() {
        let limits = UnauthenticatedLimits { authenticate_within: Duration::from_millis(20), ..connections().limits };
        let connections = Connections::new(limits);
        let (stranger, trusted) = (connections.admit(at(1)).unwrap(), connections.admit(at(2)).unwrap());
        trusted.guest().set_trusted();
        tokio::time::timeout(Duration::from_secs(30), stranger.overstayed()).await.unwrap();
        assert!(tokio::time::timeout(Duration::from_millis(200), trusted.overstayed()).await.is_err());
    }
}
