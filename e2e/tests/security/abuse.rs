//! The gateway under abuse: messages of other agents are still delivered in time, and the gateway's memory stays bounded.

use std::future::Future;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use futures::future::join_all;
use http::Request;
use http_body_util::{BodyExt, Full};
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use yoi_crds::YoiPeer;
use yoi_crds::condition::ConditionStatus;
use yoi_e2e::local_cluster::LocalCluster;
use yoi_e2e::locks::{self, Lock};
use yoi_e2e::test_namespace::TestNamespace;
use yoi_wire::hub::gateway_api;

use crate::gateway_client::{API, Gateway, RUNTIMES, SERVER, gateways, pod_of, token_of};

const SCRIPT: &str = "rules: [{ steps: [{ text: heard }] }]";
/// Messages that the honest agents send during each attack.
const MESSAGES: usize = 60;
const P99_LIMIT: Duration = Duration::from_secs(1);
/// Attempts of which the best counts: an attack slows down every attempt, other work on the machine only some.
const ATTEMPTS: usize = 3;
/// Limit of the gateway's memory; the chart allows 256 MiB.
const MEMORY_LIMIT: u64 = 192 << 20;
/// Limit of open files: what one address may open at all ports of one replica, and the gateway's own files.
const OPEN_FILES_LIMIT: u64 = 512;

/// Sends as an honest agent's runtime does, over one connection that stays open.
struct HonestAgent {
    sender: hyper::client::conn::http2::SendRequest<Full<Bytes>>,
    token: String,
    count: usize,
}

impl HonestAgent {
    async fn send(&mut self, to: &str) -> Result<Duration> {
        self.count += 1;
        let body =
            json!({ "to": to, "messageId": format!("honest-{}-{}", self.token.len(), self.count), "text": "an honest word" }).to_string();
        let request = Request::post(format!("https://{SERVER}{}", gateway_api::SEND))
            .header("authorization", format!("Bearer {}", self.token))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))?;
        let began = Instant::now();
        let answer = self.sender.send_request(request).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        ensure!(status == 200, "an honest message was refused: {status} {}", String::from_utf8_lossy(&body));
        Ok(began.elapsed())
    }
}

/// Returns the largest resident memory in bytes and the largest number of open files of the gateways' processes.
async fn gateway_usage() -> Result<(u64, u64)> {
    let script = "for p in /proc/[0-9]*; do if grep -qx yoi-gateway $p/comm 2>/dev/null; then \
        echo $(grep VmRSS $p/status | tr -dc 0-9) $(ls $p/fd | wc -l); fi; done";
    let outputs = LocalCluster::from_environment()?.run_on_every_node(script).await?;
    let mut most = (0, 0);
    for line in outputs.iter().flat_map(|(_, output)| output.lines()) {
        let mut numbers = line.split(' ').filter_map(|n| n.parse::<u64>().ok());
        if let (Some(kib), Some(files)) = (numbers.next(), numbers.next()) {
            most = (most.0.max(kib << 10), most.1.max(files));
        }
    }
    ensure!(most.0 > 0, "no node has a gateway: {outputs:?}");
    Ok(most)
}

async fn restart_count(ns: &TestNamespace, gateways: &[Gateway]) -> Result<i32> {
    let pods: Api<Pod> = Api::namespaced(ns.client.clone(), "yoi-system");
    let mut all = 0;
    for gateway in gateways {
        let pod = pods.get(&gateway.pod).await.context("a gateway's Pod is gone")?;
        all += pod.status.and_then(|s| s.container_statuses).into_iter().flatten().map(|c| c.restart_count).sum::<i32>();
    }
    Ok(all)
}

/// A thread for the honest agents alone, so that the attack's own work in this process does not delay them.
static HONEST_THREAD: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| {
    let built = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    built.expect("a thread")
});

