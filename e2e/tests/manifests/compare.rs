//! Compares the answers of API server, Rust's types and operator to a case, and checks that their messages are readable.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde_json::Value;
use yoi_crds::reason::Reason;
use yoi_crds::{Condition, ConditionStatus};

use crate::api_server::{Refusal, Response};
use crate::case::{Case, Expected, KINDS, Kind, Method};
use crate::decisions::{DecideFn, Decision, ReadFn, catch_panic};
use crate::schema;

/// Cases that the API server rightly refuses and Rust's types accept: name, words of the refusal, and the reason.
const ONLY_SERVER_REFUSES: &[(&str, &[&str], &str)] = &[
    (
        "bounds",
        &[
            "Too long",
            "Too many",
            "should match",
            "should be at least",
            "should be less",
            "should be greater",
            "at most",
            "at least",
            "Too short",
        ],
        "only the schema checks lengths, ranges and patterns; this harness also checks that the operator does not panic at such an object",
    ),
    ("doubled items", &["Duplicate value", "duplicate entries for key"], "only the schema says that the items of a list have keys"),
    (
        "strictness",
        &["unknown field", "duplicate field", "field not declared in schema", "strict decoding error"],
        "Rust skips unknown fields, so that a newer version's field stops no watch",
    ),
    (
        "metadata",
        &[
            "metadata",
            "ObjectMeta",
            "the namespace of the provided object",
            "does not match the namespace",
            "resourceVersion",
            "uid mismatch",
            "Precondition failed",
        ],
        "names, labels, finalizers and owners are checked by Kubernetes for every kind alike",
    ),
    (
        "the head",
        &["apiVersion", "in version", "does not match", "unrecognized", "could not find the requested resource", "kind: Invalid value"],
        "the URL names the kind, and Rust reads a type only from its own URL",
    ),
    ("size", &["limit is", "too large", "exceeded max depth", "nesting"], "an object that is too large is never stored"),
    (
        "lists as objects",
        &["must be of type object: \"array\"", "expected map, got &{[", "associative list with keys may not have non-map elements"],
        "serde accepts a list as the fields of a struct; the API server never stores one",
    ),
    ("YAML", &["error decoding YAML"], "server-side apply reads YAML, which has no control characters and no half surrogates"),
    (
        "values of another version",
        &["Unsupported value"],
        "Rust's enums keep an unknown word, so that a newer version's word stops no watch",
    ),
];

/// As [`ONLY_SERVER_REFUSES`], for fields whose Rust types are those of k8s-openapi. They take what a Pod's decoder takes: a missing field and null are
/// the empty value, and a quantity may be a number. Our schemas say what of it a Pod needs.
const KUBERNETES_TYPES: &str = "types of Kubernetes";
/// Where these fields are, and how the API server refuses what they take.
const KUBERNETES_FIELDS: &[&str] = &[".pod.affinity", ".pod.tolerations", ".pod.volumes", ".pod.volumeMounts", ".pod.securityContext."];
const KUBERNETES_WORDS: &[&str] = &["Required value", "must be of type", "omits all key fields", "expected string, got"];

/// As [`ONLY_SERVER_REFUSES`], for refusals with the message of one of our CEL rules.
const RULES: &str = "CEL rules, which Rust's types do not express";

/// Cases that Rust's types rightly refuse and the API server accepts, because it stores another text, which Rust can read.
const ONLY_RUST_REFUSES: &[(&str, &[&str], &str)] = &[
    ("null", &["invalid type: null", "expected value"], "a null for a field with a default is replaced by the default"),
    ("whole floats", &["floating point"], "5.0 and 5e0 are stored as 5"),
    ("half surrogates", &["surrogate", "unexpected end of hex escape"], "invalid Unicode is stored as U+FFFD"),
    ("merge patches", &["missing field", "Merge"], "a patch is not an object; Rust reads the patched object"),
    ("unknown resources", &["expected Quantity"], "of the resources of a claim only storage is stored, and others are dropped unread"),
    (
        "depth",
        &["recursion limit exceeded"],
        "what no schema knows is not stored; beside a flattened struct, serde keeps it until it is dropped, and goes no deeper than 128 levels",
    ),
    (
        "numbers of YAML",
        &["invalid number", "expected `,` or `}`", "expected `,` or `]`"],
        "server-side apply reads YAML, where 0x10 and 007 are numbers",
    ),
];

/// Refusals of decoders, which run before any schema and cannot name a field.
const DECODER: &[&str] = &[
    "json parse error",
    "cannot unmarshal",
    "error decoding",
    "parsing time",
    "cannot be handled as",
    "invalid data, expected int, got float64",
    "the server could not find the requested resource",
];

#[derive(Debug)]
pub struct Fault {
    pub class: &'static str,
    pub case: String,
    pub what: String,
}

