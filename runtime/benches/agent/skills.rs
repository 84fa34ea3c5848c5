//! What 200 skills in its tree cost an agent: at its start, and in the model's window.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::Harness;

const SKILLS: usize = 200;
/// Turns that are not counted.
const WARM: usize = 3;
const TURNS: usize = 40;
const START_BAR: f64 = 1.05;
const WINDOW_TOKENS: u64 = 200_000;
/// The part of the window that their list may have, in hundredths.
const PERCENT: u64 = 2;
const BYTES_PER_TOKEN: u64 = 4;
const SCRIPT: &str = "rules:\n- steps: [{text: Done.}]\n";
const PAUSE: Duration = Duration::from_micros(200);

/// One start, from the process to its first request to the model.
struct Start {
    millis: f64,
    /// Bytes of the system prompt.
    prompt: u64,
}

/// Starts with and without skills take turns in going first.
pub async fn starts() -> Vec<Value> {
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for turn in 0..WARM + TURNS {
        for which in [turn % 2, 1 - turn % 2] {
            let measured = start(if which == 0 { SKILLS } else { 0 }).await;
            if turn >= WARM {
                [&mut with, &mut without][which].push(measured);
            }
        }
    }
    vec![row_of_starts(&with, &without), row_of_tokens(&with, &without)]
}

async fn start(skills: usize) -> Start {
    let mut harness = Harness::new(SCRIPT).await;
    harness.model_settings = json!({ "windowTokens": WINDOW_TOKENS });
    for n in 0..skills {
        let folder = harness.tree().join(format!(".agents/skills/skill-{n}"));
        std::fs::create_dir_all(&folder).unwrap();
        let description = format!(
            "Does the work number {n} as this team wants it done. Use it when somebody asks for work of that kind, and not otherwise."
        );
        let body = "A line of what is to be done, in words that say little and take their place.\n".repeat(24);
        std::fs::write(folder.join("SKILL.md"), format!("---\nname: skill-{n}\ndescription: {description}\n---\n{body}")).unwrap();
    }
    let begun = Instant::now();
    let mut runtime = harness.start(1, Some("go"));
    let request = loop {
        if let Some(request) = harness.requests.lock().unwrap().first().cloned() {
            break request;
        }
        tokio::time::sleep(PAUSE).await;
    };
    let millis = begun.elapsed().as_secs_f64() * 1e3;
    harness.stop(&mut runtime).await;
    Start { millis, prompt: request["messages"][0]["content"].to_string().len() as u64 }
}

fn row_of_starts(with: &[Start], without: &[Start]) -> Value {
    let times = |starts: &[Start]| {
        let mut times: Vec<f64> = starts.iter().map(|start| start.millis).collect();
        times.sort_by(f64::total_cmp);
        (times[times.len() / 2], times[times.len() - 1])
    };
    let ((ours, slowest), (bare, slowest_bare)) = (times(with), times(without));
    let (name, ratio) = (format!("start of an agent with {SKILLS} skills over one with none, to its first request"), ours / bare);
    println!("{name}: {ours:.1} ms over {bare:.1} ms, {ratio:.3}x (bar {START_BAR}x)");
    json!({"name": name, "unit": "ms", "ratio": ratio, "bar": START_BAR,
        "ours": {"n": with.len(), "p50": ours, "p99": slowest}, "bare": {"n": without.len(), "p50": bare, "p99": slowest_bare}})
}

fn row_of_tokens(with: &[Start], without: &[Start]) -> Value {
    let tokens = (with[0].prompt - without[0].prompt) as f64 / BYTES_PER_TOKEN as f64;
    let budget = (WINDOW_TOKENS * PERCENT / 100) as f64;
    let (name, ratio) =
        (format!("tokens of the list of {SKILLS} skills, over {PERCENT} % of a window of {WINDOW_TOKENS}"), tokens / budget);
    println!("{name}: {tokens:.0} over {budget:.0}, {ratio:.3}x (bar 1x)");
    let one = |p50: f64| json!({"n": 1, "p50": p50});
    json!({"name": name, "unit": "tokens", "ratio": ratio, "bar": 1.0, "ours": one(tokens), "bare": one(budget)})
}
