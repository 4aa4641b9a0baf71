//! The pipeline: parse → machine → plan → open the record → for each outcome { append; show } → report.

use super::flags::{BarrierArgs, Common, Request};
use super::output::{self, Format, Json};
use crate::barrier::{Plugin, Wait};
use crate::caveat::LeftOut;
use crate::error::{Error, Kind, Result};
use crate::kernel::{Kernel, Operation, Store};
use crate::machine::{Isa, IsaSet, Machine, OpenMp, RunLock, host_name};
use crate::memory::{Pages, Policy};
use crate::plan::barrier::{After, Lateness, Spread, Work};
use crate::plan::latency::Protocol;
use crate::plan::stream::PlacementRule;
use crate::plan::{self, LatencyPart, Needs, Preset, Scope, Subject, Suite, ThreadList};
use crate::record::{End, Line, Record, RunHeader, Writer};
use crate::report;
use crate::run::clock::{Clock, Precision};
use crate::run::{self, Context, Outcome, Stop};
use crate::units::{CpuSet, Nanos, NodeId, NodeSet};
use crate::workload;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

/// Carries out a measuring command.
///
/// # Errors
/// Whatever keeps it from starting. What fails later is in the record, and in the exit status.
pub fn run(request: &Request) -> Result<ExitCode> {
    let common = &request.common;
    let setting = Setting::read(common)?;
    let (format, isa) = (setting.format, &setting.isa);
    if format == Format::Stream && (request.stream.is_none() || request.is_run()) {
        return Err(not_bandwidth());
    }
    if common.list {
        return list(request, isa, format);
    }
    let machine = super::source::machine(common.topology.as_deref())?;
    let suite = suite(request, &machine, isa, format)?;
    if common.plan {
        return output::document(&report::plan_document(&suite, &machine), format, &suite);
    }
    if !machine.is_this_system() {
        return Err(Error::usage(
            "measure on a foreign topology",
            "it describes another machine than this one",
            "add --plan to see what would be measured there",
        ));
    }
    let session = Session::begin(&setting, common)?;
    if let Some(plan) = suite.latency.as_ref().filter(|_| !common.verify) {
        let (pairs, steps, seconds) = (plan.pairs.len(), plan.steps().count(), plan.needs().estimated_s);
        session.progress().say(&format!("pairs of CPUs: {pairs}, measured in {steps} steps, about {seconds:.0} s"));
    }
    let part = Part { machine: &machine, seed: suite.seed, needs: suite.needs(), summary: request.is_run() };
    session.measure(&part, |precision, context| run::run(&suite, isa, precision, context))
}

/// Why a format that holds bandwidth alone was refused.
pub(super) fn not_bandwidth() -> Error {
    Error::usage(
        "print in the format 'stream'",
        "it holds bandwidth alone",
        "take it with `membar stream` or `membar report RECORD`, or take another format",
    )
}

/// What all measuring commands read from their flags. All that can be wrong there is said whatever else was asked for.
pub(super) struct Setting {
    pub(super) format: Format,
    pub(super) isa: IsaSet,
    clock: Clock,
    budget: Option<Nanos>,
    peak: Option<f64>,
    labels: BTreeMap<String, String>,
}

impl Setting {
    /// # Errors
    /// Usage errors.
    pub(super) fn read(common: &Common) -> Result<Setting> {
        Ok(Setting {
            format: Format::parse(&common.format)?,
            budget: common.time_budget.as_deref().map(time_budget).transpose()?,
            peak: common.peak_gb_s.as_deref().map(|text| rate("--peak-gb-s", text)).transpose()?,
            labels: labels(common)?,
            clock: Clock::start(),
            isa: match &common.isa_max {
                Some(name) => IsaSet::detect().capped(isa_level(name, "--isa-max", Isa::is_instruction_set)?),
                None => IsaSet::detect(),
            },
        })
    }
}

