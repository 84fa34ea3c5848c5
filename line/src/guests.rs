//! Who is connected: how many strangers, for how long, and how many connections one client may have.
//!
//! A connection is a *stranger's* until the service has judged one of its requests and says whose it is, by the [`Guest`] in the request's
//! extensions. Strangers are few, have little time, and few of them come from one address; so whoever can only open connections cannot keep
//! others from opening theirs.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestLimits {
    /// Connections of strangers at once; one more is closed unheard.
    pub strangers: usize,
    /// The same from one address.
    pub strangers_per_address: usize,
    /// How long a connection may stay a stranger's.
    pub prove_within: Duration,
    /// Connections of one client that was named; one more ends its oldest.
    pub connections_each: usize,
}

/// A connection, as the service sees it: in the extensions of each of its requests.
#[derive(Clone, Debug)]
pub struct Guest {
    id: u64,
    guests: Weak<Guests>,
}

impl Guest {
    /// The connection is `who`'s, and may stay. Said again for each request; the first word counts.
    pub fn is(&self, who: &str) {
        if let Some(guests) = self.guests.upgrade() {
            guests.named(self.id, Some(who));
        }
    }

    /// The connection may stay, and is not counted among anybody's.
    pub fn is_trusted(&self) {
        if let Some(guests) = self.guests.upgrade() {
            guests.named(self.id, None);
        }
    }

    /// Nobody that is known here: the connection ends after the answers under way, unless it was named before.
    pub fn is_nobody(&self) {
        if let Some(guests) = self.guests.upgrade() {
            guests.turned_away(self.id);
        }
    }
}

#[derive(Debug)]
pub(crate) struct Guests {
    limits: GuestLimits,
    seats: Mutex<Seats>,
}

#[derive(Debug, Default)]
struct Seats {
    last_id: u64,
    seats: HashMap<u64, Seat>,
    strangers: usize,
    strangers_at: HashMap<IpAddr, usize>,
    of: HashMap<String, VecDeque<u64>>,
}

#[derive(Debug)]
struct Seat {
    address: IpAddr,
    standing: Standing,
    cut: CancellationToken,
    end: CancellationToken,
}

#[derive(Debug, PartialEq, Eq)]
enum Standing {
    Stranger,
    Trusted,
    Named(String),
}

/// A connection's seat, free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    id: u64,
    guests: Arc<Guests>,
    /// End at once.
    pub cut: CancellationToken,
    /// End after the answers under way.
    pub end: CancellationToken,
}

impl Guests {
    pub fn new(limits: GuestLimits) -> Arc<Self> {
        Arc::new(Self { limits, seats: Mutex::default() })
    }

    /// A seat for a connection from here; `None` when strangers, or those of this address, have all of theirs.
    pub fn admit(self: &Arc<Self>, address: SocketAddr) -> Option<Place> {
        let address = address.ip().to_canonical();
        let mut seats = self.lock();
        let here = seats.strangers_at.get(&address).copied().unwrap_or_default();
        if seats.strangers >= self.limits.strangers || here >= self.limits.strangers_per_address {
            return None;
        }
        seats.strangers += 1;
        seats.strangers_at.insert(address, here + 1);
        seats.last_id += 1;
        let (id, cut, end) = (seats.last_id, CancellationToken::new(), CancellationToken::new());
        seats.seats.insert(id, Seat { address, standing: Standing::Stranger, cut: cut.clone(), end: end.clone() });
        Some(Place { id, guests: self.clone(), cut, end })
    }

    fn named(&self, id: u64, who: Option<&str>) {
        let mut seats = self.lock();
        let Some(seat) = seats.seats.get_mut(&id).filter(|seat| seat.standing == Standing::Stranger) else { return };
        seat.standing = who.map_or(Standing::Trusted, |who| Standing::Named(who.to_owned()));
        let address = seat.address;
        seats.one_stranger_less(address);
        let Some(who) = who else { return };
        let theirs = seats.of.entry(who.to_owned()).or_default();
        theirs.push_back(id);
        let oldest = if theirs.len() > self.limits.connections_each { theirs.pop_front() } else { None };
        if let Some(seat) = oldest.and_then(|id| seats.seats.get(&id)) {
            seat.cut.cancel();
        }
    }

