//! The acceptance cases of `xtask/cases.txt`: each has a test that bears its name.

#[cfg(test)]
mod tests {
    use crate::instance::repository;
    use std::collections::BTreeSet;

    const TABLE: &str = include_str!("../cases.txt");

    /// Cases that must have a line.
    const CASES: &str = "A4 A6 A7 A8 A9 A10 A11 A12 A18 A19 A20 A26 A27 B4 B5 B10 B12 B13 B22 E1 E2 E3 E4 E5 E6 E9 E10 E11 \
        F6 F7 F8 F9 F10 F14 F15 F17 G9 G10 P26 P31 P45";

    /// What is wrong with the table, given the text of each file that it names.
    fn faults(table: &str, cases: &str, text_of: impl Fn(&str) -> String) -> Vec<String> {
        let mut wanted: BTreeSet<&str> = cases.split_whitespace().collect();
        let mut faults = Vec::new();
        for line in table.lines().filter(|line| !line.starts_with('#')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [case, file, test] = words[..] else {
                faults.push(format!("{line:?} is not a case, a file and a test"));
                continue;
            };
            wanted.remove(case);
            if !names(test).any(|name| name == case.to_lowercase()) {
                faults.push(format!("{test} does not begin with {}_", case.to_lowercase()));
            }
            if !has_test(&text_of(file), test) {
                faults.push(format!("{file} has no test {test}"));
            }
        }
        faults.extend(wanted.into_iter().map(|case| format!("{case} has no test")));
        faults
    }

    /// The cases at the beginning of a test's name: `a8` and `a9` of `a8_a9_a_write_that_fails`.
    fn names(test: &str) -> impl Iterator<Item = &str> {
        let is_case = |word: &&str| word.len() > 1 && word[1..].bytes().all(|c| c.is_ascii_digit());
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

    #[test]
    fn every_case_has_a_test_that_bears_its_name() {
        let text_of = |file: &str| std::fs::read_to_string(repository().join(file)).unwrap_or_default();
        assert_eq!(faults(TABLE, CASES, text_of), Vec::<String>::new());
    }

    #[test]
    fn a_case_without_its_test_is_found() {
        let text_of = |_: &str| "#[test]\nfn a1_a2_it_is_so() {}\nfn a3_it_is_no_test() {}".to_owned();
        assert!(faults("A1 f a1_a2_it_is_so\nA2 f a1_a2_it_is_so", "A1 A2", text_of).is_empty());
        for (table, fault) in [
            ("# A1", "A1 has no test"),
            ("A1 f", "\"A1 f\" is not a case, a file and a test"),
            ("A1 f a1_it_is_gone", "f has no test a1_it_is_gone"),
            ("A1 f it_is_so", "it_is_so does not begin with a1_"),
        ] {
            assert!(faults(table, "A1", text_of).contains(&fault.to_owned()), "{table}");
        }
        assert_eq!(faults("A3 f a3_it_is_no_test", "A3", text_of), ["f has no test a3_it_is_no_test"]);
    }
}
