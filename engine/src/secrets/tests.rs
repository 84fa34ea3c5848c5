use super::*;

/// A secret of each kind, made here so that no reader of this repository takes one for real.
fn samples() -> Vec<(&'static str, String)> {
    let letters = |count: usize| "aB3dE5gH7jK9".chars().cycle().take(count).collect::<String>();
    let words = |count: usize| "aBcdEfgHjK".chars().cycle().take(count).collect::<String>();
    let key = format!("-----BEGIN {0} KEY-----\n{1}\n{1}\n-----END {0} KEY-----", "RSA PRIVATE", letters(64));
    vec![
        ("GitHub token", format!("ghp_{}", letters(36))),
        ("GitHub token", format!("github_pat_{}", letters(82))),
        ("GitLab token", format!("glpat-{}", letters(20))),
        ("Anthropic key", format!("sk-ant-api03-{}", letters(80))),
        ("OpenAI key", format!("sk-proj-{}", letters(60))),
        ("OpenAI key", format!("sk-{}", letters(48))),
        ("Google key", format!("AIza{}", letters(35))),
        ("AWS secret key", format!("aws_secret_access_key = {}", letters(40))),
        ("AWS session token", format!("\"SessionToken\": \"{}\"", letters(200))),
        ("Azure storage key", format!("AccountName=a;AccountKey={}==;", letters(86))),
        ("Slack token", format!("xoxb-{}", letters(40))),
        ("Slack webhook", format!("https://hooks.slack.com/services/T0A/B0A/{}", letters(24))),
        ("Stripe key", format!("sk_live_{}", letters(24))),
        ("npm token", format!("npm_{}", letters(36))),
        ("PyPI token", format!("pypi-AgEIcHlwaS5vcmc{}", letters(100))),
        ("crates.io token", format!("cio{}", letters(32))),
        ("Docker Hub token", format!("dckr_pat_{}", letters(27))),
        ("Hugging Face token", format!("hf_{}", words(34))),
        ("JSON Web Token", format!("eyJ{}.eyJ{}.{}", letters(30), letters(60), letters(43))),
        ("password of a URL", format!("https://bot:{}@git.example.org/a.git", letters(24))),
        ("private key", key),
    ]
}

fn redactor() -> Redactor {
    let values = |name: &str| match name {
        "DEPLOY_TOKEN" => Some("correct horse\nbattery".to_owned()),
        "SHORT" => Some("yes".to_owned()),
        _ => None,
    };
    Redactor::new(&["DEPLOY_TOKEN".to_owned(), "SHORT".to_owned(), "UNSET".to_owned()], values)
}

/// Twelve letters in a row of the secret itself.
fn is_shown(text: &str, secret: &str) -> bool {
    let letters: Vec<char> = secret.chars().collect();
    letters.windows(12).any(|piece| {
        let piece: String = piece.iter().collect();
        piece.chars().any(|letter| letter.is_ascii_digit())
            && piece.chars().all(|letter| letter.is_ascii_alphanumeric())
            && text.contains(&piece)
    })
}

#[test]
fn every_form_is_one() {
    assert_eq!(SEARCHES.len(), KINDS.len());
    assert!(BY_LINE.iter().all(|name| KINDS.iter().any(|kind| kind.name == *name)));
}

#[test]
fn p27_a_secret_of_each_kind_is_its_kind_in_a_result_and_what_stands_around_it_stays() {
    for (kind, secret) in samples() {
        let redacted = redactor().redact(format!("before ü {secret} after\n"));
        assert!(redacted.contains(&marker(kind)) && !is_shown(&redacted, &secret), "{kind}: {redacted}");
        assert!(redacted.starts_with("before ü ") && redacted.ends_with(" after\n"), "{kind}: {redacted}");
        assert_eq!(redactor().redact(redacted.clone()), redacted, "{kind}");
        assert_eq!(Redactor::off().redact(secret.clone()), secret);
    }
    assert_eq!(redactor().redact("a correct horse\nbattery yes".to_owned()), "a [redacted: DEPLOY_TOKEN] yes");
}