    fn turned_away(&self, id: u64) {
        if let Some(seat) = self.lock().seats.get(&id).filter(|seat| seat.standing == Standing::Stranger) {
            seat.end.cancel();
        }
    }

    fn leave(&self, id: u64) {
        let mut seats = self.lock();
        let Some(Seat { address, standing, .. }) = seats.seats.remove(&id) else { return };
        match standing {
            Standing::Stranger => seats.one_stranger_less(address),
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

    fn lock(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seats {
    fn one_stranger_less(&mut self, address: IpAddr) {
        self.strangers = self.strangers.saturating_sub(1);
        if let Some(here) = self.strangers_at.get_mut(&address) {
            *here = here.saturating_sub(1);
            if *here == 0 {
                self.strangers_at.remove(&address);
            }
        }
    }
}

impl Place {
    pub fn guest(&self) -> Guest {
        Guest { id: self.id, guests: Arc::downgrade(&self.guests) }
    }

    /// Resolves when the connection is to be cut: it is still a stranger's after its time, or its client has newer ones.
    pub async fn overstayed(&self) {
        tokio::select! {
            () = self.cut.cancelled() => return,
            () = tokio::time::sleep(self.guests.limits.prove_within) => {}
        }
        let stranger = self.guests.lock().seats.get(&self.id).is_some_and(|seat| seat.standing == Standing::Stranger);
        if !stranger {
            self.cut.cancelled().await;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.guests.leave(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guests() -> Arc<Guests> {
        Guests::new(GuestLimits { strangers: 4, strangers_per_address: 2, prove_within: Duration::from_secs(10), connections_each: 2 })
    }

    fn at(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 1))
    }

    #[test]
    fn one_address_cannot_take_the_seats_of_others_and_all_together_not_more_than_there_are() {
        let guests = guests();
        let first: Vec<_> = (0..2).map(|_| guests.admit(at(1)).unwrap()).collect();
        assert!(guests.admit(at(1)).is_none());
        let second: Vec<_> = (0..2).map(|_| guests.admit(at(2)).unwrap()).collect();
        assert!(guests.admit(at(3)).is_none());
        drop(second);
        assert!(guests.admit(at(3)).is_some());
        drop(first);
        assert!(guests.lock().strangers_at.is_empty() && guests.lock().seats.is_empty());
    }

    #[test]
    fn who_was_named_takes_no_strangers_seat_and_has_so_many_connections() {
        let guests = guests();
        let places: Vec<_> = (0..3)
            .map(|_| {
                let place = guests.admit(at(1)).unwrap();
                place.guest().is("a");
                place.guest().is("a");
                place
            })
            .collect();
        let cut: Vec<_> = places.iter().map(|place| place.cut.is_cancelled()).collect();
        assert_eq!(cut, [true, false, false]);
        assert_eq!(guests.lock().strangers, 0);
        drop(places);
        assert!(guests.lock().of.is_empty() && guests.lock().seats.is_empty());
    }

    #[test]
    fn nobody_is_sent_away_and_somebody_stays_whatever_a_later_request_proves() {
        let guests = guests();
        let (nobody, somebody) = (guests.admit(at(1)).unwrap(), guests.admit(at(1)).unwrap());
        nobody.guest().is_nobody();
        somebody.guest().is("a");
        somebody.guest().is_nobody();
        assert!(nobody.end.is_cancelled() && !somebody.end.is_cancelled());
    }

    #[tokio::test]
    async fn a_stranger_has_so_much_time_and_somebody_all_of_it() {
        let limits = GuestLimits { prove_within: Duration::from_millis(20), ..guests().limits };
        let guests = Guests::new(limits);
        let (stranger, trusted) = (guests.admit(at(1)).unwrap(), guests.admit(at(2)).unwrap());
        trusted.guest().is_trusted();
        tokio::time::timeout(Duration::from_secs(30), stranger.overstayed()).await.unwrap();
        assert!(tokio::time::timeout(Duration::from_millis(200), trusted.overstayed()).await.is_err());
    }
}
