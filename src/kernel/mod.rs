//! Streaming kernels: one table row and one assembly file each, and the one safe door to them. [`dot`] holds those that
//! multiply.
//!
//! A row cannot be run. [`Kernel::new`] turns it into something that can, and only when the processor and the
//! operating system support it; [`Kernel::run`] holds the only call into assembly.

mod check;
mod reference;
mod witness;

pub mod dot;

pub use check::check;
pub use reference::{expected_line, expected_sum};

use crate::error::{Error, Result};
use crate::machine::{Isa, IsaSet};
use crate::memory::Line;
use crate::units::Bytes;
use Store::{NonTemporal, Ordinary};
use std::ptr::NonNull;
use std::slice;

/// What a kernel computes on arrays of `f64` (`read` and the mixes: on 64-bit words). The operation decides how many
/// bytes count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// `sum of a[i]` as 64-bit words, wrapping.
    Read,
    /// `d[i] = a[i]`
    Copy,
    /// `d[i] = 3·a[i]`
    Scale,
    /// `d[i] = a[i] + b[i]`
    Add,
    /// `d[i] = a[i] + 3·b[i]`, rounded after the product and after the sum.
    Triad,
    /// `d[i] = 3`
    Fill,
    /// `d[i] = !d[i]`: one byte read for each written. In the mixes the line that is written is one of those that were
    /// read, so no read-for-ownership is hidden: the counted bytes are the bytes on the bus, and the ratio is exact.
    Mix11,
    /// `d[i] = d[i] ^ a[i]`: two bytes read for each written.
    Mix21,
    /// `d[i] = d[i] ^ a[i] ^ b[i]`: three bytes read for each written.
    Mix31,
}

/// How a kernel writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Store {
    /// Through the caches: most CPUs first read the line that is written.
    Ordinary,
    /// Past the caches; ends with a fence inside the kernel.
    NonTemporal,
}

impl Store {
    /// The name on the command line and in records.
    pub fn name(self) -> &'static str {
        match self {
            Store::Ordinary => "ordinary",
            Store::NonTemporal => "non_temporal",
        }
    }
}

impl Operation {
    /// All operations in the order of tables.
    pub const ALL: [Operation; 9] = [
        Operation::Read,
        Operation::Copy,
        Operation::Scale,
        Operation::Add,
        Operation::Triad,
        Operation::Fill,
        Operation::Mix11,
        Operation::Mix21,
        Operation::Mix31,
    ];

    /// The name on the command line and the first part of a kernel's name.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Read => "read",
            Operation::Copy => "copy",
            Operation::Scale => "scale",
            Operation::Add => "add",
            Operation::Triad => "triad",
            Operation::Fill => "fill",
            Operation::Mix11 => "mix_1_1",
            Operation::Mix21 => "mix_2_1",
            Operation::Mix31 => "mix_3_1",
        }
    }

    /// How many arrays it reads besides the destination.
    pub fn sources(self) -> u64 {
        match self {
            Operation::Fill | Operation::Mix11 => 0,
            Operation::Read | Operation::Copy | Operation::Scale | Operation::Mix21 => 1,
            Operation::Add | Operation::Triad | Operation::Mix31 => 2,
        }
    }

    /// How many arrays it writes.
    pub fn arrays_written(self) -> u64 {
        u64::from(self != Operation::Read)
    }

    /// Whether it reads the destination as well: what it writes depends on what was there.
    pub fn updates(self) -> bool {
        matches!(self, Operation::Mix11 | Operation::Mix21 | Operation::Mix31)
    }

    /// Whether it belongs to STREAM and its usual company, which are measured when no kernel is named.
    pub fn in_stream(self) -> bool {
        !self.updates()
    }

    /// Bytes that one pass over arrays of `array` bytes asks for: STREAM's way of counting.
    pub fn counted_bytes(self, array: Bytes) -> Bytes {
        Bytes(array.0 * (self.sources() + self.arrays_written() + u64::from(self.updates())))
    }

    /// Bytes that one pass may move on the bus, least and most: a store that is not known to go past the caches may
    /// first read the line it writes, unless the operation itself has just read it.
    pub fn bus_bytes(self, array: Bytes, store: Option<Store>) -> (Bytes, Bytes) {
        let counted = self.counted_bytes(array);
        let allocates = store != Some(NonTemporal) && !self.updates();
        let allocated = if allocates { array.0 * self.arrays_written() } else { 0 };
        (counted, Bytes(counted.0 + allocated))
    }
}

