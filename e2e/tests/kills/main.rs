//! Promise: whatever process is killed, stopped or cut off, at any moment, no acknowledged message and no log entry is lost, no tool call runs
//! twice, everything converges, and nothing is left over.
//!
//! Three agents work, clients send messages and read logs, a person steers and attaches to each agent, objects come and go, and a fourth agent rests and is
//! woken by messages (`workload`, `agent_client`, `person`, `churn`, `resting`). Each round injects one
//! fault at random moments (`faults`) and waits until everything is as requested (`convergence`). Then it compares the logs with what clients
//! got (`checks`), and node and API server with the objects that exist (`objects`, `inventory`). A round fails with a sentence for each
//! broken promise and the seed that repeats it.
//!
//! | Variable | Default | Meaning |
//! |---|---|---|
//! | `YOI_KILL_ROUNDS` | 12 | rounds; 12 is one of each kind |
//! | `YOI_KILL_SEED` | random | seed of all random numbers |
//! | `YOI_KILL_KINDS` | all | some kinds only, such as `shim,power` |
//! | `YOI_KILL_WITHIN` | 60 | seconds for convergence, without back-off of Kubernetes |

mod agent_client;
mod checks;
mod churn;
mod convergence;
mod deadlines;
mod endpoints;
mod evidence;
mod faults;
mod full;
mod inventory;
mod node;
mod node_status;
mod objects;
mod partition;
mod person;
mod power;
mod reboot;
mod resting;
mod rng;
mod table;
mod two_writers;
mod workload;

use std::time::Instant;

use anyhow::{Result, bail, ensure};
use yoi_e2e::locks;

use churn::Churn;
use faults::FaultKind;
use node::Node;
use rng::SeededRng;
use table::{Row, Table};
use workload::Workload;

/// After this many rounds a new workload begins: logs grow, and the model gets the whole log with each request.
const ROUNDS_PER_WORKLOAD: usize = 12;
/// In this many rounds, at least one tool call is certainly interrupted.
const MANY_ROUNDS: usize = 36;

fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_doubled_or_left_over_whatever_is_killed() -> Result<()> {
    let _alone = locks::exclusive(&locks::INTACT).await?;
    let rounds = setting("YOI_KILL_ROUNDS").map_or(Ok(12), |text| text.parse())?;
    let seed = match setting("YOI_KILL_SEED") {
        Some(text) => text.parse()?,
        None => u64::from(std::process::id()) ^ std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs(),
    };
    let only = setting("YOI_KILL_KINDS");
    println!("YOI_KILL_SEED={seed}, {rounds} rounds");
    let mut rng = SeededRng::new(seed);
    let kinds = faults::schedule(&mut rng, rounds, only.as_deref())?;
    let node = Node::from_environment()?;
    let mut table = Table::default();
    for (number, kinds) in kinds.chunks(ROUNDS_PER_WORKLOAD).enumerate() {
        let mut rng = rng.branch(&format!("workload {number}"));
        let workload = Workload::create(&node, &mut rng, true).await?;
        for (turn, kind) in kinds.iter().enumerate() {
            let round = number * ROUNDS_PER_WORKLOAD + turn;
            let mut rng = rng.branch(&format!("round {round}"));
            let row = run_round(&workload, turn as u64, *kind, &mut rng).await;
            let row = row.unwrap_or_else(|error| Row::failed(*kind, format!("failed to run the round: {error:#}")));
            let broken = row.broken.clone();
            table.add(round + 1, row);
            if !broken.is_empty() {
                table.print();
                evidence::print(&workload).await;
                // The next test must not run beside this workload.
                if let Err(error) = workload.remove().await {
                    println!("failed to remove its workload: {error:#}");
                }
                let again = format!("YOI_KILL_SEED={seed} YOI_KILL_ROUNDS={rounds} YOI_KILL_KINDS={}", only.unwrap_or_default());
                bail!("round {} ({}) broke {} promises; again: {again}\n  {}", round + 1, kind.name(), broken.len(), broken.join("\n  "));
            }
        }
        let broken = workload.violations_of_resting().await?;
        if !broken.is_empty() {
            table.print();
            if let Err(error) = workload.remove().await {
                println!("failed to remove its workload: {error:#}");
            }
            bail!("{} promises to the agent that rests are broken:\n  {}", broken.len(), broken.join("\n  "));
        }
        let last = Churn::new(kinds.len() as u64 - 1, workload.provider);
        last.remove(&workload.ns).await?;
        workload.remove().await?;
    }
    table.print();
    // A run in which nothing happened proves nothing.
    let (messages, unknown) = table.most_in_one_workload();
    ensure!(messages > 0, "no message was acknowledged in {rounds} rounds");
    ensure!(unknown > 0 || only.is_some() || rounds < MANY_ROUNDS, "no tool call was interrupted in {rounds} rounds");
    Ok(())
}

async fn run_round(workload: &Workload, turn: u64, kind: FaultKind, rng: &mut SeededRng) -> Result<Row> {
    let churn = Churn::new(turn, workload.provider);
    let mut churn_rng = rng.branch("churn");
    workload.set_busy(true);
    let injection = async {
        let done = faults::inject(workload, kind, rng).await;
        (done, Instant::now())
    };
    let ((done, injected_at), churned) = tokio::join!(injection, churn.run(&workload.ns, &mut churn_rng));
    churned?;
    let (actions, mut broken) = done?;
    churn.create_last_fork(&workload.ns).await?;
    workload.set_busy(false);
    workload.request_messages();
    let (mut convergence, pending) = convergence::wait(workload, &churn, injected_at).await?;
    let quiet = pending.is_empty();
    broken.extend(pending);
    broken.extend(workload.violations().await?);
    if quiet {
        let (cleared, left) = workload.leftovers(&churn).await?;
        convergence.cleared = cleared;
        broken.extend(left);
    }
    Ok(Row::new(workload, kind, actions, convergence, broken))
}
