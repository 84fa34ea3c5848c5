//! User and token over https.

use crate::Folder;
use crate::bystander::Proxy;
use crate::git_server::{USER, basic};
use crate::populator::Populator;
use crate::repository::Repository;
use crate::serve_private;

#[test]
fn a_private_repository_is_fetched_over_https_and_its_token_is_nowhere_else() {
    let (folder, server, token) = serve_private("https");
    Repository::new(&folder.path().join("served"), "private/p").commit("one");
    let pod =
        Populator::new(folder.path(), &server.url("private/p.git")).ca(&server.ca).secret(&[("username", USER), ("password", &token)]);
    pod.expect_filled();
    assert_eq!(pod.read("src/main.rs"), "fn main() {}\n");
    assert_eq!(pod.git(&["config", "--local", "remote.origin.url"]), server.url("private/p.git"));
    let local = pod.read(".git/config");
    assert!(!local.contains("credential") && !local.contains("helper"), "{local}");
    pod.expect_no_trace(&[&token, &basic(USER, &token)]);
    server.expect_no_leak();
    assert!(server.requests().iter().any(|request| request.ends_with("user")), "{:?}", server.requests());
}

#[test]
fn a_token_that_ends_with_a_line_feed_is_the_same_token() {
    let (folder, server, token) = serve_private("line-feed");
    Repository::new(&folder.path().join("served"), "private/p").commit("one");
    let keys = [("username", "reader\n"), ("password", &*format!("{token}\n"))];
    Populator::new(folder.path(), &server.url("private/p.git")).ca(&server.ca).secret(&keys).expect_filled();
}

#[test]
fn a_wrong_token_is_refused_with_the_name_of_its_secret_and_no_token_though_the_server_says_it_back() {
    let (folder, server, token) = serve_private("wrong");
    Repository::new(&folder.path().join("served"), "private/p").commit("one");
    let wrong = format!("wrong-{token}");
    let pod =
        Populator::new(folder.path(), &server.url("private/p.git")).ca(&server.ca).secret(&[("username", USER), ("password", &wrong)]);
    let words = pod.expect_refused();
    for sent_back in [&*wrong, &*basic(USER, &wrong)] {
        assert!(!words.contains(sent_back), "{words}");
    }
    assert!(words.contains("Authentication failed"), "git's own words are gone: {words}");
    assert!(words.contains("refuses username and password of Secret clone-key: has the token expired"), "{words}");
    pod.expect_no_trace(&[&wrong, &basic(USER, &wrong)]);
}

#[test]
fn a_private_repository_without_credentials_says_which_field_names_them() {
    let (folder, server, _) = serve_private("none");
    Repository::new(&folder.path().join("served"), "private/p").commit("one");
    let words = Populator::new(folder.path(), &server.url("private/p.git")).ca(&server.ca).expect_refused();
    assert!(words.contains("name a Secret with username and password in spec.source.git.credentialsSecretRef"), "{words}");
}

#[test]
fn a_secret_that_is_missing_or_lacks_a_key_is_named_with_what_it_must_hold_and_nothing_is_fetched() {
    let (folder, server, token) = serve_private("keys");
    let must = "it must hold username and password for https (a token is a password), or ssh-privatekey and known_hosts for ssh";
    let url = server.url("private/p.git");
    let https = |keys: &[(&str, &str)]| {
        let own = Folder::new(&format!("keys-{}", keys.len()));
        Populator::new(own.path(), &url).ca(&server.ca).secret(keys).expect_refused()
    };
    assert_eq!(https(&[]), format!("Secret clone-key does not exist in this namespace, or is empty: {must}"));
    assert_eq!(https(&[("password", &token)]), format!("Secret clone-key has no key username: {must}"));
    assert_eq!(https(&[("username", USER), ("token", &token)]), format!("Secret clone-key has no key password: {must}"));
    let ssh = Populator::new(folder.path(), "git@127.0.0.1:p.git").secret(&[("username", USER), ("password", &token)]);
    assert_eq!(ssh.expect_refused(), format!("Secret clone-key has no key ssh-privatekey: {must}"));
    assert_eq!(server.requests(), Vec::<String>::new());
}

#[test]
fn a_server_with_a_certificate_of_its_own_needs_ca_ref_and_a_missing_one_is_named() {
    let (folder, server, _) = serve_private("ca");
    Repository::new(&folder.path().join("served"), "open/p").commit("one");
    let url = server.url("open/p.git");
    let unknown = Folder::new("ca-unknown");
    let words = Populator::new(unknown.path(), &url).expect_refused();
    assert!(words.contains("certificate"), "{words}");
    let missing = Populator::new(unknown.path(), &url).with("CA", "key ca.crt of ConfigMap cas").expect_refused();
    let says = "key ca.crt of ConfigMap cas does not exist in this namespace, or holds no certificate in PEM: spec.source.git.caRef";
    assert_eq!(missing, says);
    Populator::new(folder.path(), &url).ca(&server.ca).expect_filled();
}

#[test]
fn the_token_goes_to_no_other_host_and_never_over_http() {
    let (folder, server, token) = serve_private("clear");
    Repository::new(&folder.path().join("served"), "private/p").commit("one");
    // The schema refuses such an object. Should one be there all the same, the token stays here.
    let pod = Populator::new(folder.path(), &server.http_url("private/p.git")).secret(&[("username", USER), ("password", &token)]);
    pod.expect_refused();
    assert!(!server.requests().is_empty());
    assert!(server.requests().iter().all(|request| request.ends_with('-')), "{:?}", server.requests());
}

#[test]
fn a_proxy_of_the_installation_carries_what_is_fetched_and_reads_no_token() {
    let (folder, server, token) = serve_private("proxy");
    Repository::new(&folder.path().join("served"), "private/p").commit("one");
    let proxy = Proxy::start();
    let pod =
        Populator::new(folder.path(), &server.url("private/p.git")).ca(&server.ca).secret(&[("username", USER), ("password", &token)]);
    pod.with("https_proxy", &proxy.url).with("no_proxy", "git.example").expect_filled();
    let seen = proxy.seen.lock().unwrap();
    assert!(!seen.is_empty() && seen.iter().all(|line| *line == format!("CONNECT {} HTTP/1.1", server.host())), "{seen:?}");
}
