//! What was measured, as JSON Lines: the schema, the writer and the reader. Nothing is computed here.

mod columns;
mod reader;
mod schema;
mod writer;

pub use reader::Record;
pub use schema::{
    AtomicStep, AtomicSummary, BarrierStep, BarrierSummary, ClockFacts, CoreLatencyStep, CpuFacts, DecodeStep,
    DecodeSummary, DecodeTrace, DetourStep, DetourSummary, Detours, DispatchStep, DispatchSummary, Disturbance, End,
    EngineStep, LatencySummary, Line, LoadedLatencyStep, LoadedSummary, MemoryLatencyStep, OverheadStep,
    PageLatencyStep, PeerStep, PeerSummary, ReferenceStep, ReferenceSummary, Repeated, RunHeader, SCHEMA, SiblingStep,
    SiblingSummary, Step, StreamStep, StreamSummary, ThreadSpan, Trace, TracedSummary,
};
pub use writer::Writer;
