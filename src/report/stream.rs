//! Bandwidth in the layout of STREAM 5.10, for programs that read STREAM's output. What is printed is labelled a variant
//! of STREAM, as STREAM's licence asks.

use crate::error::{Error, Result};
use crate::kernel::Operation;
use crate::plan::stream::MACHINE;
use crate::record::{Line, Record, StreamStep};
use crate::stats;
use crate::units::BytesPerSecond;
use std::fmt::Write;

/// The operations that STREAM has.
pub const STREAM_OPERATIONS: [Operation; 4] = [Operation::Copy, Operation::Scale, Operation::Add, Operation::Triad];
/// How STREAM's table labels them.
const LABELS: [&str; 4] = ["Copy:      ", "Scale:     ", "Add:       ", "Triad:     "];
/// STREAM's rule between sections.
const RULE: &str = "-------------------------------------------------------------";
/// Bytes of an `f64`, which is what all rows but `read` stream.
const ELEMENT_BYTES: u64 = 8;

/// The best row of each of STREAM's four operations over the whole machine, as STREAM would print it. The thread count is
/// that of the best copy (without a copy, of the first operation that was measured).
///
/// # Errors
/// A usage error when the record has none of the four over the whole machine.
pub fn stream(record: &Record) -> Result<String> {
    let names = STREAM_OPERATIONS.map(Operation::name);
    let Some(first) = names.iter().find_map(|name| best(record, |step| step.operation == *name)) else {
        return Err(Error::usage(
            "print in the format 'stream'",
            "copy, scale, add and triad were not measured over the whole machine",
            "take a record of `membar stream`, or another format",
        ));
    };
    let same_team =
        |step: &StreamStep| (step.step.threads, step.array_bytes) == (first.step.threads, first.array_bytes);
    let rows: Vec<(&str, &StreamStep)> = std::iter::zip(LABELS, names)
        .filter_map(|(label, name)| Some((label, best(record, |step| step.operation == name && same_team(step))?)))
        .collect();

    let mut text = String::new();
    head(&mut text, record, first, &rows);
    for (label, step) in &rows {
        let times = stats::unit_times(&step.step);
        let seconds = |ns: Option<f64>| ns.unwrap_or_default() / 1e9;
        let rate = rate(step).map_or(0.0, |rate| rate.0 / 1e6);
        let average = times.iter().sum::<f64>() / times.len().max(1) as f64;
        let [average, least, most] =
            [Some(average), stats::quantile(&times, 0.0), stats::quantile(&times, 1.0)].map(seconds);
        let _ = writeln!(text, "{label}{rate:12.1}  {average:11.6}  {least:11.6}  {most:11.6}");
    }
    let _ = writeln!(text, "{RULE}");
    let kernels: Vec<&str> = rows.iter().map(|(_, step)| step.kernel.as_str()).collect();
    let _ = writeln!(text, "Rows: {}", kernels.join(", "));
    notes(&mut text, &rows);
    verdict(&mut text, record);
    let _ = writeln!(text, "{RULE}");
    Ok(text)
}

/// Of the fastest counted sample; STREAM's "Best Rate".
fn rate(step: &StreamStep) -> Option<BytesPerSecond> {
    stats::stream(&step.step, step.counted_bytes).best_bytes_per_s
}

/// The fastest of the steps over the whole machine that are wanted.
fn best(record: &Record, wanted: impl Fn(&StreamStep) -> bool) -> Option<&StreamStep> {
    let steps = record.lines.iter().filter_map(|line| match line {
        Line::Stream(step) if step.scope == MACHINE && wanted(step) => Some((step, rate(step)?.0)),
        _ => None,
    });
    steps.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(step, _)| step)
}

