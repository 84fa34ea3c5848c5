//! The table of all tests, `xtask/tests.txt`: in which run each is, where it runs, what it took, which locks it needs, and which crates affect it.
//!
//! A row names a test, a module, a program or a crate; the longest name that fits a test is its row. Every test has one.

use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::instance::repository;

/// Which run a test is in. A larger run has all of a smaller one's, but `soak`, which is named by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// `cargo xtask test`
    Test,
    /// `cargo xtask test --all`
    All,
    /// `cargo xtask soak`
    Soak,
}

/// What a test runs on, and beside what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// No cluster; beside everything else.
    Unit,
    /// The cluster of three nodes, beside others.
    Shared,
    /// The cluster of three nodes, after the others and one at a time.
    Alone,
    /// The cluster of three nodes, after all others.
    Last,
    /// That cluster, with the images of programs from npm.
    Programs,
    /// A cluster of one node whose components are killed and removed, beside others there.
    Disrupted,
    /// That cluster, after the others there and one at a time.
    Kills,
    /// No cluster, after everything else and one at a time: what measures time, memory or the processor.
    Timing,
}

impl Place {
    pub const ALL: [Place; 8] =
        [Place::Unit, Place::Shared, Place::Alone, Place::Last, Place::Programs, Place::Disrupted, Place::Kills, Place::Timing];

    pub fn has_cluster(self) -> bool {
        !matches!(self, Place::Unit | Place::Timing)
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Tier::Test => "test",
            Tier::All => "all",
            Tier::Soak => "soak",
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Place::Unit => "unit",
            Place::Shared => "shared",
            Place::Alone => "alone",
            Place::Last => "last",
            Place::Programs => "programs",
            Place::Disrupted => "disrupted",
            Place::Kills => "kills",
            Place::Timing => "timing",
        })
    }
}

/// A lock by its name: what changes a thing of the cluster takes it alone, what would notice takes it together with others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    pub name: String,
    pub exclusive: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub name: String,
    pub tier: Tier,
    pub place: Place,
    /// What its tests took together when they were recorded last. None before that.
    pub seconds: Option<f64>,
    pub locks: Vec<Lock>,
    /// Whether a test that failed is run once more. Never where a second try could hide what the test looks for.
    pub tried_again: bool,
    /// The crates besides its own whose change can break it; empty: every crate.
    pub crates: Vec<String>,
}

#[derive(Debug)]
pub struct Table {
    head: String,
    pub rows: Vec<Row>,
}

pub fn path() -> PathBuf {
    repository().join("xtask/tests.txt")
}

impl Table {
    pub fn read() -> Result<Table> {
        let path = path();
        let text = fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
        Table::parse(&text).with_context(|| format!("failed to understand {}", path.display()))
    }

    pub fn parse(text: &str) -> Result<Table> {
        let head = text.lines().take_while(|line| line.starts_with('#')).fold(String::new(), |head, line| head + line + "\n");
        let mut rows: Vec<Row> = Vec::new();
        for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
            let row = parse_row(line).with_context(|| format!("in the row {line:?}"))?;
            if rows.iter().any(|other| other.name == row.name) {
                bail!("{} has two rows", row.name);
            }
            rows.push(row);
        }
        Ok(Table { head, rows })
    }

    /// The row of a test: the one with the longest name that is the test's, or that of a module or program which it is in.
    pub fn row(&self, test: &str) -> Option<&Row> {
        self.rows.iter().filter(|row| contains(&row.name, test)).max_by_key(|row| row.name.len())
    }

    pub fn index(&self, test: &str) -> Option<usize> {
        let row = self.row(test)?;
        self.rows.iter().position(|other| std::ptr::eq(row, other))
    }

    pub fn write(&self) -> Result<()> {
        fs::write(path(), self.to_string()).context("failed to write the table of tests")
    }
}

/// Whether `test` is `name`, or stands in the module, program or crate of that name.
fn contains(name: &str, test: &str) -> bool {
    test.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with("::") || rest.starts_with('/'))
}

fn parse_row(line: &str) -> Result<Row> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [name, tier, place, seconds, locks, again, crates] = words[..] else {
        bail!("a row has a name, a run, a place, seconds, locks, how often it is tried, and crates; what is empty is `-`");
    };
    let tier = [Tier::Test, Tier::All, Tier::Soak].into_iter().find(|known| known.to_string() == tier);
    let place = Place::ALL.into_iter().find(|known| known.to_string() == place);
    let list = |word: &str| -> Vec<String> { word.split(',').filter(|part| *part != "-").map(str::to_owned).collect() };
    let lock = |word: String| match word.strip_suffix('!') {
        Some(name) => Lock { name: name.to_owned(), exclusive: true },
        None => Lock { name: word, exclusive: false },
    };
    Ok(Row {
        name: name.to_owned(),
        tier: tier.context("no such run: test, all, soak")?,
        place: place.with_context(|| format!("no such place: {}", Place::ALL.map(|place| place.to_string()).join(", ")))?,
        seconds: if seconds == "-" { None } else { Some(seconds.parse().context("not a number of seconds")?) },
        locks: list(locks).into_iter().map(lock).collect(),
        tried_again: match again {
            "twice" => true,
            "once" => false,
            _ => bail!("a test is tried once, or twice"),
        },
        crates: list(crates),
    })
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
        let locks = self.locks.iter().map(|lock| format!("{}{}", lock.name, if lock.exclusive { "!" } else { "" }));
        let seconds = self.seconds.map_or_else(String::new, |seconds| format!("{seconds:.1}"));
        write!(
            f,
            "{:<100} {:<5} {:<9} {:>7} {:<16} {:<5} {}",
            self.name,
            self.tier,
            self.place,
            or_dash(seconds),
            or_dash(locks.collect::<Vec<_>>().join(",")),
            if self.tried_again { "twice" } else { "once" },
            or_dash(self.crates.join(",")),
        )
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.head)?;
        self.rows.iter().try_for_each(|row| writeln!(f, "{row}"))
    }
}

