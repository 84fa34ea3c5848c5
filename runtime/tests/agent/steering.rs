//! A person who runs, pauses, resumes, cancels, compacts, turns back and sends at random, while the log goes from segment to segment and the process is
//! killed.

use std::collections::BTreeMap;
use std::time::Duration;

use http::StatusCode;
use serde_json::json;
use yoi_test_support::{eventually, in_time, thorough};
use yoi_wire::control::{ControlAction, ControlReason, ControlRequest, ControlResponse};
use yoi_wire::entry::{Body, Entry};
use yoi_wire::hub::runtime_api;

use crate::degraded::invariants::check_no_duplicates;
use crate::gateway::person;
use crate::harness::{Harness, Runtime, kinds, lines, outcomes};
use crate::people::programs_in;

const SCRIPT: &str = "rules:
- when: {lastUserContains: about to be replaced by your summary}
  steps: [{text: Much was done.}]
- repeat: true
  steps:
  - toolCalls: [{tool: Shell, args: {command: 'echo ran >> ran; sleep 0.05'}}]
  - {text: Now the next., toolCalls: [{tool: Shell, args: {command: 'echo ran >> ran'}}, {tool: List, args: {}}], delayMs: 30}
  - {text: A longer sentence about what has been done so far and what is left to do., delayMs: 20}
";

/// Random numbers that a seed repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

struct Person {
    harness: Harness,
    runtime: Runtime,
    generation: u64,
    random: Random,
    asked: u64,
    /// Requests with their answers, since the process began.
    answered: Vec<(ControlRequest, ControlResponse)>,
    /// Messages that were acknowledged.
    sent: Vec<String>,
    /// What the log held when it was last looked at.
    log: Vec<Entry>,
    kills: u64,
}

impl Person {
    async fn ask(&mut self, request: &ControlRequest) -> ControlResponse {
        let body = serde_json::to_vec(request).unwrap();
        let look = async || {
            let asked = self.harness.gateway.try_request_as("jane", "POST", runtime_api::CONTROL, body.clone());
            match in_time("an answer to a request", asked).await {
                Some((StatusCode::OK, body)) => Some(serde_json::from_slice(&body).unwrap()),
                Some((StatusCode::SERVICE_UNAVAILABLE, _)) | None => None,
                Some((status, body)) => panic!("{request:?}: {status} {body:?}"),
            }
        };
        eventually("a request that is taken", look).await
    }

    async fn request(&mut self, action: ControlAction) -> ControlResponse {
        self.asked += 1;
        let request = ControlRequest { id: format!("r{}", self.asked), action };
        let response = self.ask(&request).await;
        assert_eq!(response.id, request.id);
        self.answered.push((request, response.clone()));
        response
    }

    async fn send(&mut self) {
        self.asked += 1;
        let id = format!("m{}", self.asked);
        let look = async || {
            let (status, body) = self.harness.gateway.deliver(&id, person(), "a message").await;
            match status {
                StatusCode::OK => Some(()),
                StatusCode::SERVICE_UNAVAILABLE => None,
                _ => panic!("{status} {body:?}"),
            }
        };
        eventually("a message that is taken", look).await;
        self.sent.push(id);
    }

    async fn rewind(&mut self) {
        let targets = self.request(ControlAction::RewindTargets {}).await;
        let Some(targets) = targets.done.and_then(|done| done.rewind) else { return };
        if targets.inputs.is_empty() {
            return;
        }
        // A late one, so that something of the conversation stays.
        let at = targets.inputs.len() - 1 - self.random.below(targets.inputs.len().min(3) as u64) as usize;
        let (segment, seq, head) = (targets.segment, targets.inputs[at].seq, targets.head);
        let response = self.request(ControlAction::RewindTo { segment, seq, head }).await;
        let reason = response.refused.map(|refused| refused.reason);
        assert!(reason.is_none_or(|reason| reason != ControlReason::Invalid), "{reason:?}");
    }

    /// Asks an earlier question again: it has the same answer.
    async fn ask_again(&mut self) {
        let Some(last) = (self.answered.len() as u64).checked_sub(1) else { return };
        let (request, response) = self.answered[self.random.below(last + 1) as usize].clone();
        // What can be turned back to is a question about now.
        if request.action != (ControlAction::RewindTargets {}) {
            assert_eq!(self.ask(&request).await, response, "{request:?}");
        }
    }

    /// Kills the process, checks what it leaves, and starts the next one.
    async fn kill(&mut self) {
        self.runtime.kill();
        self.check_log();
        self.kills += 1;
        self.generation += 1;
        self.harness.gateway.forget_line();
        self.runtime = self.harness.start(self.generation, None);
        // What the log holds is answered again by the next process, too.
        let log = serde_json::to_string(&self.log).unwrap();
        let in_log = |request: &ControlRequest| log.contains(&format!("\"requestId\":\"{}\"", request.id));
        let durable: Vec<_> = std::mem::take(&mut self.answered)
            .into_iter()
            .filter(|(request, response)| response.done.is_some() && in_log(request))
            .rev()
            .take(3)
            .collect();
        for (request, response) in durable {
            assert_eq!(self.ask(&request).await, response, "after a restart: {request:?}");
        }
    }

