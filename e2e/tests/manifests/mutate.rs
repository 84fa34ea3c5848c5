//! Cases generated from the schemas: manifests that are wrong, odd or huge in one field. A new field gets its cases automatically.

use serde_json::{Value, json};

use crate::case::{Case, Expected, KINDS, Kind, Method, RAW, object, put, raw};
use crate::schema::{self, SchemaNode};
use crate::specimen::{self, Specimen};

/// A change of one field, and the expected answer.
struct Change {
    class: &'static str,
    what: String,
    /// `None` removes the field.
    value: Option<Value>,
    /// The text that replaces [`RAW`] in the value.
    raw: Option<String>,
    expected: Expected,
}

impl Change {
    fn to(class: &'static str, what: impl Into<String>, value: Value, expected: Expected) -> Self {
        Change { class, what: what.into(), value: Some(value), raw: None, expected }
    }

    fn raw(class: &'static str, what: &str, raw: &str, expected: Expected) -> Self {
        Change { class, what: what.to_owned(), value: Some(json!(RAW)), raw: Some(raw.to_owned()), expected }
    }
}

/// Returns every generated case, in an order that never changes.
pub fn all() -> Vec<Case> {
    let specimens = specimen::all();
    let mut cases = Vec::new();
    for kind in KINDS {
        for node in schema::nodes(kind, "spec") {
            let Some(specimen) = specimen_with(&specimens, kind, &node.pointer) else { continue };
            for change in changes(&node) {
                cases.push(spec_case(specimen, &node, change, cases.len()));
            }
            if node.has_fields() {
                cases.extend(unknown_fields(specimen, &node, cases.len()));
            }
        }
        cases.extend(status_cases(&specimens, kind));
    }
    cases.extend(two_at_once(&specimens));
    cases
}

/// What only the gateway may set.
const OF_THE_GATEWAY: &str = "YoiPod /spec/spawnedBy";

/// Fields of a type that is shared, which a rule refuses where it stands here.
const NEVER_SET: [&str; 9] = [
    "YoiPod /spec/workspace/template/source/git/refresh",
    "AgentWorkspace /spec/source/git/refresh",
    "AgentWorkspace /status/origin/source/git/refresh",
    "YoiPod /spec/workspace/template/source/git/sync",
    "AgentWorkspace /spec/source/git/sync",
    "AgentWorkspace /status/origin/source/git/sync",
    "YoiPod /spec/workspace/template/source/empty/sync",
    "AgentWorkspace /spec/source/empty/sync",
    "AgentWorkspace /status/origin/source/empty/sync",
];

/// Returns the fields that no specimen sets, so that no valid value is known.
pub fn unset_nodes() -> Vec<String> {
    let specimens = specimen::all();
    let of_spec = |kind: Kind| {
        let bare = schema::nodes(kind, "spec").into_iter().filter(|p| specimen_with(&specimens, kind, &p.pointer).is_none());
        bare.map(|p| format!("{} {}", kind.as_str(), p.pointer)).collect::<Vec<_>>()
    };
    let of_status = |kind: Kind| {
        let bare = schema::nodes(kind, "status").into_iter().filter(|p| status_with(kind, &p.pointer).is_none());
        bare.map(|p| format!("{} {}", kind.as_str(), p.pointer)).collect::<Vec<_>>()
    };
    let unset = KINDS.into_iter().flat_map(|kind| [of_spec(kind), of_status(kind)].concat());
    unset.filter(|node| !NEVER_SET.contains(&&**node) && !node.starts_with(OF_THE_GATEWAY)).collect()
}

fn specimen_with<'a>(specimens: &'a [Specimen], kind: Kind, pointer: &str) -> Option<&'a Specimen> {
    let within = pointer.strip_prefix("/spec")?;
    specimens.iter().filter(|s| s.kind == kind).find(|s| s.spec.pointer(within).is_some())
}

/// Returns a merge patch whose status sets the field at `pointer`.
fn status_with(kind: Kind, pointer: &str) -> Option<Value> {
    specimen::statuses(kind).into_iter().map(|status| json!({ "status": status })).find(|patch| patch.pointer(pointer).is_some())
}

