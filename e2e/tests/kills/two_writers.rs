//! Promise: while a path is lent, lender and holder never both write below it, whatever process dies between any two states of the loan; afterwards
//! the path is the lender's again, and nothing is left.
//!
//! Two witnesses, one in each Pod, try every 10 ms in every way that there is (`two_writers/witness.c`). Each state of a loan is kept from passing by
//! stopping the process that would end it; meanwhile one is killed, perhaps that one. What was written is read from the node (`two_writers/evidence.rs`).
//!
//! | Variable | Default | Meaning |
//! |---|---|---|
//! | `YOI_WRITER_ROUNDS` | 1 | rounds; the first has a fixed list of deaths, each further one draws its own |
//! | `YOI_KILL_SEED` | random | seed of all random numbers |

mod claim_reader;
mod evidence;
mod scene;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use yoi_crds::YoiPod;
use yoi_crds::workspace::ClaimState;
use yoi_e2e::locks::{self, Lock};
use yoi_e2e::poll_until;
use yoi_e2e::processes::wait_all_ready;
use yoi_e2e::test_namespace::TIMEOUT;
use yoi_wire::hub::Activity;
use yoi_wire::open::Open;

use crate::rng::SeededRng;
use crate::setting;
use evidence::LENDER;
use scene::{MOST_CHILDREN, Scene, Side, Target};

/// What dies in which state.
#[derive(Debug)]
struct Kills {
    reserved: Target,
    fenced: Target,
    active: Vec<Target>,
    reclaiming: Target,
    /// When the holder's last Pod is gone.
    gone: Target,
}

impl Kills {
    /// The ones that decide most: who covers, who says that the loan begins, whoever could open the path by a new container, who ends the holder, who uncovers.
    fn first() -> Kills {
        Kills {
            reserved: Target::Shim,
            fenced: Target::Operator,
            active: vec![Target::RuntimeOf(Side::Lender), Target::Mounter],
            reclaiming: Target::Kubelet,
            gone: Target::Shim,
        }
    }