/// One line of the kernel table. It says what the kernel is; it cannot run.
#[derive(Debug)]
pub struct Row {
    /// `<op>[_nt]_<isa>`: also the symbol and the file's name.
    pub name: &'static str,
    /// What it computes.
    pub operation: Operation,
    /// What it needs.
    pub isa: Isa,
    /// How it writes; `None` for `read`, and where the C library decides.
    pub store: Option<Store>,
    /// Bytes moved by one load or store instruction; `None` where the C library decides.
    pub vector_bytes: Option<u32>,
    /// Bytes of each array that one turn of the main loop covers; `None` where the C library decides.
    pub step_bytes: Option<u32>,
    /// The instruction that ends it, where it has one.
    pub fence: Option<&'static str>,
    /// Where its code starts. Private, so that only [`Kernel::new`] gives the right to call it.
    entry: Entry,
}

impl Row {
    /// Whether it may stand where only kernels that store in this way are wanted: it stores so, or not at all.
    pub fn stores_only(&self, store: Store) -> bool {
        self.operation.arrays_written() == 0 || self.store == Some(store)
    }
}

/// The code of a row: destination, first and second source, bytes of each array, passes; returns the checksum.
///
/// # Safety
/// To call it, the processor must support the row's ISA; `bytes` is a multiple of 64; the arrays that the operation
/// uses are `bytes` long and start at multiples of 64; the destination is writable and overlaps no source.
type Entry = unsafe extern "C" fn(dst: *mut u8, a: *const u8, b: *const u8, bytes: u64, passes: u64) -> u64;

