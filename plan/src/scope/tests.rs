//! Bad input, the cases of group C that rules decide alone, and all of it against an oracle that asks rule by rule, entry by entry, in a small tree.

use std::collections::BTreeSet;

use super::covers::Covers;
use super::*;

fn path(text: &str) -> TreePath {
    TreePath::parse(text.as_bytes()).unwrap()
}

/// `+w:src` allows Write on src and below, `-r:keys` denies Read, `+w=src` is not recursive.
fn rules(text: &str) -> Rules {
    try_rules(text).unwrap()
}

fn try_rules(text: &str) -> Result<Rules, RulesError> {
    let (mut allow, mut deny) = (Vec::new(), Vec::new());
    for word in text.split_whitespace() {
        let (sign, rest) = word.split_at(1);
        let (access, rest) = rest.split_at(1);
        let access = if access == "w" { Access::Write } else { Access::Read };
        let (mark, at) = rest.split_at(1);
        let list = if sign == "+" { &mut allow } else { &mut deny };
        list.push(Rule { path: path(at), access, recursive: mark == ":" });
    }
    Rules::new(allow, deny)
}

fn entry(kind: EntryKind, text: &str) -> Entry {
    Entry { path: path(text), kind }
}

fn loan(id: &str, lender: &str, holder: &str, text: &str) -> Loan {
    Loan { id: id.into(), lender: lender.into(), holder: holder.into(), rules: rules(text) }
}

#[test]
fn what_is_no_path_is_refused_by_name() {
    let (deep, long_name, long) = ("a/".repeat(4095) + "a", "n".repeat(256), vec!["x".repeat(200); 21].join("/"));
    let table: &[(&[u8], &str)] = &[
        (b"", "it is empty"),
        (b"/etc", "\"/etc\": it is absolute"),
        (b"/", "it is absolute"),
        (b"..", "it has a `..`"),
        (b"src/../../etc", "\"src/../../etc\": it has a `..`"),
        (b"./src", "it has a `.`;"),
        (b"src/.", "it has a `.`;"),
        (b"src//a", "a name in it is empty"),
        (b"src/", "a name in it is empty"),
        (b".git", "git's own folder has no rules"),
        (b"module/.git/hooks", "git's own folder has no rules"),
        (b"caf\xe9", "\"caf\u{fffd}\": it is not UTF-8"),
        (b"a\0b", "it has a NUL byte"),
        (b"a\nb\0", "\"a\\nb\\0\": it has a NUL byte"),
        (deep.as_bytes(), "it has 4096 names, and at most 256 are taken"),
        (long.as_bytes(), "it has 4220 bytes, and at most 4095 are taken"),
        (long_name.as_bytes(), "a name in it has 256 bytes, and at most 255 are taken"),
    ];
    for (bytes, why) in table {
        let told = TreePath::parse(bytes).unwrap_err().to_string();
        assert!(told.starts_with("failed to read ") && told.contains(why), "{told}");
        assert!(told.len() < 300, "an error quotes the beginning alone: {told}");
    }
    for taken in [".", "src", "src/.github", "..a", "a..", ".gitignore", "ü/日本", "with blank", "-rf", "*"] {
        assert_eq!(path(taken).to_string(), taken);
    }
}

#[test]
fn c1_rules_that_allow_nothing_are_none_and_so_are_too_many() {
    assert_eq!(try_rules("").unwrap_err(), RulesError::Empty);
    assert_eq!(try_rules("-w:a").unwrap_err(), RulesError::Empty);
    let many = |n: usize| "+r:a ".repeat(n);
    assert!(try_rules(&many(MAX_RULES)).is_ok());
    assert_eq!(try_rules(&many(1000)).unwrap_err(), RulesError::TooMany(1000));
    let half_hidden = try_rules("+w:. -r=keys").unwrap_err();
    assert!(half_hidden.to_string().contains("denies Read on keys"), "{half_hidden}");
}

#[test]
fn c2_who_has_no_delegation_lends_nothing_whatever_it_may_write() {
    let refused = lend(&Rules::whole_tree(), None, &rules("+w:src")).unwrap_err();
    assert_eq!(refused, LendError::NoDelegation);
    assert!(refused.to_string().contains("no delegation"));
}

