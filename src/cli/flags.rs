//! Flags as text. What they mean depends on the machine, so it is worked out later, in one place, with our own errors.

use clap::Args;
use std::path::PathBuf;

/// Flags of every command that measures.
#[derive(Args, Clone, Debug, Default)]
pub struct Common {
    /// Thread counts: 1,2,4 or 1-8 or 8-64+8 (step) or 1-64*2 (factor) or all
    #[arg(long, value_name = "LIST")]
    pub threads: Option<String>,
    /// CPUs to use, as in 0-3,8-11 (default: all that are allowed)
    #[arg(long, value_name = "CPULIST")]
    pub cpus: Option<String>,
    /// Memory nodes to use
    #[arg(long, value_name = "LIST")]
    pub nodes: Option<String>,
    /// Another machine to plan for: FILE.xml, synthetic:"pack:2 numa:3 …" or sysfs:DIR; or measured:RECORD, a machine with the
    /// groups of CPUs that its latencies show (if it is this machine, to measure with as well)
    #[arg(long, value_name = "SOURCE")]
    pub topology: Option<String>,
    /// Print the plan and measure nothing
    #[arg(long)]
    pub plan: bool,
    /// Print what can be measured, usable here or not, and measure nothing
    #[arg(long, conflicts_with = "plan")]
    pub list: bool,
    /// Run each step once, checked and untimed
    #[arg(long, conflicts_with_all = ["plan", "list", "out", "format"])]
    pub verify: bool,
    /// Fewer sizes and samples
    #[arg(long, conflicts_with = "full")]
    pub quick: bool,
    /// More sizes and samples
    #[arg(long)]
    pub full: bool,
    /// Start nothing new after this time, as in 60s or 5m
    #[arg(long, value_name = "TIME")]
    pub time_budget: Option<String>,
    /// Samples of each step (experts, validate: rounds)
    #[arg(long, value_name = "N")]
    pub samples: Option<String>,
    /// Seed of random orders and choices
    #[arg(long, value_name = "N")]
    pub seed: Option<String>,
    /// Use no instructions above rust, sse2, avx2 or avx512
    #[arg(long, value_name = "NAME")]
    pub isa_max: Option<String>,
    /// What to print: table, json, jsonl, csv or md; of bandwidth also stream, the layout of STREAM
    #[arg(long, default_value = "table")]
    pub format: String,
    /// Where to write the record, or none [default: membar-<host>-<utc>.jsonl]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Keep a label in the record; may be repeated
    #[arg(long, value_name = "K=V")]
    pub label: Vec<String>,
    /// Keep the name of the VM size in the record
    #[arg(long, value_name = "NAME")]
    pub vm_size: Option<String>,
    /// Keep the region in the record
    #[arg(long, value_name = "NAME")]
    pub region: Option<String>,
    /// Theoretical peak of the memory in GB/s (10⁹), to print shares of it
    #[arg(long, value_name = "GB/S")]
    pub peak_gb_s: Option<String>,
    /// No progress, no talk
    #[arg(long)]
    pub quiet: bool,
}

/// Flags of `membar run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    common: Common,
}

/// Flags of `membar stream`.
#[derive(Args, Clone, Debug, Default)]
pub struct StreamArgs {
    #[command(flatten)]
    common: Common,
    /// Operations: read,copy,scale,add,triad,fill,mix_1_1,mix_2_1,mix_3_1, or names of rows as --list prints them
    #[arg(long, value_name = "LIST")]
    pub kernels: Option<String>,
    /// Only ordinary or non-temporal stores
    #[arg(long, value_name = "KIND")]
    pub store: Option<String>,
    /// Only this instruction set: rust, sse2, avx2 or avx512, or libc for what the C library chooses
    #[arg(long, value_name = "NAME")]
    pub isa: Option<String>,
    /// Bytes of each array, as in 128MiB (default: 4 times the last-level caches)
    #[arg(long)]
    pub size: Option<String>,
    /// Pages: 4k, thp or 2m (default: what the system gives)
    #[arg(long)]
    pub pages: Option<String>,
    /// Where pages go: first-touch, bind or interleave
    #[arg(long)]
    pub placement: Option<String>,
    /// Only the bandwidth column: the best copy, and whether doubled arrays confirm it
    #[arg(long, conflicts_with = "kernels")]
    pub column: bool,
}

/// Flags of `membar latency`.
#[derive(Args, Clone, Debug, Default)]
pub struct LatencyArgs {
    #[command(flatten)]
    common: Common,
    /// Protocols: cas, flags, message, or several (cas,flags); --help defines them
    ///
    /// All values are one way, of a line that the other core has just modified.
    /// cas: both threads change one word by compare-and-swap, each waiting for the other's value; half a round trip.
    /// flags: each thread stores a flag on its own line and polls the other's; half a round trip.
    /// message: the sender writes the time into a line, the receiver polls the line and reads the clock when it sees it;
    /// receive less send, mean of both directions; one clock read is in it. Left out for pairs whose clocks disagree.
    /// Default: cas on every pair, and the others too on small machines, with --full, or else on some pairs of each kind
    #[arg(long, value_name = "LIST", verbatim_doc_comment)]
    pub protocol: Option<String>,
    /// Memory node that the shared line lives on (default: the nodes of both CPUs of a pair in turn)
    #[arg(long, value_name = "NODE")]
    pub home: Option<String>,
    /// Only some of core, siblings, memory, pages, loaded, atomic, detours
    #[arg(long, value_name = "LIST")]
    pub only: Option<String>,
    /// Memory latency over this footprint alone, as in 1GiB (default: 4 times the last-level cache, and a ladder below)
    #[arg(long, value_name = "SIZE")]
    pub footprint: Option<String>,
}