/// All that stands above the four rows.
fn head(text: &mut String, record: &Record, first: &StreamStep, rows: &[(&str, &StreamStep)]) {
    let arrays = rows.iter().map(|(_, step)| step.counted_bytes.0 / step.array_bytes.0.max(1)).max().unwrap_or(0);
    let (mebi, gibi) = (f64::from(1 << 20), f64::from(1 << 30));
    let array = first.array_bytes.0 as f64;
    let all = array * arrays as f64;
    let threads = first.step.threads;
    let fastest_ns = stats::quantile(&stats::unit_times(&first.step), 0.0).unwrap_or_default();
    let step_ns = record.header.clock.step_ns.max(1);
    let lines = [
        RULE.to_owned(),
        format!("STREAM version: membar {}, a variant of STREAM (layout of 5.10)", record.header.version),
        RULE.to_owned(),
        format!("This system uses {ELEMENT_BYTES} bytes per array element."),
        RULE.to_owned(),
        format!("Array size = {} (elements), Offset = 0 (elements)", first.array_bytes.0 / ELEMENT_BYTES),
        format!("Memory per array = {:.1} MiB (= {:.1} GiB).", array / mebi, array / gibi),
        format!("Total memory required = {:.1} MiB (= {:.1} GiB).", all / mebi, all / gibi),
        format!("Each kernel will be executed {} times.", first.step.samples_ns.len()),
        RULE.to_owned(),
        format!("Number of Threads requested = {threads}"),
        format!("Number of Threads counted = {threads}"),
        RULE.to_owned(),
        if step_ns < 1000 {
            "Your clock granularity appears to be less than one microsecond.".to_owned()
        } else {
            format!("Your clock granularity/precision appears to be {} microseconds.", step_ns / 1000)
        },
        format!("Each test below will take on the order of {:.0} microseconds.", fastest_ns / 1e3),
        format!("   (= {:.0} clock ticks)", fastest_ns / step_ns as f64),
        RULE.to_owned(),
        "Function    Best Rate MB/s  Avg time     Min time     Max time".to_owned(),
    ];
    for line in lines {
        let _ = writeln!(text, "{line}");
    }
}

/// What taints the four figures.
fn notes(text: &mut String, rows: &[(&str, &StreamStep)]) {
    for (_, step) in rows {
        for caveat in &step.step.caveats {
            let _ = writeln!(text, "Note: {}: {caveat}", step.kernel);
        }
    }
}