    fn check_log(&mut self) {
        let entries = self.harness.entries();
        assert_eq!(entries.get(..self.log.len()), Some(self.log.as_slice()), "the log has lost or changed entries");
        check_no_duplicates(&entries).unwrap();
        let started = entries.iter().filter(|entry| matches!(&entry.body, Body::ToolStarted(start) if start.tool == "Shell")).count();
        assert!(lines(&self.harness.tree().join("ran")) <= started, "a call ran more often than it was started");
        self.log = entries;
    }

    async fn step(&mut self) {
        match self.random.below(24) {
            0..3 => drop(self.request(ControlAction::Run { text: "go on".to_owned() }).await),
            3..7 => self.send().await,
            7..10 => drop(self.request(ControlAction::Pause {}).await),
            10..13 => drop(self.request(ControlAction::Resume {}).await),
            13..15 => {
                let done = self.request(ControlAction::Cancel {}).await.done;
                let tree = self.harness.tree().canonicalize().unwrap();
                // A message that waited may have begun the next run by now.
                let before = self.harness.entries();
                let programs = programs_in(&tree);
                let is_over = before.last().is_some_and(|entry| matches!(entry.body, Body::RunEnded(_)));
                let no_other = || self.harness.entries().len() == before.len();
                assert!(done.is_none() || programs == 0 || !is_over || !no_other(), "a cancelled run has left a process");
            }
            15 => drop(self.request(ControlAction::Compact {}).await),
            16..18 => self.rewind().await,
            18..21 => self.ask_again().await,
            21 => self.kill().await,
            // A person does nothing for a moment; it is no wait for anything.
            _ => tokio::time::sleep(Duration::from_millis(40 + self.random.0 % 200)).await,
        }
    }
}

async fn play(seed: u64, steps: usize) -> (BTreeMap<String, usize>, u64) {
    let harness = Harness::new(SCRIPT).await;
    // Compaction by itself, and a new segment every few turns.
    let manifest_settings = json!({"segmentBytes": 6000, "compaction": {"at": 3000, "keep": 500}});
    let harness = Harness { manifest_settings, limits: json!({"turnsPerRun": 40, "toolSeconds": 30, "toolOutputBytes": 4096}), ..harness };
    let runtime = harness.start(1, None);
    let (random, answered, sent, log) = (Random(seed), Vec::new(), Vec::new(), Vec::new());
    let mut person = Person { harness, runtime, generation: 1, random, asked: 0, answered, sent, log, kills: 0 };
    for _ in 0..steps {
        person.step().await;
    }
    // In the end all that was sent is read, and the last run has its end, once nothing is paused any more.
    let sent = person.sent.clone();
    let is_read = |entries: &[Entry]| {
        sent.iter().all(|id| entries.iter().any(|entry| matches!(&entry.body, Body::Input(input) if input.message_id == *id)))
    };
    let is_over = |entries: &[Entry]| {
        let run = |entry: &&Entry| matches!(entry.body, Body::RunStarted(_) | Body::RunEnded(_));
        entries.iter().rfind(run).is_some_and(|entry| matches!(entry.body, Body::RunEnded(_)))
    };
    eventually("all messages, and the end of the last run", async || {
        person.request(ControlAction::Resume {}).await;
        let entries = person.harness.entries();
        (is_read(&entries) && is_over(&entries)).then_some(())
    })
    .await;
    person.kill().await;
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for entry in &person.log {
        *counts.entry(entry.body.kind().to_owned()).or_default() += 1;
    }
    assert!(!outcomes(&person.log).is_empty(), "{}", kinds(&person.log));
    // It takes signals by then.
    person.request(ControlAction::RewindTargets {}).await;
    assert!(person.runtime.terminate().await.success());
    (counts, person.kills)
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_or_done_twice_whatever_a_person_asks_while_the_process_is_killed_and_segments_end() {
    let seed = std::env::var("YOI_STEERING_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| u64::from(std::process::id()));
    let mut all: BTreeMap<String, usize> = BTreeMap::new();
    let kinds = ["SegmentStarted", "Paused", "Resumed", "Rewound", "CompactionEnded", "RunEnded"];
    let met = |all: &BTreeMap<String, usize>| kinds.iter().all(|kind| all.contains_key(*kind));
    // What is asked is random: three rounds nearly always meet all kinds.
    let rounds = if thorough() { 3 } else { 1 };
    for round in 0..9 {
        if round >= rounds && met(&all) {
            break;
        }
        let seed = seed.wrapping_mul(1009) + round;
        eprintln!("YOI_STEERING_SEED: round {round} plays {seed}");
        let (counts, kills) = play(seed, 120).await;
        eprintln!("{kills} kills, {counts:?}");
        for (kind, count) in counts {
            *all.entry(kind).or_default() += count;
        }
    }
    assert!(met(&all), "not all of {kinds:?}: {all:?}");
}
