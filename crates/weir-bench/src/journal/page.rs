//! The report: medians as a table, and how throughput falls with padding as curves.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;

use super::measure::Row;

/// The medians of one arm in one cell.
#[derive(Clone, Debug)]
pub(crate) struct Median {
    pub(crate) row: Row,
    /// Its rate against the floor's of the same cell; None without a floor.
    pub(crate) of_floor: Option<f64>,
}

type CellKey = (String, &'static str, usize, usize, usize, bool);

fn cell(row: &Row) -> CellKey {
    (
        row.root.clone(),
        row.durability,
        row.size,
        row.writers,
        row.pad,
        row.unpadded,
    )
}

/// One row for each arm and cell: the medians of its repetitions, the greatest maximum.
pub(crate) fn medians(rows: &[Row]) -> Vec<Median> {
    let mut groups: BTreeMap<(CellKey, &str), Vec<&Row>> = BTreeMap::new();
    for row in rows {
        groups.entry((cell(row), &row.arm)).or_default().push(row);
    }
    let medians: Vec<Row> = groups.values().filter_map(|group| median_row(group)).collect();
    let floors: BTreeMap<CellKey, f64> = medians
        .iter()
        .filter(|row| row.arm == "floor")
        .map(|row| (cell(row), row.ops_per_s))
        .collect();
    let with_floor = |row: Row| {
        let of_floor = floors.get(&cell(&row)).map(|floor| row.ops_per_s / floor);
        Median { row, of_floor }
    };
    medians.into_iter().map(with_floor).collect()
}

fn median_row(group: &[&Row]) -> Option<Row> {
    let of = |field: fn(&Row) -> f64| {
        let mut values: Vec<f64> = group.iter().map(|row| field(row)).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(0.0)
    };
    let first = (*group.first()?).clone();
    Some(Row {
        ops_per_s: of(|r| r.ops_per_s),
        p50_us: of(|r| r.p50_us),
        p99_us: of(|r| r.p99_us),
        p999_us: of(|r| r.p999_us),
        max_us: group.iter().map(|row| row.max_us).fold(0.0, f64::max),
        cpu_us_per_op: of(|r| r.cpu_us_per_op),
        disk_mib: of(|r| r.disk_mib),
        ..first
    })
}

/// Prints the table.
pub(crate) fn print(medians: &[Median], out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(
        out,
        "{:<12} {:<10} {:>6} {:>3}w {:<9} {:>6}  {:>10} {:>8} {:>9} {:>9} {:>10} {:>7} {:>8}",
        "arm",
        "root",
        "bytes",
        "",
        "durable",
        "pad",
        "ops/s",
        "x floor",
        "p50 us",
        "p99 us",
        "max us",
        "cpu us",
        "MiB"
    )?;
    for Median { row, of_floor } in medians {
        let times = of_floor.map_or_else(|| "-".to_owned(), |x| format!("{x:.2}"));
        let pad = if row.unpadded {
            "gone".to_owned()
        } else {
            row.pad.to_string()
        };
        writeln!(
            out,
            "{:<12} {:<10} {:>6} {:>3}w {:<9} {pad:>6}  {:>10.1} {times:>8} {:>9.1} {:>9.1} {:>10.1} {:>7.1} {:>8.1}",
            row.arm,
            row.root,
            row.size,
            row.writers,
            row.durability,
            row.ops_per_s,
            row.p50_us,
            row.p99_us,
            row.max_us,
            row.cpu_us_per_op,
            row.disk_mib
        )?;
    }
    Ok(())
}

/// The page: a figure for each cell that was padded, then the table.
pub(crate) fn html(medians: &[Median]) -> String {
    let mut page = String::from(
        "<!doctype html><meta charset=utf-8><title>weir bench journal</title><style>\
         body{font:15px/1.5 system-ui;max-width:70rem;margin:2rem auto;padding:0 1rem}\
         table{border-collapse:collapse;font-variant-numeric:tabular-nums}td,th{padding:.15rem .6rem;text-align:right}\
         td:first-child,th:first-child{text-align:left}figure{display:inline-block;margin:0 1rem 1rem 0}\
         tr:nth-child(even){background:#8881}</style><h1>weir bench journal</h1>\
         <p>One op is an append, as durable as the cell says, and the settle of the record 32 before it. \
         Curves: ops per second (logarithmic) against empty files in the folder of the records.</p>",
    );
    let mut figures: BTreeMap<(String, &str, usize, usize), Vec<&Median>> = BTreeMap::new();
    for median in medians.iter().filter(|m| !m.row.unpadded) {
        let row = &median.row;
        figures
            .entry((row.root.clone(), row.durability, row.size, row.writers))
            .or_default()
            .push(median);
    }
    for ((root, durability, size, writers), points) in figures {
        if points.iter().any(|m| m.row.pad > 0) {
            let title = format!("{root}: {size} B, {writers} writers, {durability}");
            page.push_str(&figure(&title, &points));
        }
    }
    page.push_str(&table(medians));
    page
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

const COLOURS: [&str; 7] = [
    "#1667b7", "#888888", "#c0392b", "#e08e0b", "#2e8b57", "#8e44ad", "#16a085",
];

#[expect(clippy::cast_precision_loss, reason = "a drawing")]
fn figure(title: &str, points: &[&Median]) -> String {
    let widest = points.iter().map(|m| m.row.pad).max().unwrap_or(1).max(1) as f64;
    let x = |pad: usize| 40.0 + 380.0 * (pad as f64 / widest);
    let y = |ops: f64| 260.0 - 40.0 * ops.max(1.0).log10();
    let mut arms: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    for median in points {
        arms.entry(&median.row.arm).or_default().push(&median.row);
    }
    let mut svg = format!(
        "<figure><figcaption>{}</figcaption><svg width=560 height=280>",
        escape(title)
    );
    for power in 0..=6 {
        let at = y(10f64.powi(power));
        let _ = write!(
            svg,
            "<line x1=40 x2=420 y1={at} y2={at} stroke=#8884 /><text x=36 y={at} font-size=10 text-anchor=end>1e{power}</text>"
        );
    }
    for (colour, (arm, mut rows)) in COLOURS.iter().cycle().zip(arms) {
        rows.sort_by_key(|row| row.pad);
        let line: Vec<String> = rows
            .iter()
            .map(|row| format!("{:.1},{:.1}", x(row.pad), y(row.ops_per_s)))
            .collect();
        let end = rows.last().map_or(0.0, |row| y(row.ops_per_s));
        let _ = write!(
            svg,
            "<polyline points='{}' fill=none stroke={colour} stroke-width=2 /><text x=426 y={end:.1} font-size=12 fill={colour}>{}</text>",
            line.join(" "),
            escape(arm)
        );
    }
    let _ = write!(
        svg,
        "<text x=420 y=275 font-size=10 text-anchor=end>{widest} files</text></svg></figure>"
    );
    svg
}

fn table(medians: &[Median]) -> String {
    let mut table = String::from(
        "<table><tr><th>arm<th>root<th>bytes<th>writers<th>durability<th>pad<th>ops/s<th>x floor<th>p50 us<th>p99 us\
         <th>p99.9 us<th>max us<th>CPU us<th>MiB",
    );
    for Median { row, of_floor } in medians {
        let times = of_floor.map_or_else(String::new, |x| format!("{x:.2}"));
        let pad = if row.unpadded {
            "removed".to_owned()
        } else {
            row.pad.to_string()
        };
        let _ = write!(
            table,
            "<tr><td>{}<td>{}<td>{}<td>{}<td>{}<td>{pad}<td>{:.1}<td>{times}<td>{:.1}<td>{:.1}<td>{:.1}<td>{:.1}<td>{:.1}<td>{:.1}",
            row.arm,
            escape(&row.root),
            row.size,
            row.writers,
            row.durability,
            row.ops_per_s,
            row.p50_us,
            row.p99_us,
            row.p999_us,
            row.max_us,
            row.cpu_us_per_op,
            row.disk_mib
        );
    }
    table.push_str("</table>");
    table
}