fn spec_case(specimen: &Specimen, node: &SchemaNode, change: Change, number: usize) -> Case {
    // Every fourth case replaces an existing object, where rules about immutable fields apply too.
    let method = match number % 4 {
        1 => Method::Apply,
        3 if !specimen.existing.is_empty() && specimen.kind != Kind::YoiPeer => Method::Update,
        _ => Method::Create,
    };
    let fresh = if specimen.kind == Kind::YoiPeer { "a.b".to_owned() } else { format!("case-{number}") };
    let name = if method == Method::Update { specimen.existing.to_owned() } else { fresh };
    let mut body = object(specimen.kind, &name, &specimen.spec);
    assert!(put(&mut body, &node.pointer, change.value), "{} does not stand in its specimen", node.pointer);
    // Server-side apply reads YAML, in which 0x10 and 007 are numbers.
    let yaml = method == Method::Apply && change.class == "number" && change.raw.is_some();
    let expected = if yaml { Expected::Either } else { change.expected };
    Case {
        kind: specimen.kind,
        class: change.class,
        title: format!("{}: {}", node.pointer, change.what),
        method,
        strict: true,
        name,
        text: change.raw.map_or_else(|| body.to_string(), |text| raw(&body, &text)),
        expected,
        names: node.fields(),
        label: specimen.label,
    }
}

/// Returns cases with an unknown field in every object, with and without strict validation, and with deep values.
fn unknown_fields(specimen: &Specimen, node: &SchemaNode, number: usize) -> Vec<Case> {
    let pointer = &node.pointer;
    let bare = !node.schema["properties"].is_object();
    let deep = |n: usize| format!("{}{}", "{\"d\":".repeat(n), format_args!("1{}", "}".repeat(n)));
    let make = |i: usize, class: &'static str, strict: bool, method: Method, value: &str, expected: Expected| {
        let name = if specimen.kind == Kind::YoiPeer { "a.b".to_owned() } else { format!("unknown-{number}-{i}") };
        let mut body = object(specimen.kind, &name, &specimen.spec);
        put(&mut body, &format!("{pointer}/surplus"), Some(json!(RAW)));
        let title = format!("{pointer}/surplus of {} bytes", value.len());
        let (names, label) = ("surplus".to_owned(), specimen.label);
        Case { kind: specimen.kind, class, title, method, strict, name, text: raw(&body, value), expected, names, label }
    };
    let mut all = vec![
        make(0, "unknown field", true, Method::Create, "1", Expected::Refused),
        make(1, "unknown field", false, Method::Create, "[null, {\"a\": -1}]", Expected::Accepted),
        // Server-side apply accepts any field in an object without fields, and drops it.
        make(2, "unknown field", true, Method::Apply, "{}", if bare { Expected::Either } else { Expected::Refused }),
        make(3, "unknown field, deep", false, Method::Create, &deep(150), Expected::Accepted),
    ];
    if pointer == "/spec" {
        // Deeper than decoders follow, and larger than API server and etcd accept.
        all.push(make(4, "unknown field, deep", false, Method::Create, &deep(12_000), Expected::Either));
        all.push(make(5, "huge", false, Method::Create, &format!("\"{}\"", "x".repeat(1 << 20)), Expected::Either));
    }
    all
}

fn status_cases(specimens: &[Specimen], kind: Kind) -> Vec<Case> {
    let Some(specimen) = specimens.iter().find(|s| s.kind == kind && !s.existing.is_empty()) else { return Vec::new() };
    let mut cases = Vec::new();
    for node in schema::nodes(kind, "status") {
        let Some(whole) = status_with(kind, &node.pointer) else { continue };
        for change in changes(&node) {
            let mut patch = whole.clone();
            assert!(put(&mut patch, &node.pointer, change.value), "{} does not stand in its specimen", node.pointer);
            // In a merge patch null means "remove", and a missing field stays as it is.
            let expected = if matches!(change.class, "null" | "missing") { Expected::Either } else { change.expected };
            cases.push(Case {
                kind,
                class: change.class,
                title: format!("{}: {}", node.pointer, change.what),
                method: Method::MergeStatus,
                strict: true,
                name: specimen.existing.to_owned(),
                text: change.raw.map_or_else(|| patch.to_string(), |text| raw(&patch, &text)),
                expected,
                names: node.fields(),
                label: specimen.label,
            });
        }
    }
    cases
}

