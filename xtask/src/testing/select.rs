//! Which tests a run has.

use super::discover::Test;
use super::table::{Place, Table, Tier};
use anyhow::{Result, bail};
use std::collections::BTreeMap;

/// What a person asked for.
pub struct Selection {
    pub tier: Tier,
    /// Parts of names. If there are any, the tests that have one of them run, whichever run they are in, but for those of `soak`.
    pub filters: Vec<String>,
}

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
                Some(row) if self.wants(&test.name, row.tier) => selected.entry(row.place).or_default().push(test.clone()),
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

    fn wants(&self, name: &str, tier: Tier) -> bool {
        if self.filters.is_empty() {
            return tier <= self.tier;
        }
        tier <= Tier::All.max(self.tier) && self.filters.iter().any(|filter| name.contains(filter.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::compile::TestProgram;

    const TABLE: &str = "a/lib test unit - - twice -\na/lib::slow all timing - - once -\nb/b soak kills - - once -\n";

    fn selected(tier: Tier, filters: &[&str]) -> Result<Vec<String>> {
        let program = TestProgram { name: String::new(), file: "p".into(), folder: "a".into() };
        let tests = ["a/lib::x", "a/lib::slow", "b/b::x"].map(|name| Test { name: name.into(), program: program.clone(), ignored: false });
        let selection = Selection { tier, filters: filters.iter().map(|filter| (*filter).to_owned()).collect() };
        let selected = selection.of(&Table::parse(TABLE).unwrap(), &tests)?;
        Ok(selected.into_values().flatten().map(|test| test.name).collect())
    }

    #[test]
    fn a_run_has_the_tests_of_its_tier_and_of_the_smaller_ones() {
        assert_eq!(selected(Tier::Test, &[]).unwrap(), ["a/lib::x"]);
        assert_eq!(selected(Tier::All, &[]).unwrap(), ["a/lib::x", "a/lib::slow"]);
    }

    #[test]
    fn a_test_that_is_named_runs_whichever_run_it_is_in() {
        assert_eq!(selected(Tier::Test, &["slow"]).unwrap(), ["a/lib::slow"]);
        assert_eq!(selected(Tier::Test, &["::x"]).unwrap(), ["a/lib::x"]);
    }

    #[test]
    fn a_name_that_no_test_bears_and_a_test_without_a_row_are_errors() {
        assert!(selected(Tier::Test, &["peres", "piers"]).unwrap_err().to_string().contains("peres or piers"));
        let program = TestProgram { name: String::new(), file: "p".into(), folder: "a".into() };
        let stranger = Test { name: "c/lib::x".into(), program, ignored: false };
        let selection = Selection { tier: Tier::Test, filters: vec![] };
        let refused = |tests: &[Test]| selection.of(&Table::parse(TABLE).unwrap(), tests).unwrap_err().to_string();
        assert!(refused(&[stranger]).contains("c/lib::x"));
        assert!(refused(&[]).contains("b/b"), "a row whose test was renamed");
    }
}