#[test]
fn p27_a_private_key_is_known_with_numbers_of_lines_and_without_its_end() {
    let line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj";
    let numbered = format!(
        "     1\t-----BEGIN {0} KEY-----\n     2\t{line}\n     3\t{line}\n     4\t-----END {0} KEY-----\n     5\tlast\n",
        "PRIVATE"
    );
    let redacted = redactor().redact(numbered);
    assert!(!is_shown(&redacted, line) && redacted.ends_with("     5\tlast\n"), "{redacted}");
    let cut = format!("-----BEGIN {} KEY-----\n{line}\n{line}", "OPENSSH PRIVATE");
    assert!(!is_shown(&redactor().redact(cut), line));
}

#[test]
fn what_only_looks_like_a_secret_stays() {
    for text in [
        "commit 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "integrity sha512-z3Qx0Qe5t4b1F2Yk0l8Y0gGqgQf1JqZ0bq1cQ8dS7sVw2m3n4b5v6c7x8z9a0s1d2f3g4h5j6k7l8q9w0e1r2t3y4u==",
        "postgres://user:password@localhost:5432/db and https://user:$TOKEN@example.org/ and https://a:b@example.org",
        "sk-circle-fade-dot sk-folding-cube-animation-delay-of-the-third-dot",
        "the file begins with -----BEGIN PRIVATE KEY----- and ends so",
        "if token.startswith('ghp_'): pass; npm_config_registry=x; hf_hub_download('a')",
        "aws_secret_access_key = os.environ['AWS_SECRET_ACCESS_KEY']",
        "eyJhbGciOiJIUzI1NiJ9 is the head of a token",
    ] {
        assert_eq!(redactor().redact(text.to_owned()), text);
    }
}

#[test]
fn p27_live_output_has_no_secret_wherever_it_is_cut() {
    for (kind, secret) in samples().into_iter().chain([("DEPLOY_TOKEN", "correct horse\nbattery".to_owned())]) {
        let text = format!("....1 of 2 ü {secret} done\n");
        let whole = redactor().redact(text.clone());
        for at in (0..text.len()).filter(|at| text.is_char_boundary(*at)) {
            let (mut held, mut shown) = (String::new(), String::new());
            for piece in [&text[..at], &text[at..]] {
                held.push_str(piece);
                let complete = redactor().complete(&held);
                let rest = held.split_off(complete);
                shown.push_str(&redactor().redact(std::mem::replace(&mut held, rest)));
            }
            shown.push_str(&redactor().redact(held));
            assert_eq!(shown, whole, "{kind} at {at}");
        }
    }
}

#[test]
fn live_output_that_begins_no_secret_waits_for_nothing() {
    for text in ["........", "Continue? [y/n] ", "line\n", "100 %", "ü€"] {
        assert_eq!(redactor().complete(text), text.len(), "{text}");
    }
    let endless = "sk-".repeat(MAX_HELD);
    assert_eq!(redactor().complete(&endless), endless.len());
    let plain = "x".repeat(4 * MAX_HELD);
    assert_eq!(redactor().complete(&plain), plain.len() - MAX_ANCHOR);
}

#[test]
fn text_with_a_mark_is_known_and_names_of_secrets_are_in_no_debug_text_of_their_values() {
    assert_eq!(redactor().marker_in("a [redacted: DEPLOY_TOKEN] b"), Some("[redacted: DEPLOY_TOKEN]".to_owned()));
    assert_eq!(redactor().marker_in("[redacted: npm token]"), Some("[redacted: npm token]".to_owned()));
    assert_eq!(redactor().marker_in("[redacted: nothing that this version knows]"), None);
    assert_eq!(Redactor::off().marker_in("[redacted: npm token]"), None);
    let debug = format!("{:?}", redactor());
    assert!(debug.contains("DEPLOY_TOKEN") && !debug.contains("horse"), "{debug}");
}
