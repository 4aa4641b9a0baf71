//! A plan for a person: what would be measured, how much memory and time it takes.

use super::{Document, Table};
use crate::caveat::LeftOut;
use crate::machine::Machine;
use crate::plan::Suite;
use crate::plan::reference::PairLatency;
use crate::plan::stream::Group;
use crate::units::{CpuSet, Nanos};
use std::collections::BTreeSet;

/// The plan of a command.
pub fn document(suite: &Suite, machine: &Machine) -> Document {
    let mut document = Document::default();
    let needs = suite.needs();
    document.heading(format!(
        "Plan: about {:.0} s, {} of memory at most{}",
        needs.estimated_s.max(1.0),
        needs.memory_bytes,
        if machine.is_this_system() {
            ""
        } else {
            " (a foreign topology: kernels as on this computer, never measured)"
        }
    ));
    let cpus: CpuSet = suite.cpus.iter().copied().collect();
    document.paragraph(format!("CPUs {cpus}, seed {}", suite.seed));
    left_out(&suite.left_out, &mut document);
    if let Some(plan) = &suite.latency {
        document.heading(format!(
            "Latency: {} pairs, {} measurements of {} samples, about {:.0} s",
            plan.pairs.len(),
            plan.steps().count(),
            plan.samples,
            plan.needs().estimated_s.max(1.0)
        ));
        let mut table = Table::new(["protocol", "pairs", "with the line at both sides"]);
        for protocol in &plan.protocols {
            let pairs = || plan.pairs.iter().filter(|pair| pair.protocols.contains(protocol));
            let both = pairs().filter(|pair| pair.homes.len() > 1).count();
            table.row(vec![protocol.name().to_owned(), pairs().count().to_string(), both.to_string()]);
        }
        document.table(table);
        left_out(&plan.left_out, &mut document);
    }
    if let Some(plan) = &suite.sibling {
        document.heading(format!("Siblings: {} pairs, {} samples each", plan.pairs.len(), plan.samples));
        if !plan.tested.is_empty() {
            document.paragraph(format!("and those that a group test of {} CPUs finds", plan.tested.len()));
        }
        left_out(&plan.left_out, &mut document);
    }
    if let Some(plan) = &suite.memory_latency {
        document.heading(format!("Memory latency: {} samples each, random order of lines", plan.samples));
        let mut table = Table::new(["memory of node", "footprint", "pages", "from CPUs", "footprints below"]);
        for group in &plan.groups {
            let mark = table.mark(&group.caveats);
            let cpus: CpuSet = group.chases.iter().map(|chase| chase.cpu).collect();
            table.row(vec![
                group.memory_node.map_or("all".into(), |node| node.to_string()),
                format!("{}{mark}", group.footprint_bytes),
                group.pages.name().to_owned(),
                short(&cpus),
                group.ladder.as_ref().map_or("none".into(), |ladder| ladder.footprints.len().to_string()),
            ]);
        }
        document.table(table);
        left_out(&plan.left_out, &mut document);
    }
    if let Some(plan) = &suite.page {
        document.heading("Latency of pages, to see hidden memory nodes");
        if let Some(buffer) = &plan.buffer {
            let cpus: Vec<String> = buffer.chases.iter().map(|chase| format!("CPU {}", chase.cpu)).collect();
            document.paragraph(format!(
                "{} of {} in pages of 4 KiB, {} times from {}",
                plan.pages,
                buffer.footprint_bytes,
                plan.passes,
                cpus.join(" and from ")
            ));
        }
        left_out(&plan.left_out, &mut document);
    }
    if let Some(plan) = &suite.loaded {
        document.heading(format!("Loaded latency: {} paces, {} samples each", plan.paces.len(), plan.samples));
        let mut table = Table::new(["scope", "chasing CPU", "others", "chain", "array"]);
        for group in &plan.groups {
            let mark = table.mark(&group.caveats);
            table.row(vec![
                group.scope.clone(),
                group.cpus.first().map_or(String::new(), ToString::to_string),
                (group.cpus.len() - 1).to_string(),
                group.chain_bytes.to_string(),
                format!("{}{mark}", group.array_bytes),
            ]);
        }
        document.table(table);
        left_out(&plan.left_out, &mut document);
    }
    if let Some(plan) = &suite.atomic {
        let counts: BTreeSet<usize> = plan.steps.iter().map(|step| step.cpus.len()).collect();
        let counts: Vec<String> = counts.iter().map(usize::to_string).collect();
        document.heading(format!("Contended atomics: {} steps, {} samples each", plan.steps.len(), plan.samples));
        document.paragraph(format!("by {} threads", counts.join(", ")));
    }
    if let Some(plan) = &suite.detour {
        let watched = Nanos(u64::from(plan.windows) * plan.window_ns);
        let cpus: CpuSet = plan.cpus.iter().copied().collect();
        document.heading(format!("Detours: CPUs {} read the clock for {watched}", short(&cpus)));
    }
    if let Some(plan) = &suite.barrier {
        document.heading(format!("Barriers: {} steps, {} samples each", plan.steps.len(), plan.samples));
        let mut sets: Vec<(u32, &str, String, Vec<&str>)> = Vec::new();
        for step in &plan.steps {
            let cpus = short(&step.cpus.iter().copied().collect());
            let (threads, spread) = (step.cpus.len() as u32, step.spread.name());
            match sets.iter_mut().find(|set| (set.0, set.1, &set.2) == (threads, spread, &cpus)) {
                Some(set) if set.3.contains(&step.algorithm.name()) => {}
                Some(set) => set.3.push(step.algorithm.name()),
                None => sets.push((threads, spread, cpus, vec![step.algorithm.name()])),
            }
        }
        let mut table = Table::new(["threads", "spread", "CPUs", "algorithms"]);
        for (threads, spread, cpus, algorithms) in sets {
            table.row(vec![threads.to_string(), spread.to_owned(), cpus, algorithms.join(", ")]);
        }
        document.table(table);
        let worked = plan.steps.iter().max_by_key(|step| step.works.len()).filter(|step| step.works.len() > 1);
        if let Some(step) = worked {
            let works: Vec<String> = step.works[1..].iter().map(ToString::to_string).collect();
            let mut of: Vec<&str> = Vec::new();
            for step in plan.steps.iter().filter(|step| step.works.len() > 1) {
                if !of.contains(&step.algorithm.name()) {
                    of.push(step.algorithm.name());
                }
            }
            document.paragraph(format!(
                "{}: also after each of {}; {} samples with and without the barrier.",
                of.join(", "),
                works.join(", "),
                plan.work_samples
            ));
        }
        if let Some(most) = plan.steps.iter().map(|step| step.traced_episodes).max().filter(|most| *most > 0) {
            document.paragraph(format!("Then up to {most} single episodes of each with several threads."));
        }
        left_out(&plan.left_out, &mut document);
    }
    if let Some(plan) = &suite.dispatch {
        let sets: BTreeSet<(usize, &str)> =
            plan.steps.iter().map(|step| (step.cpus.len(), step.spread.name())).collect();
        let sets: Vec<String> = sets.iter().map(|(threads, spread)| format!("{threads} ({spread})")).collect();
        document.heading(format!("Fork and join: {} steps, {} jobs each", plan.steps.len(), plan.samples));
        document.paragraph(format!("by {} threads", sets.join(", ")));
    }
    if let Some(plan) = &suite.stream {
        document.heading("Bandwidth");
        let mut table = Table::new([
            "scope",
            "threads",
            "CPUs",
            "each array",
            "arrays",
            "last-level caches",
            "pages",
            "rows",
            "samples",
        ]);
        let mut row_sets: Vec<Vec<&str>> = Vec::new();
        let is_pair = |group: &&Group| group.scope.contains(" to ");
        for group in plan.groups.iter().filter(|group| !is_pair(group)).chain(plan.groups.iter().find(is_pair)) {
            let cpus: CpuSet = group.cpus.iter().copied().collect();
            let mark = table.mark(&group.caveats);
            let rows: Vec<&str> = group.kernels.iter().map(|row| row.name).collect();
            let set = row_sets.iter().position(|known| *known == rows).unwrap_or_else(|| {
                row_sets.push(rows);
                row_sets.len() - 1
            });
            table.row(vec![
                group.scope.clone(),
                group.cpus.len().to_string(),
                format!("{}{mark}", short(&cpus)),
                group.array_bytes.to_string(),
                crate::plan::stream::arrays(&group.kernels).to_string(),
                group.cache_bytes.to_string(),
                group.placement.to_string(),
                format!("set {}", set + 1),
                group.samples.to_string(),
            ]);
        }
        document.table(table);
        let pairs = plan.groups.iter().filter(is_pair).count();
        if pairs > 1 {
            document.paragraph(format!(
                "and {} more pairs of cores of one node and memory of another, like the last line",
                pairs - 1
            ));
        }
        for (index, rows) in row_sets.iter().enumerate() {
            document.paragraph(format!("set {}: {}", index + 1, rows.join(", ")));
        }
        if let Some(column) = &plan.column {
            document.paragraph(format!(
                "Then the bandwidth column: the best copy again, over its arrays and doubled ones in turn, {} samples each, \
                 until they agree within {:.0} %",
                column.samples,
                column.tolerance * 100.0
            ));
        }
        left_out(&plan.left_out, &mut document);
    }
    if let Some(plan) = &suite.reference {
        document.heading("Reference steps, repeated between the others to see drift");
        if let Some(read) = &plan.read {
            let cpus: CpuSet = read.cpus.iter().copied().collect();
            document.paragraph(format!(
                "CPUs {} read an array of {}, which is kept; {} samples",
                short(&cpus),
                read.array_bytes,
                read.samples
            ));
        }
        if let Some(PairLatency { pair, samples, .. }) = &plan.pair {
            document.paragraph(format!("CPUs {} and {} hand flags to each other; {samples} samples", pair.a, pair.b));
        }
        left_out(&plan.left_out, &mut document);
    }
    if let Some(plan) = &suite.experts {
        document.heading(format!(
            "Decode replay: {} of weights in memory, {}; {} to {} rounds",
            plan.arena_bytes, plan.placement, plan.rounds.least, plan.rounds.most
        ));
        let mut models = Table::new(["model", "engine", "read a token", "barriers a token", "in memory"]);
        for model in &plan.models {
            let mark = models.mark(&model.caveats);
            models.row(vec![
                format!("{} {}", model.model, model.quantization),
                model.engine.name().to_owned(),
                model.bytes_per_token.to_string(),
                model.barriers_per_token.to_string(),
                format!("{}{mark}", model.layout.resident_bytes),
            ]);
        }
        document.table(models);
        let mut sets = Table::new(["threads", "CPUs", "barrier", "wait", "arms in every round"]);
        for configuration in &plan.configurations {
            let cpus: CpuSet = configuration.cpus.iter().copied().collect();
            let arms: Vec<&str> = configuration.arms.iter().map(|arm| arm.name()).collect();
            let mark = sets.mark(&configuration.caveats);
            let baseline = if configuration.baseline { ", baseline" } else { "" };
            sets.row(vec![
                configuration.cpus.len().to_string(),
                format!("{}{mark}", short(&cpus)),
                format!("{}{baseline}", configuration.barrier.name()),
                configuration.wait.to_string(),
                arms.join(", "),
            ]);
        }
        document.table(sets);
        left_out(&plan.left_out, &mut document);
    }
    document
}

/// A CPU list that fits a table; all of it is in `--format json`.
fn short(cpus: &CpuSet) -> String {
    const WIDTH: usize = 40;
    let list = cpus.to_string();
    if list.len() <= WIDTH {
        return list;
    }
    let end = list[..WIDTH].rfind(',').unwrap_or(WIDTH);
    format!("{},… ({} CPUs)", &list[..end], cpus.len())
}

/// What was left out, by the reason.
pub fn by_reason(left_out: &[LeftOut]) -> Vec<(&str, Vec<&str>)> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for left in left_out {
        match reasons.iter_mut().find(|(reason, _)| *reason == left.reason) {
            Some((_, what)) => what.push(&left.what),
            None => reasons.push((&left.reason, vec![&left.what])),
        }
    }
    reasons
}

fn left_out(left_out: &[LeftOut], document: &mut Document) {
    for (reason, what) in by_reason(left_out) {
        document.paragraph(format!("Left out ({reason}): {}", what.join(", ")));
    }
}
