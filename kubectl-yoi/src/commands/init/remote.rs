//! The address of a remote, as a project may name it. One with credentials in it is told to nobody.

use crate::args::git_url;
use crate::git::{CloneRefusal, refusal};

/// Takes an address that populators can clone.
pub fn checked(remote: &str, url: &str) -> Result<String, CloneRefusal> {
    if may_hold_credentials(url) {
        return Err(refusal(
            format!("the address of remote `{remote}` holds a user, password or token, which a project would show to many"),
            "put them into a Secret (docs/use.md, A private repository), and give the address without them: --url https://HOST/PATH --git-secret SECRET",
        ));
    }
    git_url(url).map_err(|rule| {
        // What has an `@` and is no address that we know may hold a password, too.
        let shown = if url.contains('@') { String::new() } else { format!(", {url}") };
        let message = format!("no Pod can clone the address of remote `{remote}`{shown}: {rule}");
        refusal(message, OTHER_ADDRESS)
    })?;
    reachable(&format!("the address of remote `{remote}`, {url}"), url)
}

/// Takes an address that is of another machine, or refuses `what`.
pub fn reachable(what: &str, url: &str) -> Result<String, CloneRefusal> {
    match host(url).filter(|host| is_this_machine(host)) {
        None => Ok(url.to_owned()),
        Some(host) => {
            Err(refusal(format!("no Pod can clone {what}: to a Pod, {host} is the Pod itself, and not this machine"), OTHER_ADDRESS))
        }
    }
}

const OTHER_ADDRESS: &str =
    "name another remote: --remote REMOTE; or the address of the same repository that the cluster's Pods reach: --url URL";

/// The host of an address that populators can clone, without its port.
fn host(url: &str) -> Option<&str> {
    let authority = match url.split_once("://") {
        Some((_, rest)) => rest.split(['/', '?', '#']).next()?,
        None => url.split_once(':')?.0,
    };
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    match host.strip_prefix('[') {
        Some(address) => address.split(']').next(),
        None => host.split(':').next(),
    }
}

/// Whether a host names whatever machine asks for it.
fn is_this_machine(host: &str) -> bool {
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    let is_own = |address: std::net::IpAddr| address.is_loopback() || address.is_unspecified();
    name == "localhost" || name.ends_with(".localhost") || name.parse().is_ok_and(is_own)
}

/// Whether credentials may stand in an address. A user alone, as ssh needs it, is none.
fn may_hold_credentials(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else {
        // `user:password@host:path` is no address of ssh, but people write it.
        let user = url.split_once('@').map_or("", |(user, _)| user);
        return user.contains(':');
    };
    match scheme.eq_ignore_ascii_case("ssh") {
        true => rest.split('/').next().unwrap_or_default().rsplit_once('@').is_some_and(|(user, _)| user.contains(':')),
        // A password may hold a slash, and a token may stand behind a question mark.
        false => rest.contains(['@', '?']),
    }
}

/// The address by which everybody may read a public repository that is named by an address of ssh; `None` for another one.
pub fn https_form(url: &str) -> Option<String> {
    let (host, path) = match url.strip_prefix("ssh://") {
        Some(rest) => {
            let (authority, path) = rest.split_once('/')?;
            let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
            (host.split(':').next()?, path)
        }
        None if url.contains("://") => return None,
        None => url.split_once('@')?.1.split_once(':')?,
    };
    Some(format!("https://{host}/{}", path.trim_start_matches('/')))
}

/// The name of a project for the repository of this address, or for this folder: as much of it as a name may hold.
pub fn project_name(url: &str, folder: &str) -> Option<String> {
    let last = url.trim_end_matches('/').rsplit(['/', ':']).next().unwrap_or_default();
    [last.strip_suffix(".git").unwrap_or(last), folder].into_iter().find_map(|text| {
        let plain: String = text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).take(50).collect();
        Some(plain.trim_matches('-').to_owned()).filter(|name| !name.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_with_credentials_is_refused_and_shown_nowhere() {
        for url in [
            "https://me:hunter2@git.example/p.git",
            "https://hunter2@git.example/p",
            "HTTPS://me:hunter2@git.example/p",
            "https://me:hun/hunter2@git.example/p",
            "https://git.example/p?private_token=hunter2",
            "http://hunter2@h/p",
            "ssh://me:hunter2@git.example/p",
            "me:hunter2@git.example:p",
            "ext::https://me:hunter2@git.example/p",
        ] {
            let CloneRefusal { message, next } = checked("origin", url).unwrap_err();
            assert!(message.contains("`origin`") && !message.contains("hunter2") && !next.contains("hunter2"), "{url}: {message}");
            assert!(next.contains("--url"), "{next}");
        }
        for sound in ["https://git.example/t/p.git", "git@git.example:t/p.git", "ssh://git@git.example:22/t/p", "git://h/p"] {
            assert_eq!(checked("origin", sound).as_deref(), Ok(sound));
        }
    }

    #[test]
    fn a_folder_is_no_address_that_a_pod_can_clone() {
        for url in ["/srv/git/p.git", "../p", "file:///srv/p"] {
            let refused = checked("up", url).unwrap_err();
            assert!(refused.message.contains("no Pod can clone the address of remote `up`"), "{}", refused.message);
        }
    }

    #[test]
    fn an_address_of_this_machine_is_none_that_a_pod_can_clone() {
        for url in [
            "http://127.0.0.1:3000/t/p.git",
            "http://localhost/p.git",
            "https://git.Localhost./p",
            "ssh://git@127.8.0.1:22/p",
            "git@localhost:t/p.git",
            "http://[::1]:3000/p.git",
            "git://0.0.0.0/p",
        ] {
            let refused = checked("origin", url).unwrap_err();
            assert!(
                refused.message.contains("is the Pod itself") && refused.next.contains("that the cluster's Pods reach: --url URL"),
                "{url}"
            );
        }
        for sound in ["http://10.0.0.1:3000/p.git", "https://localhost.example/p", "git@127.example:p", "http://[fd00::1]/p"] {
            assert_eq!(checked("origin", sound).as_deref(), Ok(sound));
        }
    }

    #[test]
    fn a_project_is_named_after_its_repository() {
        for (url, name) in [
            ("git@git.example:team/My_Project.git", Some("my-project")),
            ("https://git.example/team/p/", Some("p")),
            ("git@h:p", Some("p")),
            ("https://h/---.git", Some("folder")),
        ] {
            assert_eq!(project_name(url, "Folder").as_deref(), name, "{url}");
        }
        assert_eq!(project_name("https://h/___", "\u{e4}"), None);
        assert_eq!(project_name(&format!("https://h/{}", "a".repeat(80)), "x").map(|name| name.len()), Some(50));
    }

    #[test]
    fn an_address_of_ssh_has_a_form_that_needs_no_key() {
        for (url, https) in [
            ("git@git.example:t/p.git", Some("https://git.example/t/p.git")),
            ("ssh://git@git.example:2222/t/p", Some("https://git.example/t/p")),
            ("git@h:/p", Some("https://h/p")),
            ("https://h/p", None),
        ] {
            assert_eq!(https_form(url).as_deref(), https, "{url}");
        }
    }
}
