//! How many connections an address holds.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::Peer;

/// Counts connections by address. It knows only addresses that hold one, so that it is never larger
/// than the number of connections.
#[derive(Debug)]
pub(super) struct Crowd {
    most: usize,
    seats: Mutex<HashMap<IpAddr, usize>>,
}

/// A connection's place among those of its address, given back when dropped.
#[derive(Debug)]
pub(super) struct Seat(Option<(Arc<Crowd>, IpAddr)>);

impl Crowd {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            seats: Mutex::default(),
        }
    }

    /// A place for one more connection, unless its address has all it may. The owner's own socket is
    /// not counted.
    pub(super) fn seat(self: &Arc<Self>, peer: Peer) -> Option<Seat> {
        let Some(address) = peer.ip().map(household) else {
            return Some(Seat(None));
        };
        let mut seats = self.seats();
        let taken = seats.entry(address).or_default();
        if *taken >= self.most {
            return None;
        }
        *taken += 1;
        Some(Seat(Some((Arc::clone(self), address))))
    }

    fn seats(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let Some((crowd, address)) = &self.0 else {
            return;
        };
        let mut seats = crowd.seats();
        if let Some(taken) = seats.get_mut(address) {
            *taken -= 1;
            if *taken == 0 {
                seats.remove(address);
            }
        }
    }
}

/// What one subscriber usually has: an IPv4 address, or the network half of an IPv6 address.
fn household(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{net::SocketAddr, sync::Arc};

    use super::{Crowd, Peer};

    fn peer(address: &str) -> Peer {
        Peer::Remote(address.parse::<SocketAddr>().unwrap())
    }

    #[test]
    fn an_address_has_its_share_and_gives_it_back() {
        let crowd = Arc::new(Crowd::new(2));
        let held = [
            crowd.seat(peer("192.0.2.1:1")),
            crowd.seat(peer("[::ffff:192.0.2.1]:2")),
        ];
        assert!(held.iter().all(Option::is_some));
        assert!(crowd.seat(peer("192.0.2.1:3")).is_none());
        assert!(crowd.seat(peer("192.0.2.2:3")).is_some());
        assert!(crowd.seat(Peer::Local { uid: 0 }).is_some());
        drop(held);
        assert!(crowd.seat(peer("192.0.2.1:3")).is_some());
        assert!(crowd.seats().is_empty());
    }

    #[test]
    fn an_ipv6_network_is_one_address() {
        let crowd = Arc::new(Crowd::new(1));
        let _held = crowd.seat(peer("[2001:db8::1]:1")).unwrap();
        assert!(crowd.seat(peer("[2001:db8::ffff:2]:1")).is_none());
        assert!(crowd.seat(peer("[2001:db8:0:1::1]:1")).is_some());
    }
}