fn changes(node: &SchemaNode) -> Vec<Change> {
    let mut all = type_swaps(node);
    let bare = node.required && !node.defaulted();
    all.push(Change {
        class: "missing",
        what: "taken away".into(),
        value: None,
        raw: None,
        expected: if bare { Expected::Refused } else { Expected::Either },
    });
    let null = if bare && !node.nullable() { Expected::Refused } else { Expected::Either };
    all.push(Change::to("null", "null", Value::Null, null));
    match node.type_() {
        "string" => strings(node, &mut all),
        "integer" => integers(node, &mut all),
        "array" => lists(node, &mut all),
        "object" => maps(node, &mut all),
        _ => {}
    }
    all
}

fn type_swaps(node: &SchemaNode) -> Vec<Change> {
    let others = [
        ("string", json!("seven")),
        ("integer", json!(7)),
        ("boolean", json!(true)),
        ("array", json!(["x"])),
        ("object", json!({ "x": 1 })),
        ("number", json!(1.5)),
    ];
    let fits = |type_: &str| type_ == node.type_();
    let wrong = others.into_iter().filter(|(type_, _)| !fits(type_));
    wrong.map(|(type_, value)| Change::to("type swapped", format!("{type_} for {}", node.type_()), value, Expected::Refused)).collect()
}

/// Odd texts that may be valid.
const ODD: [(&str, &str); 12] = [
    ("right to left", "\u{202e}txet\u{202c}"),
    ("combining", "e\u{301}\u{301}\u{301}\u{301}"),
    ("emoji", "👩‍👩‍👧‍👦🏴‍☠️"),
    ("byte order mark", "\u{feff}x"),
    ("not a character", "\u{ffff}"),
    ("NUL", "a\u{0}b"),
    ("escape", "\u{1b}[31m"),
    ("lines", "a\nb\r\nc"),
    ("blank", " "),
    ("template", "{{ .Values.x }}$(HOME)${HOME}`id`"),
    ("yes", "no"),
    ("quotes", "'\"\\"),
];

