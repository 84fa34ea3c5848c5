//! Which tests a run has.

use super::discover::Test;
use super::table::{Place, Row, Table, Tier};
use crate::affected::{self, Affected};
use anyhow::{Result, bail};
use std::collections::{BTreeMap, BTreeSet};

/// What a person asked for.
pub struct Selection {
    pub tier: Tier,
    /// Parts of names. If there are any, the tests that have one of them run, whichever run they are in, but for those of `soak`.
    pub filters: Vec<String>,
    /// Only what a change affects.
    pub affected: Option<Affected>,
    /// What failed last runs again, whatever changed.
    pub failed: BTreeSet<String>,
}

/// What a test on a cluster is about whose row names no crate.
const EVERYTHING: [&str; 6] = ["operator", "gateway", "agent-shim", "runtime", "kubectl-yoi", "charts"];

impl Selection {
    /// The tests that run, by their place.
    ///
    /// # Errors
    /// When a test has no row in the table or a row no test, or no test has a name that was asked for.
    pub fn of(&self, table: &Table, tests: &[Test]) -> Result<BTreeMap<Place, Vec<Test>>> {
        let mut selected: BTreeMap<Place, Vec<Test>> = BTreeMap::new();
        let mut without_row = vec![];
        for test in tests {
            match table.row(&test.name) {
                None => without_row.push(test.name.as_str()),
                Some(row) if self.wants(test, row) => selected.entry(row.place).or_default().push(test.clone()),
                Some(_) => {}
            }
        }
        if !without_row.is_empty() {
            bail!("these have no row in xtask/tests.txt:\n  {}", without_row.join("\n  "));
        }
        let unused = table.unused(tests.iter().map(|test| test.name.as_str()));
        if !unused.is_empty() {
            bail!("these rows of xtask/tests.txt fit no test:\n  {}", unused.join("\n  "));
        }
        if selected.is_empty() && !self.filters.is_empty() {
            bail!("no test has a name that contains {}", self.filters.join(" or "));
        }
        Ok(selected)
    }

    fn wants(&self, test: &Test, row: &Row) -> bool {
        // What its source marks as ignored takes minutes of the whole machine, or is a tool and no test.
        if test.ignored && (row.tier != Tier::Soak || self.tier != Tier::Soak) {
            return false;
        }
        if self.filters.is_empty() {
            return row.tier <= self.tier && !(test.long && self.tier == Tier::Test) && self.is_affected(test, row);
        }
        row.tier <= Tier::All.max(self.tier) && self.filters.iter().any(|filter| test.name.contains(filter.as_str()))
    }

    fn is_affected(&self, test: &Test, row: &Row) -> bool {
        let Some(affected) = &self.affected else { return true };
        let crates: Vec<&str> = row.crates.iter().map(String::as_str).collect();
        let about = if crates.is_empty() && row.place.has_cluster() { &EVERYTHING[..] } else { &crates };
        let program = &test.program;
        self.failed.contains(&test.name)
            || affected.runs(affected::Row { package: &program.package, program: &program.target, name: test.own_name(), about })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::compile::TestProgram;

    const TABLE: &str = "a/lib test unit - - twice -\na/lib::slow all timing - - once -\nb/b soak kills - - once -\n";

    fn program() -> TestProgram {
        TestProgram { name: "a/lib".into(), package: "yoi-a".into(), target: "yoi_a".into(), file: "p".into(), folder: "a".into() }
    }

    fn selection(tier: Tier, filters: &[&str]) -> Selection {
        let filters = filters.iter().map(|filter| (*filter).to_owned()).collect();
        Selection { tier, filters, affected: None, failed: BTreeSet::new() }
    }

    fn selected(tier: Tier, filters: &[&str]) -> Result<Vec<String>> {
        let program = program();
        let tests = ["a/lib::x", "a/lib::slow", "b/b::x"].map(|name| Test {
            name: name.into(),
            program: program.clone(),
            ignored: false,
            long: false,
        });
        let selected = selection(tier, filters).of(&Table::parse(TABLE).unwrap(), &tests)?;
        Ok(selected.into_values().flatten().map(|test| test.name).collect())
    }

    #[test]
    fn a_run_has_the_tests_of_its_tier_and_of_the_smaller_ones() {
        assert_eq!(selected(Tier::Test, &[]).unwrap(), ["a/lib::x"]);
        assert_eq!(selected(Tier::All, &[]).unwrap(), ["a/lib::x", "a/lib::slow"]);
    }

    #[test]
    fn of_a_change_what_it_affects_runs_and_what_failed_last() {
        let test = |name: &str| Test { name: name.into(), program: program(), ignored: false, long: false };
        let table = Table::parse(
            "a/lib test unit - - twice -\nb/lib test unit - - twice -\ne/e test shared - - twice -\ne/e::x test shared - - twice operator\n",
        );
        let table = table.unwrap();
        let other = |name: &str| Test { program: TestProgram { package: "yoi-b".into(), ..program() }, ..test(name) };
        let mut selection = selection(Tier::Test, &[]);
        selection.affected =
            Some(Affected { packages: BTreeSet::from(["yoi-a".into()]), parts: BTreeSet::from(["runtime".into()]), ..Affected::default() });
        let tests = [test("a/lib::x"), other("b/lib::x"), other("b/lib::y"), other("e/e::x"), other("e/e::y")];
        let names = |selection: &Selection| -> Vec<String> {
            selection.of(&table, &tests).unwrap().into_values().flatten().map(|test| test.name).collect()
        };
        assert_eq!(names(&selection), ["a/lib::x", "e/e::y"]);
        selection.failed.insert("b/lib::y".into());
        assert_eq!(names(&selection), ["a/lib::x", "b/lib::y", "e/e::y"]);
    }

    #[test]
    fn a_test_that_is_named_runs_whichever_run_it_is_in() {
        assert_eq!(selected(Tier::Test, &["slow"]).unwrap(), ["a/lib::slow"]);
        assert_eq!(selected(Tier::Test, &["::x"]).unwrap(), ["a/lib::x"]);
    }

    #[test]
    fn a_name_that_no_test_bears_and_a_test_without_a_row_are_errors() {
        assert!(selected(Tier::Test, &["peres", "piers"]).unwrap_err().to_string().contains("peres or piers"));
        let program = program();
        let stranger = Test { name: "c/lib::x".into(), program, ignored: false, long: false };
        let selection = selection(Tier::Test, &[]);
        let refused = |tests: &[Test]| selection.of(&Table::parse(TABLE).unwrap(), tests).unwrap_err().to_string();
        assert!(refused(&[stranger]).contains("c/lib::x"));
        assert!(refused(&[]).contains("b/b"), "a row whose test was renamed");
    }
}
