//! Counts the requests that reach the agent, and closes to them when the agent goes to rest.
//!
//! # Guarantees
//! It closes only while no request is under way, and a request that comes while that is being decided waits for the decision. So a message is either taken
//! before, or refused with [`RefusalReason::Resting`] and certainly not taken.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::StatusCode;
use http_body_util::BodyExt;
use tokio::sync::watch;
use yoi_wire::hub::RefusalReason;

use crate::refusal::refuse;

/// The gate of a process. A clone is the same gate.
#[derive(Clone, Debug)]
pub struct RequestGate(watch::Sender<GateState>);

/// What may pass, and how much is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateState {
    /// Requests whose response is not over. An attached client is one.
    pub requests: usize,
    opening: Opening,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opening {
    Open,
    /// Requests wait for the decision.
    Deciding,
    Closed,
}

/// A request that is under way until this is dropped.
#[derive(Debug)]
pub struct Admitted(RequestGate);

impl Drop for Admitted {
    fn drop(&mut self) {
        self.0.0.send_modify(|state| state.requests = state.requests.saturating_sub(1));
    }
}

impl Default for RequestGate {
    fn default() -> Self {
        Self(watch::channel(GateState { requests: 0, opening: Opening::Open }).0)
    }
}

impl RequestGate {
    /// Waits for a decision that is being made. `None`: the gate is closed for good.
    pub async fn enter(&self) -> Option<Admitted> {
        let mut changes = self.0.subscribe();
        loop {
            let mut opening = Opening::Closed;
            self.0.send_if_modified(|state| {
                opening = state.opening;
                let is_open = opening == Opening::Open;
                state.requests += usize::from(is_open);
                is_open
            });
            match opening {
                Opening::Open => return Some(Admitted(self.clone())),
                Opening::Closed => return None,
                // `self` holds the sender, so the channel does not close.
                Opening::Deciding => changes.changed().await.ok()?,
            }
        }
    }

    /// Lets requests wait for [`Self::decide`]. False when one is under way: then nothing has changed.
    pub fn begin_to_close(&self) -> bool {
        self.0.send_if_modified(|state| {
            let closes = *state == GateState { requests: 0, opening: Opening::Open };
            if closes {
                state.opening = Opening::Deciding;
            }
            closes
        })
    }

    /// Closes for good, or lets the requests in that wait.
    pub fn decide(&self, closes: bool) {
        self.0.send_modify(|state| state.opening = if closes { Opening::Closed } else { Opening::Open });
    }

    /// Whether it is closed for good.
    pub fn is_closed(&self) -> bool {
        self.0.borrow().opening == Opening::Closed
    }

    /// The state, and every change of it.
    pub fn subscribe(&self) -> watch::Receiver<GateState> {
        self.0.subscribe()
    }
}

/// Passes a request on that counts until its response is over, or refuses it.
pub async fn admit(State(gate): State<RequestGate>, request: Request, next: Next) -> Response {
    let Some(admitted) = gate.enter().await else {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, RefusalReason::Resting, "the agent goes to rest, and nothing was taken");
    };
    next.run(request).await.map(|body| {
        Body::new(body.map_frame(move |frame| {
            let _until_the_end = &admitted;
            frame
        }))
    })
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn r3_a_request_is_under_way_before_the_gate_closes_or_waits_for_the_decision() {
        let gate = RequestGate::default();
        let admitted = gate.enter().await.unwrap();
        assert!(!gate.begin_to_close(), "one is under way");
        drop(admitted);
        assert!(gate.begin_to_close() && !gate.begin_to_close());
        let mut waits = std::pin::pin!(gate.enter());
        assert!(waits.as_mut().now_or_never().is_none(), "nothing is decided");
        gate.decide(false);
        let admitted = waits.await.unwrap();
        assert!(!gate.begin_to_close() && !gate.is_closed());
        drop(admitted);
        assert!(gate.begin_to_close());
        let mut waits = std::pin::pin!(gate.enter());
        assert!(waits.as_mut().now_or_never().is_none());
        gate.decide(true);
        assert!(waits.await.is_none() && gate.is_closed() && gate.enter().await.is_none());
    }
}