#[test]
fn c3_a_rule_outside_the_delegation_or_over_its_denial_is_refused_by_name() {
    let delegation = rules("+w:src -w:src/core");
    for (asked, place) in
        [("+w:docs", "docs"), ("+w:.", "."), ("+r:docs", "docs"), ("+w:src", "src/core"), ("+w:src/core/io", "src/core/io")]
    {
        let refused = lend(&Rules::whole_tree(), Some(&delegation), &rules(asked)).unwrap_err();
        let LendError::OutsideDelegation { path: at, .. } = &refused else { panic!("{asked}: {refused}") };
        assert_eq!(*at, path(place), "{asked}");
    }
    for asked in ["+w:src/parser", "+r:src", "+w:src -w:src/core", "+w:src -r:src/core"] {
        lend(&Rules::whole_tree(), Some(&delegation), &rules(asked)).unwrap();
    }
    // What it may lend, and may not write itself.
    let refused = lend(&rules("+w:docs"), Some(&delegation), &rules("+w:src/parser")).unwrap_err();
    assert!(matches!(&refused, LendError::OutsideScope { path: at, access: "Write" } if *at == path("src/parser")), "{refused}");
}

#[test]
fn c4_below_a_grant_that_is_not_recursive_nothing_is_lent_and_the_same_rule_is() {
    let delegation = rules("+w=src");
    for asked in ["+w:src", "+w=src/parser", "+w:src/parser", "+r=src/parser/lexer"] {
        // A file src/parser would be in the grant; as a folder it is not.
        let refused = lend(&Rules::whole_tree(), Some(&delegation), &rules(asked));
        assert!(matches!(refused, Err(LendError::OutsideDelegation { .. })), "{asked}");
    }
    for asked in ["+w=src", "+r=src"] {
        lend(&Rules::whole_tree(), Some(&delegation), &rules(asked)).unwrap();
    }
}

#[test]
fn c5_a_loan_over_anothers_names_who_holds_it_in_the_end() {
    let loans =
        [loan("1", "lead", "child", "+w:src"), loan("2", "child", "grandchild", "+w:src/core"), loan("3", "lead", "other", "+w:docs")];
    let told = conflict(&loans, &loan("4", "lead", "new", "+w:src")).unwrap();
    assert_eq!((told.holder.as_str(), told.loan.as_str(), told.path.clone()), ("grandchild", "2", path("src/core")));
    assert!(told.to_string().contains("Write on src/core: grandchild holds it"), "{told}");
    let beside = conflict(&loans, &loan("4", "lead", "new", "+w:src/parser")).unwrap();
    assert_eq!((beside.holder, beside.path), ("child".into(), path("src/parser")));
    assert_eq!(conflict(&loans, &loan("4", "lead", "new", "+w:tests")), None);
    // Claimed again after a crash, and lent on by who holds it.
    assert_eq!(conflict(&loans[..1], &loans[0]), None);
    assert_eq!(conflict(&loans, &loan("5", "child", "second", "+w:src/parser")), None);
    assert_eq!(conflict(&loans, &loan("5", "child", "second", "+w:src/core/io")).unwrap().holder, "grandchild");
    // Lenders in a ring are damage, and no reason to hang.
    let ring = [loan("1", "a", "b", "+w:x"), loan("2", "b", "a", "+w:x")];
    assert!(conflict(&ring, &loan("3", "c", "d", "+w:x")).is_some());
}

#[test]
fn c6_rules_that_only_read_hinder_nobody() {
    let loans = [loan("1", "lead", "child", "+w:src -w:src/core"), loan("2", "lead", "reader", "+r:.")];
    assert_eq!(conflict(&loans, &loan("3", "lead", "new", "+r:src")), None);
    assert_eq!(conflict(&loans, &loan("3", "lead", "new", "+w:src/core")), None);
    assert_eq!(conflict(&loans, &loan("3", "lead", "new", "+w:. -w:src")), None);
}

#[test]
fn c13_c14_c22_a_release_gives_back_what_its_loan_took_once_and_no_denial_of_the_scope() {
    let (core, parser) = (entry(EntryKind::Folder, "src/core"), entry(EntryKind::Folder, "src/parser"));
    let scope = rules("+w:. -w:src/core");
    let lent = lend(&scope, Some(&Rules::whole_tree()), &rules("+w:src")).unwrap();
    assert!(!lent.allows(&core, Access::Write), "the child inherits the denial");
    let mut view = View::new(scope);
    let before = view.clone();
    // A loan whose rules are the very denial of the scope.
    for _ in 0..2 {
        view.take("1", &lent);
        view.take("2", &rules("+w:src/core"));
    }
    let write = |view: &View, at| view.allows(at, Access::Write);
    assert!(!write(&view, &parser) && view.allows(&parser, Access::Read));
    assert!(view.release("1") && !view.release("1"));
    assert!(write(&view, &parser) && !write(&view, &core));
    assert!(view.release("2") && !view.release("2") && !view.release("never"));
    assert_eq!(view, before);
}

