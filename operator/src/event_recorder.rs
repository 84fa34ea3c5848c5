//! Publishes Events. No reconcile waits for one: an Event says again what a condition says.
//!
//! kube's own recorder waits for the API server, keeps each Event whole for six minutes, and looks at all of them for each one that it publishes: at a hundred
//! Events a second these are tens of thousands.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event as ApiEvent;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::events::{Event, EventType, Reporter};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::log_subject::{LogSubject, log_for};

/// So many are sent at the same time. Those of one object are sent one after the other.
const SENDERS: usize = 8;
/// So many wait for each sender. Those that come then are only logged.
const WAITING: usize = 1024;
/// An Event that comes again within this time is counted on the first, as kubectl's `x3 over 5m` shows it.
const SERIES: Duration = Duration::from_mins(6);
/// Each sender knows at most so many that may come again.
const MOST_SERIES: usize = 2048;

/// Takes Events, and sends them in the background.
pub struct EventRecorder {
    senders: Vec<mpsc::Sender<QueuedEvent>>,
    reporter: Reporter,
    hasher: RandomState,
    under_way: TaskTracker,
}

struct QueuedEvent {
    /// The same for Events that are one series.
    series: u64,
    event: ApiEvent,
    subject: LogSubject,
    _under_way: TaskTrackerToken,
}

impl EventRecorder {
    /// Starts the senders, which end with the recorder. `under_way` waits for what they have not sent yet. Panics outside of a tokio runtime.
    #[must_use]
    pub fn new(client: &Client, reporter: Reporter, under_way: TaskTracker) -> Self {
        let senders = (0..SENDERS).map(|_| {
            let (sender, waiting) = mpsc::channel(WAITING);
            tokio::spawn(send_all(client.clone(), waiting));
            sender
        });
        EventRecorder { senders: senders.collect(), reporter, hasher: RandomState::new(), under_way }
    }

    /// Publishes `event` about an object some time later, or logs that it could not.
    pub fn publish(&self, subject: &LogSubject, event: Event, about: ObjectReference) {
        let now = jiff::Timestamp::now();
        let uid = about.uid.clone().unwrap_or_default();
        let type_ = match event.type_ {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        };
        let series = self.hasher.hash_one((&uid, &event.reason, &event.action, type_));
        let controller = &self.reporter.controller;
        let event = ApiEvent {
            metadata: ObjectMeta {
                namespace: Some(about.namespace.clone().unwrap_or_else(|| "default".to_owned())),
                name: Some(format!("{}.{:x}", about.name.as_ref().unwrap_or(controller), now.as_nanosecond())),
                ..ObjectMeta::default()
            },
            action: Some(event.action),
            reason: Some(event.reason),
            note: event.note,
            type_: Some(type_.to_owned()),
            event_time: Some(MicroTime(now)),
            reporting_controller: Some(controller.clone()),
            reporting_instance: Some(self.reporter.instance.clone().unwrap_or_else(|| controller.clone())),
            regarding: Some(about),
            related: event.secondary,
            ..ApiEvent::default()
        };
        let sender = &self.senders[self.hasher.hash_one(&uid) as usize % SENDERS];
        let queued = QueuedEvent { series, event, subject: subject.clone(), _under_way: self.under_way.token() };
        if let Err(error) = sender.try_send(queued) {
            log_for!(warn, subject, %error, "event not published: too many wait for the API server");
        }
    }
}

/// An Event that was published, and how often since.
struct Published {
    name: String,
    count: i32,
    last: Instant,
}

/// The Events that are counted when they come again.
#[derive(Default)]
struct Series {
    published: HashMap<u64, Published>,
    /// In the order of their first publication.
    order: VecDeque<u64>,
}

impl Series {
    /// Makes room for one more: forgets those that are too old, and the first of too many.
    fn forget_old(&mut self, now: Instant) {
        while let Some(first) = self.order.front() {
            let is_old = self.published.get(first).is_none_or(|published| now.duration_since(published.last) >= SERIES);
            if !is_old && self.order.len() < MOST_SERIES {
                return;
            }
            self.published.remove(first);
            self.order.pop_front();
        }
    }

    /// Takes in that this Event comes now. Returns the name of the one that it is a repetition of, and how often that has come.
    fn count(&mut self, series: u64, name: &str, now: Instant) -> Option<(String, i32)> {
        self.forget_old(now);
        match self.published.entry(series) {
            Entry::Occupied(mut known) if now.duration_since(known.get().last) < SERIES => {
                let known = known.get_mut();
                known.count = known.count.saturating_add(1);
                known.last = now;
                Some((known.name.clone(), known.count))
            }
            Entry::Occupied(mut old) => {
                old.insert(Published { name: name.to_owned(), count: 1, last: now });
                None
            }
            Entry::Vacant(new) => {
                new.insert(Published { name: name.to_owned(), count: 1, last: now });
                self.order.push_back(series);
                None
            }
        }
    }

    /// Further repetitions are counted on the Event of this name.
    fn begin_with(&mut self, series: u64, name: String) {
        if let Some(known) = self.published.get_mut(&series).filter(|known| known.name != name) {
            known.name = name;
            known.count = 1;
        }
    }
}

async fn send_all(client: Client, mut waiting: mpsc::Receiver<QueuedEvent>) {
    let mut series = Series::default();
    while let Some(queued) = waiting.recv().await {
        let name = queued.event.name_any();
        let first = series.count(queued.series, &name, Instant::now());
        match send(&client, &queued.event, first).await {
            Ok(false) => series.begin_with(queued.series, name),
            Ok(true) => {}
            Err(error) => log_for!(warn, &queued.subject, %error, reason = queued.event.reason, "event not published"),
        }
    }
}

/// Returns whether the Event was counted on the first, and not made.
async fn send(client: &Client, event: &ApiEvent, first: Option<(String, i32)>) -> Result<bool, kube::Error> {
    let api: Api<ApiEvent> = Api::namespaced(client.clone(), &event.namespace().unwrap_or_default());
    if let Some((name, count)) = first {
        let body = json!({"series": {"count": count, "lastObservedTime": event.event_time}});
        match api.patch(&name, &PatchParams::default(), &Patch::Merge(&body)).await {
            // It had its time at the API server.
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            answer => return answer.map(|_| true),
        }
    }
    api.create(&PostParams::default(), event).await.map(|_| false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_that_comes_again_is_counted_for_a_while_and_few_are_remembered() {
        let (mut series, begin) = (Series::default(), Instant::now());
        assert_eq!(series.count(1, "a", begin), None);
        assert_eq!(series.count(1, "b", begin + SERIES / 2), Some(("a".to_owned(), 2)));
        assert_eq!(series.count(1, "c", begin + SERIES), Some(("a".to_owned(), 3)), "counted from the last");
        assert_eq!(series.count(1, "d", begin + SERIES * 2), None);
        for other in 2..10_000 {
            series.count(other, "e", begin + SERIES * 2);
        }
        assert!(series.published.len() <= MOST_SERIES && series.order.len() <= MOST_SERIES);
        assert_eq!(series.count(9_999, "f", begin + SERIES * 2), Some(("e".to_owned(), 2)));
    }
}