/// Runs `attack` while the honest agents send. Returns the sorted times of their messages. Fails when a gateway uses too much memory or too many
/// files.
async fn measure<F: Future<Output = ()>>(what: &str, honest: &mut Vec<HonestAgent>, attack: F) -> Result<Vec<Duration>> {
    let (mut senders, named) = (std::mem::take(honest), what.to_owned());
    let sending = HONEST_THREAD.spawn(async move {
        // Time for the attack to take effect. It goes on until all messages are sent.
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let mut times = Vec::new();
        for _ in 0..MESSAGES {
            for one in &mut senders {
                times.push(one.send("b").await.with_context(|| format!("during {named}"))?);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok::<_, anyhow::Error>((times, senders, gateway_usage().await?))
    });
    let endless = async {
        attack.await;
        std::future::pending::<()>().await
    };
    let (mut times, senders, (memory, files)) = tokio::select! { sent = sending => sent??, () = endless => unreachable!() };
    *honest = senders;
    times.sort();
    let worst = times[(times.len() * 99).div_ceil(100) - 1];
    println!(
        "{what}: n={} p50={:?} p99={worst:?} max={:?}; {} MiB, {files} files",
        times.len(),
        times[times.len() / 2],
        times[times.len() - 1],
        memory >> 20
    );
    ensure!(memory < MEMORY_LIMIT, "{what} makes a gateway hold {} MiB", memory >> 20);
    ensure!(files < OPEN_FILES_LIMIT, "{what} makes a gateway hold {files} files");
    Ok(times)
}

/// Returns the times of the first attempt in which honest messages were quick enough.
async fn measure_best<F: Future<Output = ()>>(what: &str, honest: &mut Vec<HonestAgent>, attack: impl Fn() -> F) -> Result<Vec<Duration>> {
    let mut worst = Duration::ZERO;
    for _ in 0..ATTEMPTS {
        let times = measure(what, honest, attack()).await?;
        worst = times[(times.len() * 99).div_ceil(100) - 1];
        if worst < P99_LIMIT {
            return Ok(times);
        }
    }
    bail!("during {what} an honest message takes {worst:?}, {ATTEMPTS} times in a row")
}

/// Repeats `one` without end, `count` at a time. At most 500 begin each second, because attack and gateway share the cores of a test machine.
async fn repeat<F: Future<Output = Result<()>>>(count: usize, one: impl Fn(usize) -> F) {
    let pause = Duration::from_millis(u64::try_from(2 * count).unwrap_or(u64::MAX).max(20));
    let endless = |n| {
        let one = &one;
        async move {
            loop {
                // The gateway refuses or closes the connection, which is expected.
                let _ = one(n).await;
                tokio::time::sleep(pause).await;
            }
        }
    };
    join_all((0..count).map(endless)).await;
}

async fn send_slow_head(gateway: &Gateway, port: u16, n: usize) -> Result<()> {
    let mut stream = gateway.connect(port, None, n.is_multiple_of(2)).await?;
    for byte in format!("POST {} HTTP/1.1\r\nhost: {SERVER}\r\nx-slow: {}", gateway_api::SEND, "x".repeat(1000)).bytes() {
        stream.write_all(&[byte]).await?;
        stream.flush().await?;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    Ok(())
}

async fn connect_silently(gateway: &Gateway, port: u16) -> Result<()> {
    let mut tcp = TcpStream::connect(gateway.at(port)).await?;
    let mut rest = Vec::new();
    tcp.read_to_end(&mut rest).await?;
    Ok(())
}

async fn send_garbage(gateway: &Gateway, port: u16, n: usize) -> Result<()> {
    let mut tcp = TcpStream::connect(gateway.at(port)).await?;
    // The header of a handshake record and then garbage, or garbage from the start.
    let mut bytes = if n.is_multiple_of(2) { vec![0x16, 3, 1, 0x3f, 0xff] } else { Vec::new() };
    bytes.extend((0..16_384_usize).map(|i| u8::try_from((i * 7919 + n * 104_729) % 251).unwrap_or(0)));
    tcp.write_all(&bytes).await?;
    tcp.read_to_end(&mut Vec::new()).await?;
    Ok(())
}

async fn send_giant_head(gateway: &Gateway, n: usize) -> Result<()> {
    if n.is_multiple_of(2) {
        let mut stream = gateway.connect(RUNTIMES, None, false).await?;
        stream.write_all(format!("POST {} HTTP/1.1\r\nhost: {SERVER}\r\n", gateway_api::SEND).as_bytes()).await?;
        for line in 0..2000 {
            stream.write_all(format!("x-{line}: {}\r\n", "y".repeat(4000)).as_bytes()).await?;
        }
        stream.read_to_end(&mut Vec::new()).await?;
        return Ok(());
    }
    let mut sender = gateway.http2(RUNTIMES).await?;
    let request =
        Request::post(format!("https://{SERVER}{}", gateway_api::SEND)).header("x-giant", "y".repeat(200_000)).body(Full::default())?;
    sender.send_request(request).await?;
    Ok(())
}

/// Sends huge bodies as an authenticated agent.
async fn send_giant_bodies(gateway: &Gateway, token: &str, n: usize) -> Result<()> {
    if n.is_multiple_of(2) {
        let mut stream = gateway.connect(RUNTIMES, None, false).await?;
        let head = format!(
            "POST {} HTTP/1.1\r\nhost: {SERVER}\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\ncontent-length: 1073741824\r\n\r\n",
            gateway_api::SEND
        );
        stream.write_all(head.as_bytes()).await?;
        loop {
            stream.write_all(&[b' '; 16_384]).await?;
        }
    }
    let sender = gateway.http2(RUNTIMES).await?;
    let one = |n: usize| {
        let mut sender = sender.clone();
        async move {
            let body = json!({ "to": "b", "messageId": format!("giant-{n}"), "text": "z".repeat(300_000) }).to_string();
            let request = Request::post(format!("https://{SERVER}{}", gateway_api::SEND))
                .header("authorization", format!("Bearer {token}"))
                .header("content-type", "application/json")
                .body(Full::new(Bytes::from(body)))?;
            sender.send_request(request).await?;
            Ok::<(), anyhow::Error>(())
        }
    };
    join_all((0..64).map(one)).await;
    Ok(())
}

/// Opens streams and resets them at once, as fast as possible.
async fn reset_streams(gateway: &Gateway, token: Option<&str>) -> Result<()> {
    let sender = gateway.http2(RUNTIMES).await?;
    for _ in 0..500 {
        let mut sender = sender.clone();
        sender.ready().await?;
        let mut request = Request::post(format!("https://{SERVER}{}", gateway_api::LIST_PODS)).header("content-type", "application/json");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let asked = sender.send_request(request.body(Full::new(Bytes::from_static(b"{}")))?);
        // One poll sends the request; dropping it resets the stream.
        let _ = tokio::time::timeout(Duration::from_micros(200), asked).await;
    }
    Ok(())
}

async fn send_bogus_token(gateway: &Gateway, n: usize) -> Result<()> {
    let token = format!("eyJhbGciOiJSUzI1NiJ9.eyJhdWQiOlsiZ2F0ZXdheS55b2kuZGV2Il0sInN1YiI6Ing{n}In0.c2lnbmF0dXJl");
    gateway.as_runtime(&token, gateway_api::LIST_PODS, "{}").await.map(drop)
}

/// Sends 200 requests at once, as a runtime does that never waits for answers.
async fn flood(gateway: &Gateway, token: &str, path: &'static str, body: String) -> Result<()> {
    let sender = gateway.http2(RUNTIMES).await?;
    let one = |_| {
        let mut sender = sender.clone();
        let request = Request::post(format!("https://{SERVER}{path}"))
            .header("authorization", format!("Bearer {token}"))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body.clone())));
        async move {
            let answer = sender.send_request(request?).await?;
            answer.into_body().collect().await?;
            Ok::<(), anyhow::Error>(())
        }
    };
    join_all((0..200).map(one)).await;
    Ok(())
}