#[test]
fn covers_are_laid_from_the_root_down_and_hold_the_folders_above_them() {
    let told = |view: &View| {
        let word = |cover: &Cover| {
            let more = |what: &str, shown: Option<Shown>| shown.map_or(String::new(), |shown| format!(" {what} {shown:?}"));
            let Cover { path, shown, shown_file, folders } = cover;
            format!("{path} {shown:?}{}{}", more("file", *shown_file), more("folders", *folders))
        };
        view.covers().iter().map(word).collect::<Vec<_>>()
    };
    let mut parent = View::new(Rules::whole_tree());
    assert!(told(&parent).is_empty());
    parent.take("1", &rules("+w:crates/a/src -w:crates/a/src/gen"));
    let lent = ["crates Writable", "crates/a Writable", "crates/a/src ReadOnly", "crates/a/src/gen Writable"];
    assert_eq!(told(&parent), lent);
    let child = View::new(rules("+r:. +w:crates/a/src -w:crates/a/src/gen -r:keys"));
    assert_eq!(told(&child), [". ReadOnly", "crates/a/src Writable", "crates/a/src/gen ReadOnly", "keys Hidden"]);
    let flat = View::new(rules("+r:. +w=src"));
    assert_eq!(told(&flat), [". ReadOnly", "src Writable folders ReadOnly"]);
}

/// Names of depth three at most, each as a folder or a file, with nothing in a file: all that a tree of these can hold.
fn small_tree() -> Vec<Entry> {
    let mut paths = vec![TreePath::root()];
    for depth in 0..3 {
        let above: Vec<TreePath> = paths.iter().filter(|path| path.ancestors().count() == depth).cloned().collect();
        for folder in above {
            for name in ["a", "b", "c"] {
                paths.push(if folder.is_root() { path(name) } else { path(&format!("{folder}/{name}")) });
            }
        }
    }
    let both = |path: TreePath| [EntryKind::Folder, EntryKind::File].map(|kind| Entry { path: path.clone(), kind });
    paths.into_iter().flat_map(both).filter(|entry| !entry.path.is_root() || entry.kind == EntryKind::Folder).collect()
}

