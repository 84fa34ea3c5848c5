//! The status of a YoiPeer is one write: whatever becomes of it, both members are bound or none is.

use std::sync::{Arc, Mutex};

use kube::Client;
use kube::runtime::events::Reporter;
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;
use yoi_crds::{YoiPeer, YoiPod};
use yoi_operator::event_recorder::EventRecorder;
use yoi_operator::log_subject::LogSubject;
use yoi_operator::report;
use yoi_plan::peer;
use yoi_plan::visibility::{PeerLink, agent_ref, may_send, visible_agents};

use crate::server::{Requests, conflict, made, refusal, server};

/// What becomes of a write.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Stored,
    Refused,
    Outdated,
    /// It is stored, and the operator never learns it: as if it had crashed before the answer.
    AnswerLost,
}

/// An API server with the YoiPeer `a.b` and the two YoiPods, and an operator that may do one round at a time.
struct Fixture {
    stored: Arc<Mutex<Value>>,
    fate: Arc<Mutex<Fate>>,
    client: Client,
    requests: Requests,
    members: [Option<Arc<YoiPod>>; 2],
}

fn yoipod(name: &str, uid: &str) -> Option<Arc<YoiPod>> {
    Some(Arc::new(made(json!({
        "metadata": {"name": name, "namespace": "ns", "uid": uid},
        "spec": {"projectRef": {"name": "p"}, "agent": {"builtin": {}}},
    }))))
}

impl Fixture {
    fn new() -> Self {
        let stored = Arc::new(Mutex::new(json!({
            "metadata": {"name": "a.b", "namespace": "ns", "uid": "the-uid", "resourceVersion": "1", "generation": 1},
            "spec": {"members": ["a", "b"]},
        })));
        let fate = Arc::new(Mutex::new(Fate::Stored));
        let (object, now) = (Arc::clone(&stored), Arc::clone(&fate));
        let (client, requests) = server(move |request| {
            if request.method != "PATCH" {
                return (201, request.body.clone());
            }
            let (mut object, fate) = (object.lock().expect("the lock"), *now.lock().expect("the lock"));
            if matches!(fate, Fate::Stored | Fate::AnswerLost) {
                object["status"] = request.body["status"].clone();
            }
            match fate {
                Fate::Stored => (200, object.clone()),
                Fate::Outdated => conflict(),
                Fate::Refused | Fate::AnswerLost => refusal(500, "InternalError", "etcd is away"),
            }
        });
        Fixture { stored, fate, client, requests, members: [yoipod("a", "uid-a"), yoipod("b", "uid-b")] }
    }

    fn peer(&self) -> YoiPeer {
        made(self.stored.lock().expect("the lock").clone())
    }

    /// One round of the operator. Returns how many writes of the status it sent.
    async fn reconcile(&self, fate: Fate) -> usize {
        *self.fate.lock().expect("the lock") = fate;
        let object = self.peer();
        let seen = peer::Observed { peer: Arc::new(object.clone()), terminating: false, members: self.members.clone() };
        let plan = peer::plan(&seen, jiff::Timestamp::UNIX_EPOCH);
        assert!(plan.steps.is_empty(), "nothing but the status is ever written: {:?}", plan.steps);
        let recorder = EventRecorder::new(&self.client, Reporter { controller: "yoi-operator".into(), instance: None }, TaskTracker::new());
        self.requests.lock().expect("the lock").clear();
        let after = plan.status.expect("a status");
        let outcome =
            report::write_status(&self.client, &recorder, &LogSubject::of(&object, None), &object, object.status.as_ref(), after).await;
        assert_eq!(outcome.is_ok(), fate == Fate::Stored, "{outcome:?}");
        self.requests.lock().expect("the lock").iter().filter(|request| request.method == "PATCH").count()
    }

    /// The UIDs that are bound. Fails if only one is, or if one member sees the other and not the other way round.
    fn bound(&self) -> Vec<String> {
        let bound: Vec<String> = self.peer().status.unwrap_or_default().members.into_iter().map(|member| member.uid).collect();
        assert!(bound.is_empty() || bound == ["uid-a", "uid-b"], "{bound:?}");
        let [a_sees_b, b_sees_a] = [("uid-a", "a", "b"), ("uid-b", "b", "a")].map(|(uid, name, other)| {
            let link = PeerLink::from(self.peer());
            let caller = agent_ref(&yoipod(name, uid).expect("a YoiPod"));
            let current = format!("uid-{other}");
            let listed = visible_agents(&caller, None, [&link], []).iter().any(|seen| seen.name == other);
            (listed, may_send(&caller, other, Some(&link), Some(&current)).is_ok())
        });
        assert_eq!(a_sees_b, b_sees_a);
        assert_eq!(a_sees_b.0, !bound.is_empty(), "who is bound is listed");
        bound
    }

    fn is_ready(&self) -> bool {
        PeerLink::from(self.peer()).ready
    }
}

#[tokio::test]
async fn a7_both_members_are_bound_by_one_write_and_before_it_none_is() {
    let mut fixture = Fixture::new();
    assert!(fixture.bound().is_empty());
    fixture.members[1] = None;
    assert_eq!(fixture.reconcile(Fate::Stored).await, 1);
    assert!(fixture.bound().is_empty() && !fixture.is_ready(), "one that exists is not bound alone");
    fixture.members[1] = yoipod("b", "uid-b");
    assert_eq!(fixture.reconcile(Fate::Stored).await, 1, "one write binds both");
    assert_eq!((fixture.bound(), fixture.is_ready()), (vec!["uid-a".to_owned(), "uid-b".to_owned()], true));
}

#[tokio::test]
async fn a8_a9_a_status_write_that_fails_binds_nobody_and_when_it_is_retried_both_are_bound_for_good() {
    for fate in [Fate::Refused, Fate::Outdated] {
        let mut fixture = Fixture::new();
        assert_eq!(fixture.reconcile(fate).await, 1);
        assert!(fixture.bound().is_empty() && !fixture.is_ready(), "{fate:?}");
        assert_eq!(fixture.reconcile(Fate::Stored).await, 1);
        assert!(fixture.bound().len() == 2 && fixture.is_ready(), "{fate:?}");
        // A later write, of another state of the members, fails too.
        fixture.members[1] = None;
        assert_eq!(fixture.reconcile(fate).await, 1);
        assert_eq!(fixture.bound().len(), 2, "{fate:?}");
        assert_eq!(fixture.reconcile(Fate::Stored).await, 1);
        assert!(fixture.bound().len() == 2 && !fixture.is_ready(), "{fate:?}");
    }
}

#[tokio::test]
async fn a10_after_a_crash_before_or_after_the_write_both_members_see_the_relation_or_neither_does() {
    // Before the write: nothing was sent. After it: the answer is lost.
    for written in [false, true] {
        let fixture = Fixture::new();
        if written {
            fixture.reconcile(Fate::AnswerLost).await;
        }
        assert_eq!(fixture.bound().len(), if written { 2 } else { 0 });
        let writes = fixture.reconcile(Fate::Stored).await;
        assert_eq!(writes, usize::from(!written), "what the crash left is not written again");
        assert!(fixture.bound().len() == 2 && fixture.is_ready());
    }
}
