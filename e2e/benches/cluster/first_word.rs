//! `kubectl yoi run --follow` until the agent's first word, which a scripted model says at once, beside the steps of that time.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;
use yoi_crds::YoiPod;
use yoi_e2e::test_namespace::TestNamespace;

use crate::agents::{REPORTED, Step, wait_seen};
use crate::measure::{Row, Samples};
use crate::plugin::Plugin;
use crate::trace::{Trace, is_true};
use crate::warm::{SESSIONS, create_projects, wait_warm};

const RUNS: usize = 12;
const WORD: &str = "Here is the first word.";
const STEPS: [Step; 3] = [("YoiPod made", "agent", |_| true), REPORTED, ("YoiPod Ready", "agent", |o| is_true(o, "Ready"))];

/// What the runs of one project took.
struct Side {
    project: &'static str,
    what: &'static str,
    word: Samples,
    steps: Vec<Samples>,
}

pub async fn run() -> Result<Vec<Row>> {
    let ns = TestNamespace::create("bench-first-word").await?;
    let rules = json!({ "rules": [{ "name": "speak", "when": {}, "steps": [{ "text": WORD }] }] });
    ns.create_model(&serde_json::to_string(&rules)?).await?;
    create_projects(&ns).await?;
    let mut trace = Trace::new();
    trace.follow::<YoiPod>(&ns, "agent");

    let side = |project, what| Side { project, what, word: Samples::default(), steps: vec![Samples::default(); STEPS.len()] };
    let mut sides = [side("warm", "with a warm claim"), side("cold", "with a claim of its own")];
    // The first pair warms up image, caches and connections, and does not count.
    for n in 0..=RUNS {
        wait_warm(&ns, SESSIONS).await?;
        for Side { project, what: _, word, steps } in &mut sides {
            let took = first_word(&ns, project, &format!("{project}{n}"), &trace).await?;
            if n > 0 {
                word.add(took.word);
                steps.iter_mut().zip(took.steps).for_each(|(samples, step)| samples.add(step));
            }
        }
        eprint!("\r  {n} of {RUNS} pairs of runs ");
    }
    eprintln!();
    ns.remove_and_wait().await?;

    let mut rows = vec![];
    for Side { project: _, what, word, steps } in &sides {
        rows.push(Row::without_ratio(&format!("kubectl yoi run, {what}, to the agent's first word"), "ms", word, None));
        let parts = STEPS.iter().zip(steps);
        rows.extend(parts.map(|(step, samples)| Row::without_ratio(&format!("run, {what}: seen after, {}", step.0), "ms", samples, None)));
    }
    rows.iter().for_each(Row::print);
    Ok(rows)
}

struct FirstWord {
    word: Duration,
    steps: Vec<Duration>,
}

/// Runs an agent as a person does. Each time counts from the start of the plugin.
async fn first_word(ns: &TestNamespace, project: &str, name: &str, trace: &Trace) -> Result<FirstWord> {
    trace.clear();
    let since = Instant::now();
    let mut plugin = Plugin::start(ns, &["run", name, "-p", project, "-t", "speak", "--follow"])?;
    let word = loop {
        let line = plugin.line().await.with_context(|| format!("run of {name} ended without a word"))?;
        if line.contains(WORD) {
            break since.elapsed();
        }
    };
    let mut steps = vec![];
    for step in &STEPS {
        steps.push(wait_seen(trace, since, name, step).await?);
    }
    ns.wait_task_complete(name).await?;
    drop(plugin);
    ns.yoi(&["rm", name, "--purge", "--force"]).await?.exit_ok()?;
    ns.wait_gone::<YoiPod>(name).await?;
    Ok(FirstWord { word, steps })
}
