//! The Pod that looks which commit a ref is at: it says what a clone would take, and fetches nothing.

use std::fs;

use yoi_plan::project::look_pod::LOOK_SCRIPT;

use crate::Folder;
use crate::git_server::{GitServer, USER};
use crate::populator::Populator;
use crate::repository::Repository;

fn looked(folder: &Folder, name: &str, pod: impl FnOnce(Populator) -> Populator, url: &str) -> Result<String, String> {
    let at = folder.path().join(name);
    let answer = at.join("answer");
    let pod = pod(Populator::new(&at, url)).with("ANSWER", answer.to_str().unwrap());
    let done = pod.run_script(LOOK_SCRIPT);
    assert_eq!(fs::read_dir(pod.tree()).unwrap().count(), 0, "it fetched something");
    if done.succeeded { Ok(fs::read_to_string(answer).unwrap().trim().to_owned()) } else { Err(done.words) }
}

#[test]
fn a_look_names_the_commit_that_a_clone_takes_for_every_form_of_a_ref() {
    let folder = Folder::new("look");
    let server = GitServer::start(&folder.path().join("served"), "none");
    let repository = Repository::new(&folder.path().join("served"), "open/p");
    let commits: Vec<String> = (1..=4).map(|n| repository.write("n", n.to_string()).commit(&n.to_string())).collect();
    repository.git(&["tag", "-a", "-m", "annotated", "v1", &commits[0]]);
    repository.git(&["tag", "light", &commits[1]]);
    repository.git(&["branch", "both", &commits[2]]);
    repository.git(&["tag", "both", &commits[0]]);
    // Names that end in another one.
    repository.git(&["branch", "other/both", &commits[3]]);
    repository.git(&["update-ref", "refs/x/refs/heads/both", &commits[3]]);
    repository.git(&["update-ref", "refs/pull/7/head", &commits[1]]);
    for (n, (ref_, commit)) in [
        ("", 3),
        ("main", 3),
        ("refs/heads/main", 3),
        ("v1", 0),
        ("refs/tags/v1", 0),
        ("light", 1),
        ("both", 2),
        ("refs/tags/both", 0),
        ("refs/pull/7/head", 1),
        (commits[2].as_str(), 2),
    ]
    .into_iter()
    .enumerate()
    {
        let url = server.url("open/p.git");
        let with = |pod: Populator| pod.ca(&server.ca).with("REF", ref_);
        assert_eq!(looked(&folder, &format!("look-{n}"), with, &url).as_ref(), Ok(&commits[commit]), "{ref_}");
        let pod = with(Populator::new(&folder.path().join(format!("clone-{n}")), &url));
        assert_eq!(pod.expect_filled().git(&["rev-parse", "HEAD"]), commits[commit], "a clone takes another one for {ref_}");
    }
    let missing = looked(&folder, "missing", |pod| pod.ca(&server.ca).with("REF", "gone"), &server.url("open/p.git"));
    assert_eq!(missing, Err("the source has no branch or tag gone now".to_owned()));
}

#[test]
fn a_look_uses_the_projects_credentials_and_says_what_they_lack_without_them() {
    let folder = Folder::new("look-secret");
    let server = GitServer::start(&folder.path().join("served"), "canary-token-of-a-look");
    let repository = Repository::new(&folder.path().join("served"), "private/p");
    let commit = repository.write("n", "1").commit("1");
    let url = server.url("private/p.git");
    let right = |pod: Populator| pod.ca(&server.ca).secret(&[("username", USER), ("password", "canary-token-of-a-look")]);
    assert_eq!(looked(&folder, "right", right, &url), Ok(commit));
    let wrong = |pod: Populator| pod.ca(&server.ca).secret(&[("username", USER), ("password", "canary-expired-token")]);
    let words = looked(&folder, "wrong", wrong, &url).unwrap_err();
    assert!(words.contains("has the token expired") && !words.contains("canary-expired-token"), "{words}");
    let none = looked(&folder, "none", |pod| pod.ca(&server.ca), &url).unwrap_err();
    assert!(none.contains("credentialsSecretRef"), "{none}");
}