/// A process, by its node and its id there.
struct NodeProcess {
    node: String,
    pid: String,
}

/// Stops an agent's runtime with SIGSTOP, so that its lines stay open and never answer.
async fn stop_runtime(ns: &TestNamespace, agent: &str) -> Result<NodeProcess> {
    let pod: Pod = ns.get(&pod_of(ns, agent).await?).await?;
    let uid = pod.metadata.uid.context("a Pod without UID")?;
    let node = pod.spec.and_then(|spec| spec.node_name).context("the agent's Pod is on no node")?;
    let script = format!(
        "for p in /proc/[0-9]*; do if grep -qx yoi-runtime $p/comm 2>/dev/null && tr '\\0' '\\n' < $p/environ 2>/dev/null | grep -q {uid}; \
         then kill -STOP ${{p#/proc/}} && echo ${{p#/proc/}}; fi; done"
    );
    let found = LocalCluster::from_environment()?.run_on_node(&node, &script).await?.exit_ok()?.out;
    ensure!(found.split_whitespace().count() == 1, "the runtime of {agent} was not found: {found:?}");
    Ok(NodeProcess { node, pid: found.trim().to_owned() })
}

async fn continue_process(process: &NodeProcess) -> Result<()> {
    LocalCluster::from_environment()?.run_on_node(&process.node, &format!("kill -CONT {}", process.pid)).await?.exit_ok().map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes, and times that other tests disturb: cargo xtask test --all"]
async fn honest_messages_go_through_whatever_unauthenticated_clients_and_hostile_agents_do() -> Result<()> {
    let _alone = locks::exclusive(&[Lock::Gateways]).await?;
    let ns = TestNamespace::create("abuse").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_empty_project("p").await?;
    for name in ["a", "b", "bad", "mute"] {
        ns.create_agent(name, "p", json!({})).await?;
    }
    for name in ["a", "b", "bad", "mute"] {
        ns.wait_agent_ready(name).await?;
    }
    for (one, other) in [("a", "b"), ("bad", "mute"), ("b", "bad")] {
        ns.yoi(&["peer", one, other]).await?.exit_ok()?;
        let (first, second) = if one < other { (one, other) } else { (other, one) };
        ns.wait_condition::<YoiPeer>(&format!("{first}.{second}"), "Ready", ConditionStatus::True).await?;
    }
    let gateways = gateways(&ns).await?;
    let before = restart_count(&ns, &gateways).await?;
    let (token, bad) = (token_of(&ns, "a").await?, token_of(&ns, "bad").await?);
    let mut honest = Vec::new();
    for (n, gateway) in gateways.iter().enumerate() {
        let gateway = gateway.clone();
        let sender = HONEST_THREAD.spawn(async move { gateway.http2(RUNTIMES).await }).await??;
        honest.push(HonestAgent { sender, token: token.clone(), count: n * 1_000_000 });
    }
    let first = &mut honest;
    let mut all = Vec::new();
    measure("nothing", first, async {}).await?;
    let base = gateway_usage().await?;
    let at = |n: usize| &gateways[n % gateways.len()];
    // Each number is small enough for one test machine and larger than what a replica allows one address.
    for port in [RUNTIMES, API, 8080, 8081] {
        all.extend(
            measure_best(&format!("silent connections to port {port}"), first, || repeat(1000, |n| connect_silently(at(n), port))).await?,
        );
    }
    all.extend(
        measure_best("slow heads", first, || repeat(200, |n| send_slow_head(at(n), if n % 3 == 0 { API } else { RUNTIMES }, n))).await?,
    );
    all.extend(
        measure_best("garbage for TLS", first, || repeat(60, |n| send_garbage(at(n), if n % 3 == 0 { API } else { RUNTIMES }, n))).await?,
    );
    all.extend(measure_best("giant heads", first, || repeat(16, |n| send_giant_head(at(n), n))).await?);
    all.extend(measure_best("giant bodies", first, || repeat(16, |n| send_giant_bodies(at(n), &bad, n))).await?);
    all.extend(measure_best("resets by unauthenticated clients", first, || repeat(8, |n| reset_streams(at(n), None))).await?);
    all.extend(measure_best("resets by an agent", first, || repeat(8, |n| reset_streams(at(n), Some(&bad)))).await?);
    all.extend(measure_best("tokens that nobody made", first, || repeat(16, |n| send_bogus_token(at(n), n))).await?);
    all.extend(
        measure_best("an agent that asks without end", first, || repeat(3, |n| flood(at(n), &bad, gateway_api::LIST_PODS, "{}".into())))
            .await?,
    );
    let stopped = stop_runtime(&ns, "mute").await?;
    let message = json!({ "to": "mute", "messageId": "m", "text": "t".repeat(60_000) }).to_string();
    let silent =
        measure_best("a line that never answers", first, || repeat(3, |n| flood(at(n), &bad, gateway_api::SEND, message.clone()))).await;
    continue_process(&stopped).await?;
    all.extend(silent?);
    // A new client from another address gets in while one address uses all that it is allowed.
    let pod = pod_of(&ns, "a").await?;
    let url = format!("https://{SERVER}:{RUNTIMES}{}", gateway_api::LIST_PODS);
    let line = format!(
        "curl -sk -m 10 -o /dev/null -w '%{{http_code}}' -H \"Authorization: Bearer $(cat /var/run/yoi/token)\" -H 'Content-Type: application/json' -d '{{}}' {url}"
    );
    let new_clients = async {
        let mut worst = Duration::ZERO;
        for _ in 0..10 {
            let began = Instant::now();
            let output = ns.kubectl(&["exec", &pod, "--", "/bin/sh", "-c", &line]).await?;
            ensure!(output.out.trim() == "200", "a newcomer is not let in: {output:?}");
            worst = worst.max(began.elapsed());
        }
        Ok(worst)
    };
    let silent_connections = async {
        repeat(1000, |n| connect_silently(at(n), RUNTIMES)).await;
        std::future::pending::<()>().await
    };
    let worst: Result<Duration> = tokio::select! { worst = new_clients => worst, () = silent_connections => unreachable!() };
    println!("a newcomer's request among 1000 silent connections takes at most {:?}, kubectl's own time included", worst?);

    all.sort();
    println!(
        "{} honest messages under abuse: p50={:?} p99={:?}; idle {} MiB",
        all.len(),
        all[all.len() / 2],
        all[all.len() * 99 / 100],
        base.0 >> 20
    );
    ensure!(restart_count(&ns, &gateways).await? == before, "a gateway was restarted");
    for gateway in &gateways {
        let ready =
            ns.kubectl(&["-n", "yoi-system", "wait", "--for=condition=Ready", &format!("pod/{}", gateway.pod), "--timeout=5s"]).await?;
        ensure!(ready.code == 0, "a gateway is not ready: {ready:?}");
    }
    ns.remove().await
}