#[derive(Default)]
pub struct Report {
    counts: BTreeMap<(Kind, &'static str), [usize; 2]>,
    /// How often each allowed difference was seen.
    pub allowed: BTreeMap<&'static str, usize>,
    pub faults: Vec<Fault>,
    pub cases: usize,
    /// Number of conditions and objects that were checked.
    pub checked: usize,
}

impl Report {
    pub fn fault(&mut self, case: &Case, what: impl Into<String>) {
        self.faults.push(Fault { class: case.class, case: case.description(), what: what.into() });
    }

    /// Returns an error with the faults, at most three of each sort, if there are any.
    pub fn result(&self) -> anyhow::Result<()> {
        if self.faults.is_empty() {
            return Ok(());
        }
        let mut sorts: BTreeMap<String, Vec<&Fault>> = BTreeMap::new();
        for fault in &self.faults {
            let sort = format!("{} {}", fault.class, fault.what.chars().take(50).collect::<String>());
            sorts.entry(sort).or_default().push(fault);
        }
        let cut = |text: &str, most: usize| text.chars().take(most).collect::<String>();
        let shown = |(_, faults): (&String, &Vec<&Fault>)| {
            let some: Vec<String> =
                faults.iter().take(3).map(|f| format!("    {}\n        {}", cut(&f.case, 300), cut(&f.what, 500))).collect();
            format!("  {} of this sort:\n{}", faults.len(), some.join("\n"))
        };
        let shown: Vec<String> = sorts.iter().map(shown).collect();
        anyhow::bail!("{} faults in {} manifests:\n{}", self.faults.len(), self.cases, shown.join("\n"))
    }

    /// Returns the allowed differences that no case showed. They could hide a fault.
    pub fn unused(&self) -> Vec<&'static str> {
        ONLY_SERVER_REFUSES
            .iter()
            .chain(ONLY_RUST_REFUSES)
            .map(|(name, ..)| *name)
            .chain([KUBERNETES_TYPES])
            .filter(|name| !self.allowed.contains_key(name))
            .collect()
    }

    pub fn table(&self) -> String {
        let mut lines = vec![format!("{:<16}{:<24}{:>8}{:>8}{:>8}", "kind", "class", "cases", "taken", "refused")];
        let mut sums = [0, 0];
        for ((kind, class), [taken, refused]) in &self.counts {
            lines.push(format!("{:<16}{:<24}{:>8}{taken:>8}{refused:>8}", kind.as_str(), class, taken + refused));
            sums = [sums[0] + taken, sums[1] + refused];
        }
        lines.push(format!("{:<40}{:>8}{:>8}{:>8}", "all", sums[0] + sums[1], sums[0], sums[1]));
        let why = |name| ONLY_SERVER_REFUSES.iter().chain(ONLY_RUST_REFUSES).find(|(known, ..)| *known == name).map_or("", |(.., why)| why);
        lines.extend(self.allowed.iter().map(|(name, n)| format!("they differ {n:>4} times: {name}: {}", why(*name))));
        lines.join("\n")
    }

    /// Compares the answers to one case. Returns what the operator decided about the stored object, so that the objects that it would create can be
    /// tried too.
    pub fn compare(&mut self, case: &Case, response: &Response, read: ReadFn, decide: DecideFn) -> Decision {
        self.cases += 1;
        let count = self.counts.entry((case.kind, case.class)).or_default();
        count[usize::from(matches!(response, Response::Refused(_)))] += 1;
        let whole = !matches!(case.method, Method::Merge | Method::MergeStatus);
        let sent = catch_panic(|| read(case.kind, &case.text)).and_then(|r| r);
        if let Some(panic) = sent.as_ref().err().filter(|e| e.starts_with("it panics")) {
            self.fault(case, format!("Rust's types: {panic}"));
        }
        match response {
            Response::Accepted(stored) => {
                if case.expected == Expected::Refused {
                    self.fault(case, "the API server takes what must be refused");
                }
                if let Err(why) = catch_panic(|| read(case.kind, stored)).and_then(|r| r) {
                    self.fault(case, format!("stored, and Rust cannot read it, which breaks every watch: {why}"));
                    return Decision::default();
                }
                if case.class.starts_with("unknown field") && spec_of(stored).contains("surplus") {
                    self.fault(case, "a field that no schema knows is stored");
                }
                if let Some(why) = sent.as_ref().err().filter(|_| whole) {
                    self.allow(case, ONLY_RUST_REFUSES, why, &format!("Rust refuses what the API server takes: {why}"));
                }
                self.check_decision(case, stored, decide)
            }
            Response::Refused(refusal) => {
                if case.expected == Expected::Accepted {
                    self.fault(case, format!("refused, and must be taken: {}", refusal.message));
                }
                for what in refusal_problems(case, refusal) {
                    self.fault(case, what);
                }
                if whole && sent.is_ok() {
                    let words = refusal.message.clone();
                    if is_rule(case.kind, &words) {
                        *self.allowed.entry(RULES).or_default() += 1;
                    } else if is_of_kubernetes_type(refusal) {
                        *self.allowed.entry(KUBERNETES_TYPES).or_default() += 1;
                    } else {
                        self.allow(case, ONLY_SERVER_REFUSES, &words, &format!("Rust takes what the API server refuses: {words}"));
                    }
                    // An object that another version's schema accepted must not make the operator panic.
                    if let Err(why) = decide(case.kind, &case.text) {
                        self.fault(case, format!("the operator fails on it: {why}"));
                    }
                }
                Decision::default()
            }
        }
    }

