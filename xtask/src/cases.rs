//! The acceptance cases of `xtask/cases.txt`: each that stands has tests that bear its name, and each that does not has a reason.

#[cfg(test)]
mod tests {
    use crate::instance::repository;
    use std::collections::{BTreeMap, BTreeSet};
    use std::fs;
    use std::path::Path;

    const TABLE: &str = include_str!("../cases.txt");

    /// How many cases there are of each group, of agents, of projects and of workspaces. They are numbered from 1.
    const GROUPS: &str = "A27 B23 C27 D13 E11 F17 G10 H6 R8 P74 W47";

    /// The suite that has its tests in tables instead of functions with an attribute.
    const CONFORMANCE: &str = "workspace/tests/conformance/";

    #[derive(Default)]
    struct Case<'a> {
        /// Of each test: its file and its name.
        tests: Vec<(&'a str, &'a str)>,
        reasons: Vec<&'a str>,
    }

    /// The cases of a table and the lines that are none.
    fn read(table: &str) -> (BTreeMap<&str, Case<'_>>, Vec<String>) {
        let (mut cases, mut faults) = (BTreeMap::<&str, Case<'_>>::new(), Vec::new());
        for line in table.lines().filter(|line| !line.starts_with('#')) {
            let (case, rest) = line.split_once(' ').unwrap_or_default();
            let entry = cases.entry(case).or_default();
            if let Some(reason) = rest.trim().strip_prefix("- ") {
                entry.reasons.push(reason);
            } else if let [file, test] = rest.split_whitespace().collect::<Vec<_>>()[..] {
                entry.tests.push((file, test));
            } else {
                faults.push(format!("{line:?} is neither a case, a file and a test nor a case, - and a reason"));
            }
        }
        (cases, faults)
    }

    fn all_cases(groups: &str) -> BTreeSet<String> {
        let numbered = |group: &str| {
            let (letter, count) = (group[..1].to_owned(), group[1..].parse().unwrap_or(0));
            (1..=count).map(move |n: u32| format!("{letter}{n}"))
        };
        groups.split_whitespace().flat_map(numbered).collect()
    }

    /// What is wrong with the table, given the text of each file that it names.
    fn faults(table: &str, groups: &str, text_of: impl Fn(&str) -> String) -> Vec<String> {
        let (cases, mut faults) = read(table);
        let all = all_cases(groups);
        faults.extend(all.iter().filter(|case| !cases.contains_key(case.as_str())).map(|case| format!("{case} has no test and no reason")));
        for (case, Case { tests, reasons }) in cases {
            if !all.contains(case) {
                faults.push(format!("there is no case {case}"));
            }
            match (tests.is_empty(), &reasons[..]) {
                (false, []) => {}
                (false, [part]) if part.starts_with("in part: ") => {}
                (true, [lacks]) if lacks.starts_with("not built: ") || lacks.starts_with("no test: ") => {}
                (_, said) => faults.push(format!("{case} has {} tests and says {said:?}", tests.len())),
            }
            for (file, test) in tests {
                if !names(test).any(|name| name == case.to_lowercase()) {
                    faults.push(format!("{test} does not begin with {}_", case.to_lowercase()));
                }
                let is_there = match file.strip_prefix(CONFORMANCE) {
                    Some(module) => {
                        runs_in_suite(&text_of(file), test) && text_of(&format!("{CONFORMANCE}main.rs")).contains(&cases_of(module))
                    }
                    None => has_test(&text_of(file), test),
                };
                if !is_there {
                    faults.push(format!("{file} has no test {test}"));
                }
            }
        }
        faults
    }

    /// The cases at the beginning of a test's name: `a8` and `a9` of `a8_a9_a_write_that_fails`.
    fn names(test: &str) -> impl Iterator<Item = &str> {
        let is_case = |word: &&str| {
            let (letter, number) = word.split_at_checked(1).unwrap_or_default();
            letter.bytes().all(|c| c.is_ascii_lowercase()) && !number.is_empty() && number.bytes().all(|c| c.is_ascii_digit())
        };
        test.split('_').take_while(is_case)
    }

    /// The function stands below an attribute that makes it a test.
    fn has_test(text: &str, test: &str) -> bool {
        let Some(at) = text.find(&format!("fn {test}(")) else { return false };
        let above = text[..at].trim_end_matches("async ").trim_end().lines().rev().map(str::trim_start);
        above
            .take_while(|line| line.starts_with("#[") || line.starts_with("//"))
            .any(|line| line.contains("test]") || line.contains("test("))
    }

    /// How the suite's main file names the tests of a module.
    fn cases_of(module: &str) -> String {
        format!(" {}::CASES", module.trim_end_matches(".rs"))
    }

    /// A test of the suite's tables: its name, and the function that it is.
    fn suite_tests(text: &str) -> impl Iterator<Item = (&str, &str)> {
        let table = text.split_once("const CASES: &[Case] = &[").and_then(|(_, rest)| rest.split_once("];")).map_or("", |(table, _)| table);
        table.split('(').skip(1).filter_map(|entry| {
            let (name, rest) = entry.trim_start().strip_prefix('"')?.split_once('"')?;
            Some((name, rest.trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != '_')))
        })
    }

    /// The suite's table of this module has the name, and with it a function of the module.
    fn runs_in_suite(text: &str, test: &str) -> bool {
        suite_tests(text).any(|(name, function)| name == test && text.contains(&format!("fn {function}(")))
    }

    /// The tests of a file whose names begin like a case's.
    fn named_tests<'a>(file: &str, text: &'a str) -> Vec<&'a str> {
        let function = |line: &'a str| Some(line.trim_start().trim_start_matches("async ").strip_prefix("fn ")?.split_once('(')?.0);
        let of_suite = suite_tests(text).map(|(name, _)| name).filter(|_| file.starts_with(CONFORMANCE));
        let functions = text.lines().filter_map(function).map(|name| (name, true));
        let all = functions.chain(of_suite.map(|name| (name, false))).filter(|(name, _)| names(name).next().is_some());
        all.filter(|(name, is_function)| !is_function || has_test(text, name)).map(|(name, _)| name).collect()
    }

    /// Tests with the name of a case that has no test in the table: whoever reads them believes that the case stands.
    fn strangers<'a>(table: &str, file: &str, text: &'a str) -> Vec<&'a str> {
        let (cases, _) = read(table);
        let stands = |name: &str| cases.get(name.to_uppercase().as_str()).is_some_and(|case| !case.tests.is_empty());
        named_tests(file, text).into_iter().filter(|test| !names(test).all(stands)).collect()
    }

    fn rust_files(folder: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                rust_files(&path, found);
            } else if name.ends_with(".rs") {
                found.extend(path.strip_prefix(repository()).ok().map(|path| path.display().to_string()));
            }
        }
    }

    fn text_of(file: &str) -> String {
        fs::read_to_string(repository().join(file)).unwrap_or_default()
    }

    #[test]
    fn every_case_has_a_test_that_bears_its_name_or_a_reason() {
        assert_eq!(faults(TABLE, GROUPS, text_of), Vec::<String>::new());
    }

    #[test]
    fn no_test_bears_the_name_of_a_case_that_it_does_not_keep() {
        let mut files = Vec::new();
        rust_files(repository(), &mut files);
        let texts = files.into_iter().filter(|file| file != file!()).map(|file| (text_of(&file), file));
        let mut found = 0;
        for (text, file) in texts {
            found += named_tests(&file, &text).len();
            assert_eq!(strangers(TABLE, &file, &text), Vec::<&str>::new(), "{file}");
        }
        assert!(found > 200, "only {found} tests bear the name of a case");
    }

    #[test]
    fn a_case_without_its_test_is_found() {
        let text_of = |_: &str| "#[test]\nfn a1_a2_it_is_so() {}\nfn a3_it_is_no_test() {}".to_owned();
        assert!(faults("A1 f a1_a2_it_is_so\nA2 f a1_a2_it_is_so", "A2", text_of).is_empty());
        for (table, fault) in [
            ("# A1", "A1 has no test and no reason"),
            ("A1 f", "\"A1 f\" is neither a case, a file and a test nor a case, - and a reason"),
            ("A1 f a1_it_is_gone", "f has no test a1_it_is_gone"),
            ("A1 f it_is_so", "it_is_so does not begin with a1_"),
            ("A2 f a1_a2_it_is_so", "there is no case A2"),
        ] {
            assert!(faults(table, "A1", text_of).contains(&fault.to_owned()), "{table}: {:?}", faults(table, "A1", text_of));
        }
        let no_test = "A1 - not built: it\nA2 - not built: it\nA3 f a3_it_is_no_test";
        assert_eq!(faults(no_test, "A3", text_of), ["f has no test a3_it_is_no_test"]);
    }

    #[test]
    fn a_case_stands_or_does_not_or_stands_in_part() {
        let text_of = |_: &str| "#[test]\nfn a1_it_is_so() {}".to_owned();
        for good in ["A1 f a1_it_is_so", "A1 - not built: it", "A1 - no test: it", "A1 - in part: it\nA1 f a1_it_is_so"] {
            assert_eq!(faults(good, "A1", text_of), Vec::<String>::new(), "{good}");
        }
        for wrong in [
            "A1 - not built: it\nA1 f a1_it_is_so",
            "A1 - no test: it\nA1 f a1_it_is_so",
            "A1 - in part: it",
            "A1 - later",
            "A1 - not built: it\nA1 - no test: it",
        ] {
            assert!(faults(wrong, "A1", text_of).iter().any(|fault| fault.starts_with("A1 has ")), "{wrong}");
        }
    }

    #[test]
    fn a_case_without_its_entry_in_the_conformance_suite_is_found() {
        let trees = "pub const CASES: &[Case] = &[\n    (\"w1_it_is_so\", w1),\n    (\n        \"w2_it_is_long\",\n        w2,\n    ),\n\
            \x20   (\"w3_it_is_gone\", w3),\n];\nfn w1(fixture: &Fixture) -> Verdict {}\nfn w2(fixture: &Fixture) -> Verdict {}\n\
            // (\"w4_it_is_no_entry\", w1)\n";
        let file = |name: &str| format!("{CONFORMANCE}{name}");
        let text_of = |path: &str| match path.strip_prefix(CONFORMANCE) {
            Some("trees.rs" | "left_out.rs") => trees.to_owned(),
            Some("main.rs") => "let cases = [ trees::CASES ];".to_owned(),
            _ => String::new(),
        };
        let line = |module: &str, test: &str| faults(&format!("W1 {} {test}", file(module)), "W1", text_of);
        assert_eq!(line("trees.rs", "w1_it_is_so"), Vec::<String>::new());
        assert_eq!(faults(&format!("W1 - not built: it\nW2 {} w2_it_is_long", file("trees.rs")), "W2", text_of), Vec::<String>::new());
        for (module, test, why) in [
            ("trees.rs", "w1_it_is_not_there", "no entry has the name"),
            ("trees.rs", "w3_it_is_gone", "the entry has no function"),
            ("trees.rs", "w4_it_is_no_entry", "it stands outside of the table"),
            ("left_out.rs", "w1_it_is_so", "nobody runs this table"),
        ] {
            let lacks = format!("{} has no test {test}", file(module));
            assert!(line(module, test).contains(&lacks), "{why}: {:?}", line(module, test));
        }
    }

    #[test]
    fn a_name_that_misleads_is_found() {
        let table = "A1 f a1_it_is_so\nA2 - not built: it\nA3 - in part: it\nA3 f a3_it_is_so";
        let text = "#[test]\nfn a1_it_is_so() {}\n#[tokio::test(start_paused = true)]\nasync fn a2_it_is_not_built() {}\n\
            #[test]\nfn a1_a9_there_is_no_a9() {}\n#[test]\nfn a3_so_far() {}\nfn a2_is_no_test() {}\n#[test]\nfn a_plain_name() {}\n";
        assert_eq!(strangers(table, "f", text), ["a2_it_is_not_built", "a1_a9_there_is_no_a9"]);
        let suite = "pub const CASES: &[Case] = &[\n    (\"a2_it_is_not_built\", a2),\n    (\"a1_it_is_so\", a1),\n];";
        assert_eq!(strangers(table, &format!("{CONFORMANCE}trees.rs"), suite), ["a2_it_is_not_built"]);
        assert_eq!(strangers(table, "elsewhere.rs", suite), Vec::<&str>::new());
    }
}
