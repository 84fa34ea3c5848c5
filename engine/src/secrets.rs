//! Secrets in what tools return. A token that a command prints would stand in the log, in events and in the model's context for good.
//!
//! Only what has the form of a known kind is replaced: a guess by randomness would eat commits, digests and the locks of packages.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use regex::{Captures, Regex};

/// What stands in the place of a secret begins so.
const MARKER: &str = "[redacted: ";
/// Shorter values of variables are no secrets, and replacing them would make results unreadable.
const MIN_VALUE: usize = 8;
/// Bytes of live output that wait for the rest of what may be a secret. A private key of 8192 bits has 6,400.
const MAX_HELD: usize = 16 << 10;
/// Bytes of a word that may be the beginning of an anchor.
const MAX_ANCHOR: usize = 64;

/// Kinds of secrets: what people call one, and its form. Where the form has a group, the group alone is the secret.
const KINDS: [(&str, &str); 19] = [
    ("GitHub token", r"(?-u:\b)(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{50,})"),
    ("GitLab token", r"(?-u:\b)gl(?:pat|rt|dt|ptt|oas|cbt)-[A-Za-z0-9_-]{20,}"),
    ("Anthropic key", r"(?-u:\b)sk-ant-[A-Za-z0-9_-]{32,}"),
    ("OpenAI key", r"(?-u:\b)sk-(?:(?:proj|svcacct|admin|or-v1)-[A-Za-z0-9_-]{32,}|[A-Za-z0-9]{40,})"),
    ("Google key", r"(?-u:\b)AIza[A-Za-z0-9_-]{35}"),
    ("AWS secret key", r#"(?i:aws_secret_access_key|secretaccesskey)["']?\s*[:=]\s*["']?([A-Za-z0-9/+]{40})(?-u:\b)"#),
    ("AWS session token", r#"(?i:aws_session_token|sessiontoken)["']?\s*[:=]\s*["']?([A-Za-z0-9/+=]{100,})"#),
    ("Azure storage key", r"(?-u:\b)AccountKey=([A-Za-z0-9/+]{86}==)"),
    ("Slack token", r"(?-u:\b)xox[abeoprs]-[A-Za-z0-9-]{24,}"),
    ("Slack webhook", r"https://hooks\.slack\.com/services/(T[A-Za-z0-9_]+/B[A-Za-z0-9_]+/[A-Za-z0-9_]{20,})"),
    ("Stripe key", r"(?-u:\b)[rs]k_live_[A-Za-z0-9]{24,}"),
    ("npm token", r"(?-u:\b)npm_[A-Za-z0-9]{36}(?-u:\b)"),
    ("PyPI token", r"(?-u:\b)pypi-AgE[A-Za-z0-9_-]{60,}"),
    ("crates.io token", r"(?-u:\b)cio[A-Za-z0-9]{32}(?-u:\b)"),
    ("Docker Hub token", r"(?-u:\b)dckr_pat_[A-Za-z0-9_-]{27,}"),
    ("Hugging Face token", r"(?-u:\b)hf_[A-Za-z]{34}(?-u:\b)"),
    ("JSON Web Token", r"(?-u:\b)eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{40,}"),
    ("password of a URL", r#"(?-u:\b)https?://[^\s/:@"'<>]+:([A-Za-z0-9][^\s/@"'<>$({]{19,})@"#),
    // Tools number lines and quote them, so digits, tabs and quotes may stand between the lines of a key.
    ("private key", r#"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----([\s\\|>":,A-Za-z0-9+/=-]{64,}?)(?:-----END |\z)"#),
];
/// A word with one of these may be the beginning of a secret.
const WORD_ANCHORS: [&str; 19] = [
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "gl",
    "sk-",
    "AIza",
    "xox",
    "k_live_",
    "npm_",
    "pypi-",
    "cio",
    "dckr_pat_",
    "hf_",
    "eyJ",
    "://",
    "AccountKey",
];
/// A line with one of these, in any case, may go on with a secret.
const LINE_ANCHORS: [&str; 4] = ["secret_access_key", "secretaccesskey", "session_token", "sessiontoken"];
const KEY_BEGIN: &str = "-----BEGIN ";
const KEY_END: &str = "-----END ";

static FORMS: LazyLock<Vec<(&'static str, Regex)>> =
    LazyLock::new(|| KINDS.iter().filter_map(|(kind, form)| Some((*kind, Regex::new(form).ok()?))).collect());

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
        FORMS.iter().fold(known.0.iter().fold(text, replace), |text, (kind, form)| {
            let replace = |found: &Captures<'_>| {
                let Some(whole) = found.get(0) else { return String::new() };
                let secret = found.get(1).unwrap_or(whole);
                format!("{}{}{}", &text[whole.start()..secret.start()], marker(kind), &text[secret.end()..whole.end()])
            };
            match form.replace_all(&text, replace) {
                Cow::Borrowed(_) => text,
                Cow::Owned(redacted) => redacted,
            }
        })
    }

    /// What stands in the place of a secret, if the text holds it. Written to a file, it would replace the secret there.
    pub fn marker_in(&self, text: &str) -> Option<String> {
        let known = self.0.as_ref()?;
        let names = known.0.iter().map(|(name, _)| name.as_str()).chain(KINDS.iter().map(|(kind, _)| *kind));
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

/// How many bytes of `text` end within no secret, whatever follows.
fn complete(text: &str) -> usize {
    if let Some(begin) = text.rfind(KEY_BEGIN)
        && !text[begin..].contains(KEY_END)
        && text.len() - begin <= MAX_HELD
    {
        return begin;
    }
    let line = text.rfind('\n').map_or(0, |at| at + 1);
    let word = text.rfind(char::is_whitespace).map_or(0, |at| text.ceil_char_boundary(at + 1));
    let lower = text[line..].to_ascii_lowercase();
    let cut = if LINE_ANCHORS.iter().any(|anchor| lower.contains(anchor)) || KEY_BEGIN.starts_with(&text[line..]) {
        line
    } else if WORD_ANCHORS.iter().any(|anchor| text[word..].contains(anchor)) {
        word
    } else {
        // The last letters may be the first ones of an anchor.
        let is_of_anchor = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | ':' | '/');
        let tail = text.len() - text[word..].chars().rev().take(MAX_ANCHOR).take_while(|letter| is_of_anchor(*letter)).count();
        tail.max(word)
    };
    if text.len() - cut > MAX_HELD { text.len() } else { cut }
}

#[cfg(test)]
mod tests;