/// What is measured on which machine, besides the measuring itself.
pub(super) struct Part<'a> {
    pub(super) machine: &'a Machine,
    pub(super) seed: u64,
    pub(super) needs: Needs,
    /// Whether JSON is the summary of a run instead of all steps.
    pub(super) summary: bool,
}

/// From here on signals are noted, and no other run measures on this machine.
pub(super) struct Session<'a> {
    setting: &'a Setting,
    common: &'a Common,
    signal: Arc<AtomicUsize>,
    lock: Option<RunLock>,
}

impl<'a> Session<'a> {
    /// # Errors
    /// When another run measures here.
    pub(super) fn begin(setting: &'a Setting, common: &'a Common) -> Result<Session<'a>> {
        let signal = watch_signals()?;
        // What is not timed disturbs nobody's numbers more than any other program.
        let lock = if common.verify { None } else { Some(RunLock::take()?) };
        Ok(Session { setting, common, signal, lock })
    }

    /// When to stop.
    pub(super) fn stop(&self) -> Stop<'_> {
        Stop { signal: &self.signal, deadline: self.setting.budget }
    }

    /// The run's clock.
    pub(super) fn clock(&self) -> Clock {
        self.setting.clock
    }

    /// Talk on stderr.
    pub(super) fn progress(&self) -> Progress {
        Progress { clock: self.setting.clock, quiet: self.common.quiet }
    }

    /// The exit status as things stand.
    pub(super) fn status(&self, failed: bool) -> ExitCode {
        exit_status(signal_number(&self.signal), failed)
    }

    /// Opens the record, lets `work` measure, appends and shows what comes of it, and reports.
    ///
    /// # Errors
    /// Whatever keeps it from starting, and what standard output refuses.
    pub(super) fn measure(
        &self,
        part: &Part<'_>,
        work: impl FnOnce(&Precision, &mut Context<'_>) -> Result<()>,
    ) -> Result<ExitCode> {
        let Session { setting, common, signal, lock } = self;
        let clock = setting.clock;
        let started = SystemTime::now();
        let mut writer = if common.verify { Writer::none() } else { open_record(common, started)? };
        let precision = clock.precision();
        let header = RunHeader {
            peak_bytes_per_s: setting.peak,
            labels: setting.labels.clone(),
            ..run::header(part.machine, &setting.isa, &precision, part.seed, lock.as_ref())
        };
        writer.append(&Line::Run(Box::new(header.clone())))?;

        let mut progress = self.progress();
        let needs = &part.needs;
        progress.say(&format!("about {:.0} s, {} of memory at most", needs.estimated_s.max(1.0), needs.memory_bytes));
        let mut end = End { outcome: "complete".into(), ..End::default() };
        let mut lines = Vec::new();
        let mut steps = 0usize;
        let mut outcome = |outcome: Outcome| -> Result<()> {
            match outcome {
                Outcome::Starting(what) => {
                    steps += 1;
                    progress.say(&what);
                }
                Outcome::Measured(line) => {
                    // A full disk costs the record its rest, and the run nothing else.
                    if let Err(error) = writer.append(&line) {
                        output::say(&format!("membar: {error}"));
                        end.failures.push(error.to_string());
                    }
                    lines.push(*line);
                }
                Outcome::LeftOut(left) => end.left_out.push(left),
                Outcome::Failed(error) => {
                    // Said even with --quiet: a failure is no talk.
                    output::say(&format!("membar: {error}"));
                    end.failures.push(error.to_string());
                }
            }
            Ok(())
        };
        let stop = self.stop();
        let mut context =
            Context { clock, stop, outcome: &mut outcome, clock_step: precision.step, verify: common.verify };
        work(&precision, &mut context)?;

        if let Some(reason) =
            stop.reason(clock.now()).filter(|_| signal_number(signal) != 0 || !end.left_out.is_empty())
        {
            end.outcome = reason.to_owned();
        }
        end.elapsed_ns = clock.now().0;
        end.finished_utc = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let path = writer.path().map(|path| path.display().to_string());
        if let Err(error) = writer.append(&Line::End(end.clone())) {
            output::say(&format!("membar: {error}"));
            end.failures.push(error.to_string());
        }
        // A missing metric is a failure, not a pass.
        let measured = lines.iter().any(|line| {
            let counted = line.step().is_some_and(|step| step.samples_ns.len() > step.warmup_samples as usize);
            counted && !matches!(line, Line::Overhead(_) | Line::Reference(_))
        });
        let failed = !end.failures.is_empty() || !(measured || common.verify);
        for (reason, what) in report::by_reason(&end.left_out) {
            progress.say(&format!("not measured ({reason}): {}", what.join(", ")));
        }
        lines.push(Line::End(end));
        let status = self.status(failed);
        if common.verify {
            progress.say(&format!("{steps} steps checked, {}", if failed { "with failures" } else { "all well" }));
            return Ok(status);
        }
        let record = Record { header, lines, complete: true, remarks: Vec::new() };
        let json = if part.summary { Json::Summary(path.clone()) } else { Json::Steps };
        match output::record(&record, setting.format, json) {
            // Too little was measured for this format: the status says why that is so.
            Err(error) if failed && error.kind() == Kind::Usage => output::say(&format!("membar: {error}")),
            other => drop(other?),
        }
        if let Some(path) = path {
            progress.say(&format!("record: {path}"));
        }
        Ok(status)
    }
}

