//! Links between nodes, and what is lost with one.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Pod, Service};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use yoi_e2e::local_cluster::LocalCluster;
use yoi_e2e::locks::{self, Lock};
use yoi_e2e::poll_until;
use yoi_e2e::processes::wait_all_ready;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};

use crate::{create_pod, node_names, pod_address, sh, wait_ready};

/// First line of the answer to a request from the machine itself.
async fn request_from_machine(address: &str, port: u16) -> Result<String> {
    let exchange = async {
        let mut stream = TcpStream::connect((address, port)).await?;
        stream.write_all(b"GET /sh HTTP/1.0\r\n\r\n").await?;
        let mut answer = vec![0; 12];
        stream.read_exact(&mut answer).await?;
        anyhow::Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    tokio::time::timeout(Duration::from_secs(5), exchange).await.with_context(|| format!("{address}:{port} does not answer"))?
}

const CURL: &str = "curl -s -m 10 -o /dev/null -w %{http_code}";

#[tokio::test]
async fn pods_of_all_nodes_reach_each_other_each_others_services_and_the_api_server() -> Result<()> {
    let ns = TestNamespace::create("links").await?;
    let nodes = node_names(&ns.client).await?;
    ensure!(nodes.len() >= 3, "this cluster has only {nodes:?}");
    for (number, node) in nodes.iter().enumerate() {
        let name = format!("p{number}");
        create_pod(&ns, node, &name).await?;
        let service = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": name },
            "spec": { "selector": { "app": name }, "ports": [{ "port": 80, "targetPort": 8080 }] } });
        ns.apply(&service.to_string()).await?;
    }
    for (to, node) in nodes.iter().enumerate() {
        let address = pod_address(&ns, &format!("p{to}")).await?;
        let service: Service = ns.get(&format!("p{to}")).await?;
        let service = service.spec.and_then(|spec| spec.cluster_ip).context("a Service without an address")?;
        for from in 0..nodes.len() {
            let from = format!("p{from}");
            // By the Service's name, which the one DNS server of the cluster answers. A Service that is new takes a moment on each node.
            let goal = format!("{from} reaches the Service of p{to} on {node}");
            let line = format!("{CURL} http://p{to}.{}.svc/sh || true", ns.name);
            poll_until(TIMEOUT, &goal, async || Ok((sh(&ns, &from, &line).await? == "200").then_some(()))).await?;
            ensure!(sh(&ns, &from, &format!("{CURL} http://{address}:8080/sh")).await? == "200", "{from} does not reach p{to} on {node}");
        }
        ensure!(request_from_machine(&address, 8080).await? == "HTTP/1.1 200", "the machine does not reach p{to} on {node}");
        ensure!(request_from_machine(&service, 80).await? == "HTTP/1.1 200", "the machine does not reach the Service of p{to} on {node}");
        let answer = sh(&ns, &format!("p{to}"), "curl -sk -m 10 https://kubernetes.default.svc/readyz").await?;
        ensure!(answer == "ok", "p{to} on {node} does not reach the API server: {answer}");
    }
    ns.remove().await
}

#[tokio::test]
async fn a_lost_node_is_not_ready_while_its_processes_run_on_and_comes_back_as_it_was() -> Result<()> {
    let _alone = locks::exclusive(&[Lock::Nodes]).await?;
    let (ns, cluster) = (TestNamespace::create("lost").await?, LocalCluster::from_environment()?);
    let workers = cluster.workers().await?;
    let lost = workers.last().context("no worker")?;
    create_pod(&ns, lost, "there").await?;
    let address = pod_address(&ns, "there").await?;
    ensure!(request_from_machine(&address, 8080).await? == "HTTP/1.1 200", "nothing answers before the loss");

    cluster.node(&["lose", lost]).await?;
    let outcome = check_lost(&ns, &cluster, lost, &address).await;
    cluster.node(&["restore", lost]).await?;
    outcome?;
    wait_ready(&ns.client, lost, "True").await?;
    poll_until(TIMEOUT, "the Pod answers again", async || Ok(request_from_machine(&address, 8080).await.ok())).await?;
    let statuses = ns.get::<Pod>("there").await?.status.and_then(|status| status.container_statuses).unwrap_or_default();
    ensure!(!statuses.is_empty() && statuses.iter().all(|status| status.restart_count == 0), "it is not the same process: {statuses:?}");
    wait_all_ready(&ns.client).await?;
    ns.remove().await
}

async fn check_lost(ns: &TestNamespace, cluster: &LocalCluster, lost: &str, address: &str) -> Result<()> {
    wait_ready(&ns.client, lost, "Unknown").await?;
    ensure!(request_from_machine(address, 8080).await.is_err(), "a Pod of a lost node answers");
    // The processes of the node answer each other.
    let inside = format!("{CURL} http://{address}:8080/sh");
    let answer =
        cluster.run_on_node(lost, &format!("test \"$({inside})\" = 200 && ps ax | grep -c '[h]ttpd -f -p 8080'")).await?.exit_ok()?;
    // It has a child for each connection.
    ensure!(answer.out.trim().parse::<u32>()? >= 1, "the Pod's process does not run on: {answer:?}");
    Ok(())
}
