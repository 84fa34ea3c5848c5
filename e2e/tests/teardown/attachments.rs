//! People attach to busy agents while the gateways are replaced: what each of them reads is the log.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, stream};
use serde_json::json;
use yoi_e2e::poll_until;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};

use crate::gateway::gateway_pods;
use crate::installation::{Installation, SYSTEM};

const AGENTS: usize = 20;
const ATTACHMENTS: usize = 200;
/// Attached at one time.
const AT_ONCE: usize = 16;
/// The exit code of a command that its time limit has ended.
const TIME_IS_OVER: i32 = 124;

const BUSY: &str = "rules: [{repeat: true, steps: [{toolCalls: [{tool: Shell, args: {command: echo a word}}], delayMs: 1500}]}]";

/// What one attached client printed: the id of each entry.
struct Attached {
    agent: String,
    ids: Vec<String>,
}

/// Attaches for `limit`, or until the agent is stopped.
async fn attach(ns: &TestNamespace, agent: &str, limit: Duration) -> Result<Attached> {
    let output = ns.yoi_for(limit, &["attach", agent, "-o", "name"]).await?;
    ensure!(output.code == 0 || output.code == TIME_IS_OVER, "attach {agent} ended with {}: {}", output.code, output.err);
    ensure!(!output.err.contains("did not come"), "{agent}: {}", output.err);
    // A client that was ended may have been in the middle of its last line.
    let whole = output.out.rfind('\n').map_or("", |at| &output.out[..at]);
    Ok(Attached { agent: agent.to_owned(), ids: whole.lines().map(str::to_owned).collect() })
}

#[tokio::test]
async fn two_hundred_who_attach_to_busy_agents_while_gateways_are_replaced_read_the_log() -> Result<()> {
    let _installation = Installation::lock().await?;
    let ns = TestNamespace::create("attached").await?;
    ns.create_model(BUSY).await?;
    ns.create_empty_project("p").await?;
    let agents: Vec<String> = (0..AGENTS).map(|n| format!("a{n}")).collect();
    for agent in &agents {
        ns.create_agent(agent, "p", json!({ "task": "work", "limits": { "turnsPerRun": 10_000 } })).await?;
    }
    for agent in &agents {
        ns.wait_agent_ready(agent).await?;
    }
    let done = AtomicBool::new(false);
    let by_people = async {
        let attached = stream::iter(0..ATTACHMENTS).map(|n| {
            let (ns, agents) = (&ns, &agents);
            async move {
                // Moments and lengths that no rhythm of agents or gateways shares.
                tokio::time::sleep(Duration::from_millis((n as u64 * 7919) % 900)).await;
                let limit = Duration::from_millis(3_000 + (n as u64 * 104_729) % 9_000);
                attach(ns, &agents[n % AGENTS], limit).await
            }
        });
        let all: Vec<Result<Attached>> = attached.buffer_unordered(AT_ONCE).collect().await;
        done.store(true, Ordering::Relaxed);
        all.into_iter().collect::<Result<Vec<_>>>()
    };
    let rolling = async {
        let mut rolls = 0;
        while !done.load(Ordering::Relaxed) {
            let former = gateway_pods(&ns).await?;
            ns.kubectl(&["-n", SYSTEM, "rollout", "restart", "deployment/yoi-gateway"]).await?.exit_ok()?;
            poll_until(2 * TIMEOUT, "the gateways are replaced", async || {
                let now = gateway_pods(&ns).await?;
                Ok((now.is_disjoint(&former) && now.len() == former.len()).then_some(()))
            })
            .await?;
            rolls += 1;
        }
        anyhow::Ok(rolls)
    };
    // One for each agent stays until its end.
    let staying = async {
        let all = agents.iter().map(|agent| attach(&ns, agent, 5 * TIMEOUT));
        futures::future::join_all(all).await.into_iter().collect::<Result<Vec<_>>>()
    };
    let (stayed, (left, rolls)) = futures::try_join!(staying, async {
        let both = futures::try_join!(by_people, rolling);
        // Those who stay end with the agents, whatever came before.
        ns.yoi(&["stop", "--all", "--wait"]).await?.exit_ok()?;
        both
    })?;
    ensure!(left.len() == ATTACHMENTS && rolls > 0);
    let mut logs = BTreeMap::new();
    for agent in &agents {
        let log: Vec<String> = ns.log(agent).await?.into_iter().map(|line| line.entry.id).collect();
        logs.insert(agent.as_str(), log);
    }
    let mut read = 0;
    for (attached, to_the_end) in left.iter().map(|one| (one, false)).chain(stayed.iter().map(|one| (one, true))) {
        let Attached { agent, ids } = attached;
        let log = &logs[agent.as_str()];
        // What there was before comes from a point of its tail on.
        let Some(first) = ids.first() else { continue };
        let rest = log.iter().position(|id| id == first).map_or(&[][..], |at| &log[at..]);
        ensure!(
            rest.get(..ids.len()) == Some(ids.as_slice()),
            "{agent}: {} lines of {} are not the log's: {ids:?} {log:?}",
            ids.len(),
            log.len()
        );
        // What the process writes as it ends may come after the end of the stream.
        ensure!(!to_the_end || rest.len() - ids.len() <= 1, "{agent}: {} of {} lines came", ids.len(), rest.len());
        read += 1;
    }
    // Who attaches in the moment in which no gateway answers may have to leave before one does.
    ensure!(read > (ATTACHMENTS + AGENTS) * 9 / 10, "only {read} of {} read anything", ATTACHMENTS + AGENTS);
    println!("{read} of {} attachments read, gateways replaced {rolls} times", ATTACHMENTS + AGENTS);
    ns.remove().await.context("the namespace")
}
