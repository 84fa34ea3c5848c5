//! What the two witnesses have written, and what of it breaks the promise.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};

/// Nanoseconds since the machine's start, by the clock that all its containers share.
pub type Stamp = u64;

/// A write that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub who: String,
    /// By what.
    pub way: String,
    /// Just before it.
    pub stamp: Stamp,
}

/// Everything below the lent path, and what was moved out of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Writes {
    /// Lines of one file, in its order, which is that of the writes.
    pub lines: Vec<Write>,
    /// Stores through a mapping, and moves of files. They have no order but that of their stamps.
    pub others: Vec<Write>,
}

/// When a loan was surely in force, as somebody saw who read the claim again and again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// After a read that had it Fenced or further.
    pub from: Option<Stamp>,
    /// Before the last read that did not have it Released.
    pub until: Option<Stamp>,
    /// After a read that had it Released, or forgotten.
    pub released: Option<Stamp>,
}

/// The name of the agent that lends. All others hold.
pub const LENDER: &str = "lead";
/// The ways that both have.
pub const WAYS: [&str; 7] = ["shell", "descriptor", "proc", "folder", "directory", "link", "store"];
/// Those that only the lender has: beside the lent path nobody else writes.
pub const WAYS_OF_LENDER: [&str; 2] = ["moved-in", "moved-out"];

impl Writes {
    /// Reads what a node has printed: lines of the file after `lines`, pairs of the mapping after `stores`, and names of files after `moved-in` and `moved-out`.
    /// `holder` is who wrote the second half of the mapping.
    pub fn parse(printed: &str, holder: &str) -> Result<Writes> {
        let (mut writes, mut part) = (Writes::default(), "");
        for line in printed.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |word: &str| word.parse::<Stamp>().with_context(|| format!("no stamp in {line:?}"));
            match (part, &words[..]) {
                (_, ["=", name]) => part = *name,
                ("lines", [who, way, stamp]) => {
                    writes.lines.push(Write { who: (*who).to_owned(), way: (*way).to_owned(), stamp: number(stamp)? });
                }
                ("lender-stores" | "holder-stores", [_, after]) => {
                    // The second stamp was taken after the store. A worker that was ended between the two has stored once more than it says.
                    let who = if part == "lender-stores" { LENDER } else { holder };
                    writes.others.push(Write { who: who.to_owned(), way: "store".to_owned(), stamp: number(after)? });
                }
                ("moved-in" | "moved-out", [who, stamp]) => {
                    writes.others.push(Write { who: (*who).to_owned(), way: part.to_owned(), stamp: number(stamp)? });
                }
                (_, []) => {}
                (part, _) => anyhow::bail!("{line:?} after {part:?} is none of it"),
            }
        }
        writes.others.retain(|write| write.stamp > 0);
        Ok(writes)
    }

    fn all(&self) -> impl Iterator<Item = &Write> {
        self.lines.iter().chain(&self.others)
    }

    /// The ways in which somebody has written since then.
    pub fn ways_since(&self, who: &str, since: Stamp) -> BTreeSet<&str> {
        self.all().filter(|write| write.who == who && write.stamp > since).map(|write| write.way.as_str()).collect()
    }
}