fn exit_status(signal: usize, failed: bool) -> ExitCode {
    match (signal, failed) {
        (0, false) => ExitCode::SUCCESS,
        (0, true) => ExitCode::from(1),
        // As a shell reports a death by this signal.
        (signal, _) => ExitCode::from(128u8.saturating_add(u8::try_from(signal).unwrap_or(0))),
    }
}

fn signal_number(signal: &AtomicUsize) -> usize {
    signal.load(Ordering::Relaxed)
}

/// Notes SIGINT and SIGTERM. A second one ends the process at once, in case a step hangs.
fn watch_signals() -> Result<Arc<AtomicUsize>> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let seen = Arc::new(AtomicUsize::new(0));
    let armed = Arc::new(std::sync::atomic::AtomicBool::new(false));
    // A file size limit shall be a failed write, not a death.
    let ignored = Arc::new(std::sync::atomic::AtomicBool::new(false));
    signal_hook::flag::register(libc::SIGXFSZ, ignored)
        .map_err(|reason| Error::refused("catch SIGXFSZ", reason, "report this as a bug"))?;
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal finds the second trap unarmed, and arms it.
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&armed))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&armed)))
            .and_then(|_| signal_hook::flag::register_usize(signal, Arc::clone(&seen), signal as usize))
            .map_err(|reason| Error::refused("catch Ctrl-C", reason, "report this as a bug"))?;
    }
    Ok(seen)
}

/// Lines on stderr with the time since the start.
pub(super) struct Progress {
    clock: Clock,
    quiet: bool,
}

impl Progress {
    pub(super) fn say(&mut self, what: &str) {
        if !self.quiet {
            output::say(&format!("[{:5.1} s] {what}", self.clock.now().0 as f64 / 1e9));
        }
    }
}

/// The record's file, created now.
fn open_record(common: &Common, started: SystemTime) -> Result<Writer> {
    match &common.out {
        Some(path) if path == Path::new("none") => Ok(Writer::none()),
        Some(path) => Writer::create(path),
        None => {
            let stamp = humantime::format_rfc3339_seconds(started).to_string().replace([':', '-'], "");
            let stem = format!("membar-{}-{stamp}", file_name_part(&host_name()));
            // Two runs may start in one second.
            let names = (1..).map(|number| match number {
                1 => PathBuf::from(format!("{stem}.jsonl")),
                number => PathBuf::from(format!("{stem}-{number}.jsonl")),
            });
            let free = names.take(100).find(|name| !name.exists());
            Writer::create(&free.unwrap_or_else(|| PathBuf::from(format!("{stem}.jsonl"))))
        }
    }
}

