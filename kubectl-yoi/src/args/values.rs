//! What the values of flags may be. A value that no object could have is refused here, with the rule and the way.

use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use yoi_crds::source::TreeOwner;
use yoi_wire::mode::Mode;
use yoi_wire::open::NamedValue;

/// The names of our objects leave room for what is made from them, as `NAME-session`.
const LONGEST_NAME: usize = 50;
/// A DNS label.
const LONGEST_NAMESPACE: usize = 63;

/// Accepts the name of one of our objects. Anything else is the name of none, and would change the path of a request.
pub fn object_name(text: &str) -> Result<String, String> {
    dns_label(text, LONGEST_NAME)
}

/// Accepts the name of a mode, and has all of them completed.
pub fn mode() -> impl TypedValueParser<Value = Mode> {
    PossibleValuesParser::new(Mode::ALL.iter().map(|mode| mode.as_str())).try_map(|name| name.parse::<Mode>())
}

/// Accepts the name of a namespace.
pub fn namespace_name(text: &str) -> Result<String, String> {
    dns_label(text, LONGEST_NAMESPACE)
}

fn dns_label(text: &str, longest: usize) -> Result<String, String> {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let letters = text.chars().count();
    if letters > longest {
        return Err(format!("a name has at most {longest} characters, and this one has {letters}: take a shorter one"));
    }
    if text.is_empty() || !text.chars().all(inner) || text.starts_with('-') || text.ends_with('-') {
        return Err(format!("a name is made of lower-case letters, digits and `-` inside, at most {longest}"));
    }
    Ok(text.to_owned())
}

/// Accepts the name of a claim, Secret or other object of Kubernetes: DNS labels joined by dots.
pub fn subdomain(text: &str) -> Result<String, String> {
    let sound = text.len() <= 253 && text.split('.').all(|label| dns_label(label, LONGEST_NAMESPACE).is_ok());
    if sound { Ok(text.to_owned()) } else { Err("a name is made of lower-case letters, digits, and `-` or `.` inside".to_owned()) }
}

/// Accepts what a populator clones: the schema's own rule. An SSH address needs a Secret too, which the API server asks for.
pub fn git_url(text: &str) -> Result<String, String> {
    const RULE: &str = "Yoi clones https://, http://, git:// and ssh:// URLs, and user@host:path";
    let (scheme, authority) = match (text.split_once("://"), text.split_once(':')) {
        (Some((scheme, rest)), _) => (scheme, rest.split(['/', '?', '#']).next().unwrap_or_default()),
        (None, Some((authority, path))) if authority.contains('@') && !authority.contains('/') && !path.starts_with(['-', ':']) => {
            ("ssh", authority)
        }
        (None, _) => ("", ""),
    };
    let (user, host) = authority.split_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    let is_sound = match scheme {
        "https" | "http" | "git" => user.is_none(),
        "ssh" => user.is_none_or(|user| !user.contains(':') && !user.is_empty()),
        _ => return Err(format!("{RULE} only, e.g. https://git.example/team/project.git")),
    };
    if !is_sound {
        return Err("the URL must not hold a user, password or token: it stands in objects, conditions and logs that many may read; \
            put them into a Secret and name it by --git-secret"
            .to_owned());
    }
    let is_plain = |c: char| !(c.is_whitespace() || c.is_control() || c == '\'' || c == '"');
    if host.is_empty() || host.starts_with('-') || !text.chars().all(is_plain) {
        return Err("a URL has a host, and no spaces, quotes or control characters".to_owned());
    }
    Ok(text.to_owned())
}

/// Accepts `UID` or `UID:GID`, in numbers as the schema takes them.
pub fn owner(text: &str) -> Result<TreeOwner, String> {
    let (uid, gid) = text.split_once(':').unwrap_or((text, text));
    let number = |text: &str| text.parse::<i64>().ok().filter(|number| (1..=2_147_483_647).contains(number));
    let wrong = "an owner is UID:GID in numbers, e.g. 1000:1000, and never root: the user that agents run as";
    Ok(TreeOwner { uid: number(uid).ok_or(wrong)?, gid: number(gid).ok_or(wrong)? })
}

/// Accepts the name of an image as the schema does.
pub fn image_name(text: &str) -> Result<String, String> {
    let inner = |c: char| c.is_ascii_alphanumeric() || "-._:/@+[]".contains(c);
    let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '[');
    let fits = (1..=512).contains(&text.len()) && begins && text.chars().all(inner);
    fits.then(|| text.to_owned()).ok_or_else(|| "an image is named as registry.example/team/image:tag".to_owned())
}

/// Accepts `NAME=VALUE`.
pub fn env_pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("an environment variable is given as NAME=VALUE")?;
    let letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(letter) || name.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(format!("`{name}` is not the name of an environment variable: letters, digits and `_`, and no digit first"));
    }
    if name.starts_with("YOI_") {
        return Err("names that begin with YOI_ are reserved".to_owned());
    }
    Ok((name.to_owned(), value.to_owned()))
}