/// What rules say of an entry, by their definition alone, and by the texts of paths.
fn oracle(rules: &Rules, entry: &Entry) -> Shown4 {
    let holds = |rule: &Rule| {
        let (at, of) = (entry.path.to_string(), rule.path.to_string());
        let below = of == "." || at.starts_with(&format!("{of}/"));
        let directly = below && at != "." && (if of == "." { &at[..] } else { &at[of.len() + 1..] }).matches('/').count() == 0;
        at == of || (rule.recursive && below) || (!rule.recursive && directly && entry.kind == EntryKind::File)
    };
    let any = |list: &[Rule], access| list.iter().any(|rule| rule.access == access && holds(rule));
    let (write, read) = (any(rules.allow(), Access::Write), any(rules.allow(), Access::Read));
    match () {
        () if any(rules.deny(), Access::Read) => Shown4::Hidden,
        () if write && !any(rules.deny(), Access::Write) => Shown4::Write,
        () if write || read => Shown4::Read,
        () => Shown4::Closed,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Shown4 {
    Hidden,
    Closed,
    Read,
    Write,
}

/// Numbers that look like chance, and are the same in each run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }

    fn rules(&mut self) -> Rules {
        const PATHS: [&str; 9] = [".", "a", "b", "a/a", "a/b", "b/c", "a/a/a", "a/b/c", "b/c/a"];
        let mut list = |least: usize, most: usize, denies: bool| {
            let count = least + self.below(most);
            let mut rule = || {
                let access = [Access::Read, Access::Write][self.below(2)];
                let recursive = self.below(2) == 0 || (denies && access == Access::Read);
                Rule { path: path(PATHS[self.below(PATHS.len())]), access, recursive }
            };
            (0..count).map(|_| rule()).collect::<Vec<_>>()
        };
        let (allow, deny) = (list(1, 3, false), list(0, 3, true));
        Rules::new(allow, deny).unwrap()
    }
}

const ROUNDS: u64 = 1000;

#[test]
fn c24_in_every_small_tree_rules_mean_what_their_definition_says() {
    let tree = small_tree();
    for seed in 0..ROUNDS {
        let rules = Chance(seed).rules();
        for entry in &tree {
            let expected = oracle(&rules, entry);
            let told = (rules.allows(entry, Access::Write), rules.allows(entry, Access::Read), rules.hides(entry));
            let is = |level| expected == level;
            assert_eq!(told, (is(Shown4::Write), expected >= Shown4::Read, is(Shown4::Hidden)), "{rules:?} at {entry:?}");
        }
    }
}

#[test]
fn narrower_means_that_no_entry_of_any_tree_is_open_in_one_and_not_in_the_other() {
    let (tree, mut seen) = (small_tree(), BTreeSet::new());
    for seed in 0..ROUNDS {
        let mut chance = Chance(seed);
        let (one, other) = (chance.rules(), chance.rules());
        // A path with something named below it is a folder, in whatever tree.
        let named: Vec<&TreePath> = one.paths().chain(other.paths()).collect();
        let is_folder = |entry: &Entry| named.iter().any(|path| **path != entry.path && path.starts_with(&entry.path));
        let open = |rules: &Rules, entry: &Entry| oracle(rules, entry).max(Shown4::Closed);
        let beyond = |entry: &&Entry| open(&one, entry) > open(&other, entry) && (entry.kind == EntryKind::Folder || !is_folder(entry));
        let expected = tree.iter().find(beyond);
        let found = one.beyond(&other);
        // A tree of depth three has no entry below the deepest rules: what is found only there is checked by itself.
        match &found {
            Some(entry) => assert!(open_at(&one, entry) > open_at(&other, entry), "{one:?} beyond {other:?} at {entry:?}"),
            None => assert_eq!(expected, None, "{one:?} beyond {other:?}"),
        }
        seen.insert(found.is_some());
        let writes = |rules: &Rules, entry: &Entry| oracle(rules, entry) == Shown4::Write;
        let both = |entry: &&Entry| writes(&one, entry) && writes(&other, entry) && (entry.kind == EntryKind::Folder || !is_folder(entry));
        let wanted = Loan { id: "2".into(), lender: "lead".into(), holder: "new".into(), rules: other.clone() };
        let held = Loan { id: "1".into(), lender: "lead".into(), holder: "child".into(), rules: one.clone() };
        if tree.iter().any(|entry| both(&entry)) {
            assert!(conflict(&[held], &wanted).is_some(), "{one:?} with {other:?}");
        }
    }
    assert_eq!(seen.len(), 2, "some are narrower and some are not");
}

fn open_at(rules: &Rules, entry: &Entry) -> Shown4 {
    // The oracle reads texts; a name that no rule has is written as a star.
    oracle(rules, entry).max(Shown4::Closed)
}

#[test]
fn what_the_covers_show_is_what_the_rules_say_and_no_folder_above_a_cover_can_move() {
    let tree = small_tree();
    for seed in 0..ROUNDS {
        let mut chance = Chance(seed);
        let (scope, loans) = (chance.rules(), [chance.rules(), chance.rules()]);
        let mut view = View::new(scope.clone());
        for (id, rules) in loans.iter().enumerate().take(chance.below(3)) {
            view.take(&id.to_string(), rules);
        }
        let lent: Vec<&Rules> = view.lent().collect();
        let covers = Covers(view.covers());
        let named: BTreeSet<&TreePath> = covers.0.iter().map(|cover| &cover.path).collect();
        assert_eq!(named.len(), covers.0.len(), "one cover at a path");
        assert!(covers.0.is_sorted_by_key(|cover| &cover.path), "a folder comes before what is in it");
        let mentioned: Vec<&TreePath> = view.rules().map(|rule| &rule.path).collect();
        for entry in &tree {
            if entry.kind == EntryKind::File && mentioned.iter().any(|path| **path != entry.path && path.starts_with(&entry.path)) {
                continue;
            }
            let expected = match oracle(&scope, entry) {
                Shown4::Hidden => Shown::Hidden,
                Shown4::Write if lent.iter().all(|rules| oracle(rules, entry) != Shown4::Write) => Shown::Writable,
                Shown4::Closed | Shown4::Read | Shown4::Write => Shown::ReadOnly,
            };
            assert_eq!(covers.shown_at(&entry.path, entry.kind), expected, "{view:?} at {entry:?}: {:?}", covers.0);
        }
        for folder in covers.0.iter().flat_map(|cover| cover.path.ancestors()).filter(|folder| !folder.is_root()) {
            let parent = folder.parent().unwrap();
            let can_move = covers.shown_at(&parent, EntryKind::Folder) == Shown::Writable;
            assert!(!can_move || named.contains(&folder), "{folder} can be renamed: {:?}", covers.0);
        }
    }
}