    fn draw(rng: &mut SeededRng) -> Kills {
        use Target::{Gateway, Kubelet, Mounter, Operator, RuntimeOf, Shim};
        let early = [Operator, Gateway, Shim, Mounter, Kubelet, RuntimeOf(Side::Lender)];
        let mut any = [Operator, Gateway, Shim, Mounter, Kubelet, RuntimeOf(Side::Lender), RuntimeOf(Side::Holder)];
        rng.shuffle(&mut any);
        let active = any[..3].to_vec();
        Kills {
            reserved: *rng.choose(&early),
            fenced: *rng.choose(&early),
            active,
            reclaiming: *rng.choose(&any),
            gone: *rng.choose(&[Operator, Gateway, Shim, Mounter]),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lender_and_holder_never_both_write_whatever_dies_between_two_states_of_a_loan() -> Result<()> {
    let _alone = locks::exclusive(&[Lock::Gateways, Lock::Nodes, Lock::Operator]).await?;
    let rounds: usize = setting("YOI_WRITER_ROUNDS").map_or(Ok(1), |text| text.parse())?;
    let seed = setting("YOI_KILL_SEED").map_or_else(|| Ok(u64::from(std::process::id())), |text| text.parse())?;
    println!("YOI_KILL_SEED={seed}, {rounds} rounds");
    let rng = SeededRng::new(seed);
    for round in 1..=rounds {
        let kills = if round == 1 { Kills::first() } else { Kills::draw(&mut rng.branch(&format!("round {round}"))) };
        println!("round {round}: {kills:?}");
        run_round(&kills).await?;
    }
    Ok(())
}

async fn run_round(kills: &Kills) -> Result<()> {
    let mut scene = Scene::create().await?;
    lend(&mut scene, kills).await?;
    scene.wait_holder_writes().await?;
    for target in &kills.active {
        let killed = kill(&scene, *target).await?;
        wait_restarted(&scene, *target, killed).await?;
        scene.wait_holder_writes().await?;
    }
    take_back(&scene, kills).await?;

    scene.wait_lender_writes().await?;
    scene.wait_uncovered().await?;
    let (writes, held) = (scene.writes().await?, scene.claims.held());
    let broken = evidence::violations(&writes, &held);
    println!("{} lines, {} stores and moves; {held:?}", writes.lines.len(), writes.others.len());
    ensure!(broken.is_empty(), "{} writes break the promise:\n  {}", broken.len(), broken[..broken.len().min(20)].join("\n  "));
    let shown = scene.ns.yoi(&["scope", LENDER]).await?.exit_ok()?.out;
    ensure!(!shown.contains("Active") && !shown.contains("Reclaiming"), "a loan is left: {shown}");
    wait_all_ready(&scene.ns.client).await?;
    scene.ns.remove().await
}

/// Kills all processes of it, and returns how many there were. One that does not run would prove nothing.
async fn kill(scene: &Scene, target: Target) -> Result<usize> {
    let killed = scene.signal(target, "KILL").await?;
    println!("  {} of {target:?} killed", killed);
    ensure!(killed > 0, "no process of {target:?} was running");
    Ok(killed)
}

/// Waits until everything runs again; a witness goes with its container. The kubelet takes a moment to see that a container has ended, so processes are counted.
async fn wait_restarted(scene: &Scene, target: Target, killed: usize) -> Result<()> {
    let goal = format!("{killed} of {target:?} run again");
    poll_until(TIMEOUT, goal, async || Ok((scene.signal(target, "0").await? >= killed).then_some(()))).await?;
    wait_all_ready(&scene.ns.client).await?;
    match target {
        Target::RuntimeOf(Side::Lender) => scene.watch(LENDER).await,
        Target::RuntimeOf(Side::Holder) => scene.watch(&scene.child).await,
        Target::Operator | Target::Gateway | Target::Shim | Target::Mounter | Target::Kubelet => Ok(()),
    }
}

/// Waits until the claim of the child is in this state or a later one; returns whether the loan goes on.
async fn wait_state(scene: &Scene, wanted: ClaimState) -> Result<bool> {
    let goal = format!("the loan to {} is {wanted}", scene.child);
    let goes_on = poll_until(TIMEOUT, goal, async || {
        let state = scene.claims.state(&scene.child);
        Ok(state.filter(|state| *state >= wanted).map(|state| state < ClaimState::Reclaiming || wanted >= ClaimState::Reclaiming))
    });
    Ok(goes_on.await?.0)
}

/// Has the lead lend, while one dies before the path is closed and one before the loan begins. A loan whose request dies is given up, and another one is asked for.
async fn lend(scene: &mut Scene, kills: &Kills) -> Result<()> {
    let (mut reserved, mut fenced) = (Some(kills.reserved), Some(kills.fenced));
    for n in 1..=MOST_CHILDREN {
        scene.name_child(n);
        if lend_to_this_child(scene, &mut reserved, &mut fenced, n).await? {
            return Ok(());
        }
        println!("  the loan to {} was given up", scene.child);
        wait_all_ready(&scene.ns.client).await?;
        scene.watch(LENDER).await?;
    }
    anyhow::bail!("none of {MOST_CHILDREN} loans has begun")
}

/// Returns whether the loan has begun. Who has died is taken. What was stopped goes on, whatever fails.
async fn lend_to_this_child(scene: &Scene, reserved: &mut Option<Target>, fenced: &mut Option<Target>, n: usize) -> Result<bool> {
    // Nobody covers the path, so it stays Reserved.
    scene.signal(Target::Shim, "STOP").await?;
    let asked = async {
        scene.ns.yoi(&["send", LENDER, &scene::request_to_lend(n)]).await?.exit_ok()?;
        wait_state(scene, ClaimState::Reserved).await?;
        kill_once(scene, reserved).await
    };
    let first = asked.await;
    // Nobody says that the loan begins, so it stays Fenced.
    scene.signal(Target::Operator, "STOP").await?;
    scene.signal(Target::Shim, "CONT").await?;
    let closed = async {
        let first = first?;
        Ok::<_, anyhow::Error>(if wait_fenced(scene).await? { (first, kill_once(scene, fenced).await?) } else { (first, None) })
    };
    let died = closed.await;
    scene.signal(Target::Operator, "CONT").await?;
    let (first, second) = died?;
    wait_all_ready(&scene.ns.client).await?;
    if !wait_state(scene, ClaimState::Active).await? {
        wait_state(scene, ClaimState::Released).await?;
        return Ok(false);
    }
    if [first, second].contains(&Some(Target::RuntimeOf(Side::Lender))) {
        scene.watch(LENDER).await?;
    }
    Ok(true)
}

async fn kill_once(scene: &Scene, target: &mut Option<Target>) -> Result<Option<Target>> {
    let target = target.take();
    if let Some(target) = target {
        kill(scene, target).await?;
    }
    Ok(target)
}

/// Waits until the path is closed and its child is there, or the run of the lead that asked for it has ended without.
async fn wait_fenced(scene: &Scene) -> Result<bool> {
    let made = poll_until(TIMEOUT, "the child is made, or the loan is given up", async || {
        let state = scene.claims.state(&scene.child);
        if state.is_some_and(|state| state >= ClaimState::Reclaiming) {
            return Ok(Some(false));
        }
        let child = scene.ns.api::<YoiPod>().get_opt(&scene.child).await?;
        if state == Some(ClaimState::Fenced) && child.is_some() {
            return Ok(Some(true));
        }
        // Its request may have died. Then only the operator gives it up, and that is stopped.
        let lead: YoiPod = scene.ns.get(LENDER).await?;
        let live = lead.status.as_ref().and_then(|status| status.live.as_ref());
        let is_idle = live.is_some_and(|live| live.activity == Open::Known(Activity::Idle));
        Ok((is_idle && child.is_none()).then_some(false))
    });
    Ok(made.await?.0)
}

/// Has the child stopped, while one dies before its Pod is gone and one just after that.
async fn take_back(scene: &Scene, kills: &Kills) -> Result<()> {
    // Nobody ends the holder's container, so the loan stays Reclaiming.
    scene.signal(Target::Kubelet, "STOP").await?;
    let reclaiming = async {
        scene.ns.yoi(&["stop", &scene.child]).await?.exit_ok()?;
        wait_state(scene, ClaimState::Reclaiming).await?;
        kill(scene, kills.reclaiming).await
    };
    let reclaiming = reclaiming.await;
    scene.signal(Target::Kubelet, "CONT").await?;
    reclaiming?;
    let of_child = format!("yoi.dev/yoipod={}", scene.child);
    poll_until(TIMEOUT, "the holder's Pod is gone", async || Ok(scene.ns.list::<Pod>(&of_child).await?.is_empty().then_some(()))).await?;
    kill(scene, kills.gone).await?;
    wait_state(scene, ClaimState::Released).await?;
    wait_all_ready(&scene.ns.client).await?;
    if kills.reclaiming == Target::RuntimeOf(Side::Lender) {
        scene.watch(LENDER).await?;
    }
    Ok(())
}
