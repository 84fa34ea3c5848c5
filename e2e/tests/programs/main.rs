//! The five programs from npm as agents, against the strict scripted model. Their image is that of `cargo xtask images --programs`, with all of them.

mod script;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use http::Request;
use serde_json::{Value, json};
use yoi_crds::YoiPod;
use yoi_crds::condition::ConditionStatus;
use yoi_e2e::canary::{self, Found};
use yoi_e2e::fixtures::TREE_PATH;
use yoi_e2e::poll_until;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};
use yoi_wire::entry::{Body, RunOutcome};
use yoi_wire::people::LogLine;

use script::{CLAUDE, CODEX, COPILOT, GEMINI, OPENCODE, Program, script};

/// The model's key. It stands in a Secret, and in the arguments of the scripted model.
const KEY: &str = "sk-canary-5b1f0c9d2e";
/// A word that a search that finds no key must find.
const CONTROL: &str = "control-77c1e0";
const LOCK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../xtask/programs/package-lock.json");

/// A namespace with the model of these programs, a project whose agents have their image, and the built-in agent `boss`.
async fn with_boss(test: &str, programs: &[Program]) -> Result<TestNamespace> {
    let ns = TestNamespace::create(test).await?;
    ns.create_model_with_key(&script(programs, TREE_PATH), KEY).await?;
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "model-key" }, "stringData": { "apiKey": KEY } });
    ns.apply(&secret.to_string()).await?;
    ns.create_git_server().await?;
    let env: Vec<Value> = [
        ("GIT_AUTHOR_NAME", "Agent"),
        ("GIT_AUTHOR_EMAIL", "agent@yoi.example"),
        ("GIT_COMMITTER_NAME", "Agent"),
        ("GIT_COMMITTER_EMAIL", "agent@yoi.example"),
    ]
    .map(|(name, value)| json!({ "name": name, "value": value }))
    .into();
    let project = json!({
        "source": { "git": { "url": format!("git://git.{}.svc:9418/project.git", ns.name) } },
        "defaults": { "model": model(&ns, "OpenAI", "scripted", "v1"), "pod": { "image": ns.image("programs")?, "env": env } },
    });
    ns.create_project_with("p", project).await?;
    ns.create_agent("boss", "p", json!({})).await?;
    Ok(ns)
}

fn model(ns: &TestNamespace, provider: &str, name: &str, version: &str) -> Value {
    let url = format!("http://scripted-model.{}.svc:8080/{version}/", ns.name);
    json!({ "provider": provider, "name": name, "baseUrl": url, "authSecretRef": { "name": "model-key", "key": "apiKey" } })
}

async fn create(ns: &TestNamespace, name: &str, program: &Program, more: Value) -> Result<()> {
    let mut spec = json!({
        "agent": { "cli": { "preset": program.name } }, "model": model(ns, program.provider, program.model, program.version),
    });
    if let (Some(spec), Value::Object(more)) = (spec.as_object_mut(), more) {
        spec.extend(more);
    }
    ns.create_agent(name, "p", spec).await
}

/// Waits until so many runs have ended otherwise than by an interruption, and returns how.
async fn wait_runs(ns: &TestNamespace, agent: &str, count: usize) -> Result<Vec<RunOutcome>> {
    let goal = format!("the end of {count} runs");
    let outcomes = |log: &[LogLine]| -> Vec<RunOutcome> {
        let ends = log.iter().filter_map(|line| match &line.entry.body {
            Body::RunEnded(end) if end.outcome != RunOutcome::Interrupted => Some(end.outcome),
            _ => None,
        });
        ends.collect()
    };
    ns.wait_log(agent, &goal, |log| Some(outcomes(log)).filter(|ends| ends.len() >= count)).await
}

async fn expect_finished(ns: &TestNamespace, agent: &str, count: usize) -> Result<()> {
    let ends = wait_runs(ns, agent, count).await?;
    if ends.iter().any(|end| *end != RunOutcome::Finished) {
        let log = ns.yoi(&["log", agent]).await?;
        bail!("not every run of {agent} has finished: {ends:?}\n{}\n{}", log.out, log.err);
    }
    Ok(())
}

/// Waits until an agent has heard these words from another.
async fn wait_heard(ns: &TestNamespace, agent: &str, words: &str) -> Result<()> {
    let is_it = |line: &LogLine| matches!(&line.entry.body, Body::PeerMessage(message) if message.text.contains(words));
    ns.wait_log(agent, words, |log| log.iter().any(is_it).then_some(())).await
}

async fn in_tree(ns: &TestNamespace, pod: &str, command: &str) -> Result<String> {
    let _alone = canary::EXEC.read().await;
    let script = format!("cd {TREE_PATH} && {command}");
    Ok(ns.kubectl(&["exec", pod, "--", "/bin/sh", "-c", &script]).await?.exit_ok()?.out.trim().to_owned())
}