/// What a run takes before and after its tests on two cores, from a cold target: this program, the checks, one compilation, and the cluster's end.
const BESIDE_TESTS: Duration = Duration::from_secs(660);
/// What the cluster takes until it has Yoi, beside tests that need none.
const CLUSTER: Duration = Duration::from_secs(80);

impl Table {
    /// About how long a run of this tier takes on a quiet machine of two cores, by what its tests took.
    pub fn estimate(&self, tier: Tier, workers: impl Fn(Place) -> usize) -> Duration {
        let of = |place| {
            let rows = self.rows.iter().filter(|row| row.tier <= tier && row.place == place);
            rows.filter_map(|row| row.seconds).sum::<f64>() / workers(place) as f64
        };
        let on_cluster = [Place::Shared, Place::Alone, Place::Programs].map(of).into_iter().sum::<f64>();
        let beside = of(Place::Unit).max(CLUSTER.as_secs_f64() + on_cluster);
        let after: f64 = [Place::Last, Place::Disrupted, Place::Kills, Place::Timing].map(of).into_iter().sum();
        BESIDE_TESTS + Duration::from_secs_f64(beside + after)
    }

    /// The rows that none of these tests fits.
    pub fn unused<'a>(&'a self, tests: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
        let used: BTreeSet<usize> = tests.filter_map(|test| self.index(test)).collect();
        self.rows.iter().enumerate().filter(|(index, _)| !used.contains(index)).map(|(_, row)| row.name.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = "# head\n# more\na test unit 60.0 - twice -\na/b::slow all timing - - once -\n\
        e2e/e2e::x test shared 160.0 gateways,nodes! twice operator,runtime\n";

    #[test]
    fn the_row_of_a_test_is_the_one_with_the_longest_name_that_fits() {
        let table = Table::parse(ROWS).unwrap();
        let row = |test| table.row(test).map(|row| row.name.as_str());
        assert_eq!(row("a/b::slow"), Some("a/b::slow"));
        assert_eq!(row("a/b::slow::more"), Some("a/b::slow"));
        assert_eq!(row("a/b::slower"), Some("a"));
        assert_eq!(row("ab/b::slow"), None);
        assert_eq!(table.unused(["a/b::x", "e2e/e2e::x"].into_iter()), ["a/b::slow"]);
    }

    #[test]
    fn what_is_written_is_what_was_read() {
        let table = Table::parse(ROWS).unwrap();
        let again = Table::parse(&table.to_string()).unwrap();
        assert_eq!(again.rows, table.rows);
        assert!(again.to_string().starts_with("# head\n# more\na "));
        let locks = &table.rows[2].locks;
        assert_eq!((locks[0].exclusive, locks[1].exclusive, locks[1].name.as_str()), (false, true, "nodes"));
    }

    #[test]
    fn a_row_that_says_nothing_known_is_refused_with_its_text() {
        for (row, why) in [
            ("a test unit - - twice", "a row has"),
            ("a tests unit - - twice -", "no such run"),
            ("a test moon - - twice -", "no such place"),
            ("a test unit soon - twice -", "not a number"),
            ("a test unit - - thrice -", "tried once, or twice"),
            ("a test unit - - twice -\na test unit - - twice -", "two rows"),
        ] {
            let refused = format!("{:#}", Table::parse(row).unwrap_err());
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn tests_beside_each_other_take_as_long_as_the_longer_of_them() {
        let table = Table::parse(ROWS).unwrap();
        let workers = |place| if place == Place::Shared { 8 } else { 1 };
        assert_eq!(table.estimate(Tier::Test, workers), BESIDE_TESTS + CLUSTER + Duration::from_secs(20));
    }

    /// The bar is 25 minutes; what is above 30 has to move to a larger run first.
    #[test]
    fn a_run_takes_at_most_30_minutes_by_what_its_tests_took() {
        let estimate = Table::read().unwrap().estimate(Tier::Test, super::super::workers);
        assert!(estimate <= Duration::from_secs(30 * 60), "{} s", estimate.as_secs());
    }

    #[test]
    fn every_crate_of_a_row_is_one() {
        let table = Table::read().unwrap();
        let known = crate::affected::parts(&crate::affected::Graph::read().unwrap());
        let strangers: Vec<_> = table.rows.iter().flat_map(|row| &row.crates).filter(|name| !known.contains(*name)).collect();
        assert!(strangers.is_empty(), "{strangers:?}");
    }

    #[test]
    fn what_must_never_be_tried_twice_is_tried_once() {
        let table = Table::read().unwrap();
        let hidden: Vec<_> = table.rows.iter().filter(|row| row.place == Place::Kills && row.tried_again).collect();
        assert!(hidden.is_empty(), "{hidden:?}");
    }
}
