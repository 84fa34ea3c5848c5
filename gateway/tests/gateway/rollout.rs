//! Replicas are replaced while agents send messages.
//!
//! Like in a cluster, new connections go through a Service that learns late which replicas are Ready, and runtimes find replicas through DNS
//! that answers even later. DNS also has the replicas that are not Ready and those that stop.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use yoi_gateway::GatewaySettings;
use yoi_line::{CallError, Dial, KeepPolicy, RequestClient, Resolver};
use yoi_test_support::{assert_no_sooner, eventually};
use yoi_wire::hub::{SendRequest, SendResponse, gateway_api};

use crate::harness::{Replica, TestCluster, quick_settings, wait_for};

/// From a change of readiness until the Service follows it.
const SERVICE_LAG: Duration = Duration::from_millis(300);
/// From the start or end of a replica until DNS tells it.
const DNS_LAG: Duration = Duration::from_millis(1500);

fn settings() -> GatewaySettings {
    GatewaySettings { serve_on: Duration::from_secs(5), lines_within: Duration::from_secs(20), ..quick_settings() }
}

async fn wait_for_a_missing_line(replica: &Replica) {
    let missing = "1 of 1 live agents and readers have no line here yet";
    eventually("the reason", async || (replica.health("/readyz").await.1 == missing).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_is_ready_once_every_live_agent_has_its_line() {
    let cluster = TestCluster::new();
    cluster.agent("a", "u-a", "p-a");
    // Not live, so nobody waits for it.
    cluster.agent("b", "u-b", "p-b");
    let former = cluster.replica().await;
    let _line = cluster.runtime(&[&former], "token-p-a").await;
    cluster.api.wait_until("yoipods", "ns", "a", |pod| pod["status"]["live"]["podUID"] == "p-a").await;

    let replica = cluster.starting_replica(settings()).await;
    wait_for_a_missing_line(&replica).await;
    assert_eq!(replica.health("/readyz").await.0, StatusCode::SERVICE_UNAVAILABLE);
    let line = cluster.runtime(&[&replica], "token-p-a").await;
    replica.wait_ready().await;
    // A line that breaks later does not take the replica out of its Services.
    line.lines.stop().await;
    assert_eq!(replica.health("/readyz").await.0, StatusCode::OK);
}

/// Gateways that replaced each other within seconds left those who read a stopped agent without an answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_is_ready_once_the_reader_of_a_stopped_agent_has_its_line() {
    let cluster = TestCluster::new();
    cluster.put_agent("a", "u-a", "", "Stopped");
    cluster.api.token("token-p-r", "ns", "p-r", "gateway.yoi.dev");
    let mut a = cluster.api.get("yoipods", "ns", "a");
    a["status"]["reader"]["pod"] = serde_json::json!({"name": "a-reader", "uid": "p-r"});
    cluster.api.put("yoipods", a);
    let replica = cluster.starting_replica(settings()).await;
    wait_for_a_missing_line(&replica).await;
    let _reader = cluster.runtime(&[&replica], "token-p-r").await;
    replica.wait_ready().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_does_not_wait_for_ever_for_the_lines_of_agents_that_do_not_come() {
    let cluster = TestCluster::new();
    cluster.agent("a", "u-a", "p-a");
    let former = cluster.replica().await;
    let _line = cluster.runtime(&[&former], "token-p-a").await;
    cluster.api.wait_until("yoipods", "ns", "a", |pod| pod["status"]["live"]["podUID"] == "p-a").await;
    let lines_within = Duration::from_secs(1);
    let began = Instant::now();
    let replica = cluster.starting_replica(GatewaySettings { lines_within, ..settings() }).await;
    replica.wait_ready().await;
    assert_no_sooner(began, lines_within, "readiness");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_stops_is_not_ready_and_serves_on_for_a_while() {
    let cluster = TestCluster::new();
    cluster.agent("a", "u-a", "p-a");
    cluster.agent("b", "u-b", "p-b");
    cluster.peer(("a", "u-a"), ("b", "u-b"));
    let replica = cluster.starting_replica(settings()).await;
    replica.wait_ready().await;
    let _b = cluster.runtime(&[&replica], "token-p-b").await;
    replica.stop.cancel();
    assert_eq!(replica.health("/readyz").await, (StatusCode::SERVICE_UNAVAILABLE, "stopping".to_owned()));
    // On a new connection, as from a client whose Service does not know yet.
    let message = SendRequest { to: "b".into(), message_id: "m1".into(), text: "t".into(), conversation: None };
    cluster.caller(&replica, "token-p-a").post_json::<_, SendResponse>(gateway_api::SEND, &message).await.unwrap();
    wait_for("the end", replica.task).await.unwrap().unwrap();
}

/// A Service: forwards each new connection to one of the replicas that were Ready [`SERVICE_LAG`] ago.
struct Service {
    address: SocketAddr,
    ready: Arc<Mutex<Vec<SocketAddr>>>,
}

impl Service {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let service = Service { address: listener.local_addr().unwrap(), ready: Arc::default() };
        let ready = service.ready.clone();
        tokio::spawn(async move {
            for turn in 0.. {
                let (mut client, _) = listener.accept().await.unwrap();
                let ready = ready.lock().unwrap().clone();
                let Some(target) = ready.get(turn % ready.len().max(1)).copied() else { continue };
                tokio::spawn(async move {
                    if let Ok(mut replica) = TcpStream::connect(target).await {
                        let _ = tokio::io::copy_bidirectional(&mut client, &mut replica).await;
                    }
                });
            }
        });
        service
    }

    /// Follows the readiness of this replica.
    fn follow(&self, replica: &Replica) {
        let (ready, address, health) = (self.ready.clone(), replica.runtimes, replica.health);
        tokio::spawn(async move {
            loop {
                let ok = crate::harness::get_plain(health, "/readyz").await.is_ok_and(|(status, _)| status == StatusCode::OK);
                // It follows late: what it is like, and no wait for anything.
                tokio::time::sleep(SERVICE_LAG).await;
                let mut ready = ready.lock().unwrap();
                ready.retain(|known| *known != address);
                if ok {
                    ready.push(address);
                }
            }
        });
    }
}

fn change_later(dns: &Arc<Mutex<Vec<SocketAddr>>>, change: impl FnOnce(&mut Vec<SocketAddr>) + Send + 'static) -> JoinHandle<()> {
    let dns = dns.clone();
    tokio::spawn(async move {
        // It tells late: what it is like, and no wait for anything.
        tokio::time::sleep(DNS_LAG).await;
        change(&mut dns.lock().unwrap());
    })
}

/// Sends until a message that was sent gets no answer. A call that was not sent may be repeated, as a runtime does.
async fn send(client: &RequestClient, id: String) -> Result<(), CallError> {
    let message = SendRequest { to: "b".into(), message_id: id, text: "t".into(), conversation: None };
    for _ in 0..2 {
        match client.post_json::<_, SendResponse>(gateway_api::SEND, &message).await {
            Err(CallError::Unsent(_)) => {}
            answer => return answer.map(drop),
        }
    }
    client.post_json::<_, SendResponse>(gateway_api::SEND, &message).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_message_fails_while_the_replicas_are_replaced() {
    let cluster = Arc::new(TestCluster::new());
    cluster.agent("a", "u-a", "p-a");
    cluster.agent("b", "u-b", "p-b");
    cluster.peer(("a", "u-a"), ("b", "u-b"));
    let mut replicas = vec![cluster.starting_replica(settings()).await, cluster.starting_replica(settings()).await];
    let service = Service::start().await;
    for replica in &replicas {
        replica.wait_ready().await;
        service.follow(replica);
    }
    let dns = Arc::new(Mutex::new(replicas.iter().map(|replica| replica.runtimes).collect::<Vec<_>>()));
    let answers = dns.clone();
    let resolver = Resolver::from_fn(move || futures::future::ready(Ok(answers.lock().unwrap().clone())));
    let policy = KeepPolicy { resolve_every: Duration::from_millis(300), ..KeepPolicy::default() };
    let mut b = cluster.runtime_with(resolver, policy, 2, cluster.dial(&replicas[0], "token-p-b")).await;
    cluster.api.wait_until("yoipods", "ns", "b", |pod| pod["status"]["live"]["podUID"] == "p-b").await;
    eventually("the Service", async || (service.ready.lock().unwrap().len() >= 2).then_some(())).await;

    let dial = Dial { address: service.address.to_string(), ..cluster.dial(&replicas[0], "token-p-a") };
    let done = tokio_util::sync::CancellationToken::new();
    // One client keeps its connection, as a runtime does. The other opens one for each message.
    let counts = [true, false].map(|_| Arc::new(AtomicUsize::new(0)));
    let senders = [true, false].map(|keeps| {
        let (dial, done, count) = (dial.clone(), done.clone(), counts[usize::from(keeps)].clone());
        tokio::spawn(async move {
            let (mut client, mut sent, mut failed) = (RequestClient::new(dial.clone()), 0, Vec::new());
            // On a slow machine the replicas are replaced before this one has sent much.
            while !done.is_cancelled() || sent <= 50 {
                if !keeps {
                    client = RequestClient::new(dial.clone());
                }
                sent += 1;
                if let Err(error) = send(&client, format!("{keeps}-{sent}")).await {
                    failed.push(error.failure().message);
                }
                count.store(sent, Ordering::Relaxed);
                // Its pace.
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            (sent, failed)
        })
    });
    let mut last_change = None;
    for _ in 0..2 {
        let new = cluster.starting_replica(settings()).await;
        let address = new.runtimes;
        change_later(&dns, move |answer| answer.push(address));
        service.follow(&new);
        new.wait_ready().await;
        // The replacement counts as available only after the Service has it; the former one is stopped a little before.
        let former = replicas.remove(0);
        replicas.push(new);
        let address = former.runtimes;
        former.stop.cancel();
        wait_for("the former replica's end", former.task).await.unwrap().unwrap();
        last_change = Some(change_later(&dns, move |answer| answer.retain(|known| *known != address)));
    }
    // Each sends on while nothing changes any more.
    wait_for("the last change of DNS", last_change.unwrap()).await.unwrap();
    let sent = || counts.each_ref().map(|count| count.load(Ordering::Relaxed));
    let before = sent();
    let sends_on = || sent().iter().zip(before).all(|(now, before)| *now >= before + 50);
    eventually("50 more messages of each", async || sends_on().then_some(())).await;
    done.cancel();
    let mut all = 0;
    for sender in senders {
        let (sent, failed) = wait_for("the sender", sender).await.unwrap();
        assert!(failed.is_empty(), "{} of {sent} messages failed: {:?}", failed.len(), failed.first());
        all += sent;
    }
    let mut received = std::collections::BTreeSet::new();
    while let Ok(message) = b.messages.try_recv() {
        assert!(received.insert(message.message_id), "a message was delivered twice");
    }
    assert!(received.len() == all && all > 100, "{} of {all} messages were delivered", received.len());
}
