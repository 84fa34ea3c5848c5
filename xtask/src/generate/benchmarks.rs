//! `docs/benchmarks.md` and its pictures, from the figures of all sets.

use crate::bench::figures::{self, Figures, Row, SETS, Sample, Set};
use crate::instance::repository;
use anyhow::{Context, Result};
use charts_rs::{HorizontalBarChart, Position, Series};
use std::fs;
use std::path::PathBuf;

/// The page and its pictures. Only what a run measured anew differs from before.
pub fn files() -> Result<Vec<(PathBuf, String)>> {
    let file = repository().join("docs/benchmarks.md");
    let page = fs::read_to_string(&file).with_context(|| format!("failed to read {}", file.display()))?;
    let mut files = vec![(file, with_tables(&page)?)];
    let (mut rows, mut pictures) = (Vec::new(), Vec::new());
    for set in &SETS {
        let Some(Figures { rows: of_set, .. }) = figures::load(set)? else { continue };
        if let Some(title) = set.side_by_side {
            pictures.push((set.name, ways(title, &of_set)?));
        }
        rows.extend(of_set);
    }
    pictures.extend([("ratios", ratios(&rows)?), ("agent", agent(&rows)?)]);
    for (name, svg) in pictures {
        files.push((repository().join(format!("docs/benchmarks/{name}.svg")), svg));
    }
    Ok(files)
}

/// The page with each table between its marks.
fn with_tables(page: &str) -> Result<String> {
    each_once(SETS.iter().map(|set| set.table)).into_iter().try_fold(page.to_owned(), |page, name| {
        let of_table = SETS.iter().filter(|set| set.table == name);
        let measured = of_table.filter_map(|set| Some(figures::load(set).transpose()?.map(|figures| (set, figures))));
        between(&page, name, &tables(&measured.collect::<Result<Vec<_>>>()?))
    })
}

/// What was measured on which machine; the ways side by side; a line for each claim; and in one paragraph what nothing is held against.
fn tables(measured: &[(&Set, Figures)]) -> String {
    let on = each_once(measured.iter().map(|(_, figures)| figures.machine.as_str())).into_iter().map(|machine| {
        let here = measured.iter().filter(|(_, figures)| figures.machine == machine);
        format!("{} on {machine}", here.map(|(set, _)| format!("`{}`", set.name)).collect::<Vec<_>>().join(", "))
    });
    let mut parts = vec![format!("Measured: {}.\n", on.collect::<Vec<_>>().join("; "))];
    let (mut claims, mut others) = (Vec::new(), Vec::new());
    for (set, figures) in measured {
        let (cells, rows): (Vec<_>, Vec<_>) = figures.rows.iter().partition(|row| set.side_by_side.is_some() && Cell::of(row).is_some());
        let cells: Vec<_> = cells.into_iter().filter_map(Cell::of).collect();
        if !cells.is_empty() {
            parts.push(format!("![{name}](benchmarks/{name}.svg)\n\n{}", side_by_side(&cells), name = set.name));
        }
        for row in rows {
            if row.is_claim() { claims.push((set.name, row)) } else { others.push(other(row)) }
        }
    }
    if !claims.is_empty() {
        parts.push(table(&claims));
    }
    if !others.is_empty() {
        parts.push(format!("Without a bar, p50 and in brackets p99: {}.\n", others.join("; ")));
    }
    parts.join("\n")
}

/// A figure that nothing is held against.
fn other(row: &Row) -> String {
    let sample = |sample: &Sample| sample.p99.map_or_else(|| figure(sample.p50), |p99| format!("{} ({})", figure(sample.p50), figure(p99)));
    let ours = row.ours.as_ref().map_or_else(String::new, |ours| format!(" {} {}", sample(ours), row.unit));
    let bare = row.bare.as_ref().map_or_else(String::new, |bare| format!(" over {}", sample(bare)));
    let ratio = row.ratio.map_or_else(String::new, |ratio| format!(", {ratio:.2}x"));
    format!("{}{ours}{bare}{ratio}", row.name)
}

/// A row that is one figure of one of several ways to do a thing.
struct Cell<'a> {
    way: &'a str,
    what: String,
    n: usize,
    p50: f64,
}

