//! Keys over ssh.

use std::fs;

use crate::Folder;
use crate::populator::Populator;
use crate::repository::Repository;
use crate::ssh_server::{SshServer, make_key};

fn served(name: &str) -> (Folder, SshServer, Repository) {
    let folder = Folder::new(name);
    let server = SshServer::start(&folder.path().join("keys"));
    let repository = Repository::new(&folder.path().join("served"), "p");
    repository.commit("one");
    (folder, server, repository)
}

#[test]
fn a_private_repository_is_fetched_over_ssh_and_its_key_is_nowhere_else() {
    let (folder, server, repository) = served("ssh");
    let (key, hosts) = (server.key("client"), server.known_hosts("host"));
    let pod = Populator::new(folder.path(), &server.url(repository.bare())).secret(&[("ssh-privatekey", &key), ("known_hosts", &hosts)]);
    pod.expect_filled();
    assert_eq!(pod.read("src/main.rs"), "fn main() {}\n");
    let lines: Vec<&str> = key.lines().filter(|line| !line.starts_with('-')).collect();
    assert!(lines.len() > 2);
    pod.expect_no_trace(&lines);
}

#[test]
fn a_submodule_is_fetched_with_the_same_key() {
    let (folder, server, library) = served("ssh-submodule");
    let commit = library.git(&["rev-parse", "HEAD"]);
    let main = Repository::new(&folder.path().join("served"), "main");
    main.submodule("lib", "../p.git", &commit).commit("one");
    let (key, hosts) = (server.key("client"), server.known_hosts("host"));
    let pod = Populator::new(folder.path(), &server.url(main.bare())).secret(&[("ssh-privatekey", &key), ("known_hosts", &hosts)]);
    pod.expect_filled();
    assert_eq!(pod.read("lib/src/main.rs"), "fn main() {}\n");
}

#[test]
fn a_host_that_is_not_listed_is_refused_with_its_fingerprint() {
    let (folder, server, repository) = served("unlisted");
    let key = server.key("client");
    let hosts = "github.com ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl\n";
    let pod = Populator::new(folder.path(), &server.url(repository.bare())).secret(&[("ssh-privatekey", &key), ("known_hosts", hosts)]);
    let words = pod.expect_refused();
    let says = format!(
        "known_hosts of Secret clone-key does not list [127.0.0.1]:{}, which shows {} (ED25519) now",
        server.port,
        server.fingerprint()
    );
    assert!(words.contains(&says), "{words}");
    assert!(!pod.tree().join(".git/HEAD").exists());
}

#[test]
fn a_host_with_another_key_than_the_listed_one_is_refused() {
    let (folder, server, repository) = served("changed");
    let (key, hosts) = (server.key("client"), server.known_hosts("other"));
    let pod = Populator::new(folder.path(), &server.url(repository.bare())).secret(&[("ssh-privatekey", &key), ("known_hosts", &hosts)]);
    let words = pod.expect_refused();
    assert!(words.contains("HOST IDENTIFICATION HAS CHANGED") && words.contains(&server.fingerprint()), "{words}");
}

#[test]
fn a_key_that_the_server_does_not_know_is_refused_with_ssh_own_words() {
    let (folder, server, repository) = served("unknown-key");
    let (key, hosts) = (server.key("other"), server.known_hosts("host"));
    let pod = Populator::new(folder.path(), &server.url(repository.bare())).secret(&[("ssh-privatekey", &key), ("known_hosts", &hosts)]);
    let words = pod.expect_refused();
    assert!(words.contains("Permission denied (publickey)"), "{words}");
}

#[test]
fn a_key_with_a_passphrase_or_that_is_none_says_what_the_secret_must_hold() {
    let (folder, server, repository) = served("passphrase");
    make_key(&folder.path().join("locked"), "open sesame");
    let locked = fs::read_to_string(folder.path().join("locked")).unwrap();
    let hosts = server.known_hosts("host");
    for (n, (key, why)) in [(&*locked, "incorrect passphrase"), ("no key at all\n", "Load key")].into_iter().enumerate() {
        let pod = Populator::new(&folder.path().join(n.to_string()), &server.url(repository.bare()));
        let words = pod.secret(&[("ssh-privatekey", key), ("known_hosts", &hosts)]).expect_refused();
        let says = "ssh-privatekey of Secret clone-key must be a private key without a passphrase, whose last line ends with a line feed";
        assert!(words.contains(why) && words.ends_with(says), "{words}");
    }
}