/// Runs a plain Rust kernel behind the signature that all rows share.
///
/// # Safety
/// The contract of [`Entry`].
#[inline(always)]
unsafe fn plain(
    (operation, function): (Operation, fn(&mut Operands<'_>, u64) -> u64),
    (dst, a, b): (*mut u8, *const u8, *const u8),
    bytes: u64,
    passes: u64,
) -> u64 {
    // Arrays that the operation does not use may be shorter, so they become empty.
    let lines = |used: bool| if used { (bytes / Line::BYTES) as usize } else { 0 };
    // SAFETY: the caller (the contract of `Entry`) vouches for length, alignment and disjointness of the arrays in use;
    // an empty slice needs no more than the aligned, non-null pointer that `Kernel::call` takes from a slice.
    let mut operands = unsafe {
        Operands {
            dst: slice::from_raw_parts_mut(dst.cast(), lines(operation.arrays_written() > 0)),
            a: slice::from_raw_parts(a.cast(), lines(operation.sources() > 0)),
            b: slice::from_raw_parts(b.cast(), lines(operation.sources() > 1)),
        }
    };
    function(&mut operands, passes)
}

/// A kernel's code: for an architecture its assembly file and the declaration of its symbol, else a Rust function.
macro_rules! code {
    ($name:ident $operation:ident $architecture:literal) => {
        #[cfg(target_arch = $architecture)]
        std::arch::global_asm!(
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/asm/", $architecture, "/", stringify!($name), ".s")),
            options(raw)
        );
        #[cfg(target_arch = $architecture)]
        unsafe extern "C" {
            fn $name(dst: *mut u8, a: *const u8, b: *const u8, bytes: u64, passes: u64) -> u64;
        }
    };
    ($name:ident $operation:ident) => {
        unsafe extern "C" fn $name(dst: *mut u8, a: *const u8, b: *const u8, bytes: u64, passes: u64) -> u64 {
            // SAFETY: passes its own contract on, that of `Entry`.
            unsafe { plain((Operation::$operation, reference::$name), (dst, a, b), bytes, passes) }
        }
    };
}

/// A column that a row may leave open with `_`.
macro_rules! known {
    (_) => {
        None
    };
    ($number:literal) => {
        Some($number)
    };
}

/// The kernel table. A row with an architecture stands for `asm/<architecture>/<name>.s`, a row without one for the
/// function of that name in `reference`.
macro_rules! table {
    ($($name:ident, $operation:ident, $store:expr, $isa:ident, $vector:tt, $step:tt, $fence:expr
       $(, $architecture:literal)?;)*) => {
        $(code! { $name $operation $($architecture)? })*

        static TABLE: &[Row] = &[$(
            $(#[cfg(target_arch = $architecture)])?
            Row {
                name: stringify!($name),
                operation: Operation::$operation,
                isa: Isa::$isa,
                store: $store,
                vector_bytes: known!($vector),
                step_bytes: known!($step),
                fence: $fence,
                entry: $name,
            },
        )*];
    };
}

// By operation, then store (last where the C library decides), then ISA. Columns: name, operation, store, ISA, bytes of
// a vector, bytes of a turn of the main loop, fence, architecture.
#[rustfmt::skip]
table! {
    read_rust,       Read,  None,              Rust,    8, 128, None;
    read_sse2,       Read,  None,              Sse2,   16, 128, None,           "x86_64";
    read_avx2,       Read,  None,              Avx2,   32, 256, None,           "x86_64";
    read_avx512,     Read,  None,              Avx512, 64, 512, None,           "x86_64";
    copy_rust,       Copy,  Some(Ordinary),    Rust,    8,  64, None;
    copy_sse2,       Copy,  Some(Ordinary),    Sse2,   16, 128, None,           "x86_64";
    copy_avx2,       Copy,  Some(Ordinary),    Avx2,   32, 256, None,           "x86_64";
    copy_avx512,     Copy,  Some(Ordinary),    Avx512, 64, 512, None,           "x86_64";
    copy_nt_sse2,    Copy,  Some(NonTemporal), Sse2,   16, 128, Some("sfence"), "x86_64";
    copy_nt_avx2,    Copy,  Some(NonTemporal), Avx2,   32, 256, Some("sfence"), "x86_64";
    copy_nt_avx512,  Copy,  Some(NonTemporal), Avx512, 64, 512, Some("sfence"), "x86_64";
    copy_libc,       Copy,  None,              Libc,    _,   _, None;
    scale_rust,      Scale, Some(Ordinary),    Rust,    8,  64, None;
    scale_sse2,      Scale, Some(Ordinary),    Sse2,   16, 128, None,           "x86_64";
    scale_avx2,      Scale, Some(Ordinary),    Avx2,   32, 256, None,           "x86_64";
    scale_avx512,    Scale, Some(Ordinary),    Avx512, 64, 512, None,           "x86_64";
    scale_nt_sse2,   Scale, Some(NonTemporal), Sse2,   16, 128, Some("sfence"), "x86_64";
    scale_nt_avx2,   Scale, Some(NonTemporal), Avx2,   32, 256, Some("sfence"), "x86_64";
    scale_nt_avx512, Scale, Some(NonTemporal), Avx512, 64, 512, Some("sfence"), "x86_64";
    add_rust,        Add,   Some(Ordinary),    Rust,    8,  64, None;
    add_sse2,        Add,   Some(Ordinary),    Sse2,   16, 128, None,           "x86_64";
    add_avx2,        Add,   Some(Ordinary),    Avx2,   32, 256, None,           "x86_64";
    add_avx512,      Add,   Some(Ordinary),    Avx512, 64, 512, None,           "x86_64";
    add_nt_sse2,     Add,   Some(NonTemporal), Sse2,   16, 128, Some("sfence"), "x86_64";
    add_nt_avx2,     Add,   Some(NonTemporal), Avx2,   32, 256, Some("sfence"), "x86_64";
    add_nt_avx512,   Add,   Some(NonTemporal), Avx512, 64, 512, Some("sfence"), "x86_64";
    triad_rust,      Triad, Some(Ordinary),    Rust,    8,  64, None;
    triad_sse2,      Triad, Some(Ordinary),    Sse2,   16, 128, None,           "x86_64";
    triad_avx2,      Triad, Some(Ordinary),    Avx2,   32, 256, None,           "x86_64";
    triad_avx512,    Triad, Some(Ordinary),    Avx512, 64, 512, None,           "x86_64";
    triad_nt_sse2,   Triad, Some(NonTemporal), Sse2,   16, 128, Some("sfence"), "x86_64";
    triad_nt_avx2,   Triad, Some(NonTemporal), Avx2,   32, 256, Some("sfence"), "x86_64";
    triad_nt_avx512, Triad, Some(NonTemporal), Avx512, 64, 512, Some("sfence"), "x86_64";
    fill_rust,       Fill,  Some(Ordinary),    Rust,    8,  64, None;
    fill_sse2,       Fill,  Some(Ordinary),    Sse2,   16, 128, None,           "x86_64";
    fill_avx2,       Fill,  Some(Ordinary),    Avx2,   32, 256, None,           "x86_64";
    fill_avx512,     Fill,  Some(Ordinary),    Avx512, 64, 512, None,           "x86_64";
    fill_nt_sse2,    Fill,  Some(NonTemporal), Sse2,   16, 128, Some("sfence"), "x86_64";
    fill_nt_avx2,    Fill,  Some(NonTemporal), Avx2,   32, 256, Some("sfence"), "x86_64";
    fill_nt_avx512,  Fill,  Some(NonTemporal), Avx512, 64, 512, Some("sfence"), "x86_64";
    mix_1_1_rust,    Mix11, Some(Ordinary),    Rust,    8,  64, None;
    mix_1_1_sse2,    Mix11, Some(Ordinary),    Sse2,   16, 128, None,           "x86_64";
    mix_1_1_avx2,    Mix11, Some(Ordinary),    Avx2,   32, 256, None,           "x86_64";
    mix_1_1_avx512,  Mix11, Some(Ordinary),    Avx512, 64, 512, None,           "x86_64";
    mix_2_1_rust,    Mix21, Some(Ordinary),    Rust,    8,  64, None;
    mix_2_1_sse2,    Mix21, Some(Ordinary),    Sse2,   16, 128, None,           "x86_64";
    mix_2_1_avx2,    Mix21, Some(Ordinary),    Avx2,   32, 256, None,           "x86_64";
    mix_2_1_avx512,  Mix21, Some(Ordinary),    Avx512, 64, 512, None,           "x86_64";
    mix_3_1_rust,    Mix31, Some(Ordinary),    Rust,    8,  64, None;
    mix_3_1_sse2,    Mix31, Some(Ordinary),    Sse2,   16, 128, None,           "x86_64";
    mix_3_1_avx2,    Mix31, Some(Ordinary),    Avx2,   32, 256, None,           "x86_64";
    mix_3_1_avx512,  Mix31, Some(Ordinary),    Avx512, 64, 512, None,           "x86_64";
}

/// A kernel that this processor can run.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    row: &'static Row,
}

/// The arrays of one call. An operation uses those that it needs and refuses different lengths among them.
#[derive(Debug)]
pub struct Operands<'a> {
    /// Written by everything but `read`; the mixes read it first.
    pub dst: &'a mut [Line],
    /// Read by everything but `fill` and `mix_1_1`.
    pub a: &'a [Line],
    /// Read by `add`, `triad` and `mix_3_1`.
    pub b: &'a [Line],
}

/// A `read` kernel: needs no length check, so it may stand in an innermost loop.
#[derive(Clone, Copy, Debug)]
pub struct Reader {
    kernel: Kernel,
}

impl Kernel {
    /// All rows, also those that cannot run here, in table order.
    pub fn table() -> &'static [Row] {
        TABLE
    }

    /// The row of that name.
    ///
    /// # Errors
    /// A usage error that lists the names.
    pub fn find(name: &str) -> Result<&'static Row> {
        TABLE.iter().find(|row| row.name == name).ok_or_else(|| {
            let names: Vec<_> = TABLE.iter().map(|row| row.name).collect();
            Error::usage(
                format!("find kernel '{name}'"),
                "no row has that name",
                format!("name one of {}", names.join(", ")),
            )
        })
    }

    /// The row's kernel, when `isa` has what it needs; otherwise the reason in a few words ("needs avx512").
    pub fn new(row: &'static Row, isa: &IsaSet) -> std::result::Result<Kernel, String> {
        if isa.contains(row.isa) { Ok(Kernel { row }) } else { Err(format!("needs {}", row.isa.name())) }
    }

    /// The fastest usable kernel of an operation and a way of storing: highest ISA first.
    pub fn best(operation: Operation, store: Option<Store>, isa: &IsaSet) -> Option<Kernel> {
        TABLE
            .iter()
            .filter(|row| row.operation == operation && row.store == store)
            .filter_map(|row| Kernel::new(row, isa).ok())
            .max_by_key(|kernel| kernel.row.isa)
    }

    /// What it is.
    pub fn row(&self) -> &'static Row {
        self.row
    }

    /// Runs it `passes` times over the operands and returns the checksum of the last pass (0 where nothing is read).
    ///
    /// # Errors
    /// When the operands that this operation needs differ in length.
    pub fn run(&self, operands: &mut Operands<'_>, passes: u64) -> Result<u64> {
        let operation = self.row.operation;
        let lengths = [
            (operation.arrays_written() > 0).then_some(("dst", operands.dst.len())),
            (operation.sources() > 0).then_some(("a", operands.a.len())),
            (operation.sources() > 1).then_some(("b", operands.b.len())),
        ];
        let mut used = lengths.iter().flatten();
        let lines = used.next().map_or(0, |(_, lines)| *lines);
        if let Some((name, other)) = used.find(|(_, other)| *other != lines) {
            return Err(Error::refused(
                format!("run kernel '{}'", self.row.name),
                format!("array {name} has {other} lines and the first has {lines}"),
                "give it arrays of one length",
            ));
        }
        // SAFETY: all arrays in use are `lines` long, checked just above.
        Ok(unsafe { self.call(operands.dst.as_mut_ptr(), operands.a.as_ptr(), operands.b.as_ptr(), lines, passes) })
    }

    /// The one call into a kernel's code.
    ///
    /// # Safety
    /// The arrays that the operation uses must be `lines` long, valid as the slices of [`Operands`] are.
    #[inline]
    unsafe fn call(&self, dst: *mut Line, a: *const Line, b: *const Line, lines: usize, passes: u64) -> u64 {
        // A slice is at most isize::MAX bytes long, so the product fits.
        let bytes = lines as u64 * Line::BYTES;
        // SAFETY: `Kernel::new` made this value, so the processor and the system support the row's ISA; lengths are the
        // caller's word; alignment and whole lines follow from the type, disjointness from `&mut` beside `&`.
        unsafe { (self.row.entry)(dst.cast(), a.cast(), b.cast(), bytes, passes) }
    }

    /// This kernel as a reader, if its operation is `read`.
    pub fn reader(self) -> Option<Reader> {
        (self.row.operation == Operation::Read).then_some(Reader { kernel: self })
    }
}