impl<'a> Cell<'a> {
    fn of(row: &'a Row) -> Option<Self> {
        let (way, what) = row.name.rsplit_once(": ").filter(|_| row.ratio.is_none())?;
        let ours = row.ours.as_ref()?;
        Some(Cell { way, what: format!("{what}, {}", row.unit), n: ours.n, p50: ours.p50 })
    }
}

/// All of `names`, each once, in the order in which they come.
fn each_once<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    for name in names {
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    seen
}

/// The medians: a line for each way, a column for each thing that was measured.
fn side_by_side(cells: &[Cell]) -> String {
    let columns = each_once(cells.iter().map(|cell| cell.what.as_str()));
    let mut text = format!("| | n | {} |\n|---|--:|{}\n", columns.join(" | "), "--:|".repeat(columns.len()));
    for way in each_once(cells.iter().map(|cell| cell.way)) {
        let of_way = |what: &str| cells.iter().find(|cell| cell.way == way && cell.what == what);
        let n = cells.iter().find(|cell| cell.way == way).map_or(0, |cell| cell.n);
        let figures: Vec<_> = columns.iter().map(|what| of_way(what).map_or_else(String::new, |cell| figure(cell.p50))).collect();
        text += &format!("| {way} | {n} | {} |\n", figures.join(" | "));
    }
    text
}

fn between(page: &str, section: &str, text: &str) -> Result<String> {
    let (begin, end) = (format!("<!-- {section} -->\n"), format!("<!-- end {section} -->\n"));
    let missing = || format!("docs/benchmarks.md has no marks for {section}");
    let (before, rest) = page.split_once(&begin).with_context(missing)?;
    let (_, after) = rest.split_once(&end).with_context(missing)?;
    Ok(format!("{before}{begin}{text}{end}{after}"))
}

fn table(claims: &[(&str, &Row)]) -> String {
    let mut text =
        "| set | | n | ours p50 | p99 | bare p50 | p99 | ratio | bar | |\n|---|---|--:|--:|--:|--:|--:|--:|--:|---|\n".to_owned();
    for (set, row) in claims {
        let unit = &row.unit;
        let p99 = |sample: &Sample| sample.p99.map_or_else(String::new, figure);
        let ours = row.ours.as_ref().map_or_else(Default::default, |s| (s.n.to_string(), format!("{} {unit}", figure(s.p50)), p99(s)));
        let bare = row.bare.as_ref().map_or_else(Default::default, |s| (figure(s.p50), p99(s)));
        let ratio = row.ratio.map_or_else(String::new, |r| format!("**{r:.2}x**"));
        let bar = row.bar.map_or_else(String::new, |b| if row.ratio.is_some() { format!("{b}x") } else { format!("{b} {unit}") });
        let held = row.bar.map_or("", |_| if row.holds() { "held" } else { "**not held**" });
        text += &format!(
            "| {set} | {} | {} | {} | {} | {} | {} | {ratio} | {bar} | {held} |\n",
            row.name, ours.0, ours.1, ours.2, bare.0, bare.1
        );
    }
    text
}

fn figure(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 1.0 => format!("{v:.1}"),
        v => format!("{v:.3}"),
    }
}

fn ratios(rows: &[Row]) -> Result<String> {
    let with: Vec<_> = rows.iter().filter_map(|row| Some((row.name.clone(), row.ratio? as f32, row.bar? as f32))).collect();
    let names = with.iter().map(|row| row.0.clone()).collect();
    let series = |name: &str, of: fn(&(String, f32, f32)) -> f32| Series::new(name.to_owned(), with.iter().map(of).map(round).collect());
    picture("Ours over bare (x)", vec![series("measured", |row| row.1), series("bar", |row| row.2)], names, with.len())
}

/// What each way takes until the tree is there and git has looked at it.
fn ways(title: &str, rows: &[Row]) -> Result<String> {
    let cells: Vec<_> = rows.iter().filter_map(Cell::of).collect();
    let names = each_once(cells.iter().map(|cell| cell.way));
    let series = |what: &str| {
        let of = |way: &&str| cells.iter().find(|cell| cell.way == *way && cell.what == what).map_or(0.0, |cell| cell.p50 as f32);
        Series::new(what.to_owned(), names.iter().map(of).map(round).collect())
    };
    let series = vec![series("create, ms"), series("first status, ms")];
    picture(title, series, names.iter().map(|name| name.replace('`', "")).collect(), names.len())
}

