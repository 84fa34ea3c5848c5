//! People who are attached to busy agents, and one who follows an agent's events, while the gateways are rolled out anew, again and again.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use serde_json::json;
use yoi_e2e::locks::{self, Lock};
use yoi_e2e::processes::wait_all_ready;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};
use yoi_e2e::{poll_seen, poll_until};
use yoi_wire::control::AttachLine;
use yoi_wire::entry::Entry;

use crate::events::follow_and_compare;

/// The variable with the number of attachments in all.
const COUNT: &str = "YOI_ATTACHMENTS";
/// How many there are to each of three agents where the variable is absent.
const USUAL: usize = 5;
const USUAL_IF_THOROUGH: usize = 10;
const GATEWAY: &str = "deployment/yoi-gateway";

/// Each turn says a sentence, so that there are deltas, and has a call.
fn script() -> String {
    let turns: String = (0..400)
        .map(|turn| {
            format!(
                "  - {{ text: Turn {turn} begins., toolCalls: [{{ tool: Shell, args: {{ command: \"sleep 0.3; echo {turn}\" }} }}] }}\n"
            )
        })
        .collect();
    format!("rules:\n- steps:\n{turns}  - text: Done.\n")
}

/// Between these two.
fn random(least: Duration, most: Duration) -> Duration {
    let share = f64::from(RandomState::new().hash_one(0) as u32) / f64::from(u32::MAX);
    least + (most - least).mul_f64(share)
}

/// What one person has seen of an agent, over all attachments.
#[derive(Default)]
struct Seen {
    entries: Vec<Entry>,
    token: Option<String>,
}

impl Seen {
    /// Adds what an attachment printed. The last line of one that was ended may be cut.
    fn add(&mut self, agent: &str, out: &str) -> Result<()> {
        let whole = out.rfind('\n').map_or("", |end| &out[..end]);
        for line in whole.lines() {
            if let AttachLine::Entry { token, entry } =
                serde_json::from_str(line).with_context(|| format!("not a line of a stream: {line}"))?
            {
                let last = self.entries.last().map_or(0, |entry| entry.seq);
                ensure!(entry.seq == last + 1, "who is attached to {agent} gets entry {} after {last}", entry.seq);
                self.entries.push(*entry);
                self.token = Some(token);
            }
        }
        Ok(())
    }

    fn start(&self) -> [&str; 2] {
        self.token.as_deref().map_or(["--tail", "1000000"], |token| ["--after", token])
    }
}

/// Attaches, leaves at a random moment and attaches again, so many times.
async fn attach(ns: &TestNamespace, agent: &str, times: usize) -> Result<Seen> {
    let mut seen = Seen::default();
    for _ in 0..times {
        let stay = random(Duration::from_millis(300), Duration::from_secs(8));
        let attached = ns.yoi_for(stay, &[&["attach", agent, "-o", "json"][..], &seen.start()].concat()).await?;
        ensure!(attached.code == 124, "the attachment to {agent} ended by itself: {attached:?}");
        seen.add(agent, &attached.out)?;
    }
    Ok(seen)
}

/// Attaches once more, for good, stops the agent meanwhile, and compares what was seen with the log. Returns how many entries there are.
async fn stop_and_compare(ns: &TestNamespace, agent: &str, mut seen: Seen) -> Result<usize> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("lines");
    let path = file.to_str().context("a path that is no text")?;
    let attach = async { ns.yoi_into(path, &[&["attach", agent, "-o", "json"][..], &seen.start()].concat()).await?.exit_ok() };
    let stop = async {
        let first_line = async || Ok(std::fs::metadata(&file).is_ok_and(|lines| lines.len() > 0).then_some(()));
        poll_until(TIMEOUT, "the first line of the attachment", first_line).await?;
        // People stop an agent at any moment.
        tokio::time::sleep(random(Duration::ZERO, Duration::from_secs(3))).await;
        ns.yoi(&["stop", agent]).await?.exit_ok()
    };
    tokio::try_join!(attach, stop)?;
    seen.add(agent, &std::fs::read_to_string(&file)?)?;
    // A gateway that rolls out may not answer at once.
    let log = ns.wait_log(agent, "all entries", |lines| Some(lines.to_vec())).await?;
    let log: Vec<Entry> = log.into_iter().map(|line| line.entry).collect();
    let differs = log.iter().zip(&seen.entries).find(|(log, seen)| log != seen);
    ensure!(differs.is_none(), "of {agent}: log and attachments differ: {differs:?}");
    ensure!(log.len() == seen.entries.len(), "of {agent}: {} entries are in the log, {} were seen", log.len(), seen.entries.len());
    Ok(log.len())
}

/// Rolls the gateways out anew, again and again until the people are done. Returns how often. One takes as
/// long as agents and readers need to dial the new gateways.
async fn roll(ns: &TestNamespace, done: &AtomicBool) -> Result<usize> {
    let mut rolls = 0;
    loop {
        ns.kubectl(&["-n", "yoi-system", "rollout", "restart", GATEWAY]).await?.exit_ok()?;
        poll_seen(2 * TIMEOUT, "the gateways are rolled out", async || {
            let waited = ns.kubectl(&["-n", "yoi-system", "rollout", "status", GATEWAY, "--timeout=60s"]).await?;
            Ok(if waited.code == 0 { Ok(()) } else { Err(waited.err) })
        })
        .await?;
        rolls += 1;
        if done.load(Ordering::Relaxed) {
            return Ok(rolls);
        }
    }
}

#[tokio::test]
async fn f8_p63_who_is_attached_or_follows_events_while_gateways_roll_sees_each_once_until_the_agent_has_stopped() -> Result<()> {
    let per_agent = if yoi_e2e::thorough() { USUAL_IF_THOROUGH } else { USUAL };
    let attachments: usize = std::env::var(COUNT).map_or(Ok(3 * per_agent), |count| count.parse()).context(COUNT)?;
    let _alone = locks::exclusive(&[Lock::Gateways]).await?;
    let ns = TestNamespace::create("attached").await?;
    ns.create_model(&script()).await?;
    ns.create_empty_project("p").await?;
    let agents: Vec<String> = (0..attachments.div_ceil(per_agent)).map(|number| format!("a{number}")).collect();
    for agent in &agents {
        let more = json!({ "task": "be busy", "limits": { "turnsPerRun": 1000 } });
        ns.create_agent(agent, "p", more).await?;
    }
    let begun = Instant::now();
    let done = AtomicBool::new(false);
    let people = async {
        let seen = try_join_all(agents.iter().map(|agent| attach(&ns, agent, per_agent - 1))).await?;
        let entries = try_join_all(agents.iter().zip(seen).map(|(agent, seen)| stop_and_compare(&ns, agent, seen))).await;
        done.store(true, Ordering::Relaxed);
        entries
    };
    let follow = async {
        ns.wait_agent_ready(&agents[0]).await?;
        follow_and_compare(&ns, &agents[0]).await
    };
    let (entries, events, rolls) = tokio::try_join!(people, follow, roll(&ns, &done))?;
    let total: usize = entries.iter().sum();
    eprintln!(
        "{attachments} attachments to {} agents, {rolls} rollouts, {total} entries, {events} events of one, {:.0?}",
        agents.len(),
        begun.elapsed()
    );
    ensure!(entries.iter().all(|count| *count > 20), "the agents were not busy: {entries:?}");
    wait_all_ready(&ns.client).await?;
    ns.remove().await
}