/// A host name as part of a file name: other characters could leave the directory.
fn file_name_part(host: &str) -> String {
    host.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect()
}

fn labels(common: &Common) -> Result<BTreeMap<String, String>> {
    let mut labels = BTreeMap::new();
    for label in &common.label {
        let Some((key, value)) = label.split_once('=').filter(|(key, _)| !key.is_empty()) else {
            return Err(Error::usage(
                format!("keep the label '{label}'"),
                "it has no name and value",
                "write --label NAME=VALUE",
            ));
        };
        labels.insert(key.to_owned(), value.to_owned());
    }
    labels.extend(common.vm_size.iter().map(|name| ("vm_size".to_owned(), name.clone())));
    labels.extend(common.region.iter().map(|name| ("region".to_owned(), name.clone())));
    Ok(labels)
}

fn time_budget(text: &str) -> Result<Nanos> {
    let budget = humantime::parse_duration(text).ok().filter(|time| *time > Duration::ZERO);
    let nanos = budget.and_then(|time| u64::try_from(time.as_nanos()).ok());
    nanos.map(Nanos).ok_or_else(|| {
        Error::usage(format!("read --time-budget {text}"), "it is not a length of time", "write 60s, 5m or 1h")
    })
}

/// Bytes per second of `--peak-gb-s`.
/// Reads a rate in GB/s; returns bytes a second.
pub(super) fn rate(name: &str, text: &str) -> Result<f64> {
    text.parse::<f64>().ok().filter(|gb| gb.is_finite() && (0.01..=1e6).contains(gb)).map(|gb| gb * 1e9).ok_or_else(
        || Error::usage(format!("read {name} {text}"), "it is no rate in GB/s", "write a number such as 614.4"),
    )
}

/// Reads a flag whose type knows its own form.
pub(super) fn flag<T: FromStr<Err = String>>(name: &str, text: &Option<String>, advice: &str) -> Result<Option<T>> {
    let read =
        |text: &String| text.parse().map_err(|reason: String| Error::usage(format!("read {name}"), reason, advice));
    text.as_ref().map(read).transpose()
}

/// Reads a whole number.
pub(super) fn number(name: &str, text: &Option<String>, least: u64, most: u64) -> Result<Option<u64>> {
    let read = |text: &String| {
        text.parse::<u64>().ok().filter(|number| (least..=most).contains(number)).ok_or_else(|| {
            let reason = format!("'{text}' is not a whole number from {least} to {most}");
            Error::usage(format!("read {name}"), reason, format!("write a number from {least} to {most}"))
        })
    };
    text.as_ref().map(read).transpose()
}

/// Reads a word that must be one of these.
fn choice<T: Copy>(name: &str, text: &str, choices: &[(&str, T)]) -> Result<T> {
    choices.iter().find(|(known, _)| *known == text).map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = choices.iter().map(|(known, _)| *known).collect();
        Error::usage(
            format!("read {name}"),
            format!("'{text}' is not one of its values"),
            format!("name one of {}", names.join(", ")),
        )
    })
}

/// Reads a comma-separated list of such words.
fn choices<T: Copy>(name: &str, text: &Option<String>, known: &[(&str, T)]) -> Result<Vec<T>> {
    words(text).iter().map(|word| choice(name, word, known)).collect()
}

/// The distinct words of a comma-separated list, in their order.
fn words(text: &Option<String>) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.iter().flat_map(|text| text.split(',')).map(str::trim) {
        if !words.iter().any(|known| known == word) {
            words.push(word.to_owned());
        }
    }
    words
}

/// Reads one of the levels that the flag has.
fn isa_level(name: &str, flag: &str, has: impl Fn(Isa) -> bool) -> Result<Isa> {
    let levels: Vec<_> = Isa::ALL.into_iter().filter(|isa| has(*isa)).map(|isa| (isa.name(), isa)).collect();
    choice(flag, name, &levels)
}