/// Accepts an amount as the schema has it.
pub fn quantity(text: &str) -> Result<String, String> {
    let digits = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number = &text[..text.len() - digits.len()];
    let has_unit = matches!(digits, "" | "m" | "k" | "M" | "G" | "T" | "P" | "E" | "Ki" | "Mi" | "Gi" | "Ti" | "Pi" | "Ei");
    let is_number = number.starts_with(|c: char| c.is_ascii_digit()) && number.parse::<f64>().is_ok();
    (has_unit && is_number).then(|| text.to_owned()).ok_or_else(|| format!("`{text}` is not an amount like 500m, 2 or 4Gi"))
}

/// Accepts a ConfigMap and one of its keys, `preset.yaml` when only the ConfigMap is named.
pub fn config_map_key(text: &str) -> Result<(String, String), String> {
    let (name, key) = text.split_once('/').unwrap_or((text, "preset.yaml"));
    let letter = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if key.is_empty() || key.starts_with("..") || !key.chars().all(letter) {
        return Err(format!("`{key}` is no key of a ConfigMap; the flag takes CONFIGMAP/KEY"));
    }
    Ok((subdomain(name)?, key.to_owned()))
}

/// Accepts the name of a branch, without `refs/heads/`.
pub fn branch_name(text: &str) -> Result<String, String> {
    yoi_wire::bundle::check_branch_name(text).map(|()| text.to_owned())
}

/// Accepts the full hash of a commit.
pub fn commit_id(text: &str) -> Result<String, String> {
    let refusal = || "a commit is named by its full hash, as `git ls-remote` prints it".to_owned();
    yoi_wire::push::is_hash(text).then(|| text.to_owned()).ok_or_else(refusal)
}

/// Accepts the id of a message: a UUID.
pub fn message_id(text: &str) -> Result<String, String> {
    uuid::Uuid::parse_str(text).map(|id| id.to_string()).map_err(|_| "the id of a message is a UUID, as `uuidgen` prints one".to_owned())
}

/// Accepts a number with a unit: `30s`, `10m`, `2h` or `3d`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a duration like 30s, 10m or 2h");
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    Ok(Duration::from_secs(number.saturating_mul(seconds)))
}

/// Accepts a time after which something is deleted or stopped, as the schema has it.
pub fn ttl(text: &str) -> Result<String, String> {
    let sound = text.len() <= 9 && text.ends_with(['s', 'm', 'h']) && duration(text).is_ok();
    if sound { Ok(text.to_owned()) } else { Err(format!("`{text}` is not a time like 30s, 10m or 2h")) }
}

/// Accepts a size of a tree, as the schema does.
pub fn quota(text: &str) -> Result<String, String> {
    match yoi_crds::quota::quota_bytes(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err("a quota is a size of at least 1Mi, like 500Mi or 10Gi: without one, leave it out".to_owned()),
    }
}

/// Name of a machine whose working tree is synced.
pub fn machine_name(text: &str) -> Result<String, String> {
    if yoi_crds::sync::is_machine_name(text) {
        return Ok(text.to_owned());
    }
    Err("1 to 63 lower-case letters, digits and `-`, neither first nor last".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_those_of_kubernetes() {
        for text in ["500m", "2", "1.5", "4Gi", "100M"] {
            assert_eq!(quantity(text).as_deref(), Ok(text));
        }
        for text in ["", "m", "-1", "4GB", "1..5", "4 Gi", ".5"] {
            assert!(quantity(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(duration("10m"), Ok(Duration::from_secs(600)));
        assert!(duration("10").is_err());
        assert!(duration("ten").is_err());
    }

    #[test]
    fn an_address_that_cannot_be_cloned_is_refused_with_the_rule() {
        for (text, words) in [
            ("ssh://git:word@host.example/team/p", "must not hold a user"),
            ("ssh://-oProxyCommand=x/p", "has a host"),
            ("git@-oProxyCommand=x:p", "has a host"),
            ("ext::sh -c touch@x:y", "user@host:path"),
            ("file:///etc", "https://, http://, git:// and ssh://"),
            ("../here", "https://, http://, git:// and ssh://"),
            ("https://me:secret@host/p", "must not hold a user"),
            ("https:///p", "has a host"),
            ("https://h/a b", "no spaces"),
        ] {
            let error = git_url(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
        for sound in [
            "git@github.com:team/p.git",
            "ssh://git@host.example:22/p",
            "https://git.example/p.git",
            "git://git.ns.svc:9418/project.git",
            "http://h/p?x=a@b",
        ] {
            assert_eq!(git_url(sound).as_deref(), Ok(sound));
        }
    }

    #[test]
    fn an_environment_variable_has_a_name_and_a_value() {
        assert_eq!(env_pair("A=b=c"), Ok(("A".to_owned(), "b=c".to_owned())));
        for wrong in ["A", "=x", "1A=x", "A-B=x", "YOI_X=1"] {
            assert!(env_pair(wrong).is_err(), "{wrong}");
        }
    }
}