/// Where the time of one agent goes, as it was seen from outside.
fn agent(rows: &[Row]) -> Result<String> {
    let of = |side: &str| -> Vec<(String, f32)> {
        let start = format!("{side}: seen after, ");
        rows.iter().filter_map(|row| Some((format!("{side}: {}", row.name.strip_prefix(&start)?), row.ours.as_ref()?.p50 as f32))).collect()
    };
    let steps: Vec<_> = of("plain Pod").into_iter().chain(of("YoiPod")).collect();
    let series = Series::new("ms after apply, median".to_owned(), steps.iter().map(|step| round(step.1)).collect());
    let count = steps.len();
    picture("What is seen when (ms after apply)", vec![series], steps.into_iter().map(|step| step.0).collect(), count)
}

fn picture(title: &str, series: Vec<Series>, names: Vec<String>, count: usize) -> Result<String> {
    let mut chart = HorizontalBarChart::new(series, names);
    chart.width = 1000.0;
    chart.height = 90.0 + 44.0 * count as f32;
    chart.title.text = title.to_owned();
    chart.series_label_position = Some(Position::Right);
    Ok(chart.svg()?)
}

fn round(value: f32) -> f32 {
    (value * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_between_marks_leaves_the_others_alone() {
        let page = "a\n<!-- x -->\nold\n<!-- end x -->\nb\n<!-- y -->\nkept\n<!-- end y -->\n";
        let expected = "a\n<!-- x -->\nnew\n<!-- end x -->\nb\n<!-- y -->\nkept\n<!-- end y -->\n";
        assert_eq!(between(page, "x", "new\n").unwrap(), expected);
        assert!(between(page, "z", "new\n").is_err());
    }

    #[test]
    fn what_has_a_bar_is_a_line_and_what_has_none_is_in_one_paragraph() {
        let sample = |p50| Some(Sample { n: 5, p50, p99: Some(2.0 * p50) });
        let row = |name: &str, bare, ratio, bar| Row { name: name.to_owned(), unit: "ms".to_owned(), ours: sample(1.5), bare, ratio, bar };
        let of_name = Row { ours: None, ..row("c (at least 6x)", None, Some(7.0), None) };
        let rows =
            vec![row("a", None, None, None), row("b", sample(1.0), Some(1.5), Some(1.2)), of_name, row("d", sample(1.0), Some(1.5), None)];
        let page = tables(&[(&SETS[0], Figures { machine: "a laptop".to_owned(), rows })]);
        let lines: Vec<_> = page.lines().filter(|line| !line.is_empty()).collect();
        assert_eq!(lines[0], "Measured: `agents` on a laptop.");
        assert_eq!(lines[3], "| agents | b | 5 | 1.5 ms | 3.0 | 1.0 | 2.0 | **1.50x** | 1.2x | **not held** |");
        assert_eq!(lines[4], "| agents | c (at least 6x) |  |  |  |  |  | **7.00x** |  |  |");
        assert_eq!(lines[5], "Without a bar, p50 and in brackets p99: a 1.5 (3.0) ms; d 1.5 (3.0) ms over 1.0 (2.0), 1.50x.");
        assert_eq!(lines.len(), 6);
    }

    #[test]
    fn ways_are_lines_and_what_was_measured_of_them_are_columns() {
        let row = |name: &str, p50: f64, ratio: Option<f64>| Row {
            name: name.to_owned(),
            unit: "ms".to_owned(),
            ours: Some(Sample { n: 5, p50, p99: None }),
            bare: None,
            ratio,
            bar: None,
        };
        let rows = [row("a: make", 1.5, None), row("b: make", 200.0, None), row("a: go", 3.0, None), row("a: make over b", 1.0, Some(2.0))];
        let cells: Vec<_> = rows.iter().filter_map(Cell::of).collect();
        assert_eq!(side_by_side(&cells), "| | n | make, ms | go, ms |\n|---|--:|--:|--:|\n| a | 5 | 1.5 | 3.0 |\n| b | 5 | 200 |  |\n");
    }
}
