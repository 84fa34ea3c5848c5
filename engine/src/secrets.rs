//! Secrets in what tools return. A token that a command prints would stand in the log, in events and in the model's context for good.
//!
//! Only what has the form of a known kind is replaced: a guess by randomness would eat commits, digests and the locks of packages.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use memchr::memmem::Finder;
use regex::{Captures, Regex};

/// What stands in the place of a secret begins so.
const MARKER: &str = "[redacted: ";
/// Shorter values of variables are no secrets, and replacing them would make results unreadable.
const MIN_VALUE: usize = 8;
/// Bytes of live output that wait for the rest of what may be a secret. A private key of 8192 bits has 6,400.
const MAX_HELD: usize = 16 << 10;
/// Bytes of a word that may be the beginning of an anchor.
const MAX_ANCHOR: usize = 64;

/// A kind of secret.
struct Kind {
    /// What people call it.
    name: &'static str,
    /// Every secret of it has one of these texts in it or right before it. Most output has none, and is searched for nothing else.
    anchors: &'static [&'static str],
    /// Its form. Where it has a group, the group alone is the secret.
    form: &'static str,
}

const fn kind(name: &'static str, anchors: &'static [&'static str], form: &'static str) -> Kind {
    Kind { name, anchors, form }
}

const KINDS: [Kind; 19] = [
    kind(
        "GitHub token",
        &["ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"],
        r"(?-u:\b)(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{50,})",
    ),
    kind(
        "GitLab token",
        &["glpat-", "glrt-", "gldt-", "glptt-", "gloas-", "glcbt-"],
        r"(?-u:\b)gl(?:pat|rt|dt|ptt|oas|cbt)-[A-Za-z0-9_-]{20,}",
    ),
    kind("Anthropic key", &["sk-ant-"], r"(?-u:\b)sk-ant-[A-Za-z0-9_-]{32,}"),
    kind("OpenAI key", &["sk-"], r"(?-u:\b)sk-(?:(?:proj|svcacct|admin|or-v1)-[A-Za-z0-9_-]{32,}|[A-Za-z0-9]{40,})"),
    kind("Google key", &["AIza"], r"(?-u:\b)AIza[A-Za-z0-9_-]{35}"),
    kind(
        "AWS secret key",
        &["ecret_access_key", "SECRET_ACCESS_KEY", "ecretAccessKey"],
        r#"(?:[Ss]ecret_access_key|SECRET_ACCESS_KEY|[Ss]ecretAccessKey)["']?\s*[:=]\s*["']?([A-Za-z0-9/+]{40})(?-u:\b)"#,
    ),
    kind(
        "AWS session token",
        &["ession_token", "SESSION_TOKEN", "essionToken"],
        r#"(?:[Ss]ession_token|SESSION_TOKEN|[Ss]essionToken)["']?\s*[:=]\s*["']?([A-Za-z0-9/+=]{100,})"#,
    ),
    kind("Azure storage key", &["AccountKey="], r"(?-u:\b)AccountKey=([A-Za-z0-9/+]{86}==)"),
    kind("Slack token", &["xox"], r"(?-u:\b)xox[abeoprs]-[A-Za-z0-9-]{24,}"),
    kind("Slack webhook", &["hooks.slack.com"], r"https://hooks\.slack\.com/services/(T[A-Za-z0-9_]+/B[A-Za-z0-9_]+/[A-Za-z0-9_]{20,})"),
    kind("Stripe key", &["k_live_"], r"(?-u:\b)[rs]k_live_[A-Za-z0-9]{24,}"),
    kind("npm token", &["npm_"], r"(?-u:\b)npm_[A-Za-z0-9]{36}(?-u:\b)"),
    kind("PyPI token", &["pypi-"], r"(?-u:\b)pypi-AgE[A-Za-z0-9_-]{60,}"),
    kind("crates.io token", &["cio"], r"(?-u:\b)cio[A-Za-z0-9]{32}(?-u:\b)"),
    kind("Docker Hub token", &["dckr_pat_"], r"(?-u:\b)dckr_pat_[A-Za-z0-9_-]{27,}"),
    kind("Hugging Face token", &["hf_"], r"(?-u:\b)hf_[A-Za-z]{34}(?-u:\b)"),
    kind("JSON Web Token", &["eyJ"], r"(?-u:\b)eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{40,}"),
    kind("password of a URL", &["://"], r#"(?-u:\b)https?://[^\s/:@"'<>]+:([A-Za-z0-9][^\s/@"'<>$({]{19,})@"#),
    // Tools number lines and quote them, so digits, tabs and quotes may stand between the lines of a key.
    kind(
        "private key",
        &["PRIVATE KEY"],
        r#"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----([\s\\|>":,A-Za-z0-9+/=-]{64,}?)(?:-----END |\z)"#,
    ),
];
/// Kinds whose anchor is before the secret, with more between: the whole line waits.
const BY_LINE: [&str; 2] = ["AWS secret key", "AWS session token"];
const KEY_BEGIN: &str = "-----BEGIN ";
const KEY_END: &str = "-----END ";

/// A kind, ready to search.
struct Search {
    kind: &'static Kind,
    anchors: Vec<Finder<'static>>,
    form: Regex,
}

static SEARCHES: LazyLock<Vec<Search>> = LazyLock::new(|| {
    let search = |kind: &'static Kind| {
        let anchors = kind.anchors.iter().map(Finder::new).collect();
        Some(Search { kind, anchors, form: Regex::new(kind.form).ok()? })
    };
    KINDS.iter().filter_map(search).collect()
});

impl Search {
    fn may_be_in(&self, text: &str) -> bool {
        self.anchors.iter().any(|anchor| anchor.find(text.as_bytes()).is_some())
    }

    fn replace(&self, text: String) -> String {
        if !self.may_be_in(&text) {
            return text;
        }
        let replace = |found: &Captures<'_>| {
            let Some(whole) = found.get(0) else { return String::new() };
            let secret = found.get(1).unwrap_or(whole);
            format!("{}{}{}", &text[whole.start()..secret.start()], marker(self.kind.name), &text[secret.end()..whole.end()])
        };
        match self.form.replace_all(&text, replace) {
            Cow::Borrowed(_) => text,
            Cow::Owned(redacted) => redacted,
        }
    }
}