fn strings(node: &SchemaNode, all: &mut Vec<Change>) {
    let most = node.number("maxLength").and_then(|n| usize::try_from(n).ok());
    let least = node.number("minLength").unwrap_or(0);
    if node.schema["enum"].is_array() {
        let first = node.schema["enum"][0].as_str().unwrap_or_default();
        for word in ["Nonsense".to_owned(), first.to_lowercase(), format!("{first} "), String::new()] {
            if !node.schema["enum"].as_array().is_some_and(|e| e.iter().any(|v| *v == word)) {
                all.push(Change::to("unknown word", format!("{word:?}"), json!(word), Expected::Refused));
            }
        }
        return;
    }
    all.push(Change::to("empty", "\"\"", json!(""), if least > 0 { Expected::Refused } else { Expected::Either }));
    if let Some(most) = most {
        all.push(Change::to("at the bound", format!("{most} letters"), json!("a".repeat(most)), Expected::Either));
        all.push(Change::to("at the bound", format!("{most} four-byte letters"), json!("🦀".repeat(most)), Expected::Either));
        all.push(Change::to("above the bound", format!("{} letters", most + 1), json!("a".repeat(most + 1)), Expected::Refused));
        all.push(Change::to("huge", "128 KiB", json!("a".repeat(1 << 17)), Expected::Refused));
    } else {
        all.push(Change::to("huge", "128 KiB", json!("a".repeat(1 << 17)), Expected::Either));
    }
    for (what, text) in ODD {
        all.push(Change::to("unicode", what, json!(text), Expected::Either));
    }
    all.push(Change::raw("unicode", "half a surrogate pair", r#""a\ud800b""#, Expected::Either));
    all.push(Change::raw("unicode", "surrogates the wrong way round", r#""\udc00\ud83d""#, Expected::Either));
}

fn integers(node: &SchemaNode, all: &mut Vec<Change>) {
    let (least, most) = (node.number("minimum"), node.number("maximum"));
    let out = |n: i64| least.is_some_and(|l| n < l) || most.is_some_and(|m| n > m);
    let mut numbers = vec![-1, 0, 1, i64::from(i32::MAX), i64::from(i32::MAX) + 1, i64::from(i32::MIN) - 1, i64::MAX, i64::MIN];
    numbers.extend(least.map(|l| l - 1));
    numbers.extend(most.map(|m| m + 1));
    numbers.sort_unstable();
    numbers.dedup();
    for n in numbers {
        all.push(Change::to("number", n.to_string(), json!(n), if out(n) { Expected::Refused } else { Expected::Either }));
    }
    for text in ["9223372036854775808", "1e30", "1e400", "-0", "5.0", "5e0", "0x10", "NaN", "007"] {
        let sound = matches!(text, "-0" | "5.0" | "5e0");
        all.push(Change::raw("number", text, text, if sound { Expected::Either } else { Expected::Refused }));
    }
}

fn lists(node: &SchemaNode, all: &mut Vec<Change>) {
    let least = node.number("minItems").unwrap_or(0);
    all.push(Change::to("empty", "[]", json!([]), if least > 0 { Expected::Refused } else { Expected::Either }));
    all.push(Change::to("null", "[null]", json!([null]), Expected::Refused));
    let item = sample(&node.schema["items"], 0);
    all.push(Change::to("doubled", "the same twice", json!([item, item]), Expected::Either));
    all.push(Change::to("nested", "[[[]]]", json!([[[]]]), Expected::Refused));
    let many = |n: usize| Value::Array((0..n).map(|i| sample(&node.schema["items"], i)).collect());
    if let Some(most) = node.number("maxItems").and_then(|n| usize::try_from(n).ok()) {
        all.push(Change::to("at the bound", format!("{most} items"), many(most), Expected::Either));
        all.push(Change::to("above the bound", format!("{} items", most + 1), many(most + 1), Expected::Refused));
    }
    all.push(Change::to("huge", "2,000 items", many(2_000), Expected::Either));
}

fn maps(node: &SchemaNode, all: &mut Vec<Change>) {
    let values = &node.schema["additionalProperties"];
    if !values.is_object() {
        all.push(Change::to("empty", "{}", json!({}), Expected::Either));
        return;
    }
    let one = |key: &str| json!({ key: sample(values, 0) });
    for (what, key) in
        [("empty key", ""), ("blank key", " "), ("slashes", "a/b/c"), ("a path", "../../etc"), ("long key", &"k".repeat(400))]
    {
        all.push(Change::to("map", what, one(key), Expected::Either));
    }
    for (what, key) in ODD {
        all.push(Change::to("map", format!("key of {what}"), one(key), Expected::Either));
    }
    let many = |n: usize| Value::Object((0..n).map(|i| (format!("example.com/k{i}"), sample(values, 0))).collect());
    all.push(Change::to("map", "40 entries", many(40), Expected::Either));
    all.push(Change::to("huge", "2,000 entries", many(2_000), Expected::Refused));
}

/// Returns a value of the right type, different for each `n` where possible.
fn sample(schema: &Value, n: usize) -> Value {
    match schema["type"].as_str() {
        Some("string") => schema["enum"].get(0).cloned().unwrap_or_else(|| json!(format!("s{n}"))),
        Some("integer" | "number") => json!(n + 1),
        Some("boolean") => json!(true),
        Some("array") => json!([]),
        _ => Value::Object(schema["properties"].as_object().into_iter().flatten().map(|(k, v)| (k.clone(), sample(v, n))).collect()),
    }
}

/// A random number generator, so that the cases are the same on every machine.
struct SplitMix64(u64);

impl SplitMix64 {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % n as u64).unwrap_or(0)
    }
}

/// Returns cases with two or three random changes, from a fixed seed.
fn two_at_once(specimens: &[Specimen]) -> Vec<Case> {
    let mut rng = SplitMix64(2026);
    let mut cases = Vec::new();
    for specimen in specimens.iter().filter(|s| s.kind != Kind::WorkspaceNode) {
        let nodes = schema::nodes(specimen.kind, "spec");
        for number in 0..24 {
            let name = if specimen.kind == Kind::YoiPeer { "a.b".to_owned() } else { format!("twice-{number}") };
            let mut body = object(specimen.kind, &name, &specimen.spec);
            let mut titles = Vec::new();
            for _ in 0..2 + rng.below(2) {
                let node = &nodes[rng.below(nodes.len())];
                let mut options: Vec<Change> = changes(node).into_iter().filter(|c| c.raw.is_none() && c.class != "huge").collect();
                let change = options.swap_remove(rng.below(options.len()));
                let title = format!("{}: {}", node.pointer, change.what);
                if body.pointer(&node.pointer).is_some() && put(&mut body, &node.pointer, change.value) {
                    titles.push(title);
                }
            }
            cases.push(Case {
                kind: specimen.kind,
                class: "several",
                title: titles.join("; "),
                method: if number % 2 == 0 { Method::Create } else { Method::Apply },
                strict: number % 3 == 0,
                name,
                text: body.to_string(),
                expected: Expected::Either,
                names: String::new(),
                label: specimen.label,
            });
        }
    }
    cases
}
