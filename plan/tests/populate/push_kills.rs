//! A pusher that is killed at any moment is done or undone: the branch is where it was or at the agent's commit, and the next attempt ends.

use std::time::{Duration, Instant};

use yoi_test_support::{THOROUGH, thorough};

use crate::kills::Random;
use crate::push::{Site, site};
use crate::pusher::Pusher;

/// `YOI_PUSHER_KILLS` of them, or 6 in a thorough run and 2 otherwise.
fn rounds() -> u64 {
    let usual = if thorough() { 6 } else { 2 };
    std::env::var("YOI_PUSHER_KILLS").map_or(usual, |count| count.parse().expect("YOI_PUSHER_KILLS is a number"))
}

/// Every attempt is a Pod of its own.
fn pod(site: &Site, name: &str, branch: &str) -> Pusher {
    let base = site.project.git(&["rev-parse", "refs/heads/main"]);
    Pusher::private(&site.folder.path().join(name), &site.server, &site.token, branch).with("BASE", &base)
}

#[test]
fn a_pusher_that_is_killed_at_any_moment_is_done_or_undone() {
    let site = site("kills");
    let agent = site.agent();
    let mut random = Random::new();
    for n in 0..20 {
        let content: Vec<u8> = (0..20_000).map(|_| u8::try_from(random.below(256)).unwrap()).collect();
        agent.write(&format!("new/{n}.bin"), content).commit(&format!("commit {n}"));
    }
    let (commit, older) = (agent.head(), site.project.git(&["rev-parse", "HEAD~1"]));
    site.server.answer_pushers(200, agent.sound_answer());
    let begun = Instant::now();
    pod(&site, "fresh", "fresh").expect_pushed();
    let whole = u64::try_from(begun.elapsed().as_millis()).unwrap();
    // Each round sends the objects again.
    site.project.git(&["update-ref", "-d", "refs/heads/fresh"]);
    site.collect_garbage();
    let (mut undone, rounds) = (0, rounds());
    for round in 0..rounds {
        let branch = format!("round-{round}");
        let others = site.refs();
        let before = if round % 2 == 0 { "" } else { older.as_str() };
        if !before.is_empty() {
            site.project.git(&["update-ref", &format!("refs/heads/{branch}"), before]);
        }
        let moments = random.moments((round, rounds), whole);
        let told = format!("round {round}, killed at {moments:?} of {whole} ms");
        for (attempt, moment) in moments.iter().enumerate() {
            let ended = pod(&site, &format!("{branch}-{attempt}"), &branch).run_for(Duration::from_millis(*moment));
            // What was done stays done, and of what was not done nothing is needed.
            site.collect_garbage();
            site.project.git(&["fsck", "--full", "--strict"]);
            let found = site.branch(&branch);
            match ended {
                Some(done) => {
                    assert!(done.succeeded, "{told}: {}", done.words);
                    assert_eq!(found, commit, "{told}: it said that it was done");
                }
                None => {
                    undone += 1;
                    assert!(found == before || found == commit, "{told}: the branch is at {found}");
                }
            }
        }
        let (code, words) = pod(&site, &format!("{branch}-last"), &branch).run();
        assert_eq!(code, 0, "{told}, and never pushed again: {words}");
        assert_eq!(site.branch(&branch), commit, "{told}");
        site.collect_garbage();
        site.project.git(&["fsck", "--full", "--strict"]);
        site.project.git(&["update-ref", "-d", &format!("refs/heads/{branch}")]);
        assert_eq!(site.refs(), others, "{told}: more than the branch has changed");
        site.collect_garbage();
    }
    println!("{rounds} pushers, killed {undone} times; YOI_PUSHER_KILLS or {THOROUGH} ask for more");
    assert!(undone > 0, "no pusher was killed before it was done");
    site.server.expect_no_leak();
}