fn list(request: &Request, isa: &IsaSet, format: Format) -> Result<ExitCode> {
    if request.stream.is_some() {
        let names: Vec<&str> = Kernel::table().iter().map(|row| row.name).collect();
        output::document(&report::kernels(isa), format, &names)?;
    }
    if request.latency.is_some() {
        let names = Protocol::ALL.map(Protocol::name);
        output::document(&report::protocols(), format, &names)?;
    }
    if request.barrier.is_some() {
        output::document(&report::barriers(&OpenMp::installed()), format, &Subject::all())?;
    }
    if request.experts.is_some() {
        let listing = workload::listing()?;
        output::document(&report::models(&listing), format, &listing)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The model that `--model` names: a file when it ends like one.
pub(super) fn model_choice(model: &str, quantization: Option<&str>) -> Result<plan::experts::ModelChoice> {
    let choice = plan::experts::ModelChoice {
        model: model.to_owned(),
        quantization: quantization.map(str::to_owned),
        file: None,
    };
    if !workload::is_file_name(model) {
        return Ok(choice);
    }
    if let Some(quantization) = quantization {
        return Err(Error::usage(
            format!("replay the file {model} in {quantization}"),
            "a file says itself how its weights are stored",
            "leave out --quantization, or name a model of the catalogue (--list)",
        ));
    }
    Ok(plan::experts::ModelChoice { file: Some(workload::open(Path::new(model))?), ..choice })
}

/// From flags to plans.
fn suite(request: &Request, machine: &Machine, isa: &IsaSet, format: Format) -> Result<Suite> {
    let common = &request.common;
    let cpus = flag::<CpuSet>("--cpus", &common.cpus, "write CPU numbers as in 0-3,8-11")?;
    let nodes = flag::<NodeSet>("--nodes", &common.nodes, "write node numbers as in 0-1")?;
    let threads = flag::<ThreadList>("--threads", &common.threads, "write 1,2,4 or 1-8 or 8-64+8 or 1-64*2 or all")?;
    let samples = number("--samples", &common.samples, 1, 10_000)?.and_then(|samples| u32::try_from(samples).ok());
    let seed = number("--seed", &common.seed, 0, u64::MAX)?.unwrap_or(1);
    let preset = match (common.quick, common.full) {
        (true, _) => Preset::Quick,
        (_, true) => Preset::Full,
        _ => Preset::Default,
    };
    let scope = Scope::new(machine, cpus.as_ref(), nodes.as_ref())?;
    let mut suite = Suite { seed, cpus: scope.cpus.clone(), ..Suite::default() };

    let mut size = None;
    if let Some(flags) = &request.stream {
        size = flag("--size", &flags.size, "write a number with K, M, G (10³) or KiB, MiB, GiB, as in 128MiB")?;
        let operations = Operation::ALL.map(|operation| (operation.name(), operation));
        let rows = words(&flags.kernels);
        let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
        // Names of rows and of operations may be mixed; a row says all that an operation leaves open.
        let (named, operation_names): (Vec<&str>, Vec<&str>) =
            rows.iter().partition(|name| Kernel::table().iter().any(|row| row.name == **name));
        let operation_names = (!operation_names.is_empty()).then(|| operation_names.join(","));
        let quick_operations = [Operation::Read, Operation::Copy, Operation::Triad];
        let mut operations = choices("--kernels", &operation_names, &operations)?;
        if flags.column {
            operations.push(Operation::Copy);
        } else if flags.kernels.is_none() && format == Format::Stream {
            operations.extend(report::STREAM_OPERATIONS);
        } else if flags.kernels.is_none() && preset == Preset::Quick {
            operations.extend(quick_operations);
        }
        let stores = [Store::Ordinary, Store::NonTemporal].map(|store| (store.name(), store));
        let options = plan::stream::Options {
            operations,
            rows: named.into_iter().map(Kernel::find).collect::<Result<_>>()?,
            store: flags.store.as_deref().map(|text| choice("--store", text, &stores)).transpose()?,
            isa: flags.isa.as_deref().map(|name| isa_level(name, "--isa", |_| true)).transpose()?,
            size,
            pages: flags.pages.as_deref().map(pages).transpose()?,
            placement: flags.placement.as_deref().map(placement).transpose()?,
            threads: threads.clone(),
            samples,
            preset,
            column_only: flags.column,
        };
        let named = options.rows.iter().map(|row| row.operation).chain(options.operations.iter().copied());
        if format == Format::Stream
            && !named.into_iter().any(|operation| report::STREAM_OPERATIONS.contains(&operation))
        {
            return Err(Error::usage(
                "print in the format 'stream'",
                "none of --kernels is in STREAM",
                "name some of copy, scale, add, triad, or take another format",
            ));
        }
        match plan::stream::plan(machine, &scope, isa, &options) {
            Ok(plan) => suite.stream = Some(plan),
            Err(error) => suite.left_out.push(left_out(request, "bandwidth", error)?),
        }
    }
    if let Some(flags) = &request.latency {
        if common.threads.is_some() && !request.is_run() {
            return Err(Error::usage(
                "use --threads here",
                "latency is measured between two threads",
                "choose the cores with --cpus",
            ));
        }
        let protocols = Protocol::ALL.map(|protocol| (protocol.name(), protocol));
        let options = plan::latency::Options {
            protocols: choices("--protocol", &flags.protocol, &protocols)?,
            home: home(&flags.home, machine)?,
            samples,
            seed,
            preset,
            budget_s: latency_budget(request, preset)?,
        };
        let known = LatencyPart::ALL.map(|part| (part.name(), part));
        let only = choices("--only", &flags.only, &known)?;
        let wanted = |part: LatencyPart| only.is_empty() || only.contains(&part);
        let latency = plan::latency::plan(machine, &scope, &options);
        if latency.pairs.is_empty() && only == [LatencyPart::Core] {
            return Err(Error::usage(
                "measure latency between CPUs",
                format!("it takes two different ones, and CPU {} is alone in scope", scope.set()),
                format!("name two or more of {} with --cpus", machine.allowed_cpus),
            ));
        }
        suite.latency = Some(latency).filter(|_| wanted(LatencyPart::Core));
        if wanted(LatencyPart::Siblings) {
            let options = plan::sibling::Options { samples, seed, preset };
            suite.sibling = Some(plan::sibling::plan(machine, &scope, &options));
        }
        let advice = "write a number with K, M, G (10³) or KiB, MiB, GiB, as in 128MiB";
        let options = plan::memory_latency::Options {
            footprint: flag("--footprint", &flags.footprint, advice)?,
            samples,
            seed,
            preset,
        };
        if wanted(LatencyPart::Memory) {
            suite.memory_latency = Some(plan::memory_latency::plan(machine, &scope, &options)?);
        }
        if wanted(LatencyPart::Pages) {
            let options = plan::page::Options { samples, seed, preset };
            suite.page = Some(plan::page::plan(machine, &scope, &options));
        }
        suite.loaded = wanted(LatencyPart::Loaded).then(|| plan::loaded::plan(machine, &scope, samples, seed, preset));
        if wanted(LatencyPart::Atomic) {
            let options = plan::atomic::Options { samples, preset };
            suite.atomic = Some(plan::atomic::plan(machine, &scope, &options));
        }
        suite.detour = wanted(LatencyPart::Detours).then(|| plan::detour::plan(&scope, preset));
        if flags.footprint.is_some() && !wanted(LatencyPart::Memory) {
            return Err(Error::usage("use --footprint here", "it belongs to memory latency", "add memory to --only"));
        }
    }
    if let Some(flags) = &request.barrier {
        let spreads = Spread::ALL.map(|spread| (spread.name(), spread));
        let options = plan::barrier::Options {
            algorithms: subjects(flags)?,
            waits: words(&flags.wait).iter().map(|token| Wait::parse(token)).collect::<Result<_>>()?,
            spreads: choices("--spread", &flags.spread, &spreads)?,
            threads: threads.clone(),
            works: works(flags)?,
            reader: Kernel::best(Operation::Read, None, isa).map(|kernel| kernel.row().name),
            samples,
            preset,
        };
        let barriers = plan::barrier::plan(machine, &scope, &options)?;
        if !request.is_run() && flags.plugin.is_none() && flags.algorithms.is_none() {
            let options = plan::atomic::Options { samples, preset };
            suite.atomic = Some(plan::atomic::plan(machine, &scope, &options));
        }
        let dispatch = plan::dispatch::plan(machine, &scope, &barriers, samples, preset);
        suite.dispatch = Some(dispatch).filter(|_| flags.plugin.is_none() && flags.algorithms.is_none());
        suite.barrier = Some(barriers);
    }
    if let Some(flags) = &request.experts {
        let most = scope.cpus.len() as u32;
        let mut options = plan::experts::Options::new(scope.cpus.clone());
        options.models = match (&flags.model, &flags.quantization) {
            (Some(model), quantization) => vec![model_choice(model, quantization.as_deref())?],
            (None, Some(_)) => {
                return Err(Error::usage(
                    "choose a quantization",
                    "no model was named",
                    "add --model; --list names the models and their quantizations",
                ));
            }
            (None, None) => Vec::new(),
        };
        options.nodes = nodes.as_ref().map(|_| scope.nodes.clone());
        options.placement = flags.placement.as_deref().map(placement).transpose()?.map(|rule| match rule {
            PlacementRule::FirstTouch => Policy::FirstTouch,
            PlacementRule::Bind => Policy::Bind(scope.nodes.clone()),
            PlacementRule::Interleave => Policy::Interleave(scope.nodes.clone()),
        });
        options.threads = threads.as_ref().map(|list| list.resolve(most, most)).transpose()?;
        if let Some(name) = &flags.barrier {
            (options.barrier, options.wait) = engine_barrier(name)?;
        }
        if let Some(name) = &flags.slicing {
            options.slicing = workload::Slicing::find(name)?;
        }
        options.preset = preset;
        options.rounds = samples;
        options.seed = seed;
        match plan::experts::Plan::new(machine, &options) {
            Ok(plan) => suite.experts = Some(plan),
            Err(error) => suite.left_out.push(left_out(request, "decode", error)?),
        }
    }
    if suite.stream.is_some() && common.verify {
        let (what, reason) = ("reference steps".to_owned(), "a check times nothing".to_owned());
        suite.left_out.push(LeftOut { what, reason });
    } else if suite.stream.is_some() {
        suite.add_reference(machine, &scope, size);
    }
    Ok(suite)
}

/// What is done between episodes, where the user says so.
fn works(flags: &BarrierArgs) -> Result<Option<Vec<Work>>> {
    let late: Option<Lateness> = flag("--late", &flags.late, "write times, as in 0,500ns,2us")?;
    let after: Option<After> = flag("--after", &flags.after, "write times and sizes, as in 1us,64KiB,exchange-16KiB")?;
    let asked = late.is_some() || after.is_some();
    let works = late.map(|late| late.0).into_iter().chain(after.map(|after| after.0)).flatten();
    Ok(asked.then(|| works.collect()))
}

/// Whose barriers: none stands for all. A plugin comes besides those that are named; naming it as well leaves it alone.
fn subjects(flags: &BarrierArgs) -> Result<Vec<Subject>> {
    let names = words(&flags.algorithms);
    let Some(path) = &flags.plugin else { return names.iter().map(|name| Subject::find(name)).collect() };
    let plugin = Plugin::new(path)?;
    let mut subjects = if names.is_empty() { Subject::all() } else { Vec::new() };
    for name in names.iter().filter(|name| *name != plugin.name()) {
        subjects.push(Subject::find(name)?);
    }
    subjects.push(Subject::Plugin(plugin));
    Ok(subjects)
}

/// The barrier that a replay waits at, and how where the environment decides: as in an engine that is started from here.
pub(super) fn engine_barrier(name: &str) -> Result<(Subject, Option<Wait>)> {
    let barrier = Subject::find(name)?;
    let wait = match barrier {
        Subject::OpenMp(runtime) => Some(runtime.wait_of(|variable| std::env::var(variable).ok())),
        _ => None,
    };
    Ok((barrier, wait))
}

/// The memory node of `--home`.
fn home(text: &Option<String>, machine: &Machine) -> Result<Option<NodeId>> {
    let Some(text) = text else { return Ok(None) };
    let nodes = machine.topology.memory_nodes().intersection(&machine.allowed_nodes);
    let node = text.parse().ok().map(NodeId).filter(|node| nodes.contains(*node));
    node.map(Some).ok_or_else(|| {
        let reason = format!("node '{text}' does not exist, has no memory or is not allowed");
        Error::usage("use --home", reason, format!("name one of {nodes}"))
    })
}

/// Seconds that latency may take where the preset does not say: alone, a little less than the time budget, since a start and an
/// end belong to it as well; in a run of everything, a part.
fn latency_budget(request: &Request, preset: Preset) -> Result<Option<f64>> {
    let budget = request.common.time_budget.as_deref().map(time_budget).transpose()?;
    let share = if request.is_run() { 0.25 } else { 0.9 };
    let of_run = (request.is_run() && preset == Preset::Default).then_some(60.0);
    Ok(budget.map(|budget| budget.0 as f64 * 1e-9 * share).or(of_run))
}

/// In a run of everything, what the system refuses (memory) leaves the rest standing. Alone it is an error.
fn left_out(request: &Request, what: &str, error: Error) -> Result<LeftOut> {
    if request.is_run() && error.kind() == Kind::Refused {
        return Ok(LeftOut { what: what.to_owned(), reason: error.to_string() });
    }
    Err(error)
}

fn pages(name: &str) -> Result<Pages> {
    choice("--pages", name, &[Pages::Small, Pages::Thp, Pages::Huge2M].map(|pages| (pages.name(), pages)))
}

fn placement(name: &str) -> Result<PlacementRule> {
    const RULES: [(&str, PlacementRule); 3] = [
        ("first-touch", PlacementRule::FirstTouch),
        ("bind", PlacementRule::Bind),
        ("interleave", PlacementRule::Interleave),
    ];
    choice("--placement", name, &RULES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_was_read_and_what_can_be_written() {
        let error = choice("--store", "fast", &[("ordinary", 1), ("non_temporal", 2)]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "could not read --store: 'fast' is not one of its values; name one of ordinary, non_temporal"
        );
        assert_eq!(error.kind(), Kind::Usage);
        assert!(number("--samples", &Some("0".into()), 1, 5).is_err());
        assert_eq!(number("--samples", &Some("5".into()), 1, 5).unwrap(), Some(5));
        assert!(time_budget("0s").is_err() && time_budget("soon").is_err());
        assert_eq!(time_budget("2s").unwrap(), Nanos(2_000_000_000));
    }

    #[test]
    fn a_host_name_cannot_leave_the_directory() {
        assert_eq!(file_name_part("../../etc/x y"), ".._.._etc_x_y");
    }

    #[test]
    fn a_run_knows_its_exit_status() {
        assert_eq!(format!("{:?}", exit_status(0, false)), format!("{:?}", ExitCode::SUCCESS));
        assert_eq!(format!("{:?}", exit_status(2, true)), format!("{:?}", ExitCode::from(130)));
        assert_eq!(format!("{:?}", exit_status(15, false)), format!("{:?}", ExitCode::from(143)));
    }
}