/// Flags of `membar barrier`.
#[derive(Args, Clone, Debug, Default)]
pub struct BarrierArgs {
    #[command(flatten)]
    common: Common,
    /// Algorithms, as --list names them
    #[arg(long, value_name = "LIST")]
    pub algorithms: Option<String>,
    /// A barrier of your own, besides those: a shared library with the functions of examples/membar_barrier.h
    #[arg(long, value_name = "FILE.so", conflicts_with = "list")]
    pub plugin: Option<PathBuf>,
    /// Ways of waiting, as --list names them: spin, pause (aarch64: isb), spin-N-yield …
    #[arg(long, value_name = "LIST")]
    pub wait: Option<String>,
    /// Spreads: smt, l3, node, socket, scatter-l3, scatter-node, scatter-socket, all, given
    #[arg(long, value_name = "LIST")]
    pub spread: Option<String>,
    /// Thread 0 computes this much longer than the others before each episode: 0,500ns,2us
    #[arg(long, value_name = "LIST")]
    pub late: Option<String>,
    /// What every thread does before each episode: compute (1us), read memory of its own (64KiB), or write its part of a vector
    /// and read all of it (exchange-16KiB); each is timed with and without the barrier
    #[arg(long, value_name = "LIST")]
    pub after: Option<String>,
}

/// Flags of `membar experts`.
#[derive(Args, Clone, Debug, Default)]
pub struct ExpertsArgs {
    #[command(flatten)]
    common: Common,
    /// Model of the catalogue, as --list names it, or a file: MODEL.gguf, of which only the header is read, or
    /// a description, MODEL.toml
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Quantization of the model, as --list names it
    #[arg(long, value_name = "NAME")]
    pub quantization: Option<String>,
    /// Barrier algorithm that the replay waits at
    #[arg(long, value_name = "NAME")]
    pub barrier: Option<String>,
    /// How rows are split over threads: static, chunks (as llama.cpp), or repacked (as llama.cpp does with types that it repacks)
    #[arg(long, value_name = "NAME")]
    pub slicing: Option<String>,
    /// Where weights go: first-touch, bind or interleave
    #[arg(long)]
    pub placement: Option<String>,
}

/// Common flags that say nothing to `membar validate`.
const NOT_OF_VALIDATE: [&str; 7] = ["nodes", "topology", "plan", "list", "verify", "quick", "full"];

/// Flags of `membar validate`.
#[derive(Args, Clone, Debug)]
#[command(group = clap::ArgGroup::new("program").required(true))]
#[command(mut_args(|arg| { let hidden = NOT_OF_VALIDATE.contains(&arg.get_id().as_str()); arg.hide(hidden) }))]
pub struct ValidateArgs {
    #[command(flatten)]
    pub(super) common: Common,
    /// The program: prints what STREAM 5.10 prints, and follows OMP_NUM_THREADS and OMP_PLACES
    #[arg(long, value_name = "PROGRAM", conflicts_with_all = NOT_OF_VALIDATE, group = "program")]
    pub(super) stream: Option<PathBuf>,
    /// The engine: llama-bench of llama.cpp, or one that prints the same JSON, beside the replay of --model
    #[arg(long, value_name = "PROGRAM", conflicts_with_all = NOT_OF_VALIDATE, group = "program", requires = "model")]
    pub(super) llama_bench: Option<PathBuf>,
    /// The model that the engine and the replay both run
    #[arg(long, value_name = "FILE.gguf", requires = "llama_bench")]
    pub(super) model: Option<PathBuf>,
    /// Barrier of the replay (default: that of the OpenMP runtime that the engine loads, else central, llama.cpp's own)
    #[arg(long, value_name = "NAME", requires = "llama_bench")]
    pub(super) barrier: Option<String>,
    /// How rows are split over threads: chunks (default; the engine is told --repack 0) or repacked (--repack 1)
    #[arg(long, value_name = "NAME", requires = "llama_bench")]
    pub(super) slicing: Option<String>,
}

/// One command line, whichever command it belongs to.
#[derive(Clone, Debug)]
pub struct Request {
    /// Flags of all commands.
    pub common: Common,
    /// What is measured, with its own flags; `None` is left out.
    pub stream: Option<StreamArgs>,
    /// As above.
    pub latency: Option<LatencyArgs>,
    /// As above.
    pub barrier: Option<BarrierArgs>,
    /// As above.
    pub experts: Option<ExpertsArgs>,
}

impl Request {
    fn only(common: &Common) -> Request {
        Request { common: common.clone(), stream: None, latency: None, barrier: None, experts: None }
    }

    /// Whether this is `membar run`.
    pub fn is_run(&self) -> bool {
        self.stream.is_some() && self.experts.is_some()
    }
}

impl RunArgs {
    /// All measurements with their defaults.
    pub fn request(&self) -> Request {
        Request {
            stream: Some(StreamArgs::default()),
            latency: Some(LatencyArgs::default()),
            barrier: Some(BarrierArgs::default()),
            experts: Some(ExpertsArgs::default()),
            ..Request::only(&self.common)
        }
    }
}

impl StreamArgs {
    /// Bandwidth alone.
    pub fn request(&self) -> Request {
        Request { stream: Some(self.clone()), ..Request::only(&self.common) }
    }
}

impl LatencyArgs {
    /// Latency alone.
    pub fn request(&self) -> Request {
        Request { latency: Some(self.clone()), ..Request::only(&self.common) }
    }
}

impl BarrierArgs {
    /// Barriers alone.
    pub fn request(&self) -> Request {
        Request { barrier: Some(self.clone()), ..Request::only(&self.common) }
    }
}

impl ExpertsArgs {
    /// Replay alone.
    pub fn request(&self) -> Request {
        Request { experts: Some(self.clone()), ..Request::only(&self.common) }
    }
}