/// The name of the agent's present Pod.
async fn pod_of(ns: &TestNamespace, agent: &str) -> Result<String> {
    let yoipod: YoiPod = ns.get(agent).await?;
    yoipod.status.and_then(|status| status.pod).map(|pod| pod.name).with_context(|| format!("{agent} has no Pod"))
}

/// Reads the file in the tree until it has lines. The first tool call writes it.
async fn wait_begun(ns: &TestNamespace, pod: &str) -> Result<()> {
    let begun = async || Ok((!in_tree(ns, pod, "cat begun.txt").await.unwrap_or_default().is_empty()).then_some(()));
    poll_until(TIMEOUT, "the call has begun", begun).await.map(drop)
}

/// Every request that the model was sent.
async fn requests(ns: &TestNamespace) -> Result<Vec<Value>> {
    let path = format!("/api/v1/namespaces/{}/pods/scripted-model:8080/proxy/requests", ns.name);
    let lines = ns.client.request_text(Request::get(path).body(Vec::new())?).await?;
    lines.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// What the program's own requests say of its version is what the recipe of the image locks, and the strict model has refused none.
async fn expect_version(ns: &TestNamespace, program: &Program) -> Result<()> {
    let lock: Value = serde_json::from_slice(&std::fs::read(LOCK)?)?;
    let version = lock["packages"][format!("node_modules/{}", program.package)]["version"].as_str().context("no version is locked")?;
    let all = requests(ns).await?;
    let refused = all.iter().find(|request| request["status"] != 200);
    ensure!(refused.is_none(), "the model has refused {refused:?}");
    // Copilot's client names itself only, and its instructions name its version.
    let tells = |request: &&Value| {
        let agent = request["headers"]["user-agent"].as_str().unwrap_or_default();
        agent.contains(version) || request["body"].to_string().contains(&format!("Version number: {version}"))
    };
    let (told, count) = (all.iter().filter(tells).count(), all.len());
    // Some are of the built-in agent.
    ensure!(told >= 5 && told + 10 > count, "{told} of {count} requests are of {} {version}", program.name);
    Ok(())
}

/// Looks for the key at random moments until it is dropped, and counts how often.
async fn look_for_key(ns: &TestNamespace, agent: &str, looks: &AtomicUsize) -> Result<()> {
    loop {
        let random = SystemTime::now().duration_since(UNIX_EPOCH)?.subsec_nanos();
        tokio::time::sleep(Duration::from_millis(100 + u64::from(random / 1000 % 900))).await;
        let Ok(pod) = pod_of(ns, agent).await else { continue };
        // The Pod may be gone by now, or not be there yet.
        let Ok(Found { places, processes }) = canary::search_pod(ns, &pod, &[KEY]).await else { continue };
        ensure!(places.is_empty(), "the key stands in {places:?}");
        looks.fetch_add(usize::from(processes > 0), Ordering::Relaxed);
    }
}

/// All that one program does as an agent.
async fn as_an_agent(program: Program) -> Result<()> {
    let ns = with_boss(&format!("program-{}", program.name), &[program]).await?;
    let name = program.name;
    ns.wait_agent_ready("boss").await?;
    create(&ns, "c", &program, json!({})).await?;
    ns.yoi(&["peer", "c", "boss"]).await?.exit_ok()?;
    let looks = AtomicUsize::new(0);
    tokio::select! {
        found = look_for_key(&ns, "c", &looks) => found?,
        done = works(&ns, &program, &looks) => done?,
    }
    let pod = pod_of(&ns, "c").await?;
    canary::expect_found(&ns, &pod, &[CONTROL]).await?;
    canary::expect_in_no_object(&ns, &[&pod, &pod_of(&ns, "boss").await?], &[KEY]).await?;

    create(&ns, "poor", &program, json!({ "task": format!("work as {name}"), "limits": { "tokens": 1 } })).await?;
    let ends = wait_runs(&ns, "poor", 1).await?;
    ensure!(ends == [RunOutcome::LimitReached], "{ends:?}: {}", ns.yoi(&["log", "poor"]).await?.out);
    expect_version(&ns, &program).await?;
    ns.remove().await
}

/// It works, is messaged, killed inside a call, stopped and started, and then works until the key was looked for five times.
async fn works(ns: &TestNamespace, program: &Program, looks: &AtomicUsize) -> Result<()> {
    let name = program.name;
    ns.wait_agent_ready("c").await?;
    ns.wait_condition::<YoiPod>("c", "ScopeEnforced", ConditionStatus::True).await?;
    let send = async |words: &str| ns.yoi(&["send", "c", &format!("{words} as {name}")]).await?.exit_ok();
    send("work").await?;
    expect_finished(ns, "c", 1).await?;
    wait_heard(ns, "boss", &format!("the words of {name}")).await?;
    let pod = pod_of(ns, "c").await?;
    let commit = in_tree(ns, &pod, "git log -1 --format=%s; head -1 README.md; git status --short").await?;
    ensure!(commit == format!("By {name}\n# Changed by {name}"), "{commit}");
    let diff = ns.yoi(&["diff", "c"]).await?.exit_ok()?.out;
    ensure!(diff.contains(&format!("+# Changed by {name}")), "{diff}");

    send("go on").await?;
    expect_finished(ns, "c", 2).await?;

    send("be slow").await?;
    wait_begun(ns, &pod).await?;
    ns.kubectl(&["delete", "pod", &pod, "--grace-period=0", "--force"]).await?.exit_ok()?;
    expect_finished(ns, "c", 3).await?;
    let pod = pod_of(ns, "c").await?;
    let begun = in_tree(ns, &pod, "cat begun.txt; ls ended.txt 2>/dev/null || echo none").await?;
    ensure!(begun == "once\nnone", "the call was repeated or went on: {begun}");

    ns.yoi(&["stop", "c"]).await?.exit_ok()?;
    ns.wait_reason::<YoiPod>("c", "Ready", "Stopped").await?;
    ns.yoi(&["start", "c"]).await?.exit_ok()?;
    ns.wait_agent_ready("c").await?;
    send("go on").await?;
    expect_finished(ns, "c", 4).await?;
    for run in 5.. {
        if looks.load(Ordering::Relaxed) >= 5 {
            break;
        }
        ensure!(run < 15, "the key was looked for only {looks:?} times beside a program");
        send("take a while").await?;
        expect_finished(ns, "c", run).await?;
    }
    Ok(())
}

#[tokio::test]
async fn c27_claude_code_works_as_an_agent_and_survives_its_pod() -> Result<()> {
    as_an_agent(CLAUDE).await
}

#[tokio::test]
async fn c27_codex_works_as_an_agent_and_survives_its_pod() -> Result<()> {
    as_an_agent(CODEX).await
}

#[tokio::test]
async fn c27_gemini_cli_works_as_an_agent_and_survives_its_pod() -> Result<()> {
    as_an_agent(GEMINI).await
}

#[tokio::test]
async fn c27_copilot_cli_works_as_an_agent_and_survives_its_pod() -> Result<()> {
    as_an_agent(COPILOT).await
}

#[tokio::test]
async fn c27_opencode_works_as_an_agent_and_survives_its_pod() -> Result<()> {
    as_an_agent(OPENCODE).await
}

/// The endpoint is named to the program itself, as a login of its own speaks past the proxy, and the agent's model has no key.
#[tokio::test]
async fn claude_code_works_with_a_login_that_was_brought() -> Result<()> {
    let ns = with_boss("program-login", &[CLAUDE]).await?;
    let login = json!({ "claudeAiOauth": {
        "accessToken": KEY, "refreshToken": "none", "expiresAt": 4_102_444_800_000_u64, "scopes": ["user:inference"], "subscriptionType": "max",
    } });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "login" }, "stringData": { "credentials.json": login.to_string() },
    });
    ns.apply(&secret.to_string()).await?;
    let url = format!("http://scripted-model.{}.svc:8080", ns.name);
    let agent = json!({
        "agent": { "cli": { "preset": "claude", "credentialsSecretRef": { "name": "login" } } },
        "model": { "provider": "Anthropic", "name": CLAUDE.model },
        "pod": { "env": [{ "name": "ANTHROPIC_BASE_URL", "value": url }] },
    });
    create(&ns, "c", &CLAUDE, agent).await?;
    ns.wait_agent_ready("c").await?;
    ns.wait_agent_ready("boss").await?;
    ns.yoi(&["peer", "c", "boss"]).await?.exit_ok()?;
    ns.yoi(&["send", "c", "an errand for claude"]).await?.exit_ok()?;
    expect_finished(&ns, "c", 1).await?;
    wait_heard(&ns, "boss", "the words of claude").await?;
    let mut asked = requests(&ns).await?;
    asked.retain(|request| request["body"]["model"] == CLAUDE.model);
    let with_login = asked.iter().filter(|request| request["headers"]["authorization"] == "(set)" && request["status"] == 200).count();
    ensure!(with_login > 0 && with_login == asked.len(), "{with_login} of {} requests are with the login: {asked:?}", asked.len());
    ns.remove().await
}

#[tokio::test]
async fn two_programs_are_peers_of_a_built_in_agent() -> Result<()> {
    let two = [CLAUDE, CODEX];
    let ns = with_boss("program-peers", &two).await?;
    for program in &two {
        create(&ns, program.name, program, json!({})).await?;
        ns.wait_agent_ready(program.name).await?;
        ns.yoi(&["peer", "boss", program.name]).await?.exit_ok()?;
    }
    ns.wait_agent_ready("boss").await?;
    ns.yoi(&["send", "boss", "send them on errands"]).await?.exit_ok()?;
    for program in &two {
        wait_heard(&ns, "boss", &format!("the words of {}", program.name)).await?;
        expect_finished(&ns, program.name, 1).await?;
    }
    ns.remove().await
}