/// Replaces secrets by what they are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Redactor(Option<Arc<Known>>);

/// Values of variables, by the names of these.
#[derive(Default)]
struct Known(Vec<(String, String)>);

impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

fn marker(kind: &str) -> String {
    format!("{MARKER}{kind}]")
}

impl Redactor {
    /// `variables` are names of variables that hold secrets, and `value_of` knows their values. What is shorter than [`MIN_VALUE`] is left alone.
    pub fn new(variables: &[String], value_of: impl Fn(&str) -> Option<String>) -> Self {
        let value = |name: &String| Some((name.clone(), value_of(name)?.trim().to_owned()));
        let mut values: Vec<_> = variables.iter().filter_map(value).filter(|(_, value)| value.len() >= MIN_VALUE).collect();
        // A secret that holds another one goes first.
        values.sort_by_key(|(_, value)| std::cmp::Reverse(value.len()));
        Self(Some(Arc::new(Known(values))))
    }

    /// Replaces nothing.
    pub fn off() -> Self {
        Self(None)
    }

    /// Replaces each secret by its kind, or by the name of its variable.
    pub fn redact(&self, text: String) -> String {
        let Some(known) = &self.0 else { return text };
        let replace = |text: String, (name, value): &(String, String)| match text.contains(value) {
            true => text.replace(value, &marker(name)),
            false => text,
        };
        let text = known.0.iter().fold(text, replace);
        SEARCHES.iter().fold(text, |text, search| search.replace(text))
    }

    /// What stands in the place of a secret, if the text holds it. Written to a file, it would replace the secret there.
    pub fn marker_in(&self, text: &str) -> Option<String> {
        let known = self.0.as_ref()?;
        let names = known.0.iter().map(|(name, _)| name.as_str()).chain(KINDS.iter().map(|kind| kind.name));
        names.map(marker).find(|marker| text.contains(marker))
    }

    /// How many bytes of `text` end within no secret, whatever follows.
    pub fn complete(&self, text: &str) -> usize {
        let Some(known) = &self.0 else { return text.len() };
        let begun = known.0.iter().map(|(_, value)| begun_at(text, value)).min();
        let cut = complete(text).min(begun.unwrap_or(text.len()));
        // The cut may be in the middle of a value that is whole.
        let holds_cut = |(at, value): (usize, &str)| (at < cut && at + value.len() > cut).then_some(at);
        known.0.iter().flat_map(|(_, value)| text.match_indices(value.as_str())).filter_map(holds_cut).min().unwrap_or(cut)
    }
}

/// Where the end of `text` begins that `value` begins with; the length of the text if there is no such end.
fn begun_at(text: &str, value: &str) -> usize {
    let first = text.len().saturating_sub(value.len().saturating_sub(1));
    (first..text.len()).find(|at| text.is_char_boundary(*at) && value.starts_with(&text[*at..])).unwrap_or(text.len())
}

/// How many bytes of `text` end within no secret of a known kind, whatever follows. Only the last [`MAX_HELD`] bytes may have to wait.
fn complete(text: &str) -> usize {
    let before = text.floor_char_boundary(text.len().saturating_sub(MAX_HELD));
    let tail = &text[before..];
    // Bytes, not letters: each piece of a command's output comes here, and some commands write without end.
    let bytes = tail.as_bytes();
    if let Some(begin) = memchr::memmem::rfind(bytes, KEY_BEGIN.as_bytes())
        && !tail[begin..].contains(KEY_END)
    {
        return before + begin;
    }
    let line = memchr::memrchr(b'\n', bytes).map_or(0, |at| at + 1);
    let word = memchr::memrchr3(b' ', b'\t', b'\n', bytes).map_or(0, |at| at + 1);
    let has_anchor = |text: &str, by_line: bool| {
        let searches = SEARCHES.iter().filter(|search| BY_LINE.contains(&search.kind.name) == by_line);
        searches.into_iter().any(|search| search.may_be_in(text))
    };
    let cut = if has_anchor(&tail[line..], true) || KEY_BEGIN.starts_with(&tail[line..]) {
        line
    } else if has_anchor(&tail[word..], false) {
        word
    } else {
        // The last letters may be the first ones of an anchor.
        let is_of_anchor = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | ':' | '/' | '.');
        let letters = tail[word..].chars().rev().take(MAX_ANCHOR).take_while(|letter| is_of_anchor(*letter));
        let letters = letters.collect::<Vec<_>>();
        // Dots alone are a sign of progress.
        if letters.iter().all(|letter| *letter == '.') { tail.len() } else { tail.len() - letters.len() }
    };
    // Something so long is no secret.
    if before > 0 && cut == 0 { text.len() } else { before + cut }
}

#[cfg(test)]
mod tests;