impl Reader {
    /// Loads every byte of `lines` once and returns the wrapping sum of their 64-bit words.
    #[inline]
    pub fn read(&self, lines: &[Line]) -> u64 {
        // SAFETY: `Kernel::reader` lets only `read` rows become a `Reader`: they use array a alone, and its length is
        // the slice's. The pointers of the other two are aligned, non-null and never followed.
        unsafe { self.kernel.call(NonNull::dangling().as_ptr(), lines.as_ptr(), lines.as_ptr(), lines.len(), 1) }
    }

    /// The kernel it is.
    pub fn kernel(&self) -> Kernel {
        self.kernel
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_made_of_the_columns() {
        let names: BTreeSet<_> = TABLE.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), TABLE.len());
        for row in TABLE {
            let store = if row.store == Some(NonTemporal) { "_nt" } else { "" };
            assert_eq!(row.name, format!("{}{store}_{}", row.operation.name(), row.isa.name()));
            assert_eq!(row.store.is_none(), row.operation == Operation::Read || row.isa == Isa::Libc, "{}", row.name);
            assert_eq!(row.fence.is_some(), row.store == Some(NonTemporal), "{}", row.name);
            let vector = match row.isa {
                Isa::Rust => Some(8),
                Isa::Sse2 => Some(16),
                Isa::Avx2 => Some(32),
                Isa::Avx512 => Some(64),
                Isa::Libc => None,
            };
            assert_eq!(row.vector_bytes, vector, "{}", row.name);
            let whole = |step: u32| step.is_multiple_of(64) && vector.is_some_and(|vector| step.is_multiple_of(vector));
            assert_eq!(row.step_bytes.map(whole), vector.map(|_| true), "{}", row.name);
        }
    }

    #[test]
    fn rows_stand_by_operation_then_store_then_isa() {
        let place = |row: &Row| {
            let operation = Operation::ALL.iter().position(|operation| *operation == row.operation).unwrap();
            let store = [Some(Ordinary), Some(NonTemporal), None].iter().position(|store| *store == row.store).unwrap();
            (operation, store, row.isa)
        };
        assert!(TABLE.is_sorted_by_key(place));
        assert!(Operation::ALL.iter().all(|op| TABLE.iter().any(|row| row.operation == *op && row.isa == Isa::Rust)));
    }

    #[cfg(target_arch = "x86_64")]
    fn asm() -> std::path::PathBuf {
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("asm/x86_64")
    }

    #[cfg(target_arch = "x86_64")]
    fn assembly_rows() -> impl Iterator<Item = &'static Row> {
        TABLE.iter().filter(|row| !matches!(row.isa, Isa::Rust | Isa::Libc))
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn every_assembly_row_has_its_file_and_every_file_its_row() {
        let rows: BTreeSet<_> = assembly_rows().map(|row| format!("{}.s", row.name)).collect();
        let entries = std::fs::read_dir(asm()).unwrap();
        let files: BTreeSet<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        assert_eq!(files, rows);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn files_state_and_do_what_their_row_says() {
        for row in assembly_rows() {
            let step = row.step_bytes.unwrap();
            let text = std::fs::read_to_string(asm().join(format!("{}.s", row.name))).unwrap();
            let code: Vec<_> = text.lines().map(|line| line.split('#').next().unwrap_or("").trim()).collect();
            let count = |start: &str| code.iter().filter(|line| line.starts_with(start)).count();
            let name = row.name;
            let needs = match row.isa {
                Isa::Sse2 => "SSE2",
                Isa::Avx2 => "AVX2",
                _ => "AVX-512 F",
            };
            let first = text.lines().next().unwrap_or("");
            assert!(
                first.starts_with(&format!("# {name}: ")) && first.ends_with(&format!("; needs {needs}.")),
                "{name}"
            );
            let legacy = row.isa == Isa::Sse2;
            assert_eq!(count("vmovnt") + count("movnt") > 0, row.store == Some(NonTemporal), "{name}");
            let operands =
                |line: &&&str| line.split_once(' ').is_some_and(|(_, operands)| operands.starts_with("[rdi"));
            let stores = code.iter().filter(operands);
            let past = stores.clone().filter(|line| line.starts_with("vmovnt") || line.starts_with("movnt")).count();
            let all = if row.store == Some(NonTemporal) { stores.count() } else { 0 };
            assert_eq!(past, all, "{name}: every store goes past the caches, or none");
            assert_eq!(count("sfence"), usize::from(row.fence == Some("sfence")), "{name}");
            assert_eq!((count("ret"), count("vzeroupper")), (1, usize::from(!legacy)), "{name}");
            // Mixing the encodings costs a switch between them on some processors.
            let vector = |line: &&&str| ["xmm", "ymm", "zmm"].iter().any(|register| line.contains(register));
            assert!(code.iter().filter(vector).all(|line| line.starts_with('v') != legacy), "{name}: mixes encodings");
            assert_eq!(count("push") + count("pop") + count("call"), 0, "{name}: uses the stack");
            assert!(code.contains(&format!("add rax, {step}").as_str()), "{name}: another step");
            assert!(text.contains(&format!("main loop of {step} bytes")), "{name}");
            // No fused multiply-add: the reference rounds twice.
            assert_eq!(count("vfm") + count("vfnm"), 0, "{name}");
            assert_eq!(text.contains("zmm"), row.isa == Isa::Avx512, "{name}");
            assert!(row.isa != Isa::Sse2 || !text.contains("ymm"), "{name}");
        }
    }

    #[test]
    fn counted_bytes_are_streams() {
        let a_double = |operation: Operation| operation.counted_bytes(Bytes(8)).0;
        assert_eq!(Operation::ALL.map(a_double), [8, 16, 16, 24, 24, 8, 16, 24, 32]);
        assert_eq!(Operation::Copy.bus_bytes(Bytes(8), Some(Ordinary)), (Bytes(16), Bytes(24)));
        assert_eq!(Operation::Triad.bus_bytes(Bytes(8), Some(Ordinary)), (Bytes(24), Bytes(32)));
        assert_eq!(Operation::Triad.bus_bytes(Bytes(8), Some(NonTemporal)), (Bytes(24), Bytes(24)));
        assert_eq!(Operation::Copy.bus_bytes(Bytes(8), None), (Bytes(16), Bytes(24)));
        assert_eq!(Operation::Read.bus_bytes(Bytes(8), None), (Bytes(8), Bytes(8)));
        assert_eq!(Operation::Mix21.bus_bytes(Bytes(8), Some(Ordinary)), (Bytes(24), Bytes(24)));
    }

    #[test]
    fn a_name_that_is_none_lists_the_names() {
        let error = Kernel::find("copy_mmx").unwrap_err();
        assert_eq!(error.kind(), Kind::Usage);
        assert!(
            error
                .to_string()
                .starts_with("could not find kernel 'copy_mmx': no row has that name; name one of read_rust, ")
        );
        assert_eq!(Kernel::find("triad_rust").unwrap().operation, Operation::Triad);
    }

    #[test]
    fn a_level_that_is_missing_makes_no_kernel() {
        let rust = IsaSet::detect().capped(Isa::Rust);
        for row in TABLE {
            match Kernel::new(row, &rust) {
                Ok(kernel) => assert_eq!(kernel.row().isa, Isa::Rust),
                Err(reason) => assert_eq!(reason, format!("needs {}", row.isa.name())),
            }
        }
        assert_eq!(Kernel::best(Operation::Copy, Some(Ordinary), &rust).unwrap().row().name, "copy_rust");
        assert!(Kernel::best(Operation::Copy, Some(NonTemporal), &rust).is_none());
        assert!(Kernel::best(Operation::Copy, None, &rust).is_none());
        let all = IsaSet::detect();
        for store in [Ordinary, NonTemporal] {
            let best = Kernel::best(Operation::Copy, Some(store), &all);
            assert!(best.is_none_or(|kernel| kernel.row().isa != Isa::Libc), "the C library decides by itself");
        }
        let best = Kernel::best(Operation::Read, None, &all).unwrap().row().isa;
        assert_eq!(Some(best), all.instruction_sets().filter(|isa| TABLE.iter().any(|row| row.isa == *isa)).last());
    }

    #[test]
    fn run_refuses_lengths_that_differ_among_the_arrays_in_use() {
        let rust = IsaSet::detect().capped(Isa::Rust);
        let (mut dst, a, b) = (vec![Line([0; 64]); 5], vec![Line([1; 64]); 5], vec![Line([2; 64]); 4]);
        let mut run = |operation| {
            let kernel = Kernel::best(operation, (operation != Operation::Read).then_some(Ordinary), &rust).unwrap();
            kernel.run(&mut Operands { dst: &mut dst, a: &a, b: &b }, 1)
        };
        assert_eq!(run(Operation::Copy), Ok(0));
        assert_eq!(run(Operation::Fill), Ok(0));
        assert_eq!(run(Operation::Read), Ok(0x0101_0101_0101_0101 * 40));
        let error = run(Operation::Triad).unwrap_err();
        assert_eq!(
            error.to_string(),
            "could not run kernel 'triad_rust': array b has 4 lines and the first has 5; give it arrays of one length"
        );
    }

    #[test]
    fn a_reader_sums_words_and_only_read_makes_one() {
        let isa = IsaSet::detect();
        let lines: Vec<_> = (0..100).map(|i| Line::from_words([i; 8])).collect();
        for kernel in TABLE.iter().filter_map(|row| Kernel::new(row, &isa).ok()) {
            match kernel.reader() {
                Some(reader) => assert_eq!((reader.read(&lines), reader.read(&[])), (8 * 4950, 0)),
                None => assert_ne!(kernel.row().operation, Operation::Read),
            }
        }
    }
}
