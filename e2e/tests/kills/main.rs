//! Processes are killed, stopped and cut off, at random moments of real work, round after round, and nothing is lost.
//!
//! `YOI_KILL_ROUNDS` (12: one of each kind), `YOI_KILL_SEED`, `YOI_KILL_KINDS` (some kinds only, as in `shim,power`), `YOI_KILL_WITHIN`
//! (seconds, 60: how long all may take to converge, back-off of the kubelet not counted).

mod census;
mod chance;
mod checks;
mod churn;
mod endpoints;
mod evidence;
mod full;
mod inventory;
mod ledger;
mod node;
mod partition;
mod patience;
mod power;
mod reboot;
mod settle;
mod strike;
mod table;
mod world;

use std::time::Instant;

use anyhow::{Result, bail, ensure};

use chance::Chance;
use churn::Churn;
use node::Node;
use strike::Kind;
use table::{Row, Table};
use world::World;

/// A world's log grows, and its model reads all of it each time: after so many rounds another begins.
const ROUNDS_OF_A_WORLD: usize = 12;
/// In so many, at least one tool call is surely at work when its runtime dies.
const MANY_ROUNDS: usize = 36;

fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_doubled_or_left_over_whatever_is_killed() -> Result<()> {
    let rounds = setting("YOI_KILL_ROUNDS").map_or(Ok(12), |text| text.parse())?;
    let seed = match setting("YOI_KILL_SEED") {
        Some(text) => text.parse()?,
        None => u64::from(std::process::id()) ^ std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs(),
    };
    let only = setting("YOI_KILL_KINDS");
    println!("YOI_KILL_SEED={seed}, {rounds} rounds");
    let mut chance = Chance::new(seed);
    let kinds = strike::deal(&mut chance, rounds, only.as_deref())?;
    let node = Node::of_environment()?;
    let mut table = Table::default();
    for (number, kinds) in kinds.chunks(ROUNDS_OF_A_WORLD).enumerate() {
        let mut chance = chance.branch(&format!("world {number}"));
        let world = World::open(&node, &mut chance, true).await?;
        for (turn, kind) in kinds.iter().enumerate() {
            let round = number * ROUNDS_OF_A_WORLD + turn;
            let mut chance = chance.branch(&format!("round {round}"));
            let row = play(&world, turn as u64, *kind, &mut chance).await;
            let row = row.unwrap_or_else(|error| Row::failed(*kind, format!("the round could not be played: {error:#}")));
            let broken = row.broken.clone();
            table.add(round + 1, row);
            if !broken.is_empty() {
                table.print();
                evidence::print(&world).await;
                // What comes after must not stand on this world's ruins.
                if let Err(error) = world.close().await {
                    println!("its world could not be taken away: {error:#}");
                }
                let again = format!("YOI_KILL_SEED={seed} YOI_KILL_ROUNDS={rounds} YOI_KILL_KINDS={}", only.unwrap_or_default());
                bail!("round {} ({}) broke {} promises; again: {again}\n  {}", round + 1, kind.name(), broken.len(), broken.join("\n  "));
            }
        }
        let left = Churn::new(kinds.len() as u64 - 1);
        left.remove(&world.ns).await?;
        world.close().await?;
    }
    table.print();
    // Nothing is proved where nothing happens.
    let (messages, unknown) = table.happened();
    ensure!(messages > 0, "no message was acknowledged in {rounds} rounds");
    ensure!(unknown > 0 || only.is_some() || rounds < MANY_ROUNDS, "no tool call was interrupted in {rounds} rounds");
    Ok(())
}

async fn play(world: &World, turn: u64, kind: Kind, chance: &mut Chance) -> Result<Row> {
    let churn = Churn::new(turn);
    let mut moments = chance.branch("churn");
    world.work(true);
    let struck = async {
        let done = strike::strike(world, kind, chance).await;
        (done, Instant::now())
    };
    let ((done, struck), churned) = tokio::join!(struck, churn.run(&world.ns, &mut moments));
    churned?;
    let (said, mut broken) = done?;
    churn.prove(&world.ns).await?;
    world.work(false);
    world.proof();
    let (mut settled, open) = settle::settle(world, &churn, struck).await?;
    let quiet = open.is_empty();
    broken.extend(open);
    broken.extend(world.broken().await?);
    if quiet {
        let (cleared, left) = world.left_over(&churn).await?;
        settled.cleared = cleared;
        broken.extend(left);
    }
    Ok(Row::of(world, kind, said, settled, broken))
}