/// A sentence for each broken promise. `held`: by the holder's name.
pub fn violations(writes: &Writes, held: &BTreeMap<String, Held>) -> Vec<String> {
    let mut found = Vec::new();
    let holders: BTreeSet<&str> = writes.all().map(|write| write.who.as_str()).filter(|who| *who != LENDER).collect();
    for holder in &holders {
        let is_its = |write: &&Write| write.who == *holder;
        let (first, last) = (writes.lines.iter().position(|write| is_its(&write)), writes.lines.iter().rposition(|write| is_its(&write)));
        if let (Some(first), Some(last)) = (first, last) {
            let between = writes.lines[first..=last].iter().filter(|write| write.who != *holder);
            found.extend(between.map(|write| format!("{} wrote by its {} at {} while {holder} did", write.who, write.way, write.stamp)));
        }
        let stamps = || writes.all().filter(is_its).map(|write| write.stamp);
        let (Some(first), Some(last)) = (stamps().min(), stamps().max()) else { continue };
        let by_others = writes.others.iter().filter(|write| write.who != *holder && (first..=last).contains(&write.stamp));
        found.extend(by_others.map(|write| format!("{} wrote by a {} at {} while {holder} did", write.who, write.way, write.stamp)));
        match held.get(*holder) {
            None => found.push(format!("{holder} wrote, and nobody saw a loan of it")),
            Some(Held { released: Some(released), .. }) if last > *released => {
                found.push(format!("{holder} wrote at {last}, and its loan was back at {released}"));
            }
            Some(_) => {}
        }
    }
    for (holder, held) in held {
        let (Some(from), Some(until)) = (held.from, held.until) else { continue };
        let meanwhile = writes.all().filter(|write| write.who == LENDER && (from..=until).contains(&write.stamp));
        found.extend(meanwhile.map(|write| {
            format!("{LENDER} wrote by its {} at {}, and {holder} held the path from {from} to {until}", write.way, write.stamp)
        }));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(who: &str, way: &str, stamp: Stamp) -> Write {
        Write { who: who.into(), way: way.into(), stamp }
    }

    /// The lender writes from 1 to 2, the holder from 5 to 6, the lender from 9.
    fn in_turn() -> (Writes, BTreeMap<String, Held>) {
        let lines = vec![write(LENDER, "shell", 1), write("child-1", "proc", 5), write("child-1", "link", 6), write(LENDER, "shell", 9)];
        let others = vec![write(LENDER, "store", 2), write("child-1", "store", 6), write(LENDER, "moved-in", 10)];
        let held = Held { from: Some(3), until: Some(7), released: Some(8) };
        (Writes { lines, others }, BTreeMap::from([("child-1".to_owned(), held)]))
    }

    #[test]
    fn who_writes_in_turn_breaks_nothing_and_each_planted_write_is_found() {
        let (writes, held) = in_turn();
        assert_eq!(violations(&writes, &held), [""; 0]);
        assert_eq!(writes.ways_since(LENDER, 8), BTreeSet::from(["shell", "moved-in"]));
        let planted = |change: fn(&mut Writes)| {
            let (mut writes, held) = in_turn();
            change(&mut writes);
            violations(&writes, &held).len()
        };
        assert!(planted(|writes| writes.lines.insert(2, write(LENDER, "descriptor", 1))) == 1, "by its order, whatever its stamp");
        assert!(planted(|writes| writes.others.push(write(LENDER, "store", 5))) > 0, "by its stamp");
        assert_eq!(planted(|writes| writes.lines.insert(1, write(LENDER, "folder", 4))), 1, "before the holder's first");
        assert_eq!(planted(|writes| writes.others.push(write(LENDER, "moved-out", 4))), 1);
        assert!(planted(|writes| writes.lines.push(write("child-1", "shell", 11))) > 0, "after the loan was back");
        assert!(planted(|writes| writes.lines.push(write("child-2", "shell", 11))) > 0, "without a loan");
    }

    #[test]
    fn what_a_node_prints_is_read() {
        let printed =
            "= lines\nlead shell 5\nchild-1 link 7\n= lender-stores\n 3 4\n 9 0\n= holder-stores\n 7 8\n= moved-in\nlead 6\n= moved-out\n";
        let expected = Writes {
            lines: vec![write(LENDER, "shell", 5), write("child-1", "link", 7)],
            others: vec![write(LENDER, "store", 4), write("child-1", "store", 8), write(LENDER, "moved-in", 6)],
        };
        assert_eq!(Writes::parse(printed, "child-1").unwrap(), expected);
        assert!(Writes::parse("= lines\nlead shell\n", "child-1").is_err());
    }
}
