//! Generated histories arrive on the server as they are in the agent's tree: object by object, and nothing beside them.

use yoi_test_support::{THOROUGH, thorough};

use crate::generated_history::{GeneratedHistory, histories, objects_of};
use crate::push::site;

#[test]
fn generated_histories_are_on_the_server_object_by_object() {
    let site = site("histories");
    let agent = site.agent();
    let histories = histories(if thorough() { 6 } else { 2 });
    for seed in 0..histories {
        let history = GeneratedHistory::new(seed, &agent.base);
        history.import(agent.folder());
        agent.git(&["symbolic-ref", "HEAD", &format!("refs/heads/{}", history.branch)]);
        let (commit, before) = (agent.head(), site.refs());
        site.server.answer_pushers(200, agent.sound_answer());
        assert_eq!(site.pusher(&history.branch).expect_pushed(), format!("{commit} - 0"), "history {seed}");
        assert_eq!(site.branch(&history.branch), commit, "history {seed}");
        let new = format!("refs/heads/{} {commit}", history.branch);
        let others: Vec<_> = site.refs().lines().filter(|line| *line != new).map(str::to_owned).collect();
        assert_eq!(others.join("\n"), before, "history {seed}: its tags and side branches are the agent's own");
        let equal = objects_of(site.project.bare(), &commit) == objects_of(agent.folder(), &commit);
        assert!(equal, "history {seed}: the server holds other objects than the agent's tree");
    }
    println!("{histories} histories; YOI_HISTORIES or {THOROUGH} ask for more");
    site.project.git(&["fsck", "--full", "--strict"]);
    site.server.expect_no_leak();
}