/// STREAM's last word. Results are compared bit by bit, which is stricter than what the sentence says.
fn verdict(text: &mut String, record: &Record) {
    let failures = record.lines.iter().filter_map(|line| match line {
        Line::End(end) => Some(&end.failures),
        _ => None,
    });
    // Other failures (a full disk) are not about results. Names of rows may be another architecture's.
    let of_kernels = |failure: &&String| {
        let mut words = failure.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.any(|word| {
            let operation = word.split_once('_').map(|(operation, _)| operation);
            STREAM_OPERATIONS.iter().any(|known| Some(known.name()) == operation)
        })
    };
    let failures: Vec<&String> = failures.flatten().filter(of_kernels).collect();
    let _ = writeln!(text, "{RULE}");
    for failure in &failures {
        let _ = writeln!(text, "Failed Validation: {failure}");
    }
    if !record.complete {
        let _ = writeln!(text, "Not validated: the record ends before the run did");
    } else if failures.is_empty() {
        let _ = writeln!(text, "Solution Validates: avg error less than 1.000000e-13 on all three arrays");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    const HEADER: &str = r#"{"kind":"run","schema":1,"version":"9.9","commit":null,"command":[],"started_utc":"","seed":1,"host":"h","cpu":{"model_name":"c","vendor":"v","isa":[],"hypervisor":null},"topology":{"packages":[],"dies":[],"nodes":[],"caches":[],"cores":[],"pus":[],"distances":null},"clock":{"source":"s","step_ns":20},"allowed_cpus":"0-1","allowed_nodes":"","environment":{"kernel":null},"labels":{},"caveats":[]}"#;

    /// A step over arrays of 128 MiB; the first sample does not count.
    fn step(scope: &str, operation: &str, store: &str, threads: u32, samples_ns: [u64; 3]) -> String {
        let counted = (if matches!(operation, "copy" | "scale") { 2u64 } else { 3 }) << 27;
        format!(
            r#"{{"kind":"stream","threads":{threads},"cpus":[0,1],"caveats":[],"samples_ns":{samples_ns:?},"units_per_sample":1,"warmup_samples":1,"kernel":"{operation}{store}_avx2","operation":"{operation}","isa":"avx2","store":"ordinary","array_bytes":134217728,"cache_bytes":33554432,"scope":"{scope}","cpu_nodes":"","memory_nodes":"","counted_bytes":{counted},"bus_bytes_min":1,"bus_bytes_max":1,"placement":"first_touch","pages_on_node":[],"page_kind":"default","huge_page_share":null,"summary":{{"best_bytes_per_s":null,"median_bytes_per_s":null}}}}"#
        )
    }

    fn record(steps: &[String], failures: &str) -> Record {
        let end = format!(
            r#"{{"kind":"end","finished_utc":"","elapsed_ns":1,"outcome":"complete","left_out":[],"failures":[{failures}]}}"#
        );
        Record::parse(&format!("{HEADER}\n{}\n{end}\n", steps.join("\n")), "made up").unwrap()
    }

    fn whole() -> Record {
        let steps = [
            step("machine", "copy", "", 1, [1, 30_000_000, 20_000_000]),
            step("machine", "copy", "", 2, [1, 13_000_000, 11_000_000]),
            step("machine", "copy", "_nt", 2, [1, 8_000_000, 10_000_000]),
            // Faster elsewhere, and not the machine.
            step("node 0", "copy", "_nt", 2, [1, 1_000_000, 1_000_000]),
            step("machine", "scale", "", 2, [1, 12_500_000, 12_500_000]),
            // Fast with the wrong number of threads.
            step("machine", "add", "", 1, [1, 1_000_000, 1_000_000]),
            step("machine", "add", "_nt", 2, [1, 16_000_000, 14_000_000]),
            step("machine", "triad", "", 2, [1, 20_000_000, 16_000_000]),
            step("machine", "triad", "_nt", 2, [1, 21_000_000, 17_000_000]),
        ];
        record(&steps, "")
    }

    #[test]
    fn the_layout_is_that_of_stream() {
        let expected = "\
-------------------------------------------------------------
STREAM version: membar 9.9, a variant of STREAM (layout of 5.10)
-------------------------------------------------------------
This system uses 8 bytes per array element.
-------------------------------------------------------------
Array size = 16777216 (elements), Offset = 0 (elements)
Memory per array = 128.0 MiB (= 0.1 GiB).
Total memory required = 384.0 MiB (= 0.4 GiB).
Each kernel will be executed 3 times.
-------------------------------------------------------------
Number of Threads requested = 2
Number of Threads counted = 2
-------------------------------------------------------------
Your clock granularity appears to be less than one microsecond.
Each test below will take on the order of 8000 microseconds.
   (= 400000 clock ticks)
-------------------------------------------------------------
Function    Best Rate MB/s  Avg time     Min time     Max time
Copy:           33554.4     0.009000     0.008000     0.010000
Scale:          21474.8     0.012500     0.012500     0.012500
Add:            28760.9     0.015000     0.014000     0.016000
Triad:          25165.8     0.018000     0.016000     0.020000
-------------------------------------------------------------
Rows: copy_nt_avx2, scale_avx2, add_nt_avx2, triad_avx2
-------------------------------------------------------------
Solution Validates: avg error less than 1.000000e-13 on all three arrays
-------------------------------------------------------------
";
        assert_eq!(stream(&whole()).unwrap(), expected);
    }

    #[test]
    fn what_reads_stream_reads_this() {
        let text = stream(&whole()).unwrap();
        let column = |label: &str, column: usize| -> f64 {
            let line = text.lines().find(|line| line.split_whitespace().next() == Some(label)).unwrap();
            line.split_whitespace().nth(column).unwrap().parse().unwrap()
        };
        assert_eq!(column("Triad:", 1), 25165.8);
        assert_eq!([1, 2, 3, 4].map(|index| column("Copy:", index)), [33554.4, 0.009, 0.008, 0.010]);
        // One line each, for those that search without anchors.
        for label in ["Copy:", "Scale:", "Add:", "Triad:", "Array size = ", "Threads counted = ", "Solution Validates"]
        {
            assert_eq!(text.matches(label).count(), 1, "{label}");
        }
    }

    #[test]
    fn what_was_not_measured_is_absent_and_what_failed_is_said() {
        let copy = step("machine", "copy", "", 2, [1, 8_000_000, 8_000_000]);
        let failed = record(std::slice::from_ref(&copy), r#""could not trust copy_nt_avx2 on 2 threads: line 0 …""#);
        let text = stream(&failed).unwrap();
        assert!(text.contains("Copy:  ") && !text.contains("Triad:"), "{text}");
        assert!(text.contains("Total memory required = 256.0 MiB"), "{text}");
        assert!(text.contains("Failed Validation: could not trust copy_nt_avx2"), "{text}");
        assert!(!text.contains("Solution Validates"), "{text}");
        let full_disk = record(&[copy], r#""could not append to the record r: no space; free some""#);
        assert!(stream(&full_disk).unwrap().contains("Solution Validates"));
    }

    #[test]
    fn without_bandwidth_it_is_a_usage_error() {
        let elsewhere = record(&[step("node 0", "copy", "", 2, [1, 8_000_000, 8_000_000])], "");
        let error = stream(&elsewhere).unwrap_err();
        assert_eq!(error.kind(), Kind::Usage);
        assert!(error.to_string().starts_with("could not print in the format 'stream': copy, scale"), "{error}");
    }
}