    fn allow(&mut self, case: &Case, list: &[(&'static str, &[&str], &'static str)], words: &str, otherwise: &str) {
        match list.iter().find(|(_, signs, _)| signs.iter().any(|s| words.contains(s))) {
            Some((name, ..)) => *self.allowed.entry(name).or_default() += 1,
            None => self.fault(case, otherwise),
        }
    }

    fn check_decision(&mut self, case: &Case, stored: &str, decide: DecideFn) -> Decision {
        let decision = match decide(case.kind, stored) {
            Ok(decision) => decision,
            Err(why) => {
                self.fault(case, format!("the operator fails on it: {why}"));
                return Decision::default();
            }
        };
        if decision.conditions.is_empty() && case.kind != Kind::WorkspaceNode {
            self.fault(case, "accepted, and the operator sets no condition");
        }
        for condition in &decision.conditions {
            self.checked += 1;
            if let Some(what) = condition_problem(condition) {
                self.fault(case, what);
            }
        }
        decision
    }
}

fn spec_of(stored: &str) -> String {
    serde_json::from_str::<Value>(stored).map(|o| o["spec"].to_string()).unwrap_or_default()
}

/// Returns whether a refusal is about a field with a type of Kubernetes, and of a sort that this type takes.
fn is_of_kubernetes_type(refusal: &Refusal) -> bool {
    let is = |field: &str, words: &str| {
        KUBERNETES_FIELDS.iter().any(|f| field.contains(f)) && KUBERNETES_WORDS.iter().any(|w| words.contains(w))
    };
    // Server-side apply answers without causes when it cannot merge.
    let whole = refusal.causes.is_empty() && is(&refusal.message, &refusal.message);
    whole || refusal.causes.iter().any(|(field, words)| is(field, words))
}

/// Returns whether a refusal contains the message of one of our rules.
fn is_rule(kind: Kind, message: &str) -> bool {
    static MESSAGES: OnceLock<BTreeMap<Kind, Vec<String>>> = OnceLock::new();
    let rules = MESSAGES.get_or_init(|| {
        let of = |kind| schema::rules(&schema::of(kind)).into_iter().map(|(_, message)| message).collect();
        KINDS.into_iter().map(|kind| (kind, of(kind))).collect()
    });
    rules[&kind].iter().any(|rule| message.contains(rule.as_str()))
}

/// Returns what is wrong with a refusal as a message for people.
fn refusal_problems(case: &Case, refusal: &Refusal) -> Vec<String> {
    let mut wrong = Vec::new();
    let words = &refusal.message;
    // Server-side apply answers a value of the wrong type with 500 for every kind of Kubernetes. The message is readable.
    let typed = refusal.code == 500 && words.starts_with("failed to create typed patch object");
    if !typed && !matches!(refusal.code, 400 | 403 | 404 | 405 | 409 | 413 | 415 | 422) {
        wrong.push(format!("answered with {}: {words}", refusal.code));
    }
    let raw = ["failed rule:", "no such key", "evaluation error", "no such overload", "rule evaluation", "CEL"];
    if let Some(sign) = raw.iter().find(|s| words.contains(**s)) {
        wrong.push(format!("the refusal is not a sentence (`{sign}`): {words}"));
    }
    if words.split_whitespace().count() < 3 {
        wrong.push(format!("the refusal is not a sentence: {words:?}"));
    }
    let lower = words.to_lowercase();
    let named = case.names.is_empty() || case.names.split('|').any(|name| lower.contains(&name.to_lowercase()));
    if refusal.code != 413 && !named && !DECODER.iter().any(|d| words.contains(d)) {
        wrong.push(format!("the refusal does not name `{}`: {words}", case.names));
    }
    wrong
}

/// Returns what is wrong with a condition as a message for people.
pub fn condition_problem(condition: &Condition) -> Option<String> {
    let Condition { type_, status, reason, message, .. } = condition;
    // Conditions that `decisions` itself set.
    if message == "It is." {
        return None;
    }
    let text = format!("{type_} is {status:?}, {reason}: {message:?}");
    if Reason::from_name(reason).is_none() {
        return Some(format!("a reason that is not documented: {text}"));
    }
    if *status != ConditionStatus::True && message.split_whitespace().count() < 3 {
        return Some(format!("a condition without a sentence: {text}"));
    }
    let debug = ["Some(", "None)", "Error {", "Err(", "::", "panicked", "failed rule"];
    debug.iter().any(|d| message.contains(d)).then(|| format!("a condition with Rust debug output: {text}"))
}

/// Returns the conditions of an object of the cluster.
pub fn conditions(object: &Value) -> Vec<Condition> {
    serde_json::from_value(object["status"]["conditions"].clone()).unwrap_or_default()
}
