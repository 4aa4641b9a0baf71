//! Every usable row against the plain reference, on poisoned, padded, seeded buffers.

use super::{Kernel, Operation, expected_line, expected_sum, witness};
use crate::error::{Error, Result};
use crate::memory::{Buffer, Line, Pages, fill_words};
use crate::units::Bytes;
use std::ops::Range;

/// Nothing, all counts around one and two turns of the longest main loop (8 lines), across one and two pages of 4 KiB, and
/// around one and two blocks (256 lines) of the kernels that take four pages at a time.
const SHORT_LENGTHS: [usize; 24] =
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 65, 129, 255, 256, 265, 529];
/// Beyond the second-level cache of most cores, and no multiple of a main loop's turn: 4 MiB and three lines.
const LONG_LENGTH: usize = (4 << 20) / 64 + 3;
/// Lines on either side of the destination that must stay as they were.
const ZONE: usize = 64;
/// Lines that are compared at a time.
const PIECE: usize = 32;
/// What the zones hold before the call, and the destination unless the operation reads it: no result of any operation
/// on the data in use.
const POISON: Line = Line([0xa5; 64]);

/// Where an array lies between the two inaccessible pages of its buffer, in lines or in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// So many after the first usable one: with 0, one byte before the array faults.
    AfterStart(usize),
    /// So many before the end: with 0, one byte beyond the array faults.
    BeforeEnd(usize),
}

impl Place {
    /// The part of a buffer of size `room` that an array of size `length` takes.
    pub(super) fn range(self, room: usize, length: usize) -> Range<usize> {
        let start = match self {
            Place::AfterStart(offset) => offset,
            Place::BeforeEnd(offset) => room - length - offset,
        };
        start..start + length
    }
}

/// Ends first: a kernel that writes in front of its array then meets a zone, whose check can say so, before it meets the
/// inaccessible page.
const PLACES: [Place; 6] = [
    Place::BeforeEnd(0),
    Place::BeforeEnd(1),
    Place::BeforeEnd(3),
    Place::AfterStart(0),
    Place::AfterStart(1),
    Place::AfterStart(3),
];

/// Compares `kernel` with the reference of its operation over lengths, alignments and guard zones.
///
/// A kernel that goes beyond an array by more than its guard zone, or that touches an array that its operation does not
/// use, meets an inaccessible page: the process then dies of SIGSEGV.
///
/// # Errors
/// Names the kernel, the length and what differed.
pub fn check(kernel: Kernel) -> Result<()> {
    let room = Bytes((LONG_LENGTH + ZONE + 3) as u64 * Line::BYTES);
    let reserve = || Buffer::reserve(room, Pages::Default);
    let mut arrays = Arrays { dst: reserve()?, a: reserve()?, b: reserve()? };
    for lines in SHORT_LENGTHS {
        for place in PLACES {
            // Two passes of an update may undo each other, and a kernel that runs but one must not pass: both parities.
            for passes in [1, 0, 2, 3] {
                arrays.compare(kernel, lines, place, passes)?;
            }
        }
    }
    arrays.compare(kernel, LONG_LENGTH, Place::BeforeEnd(0), 1)
}

struct Arrays {
    dst: Buffer,
    a: Buffer,
    b: Buffer,
}

impl Arrays {
    fn compare(&mut self, kernel: Kernel, lines: usize, place: Place, passes: u64) -> Result<()> {
        self.difference(kernel, lines, place, passes).map_err(|difference| {
            Error::refused(
                format!("verify kernel '{}' with lines={lines} passes={passes} place={place:?}", kernel.row().name),
                difference,
                "use none of its numbers; choose another kernel and report this",
            )
        })
    }

    fn difference(
        &mut self,
        kernel: Kernel,
        lines: usize,
        place: Place,
        passes: u64,
    ) -> std::result::Result<(), String> {
        let operation = kernel.row().operation;
        let room = self.dst.lines().len();
        let nothing = room..room;
        let used = |used: bool| if used { place.range(room, lines) } else { nothing.clone() };
        // An unused array is empty and lies right against the inaccessible page.
        let (at_dst, at_a, at_b) =
            (used(operation.arrays_written() > 0), used(operation.sources() > 0), used(operation.sources() > 1));
        let zone = at_dst.start.saturating_sub(ZONE)..(at_dst.end + ZONE).min(room);

        self.dst.lines_mut()[zone.clone()].fill(POISON);
        let (a, b) = (&mut self.a.lines_mut()[at_a], &mut self.b.lines_mut()[at_b]);
        // Different data in every case, so that what an earlier case left behind is never right by chance.
        let seed = (lines as u64) << 8 | passes << 4 | (at_dst.start as u64 & 0xf);
        let seed_dst = seed | 1 << 63;
        fill_words(a, 0, seed);
        fill_words(b, 0, !seed);

        let dst = &mut self.dst.lines_mut()[at_dst.clone()];
        if operation.updates() {
            fill_words(dst, 0, seed_dst);
        }
        let arrays = (dst.as_mut_ptr(), a.as_mut_ptr().cast_const(), b.as_mut_ptr().cast_const());
        // SAFETY: as in `Kernel::run`: the slices that the operation uses are `lines` long, aligned by their type, of
        // three buffers, and `dst` is borrowed for writing.
        let (sum, changed) = unsafe { witness::call(kernel, arrays, lines, passes) };

        if !changed.is_empty() {
            return Err(format!("it does not preserve {}", changed.join(", ")));
        }
        let mut sum_of_all = 0u64;
        // What the arrays held is made again, piece by piece: fresh memory for copies would be most of the check's
        // time.
        for first in (0..lines).step_by(PIECE) {
            let piece = first..(first + PIECE).min(lines);
            let (mut a_before, mut b_before) = ([Line([0; 64]); PIECE], [Line([0; 64]); PIECE]);
            let mut dst_before = [POISON; PIECE];
            if operation.updates() {
                fill_words(&mut dst_before[..piece.len()], first as u64, seed_dst);
            }
            for (before, now, seed) in [(&mut a_before, &*a, seed), (&mut b_before, &*b, !seed)] {
                if !now.is_empty() {
                    let before = &mut before[..piece.len()];
                    fill_words(before, first as u64, seed);
                    if now[piece.clone()] != *before {
                        return Err("it wrote into an array that it reads".to_owned());
                    }
                }
            }
            if operation == Operation::Read {
                sum_of_all = sum_of_all.wrapping_add(expected_sum(&a_before[..piece.len()]));
                continue;
            }
            for (index, line) in piece.enumerate() {
                let once = |d: Line, _| expected_line(operation, &d, &a_before[index], &b_before[index]);
                same(line as i64, &dst[line], &(0..passes).fold(dst_before[index], once))?;
            }
        }
        let expected = if passes == 0 { 0 } else { sum_of_all };
        if sum != expected {
            return Err(format!("its checksum is {sum:#x}, the reference says {expected:#x}"));
        }
        let first = at_dst.start as i64;
        for index in (zone.start..at_dst.start).chain(at_dst.end..zone.end) {
            same(index as i64 - first, &self.dst.lines()[index], &POISON)?;
        }
        Ok(())
    }
}

/// Whether a line of the destination, counted from its start and negative before it, is what it should be.
fn same(number: i64, line: &Line, expected: &Line) -> std::result::Result<(), String> {
    if line == expected {
        return Ok(());
    }
    let (line, expected) = (line.words(), expected.words());
    Err(format!("line {number} of the destination is {line:x?}, the reference says {expected:x?}"))
}

#[cfg(test)]
mod tests {
    use super::super::{Entry, Row, Store};
    use super::*;
    use crate::machine::{Isa, IsaSet};
    use std::slice;

    #[test]
    fn every_usable_row_passes() {
        let isa = IsaSet::detect();
        for row in Kernel::table() {
            match Kernel::new(row, &isa) {
                Ok(kernel) => check(kernel).unwrap(),
                Err(reason) => println!("{}: not run, {reason}", row.name),
            }
        }
    }

    /// The error's text for a kernel with this code, which must not pass.
    fn refusal(operation: Operation, entry: Entry) -> String {
        let row = Row {
            name: "broken",
            operation,
            isa: Isa::Rust,
            store: (operation != Operation::Read).then_some(Store::Ordinary),
            vector_bytes: Some(8),
            step_bytes: Some(64),
            fence: None,
            entry,
        };
        let text = check(Kernel { row: Box::leak(Box::new(row)) }).unwrap_err().to_string();
        assert!(text.starts_with("could not verify kernel 'broken' with "), "{text}");
        text
    }

    /// A right copy, once, whatever `passes` says.
    unsafe fn copy(dst: *mut u8, a: *const u8, bytes: u64) {
        // SAFETY: the check hands out two disjoint arrays of `bytes` bytes; the broken kernels below ask for no more.
        unsafe { std::ptr::copy_nonoverlapping(a, dst, bytes as usize) }
    }

    /// A right sum.
    unsafe fn read(a: *const u8, bytes: u64) -> u64 {
        // SAFETY: the check hands out an array of `bytes` bytes.
        let lines = unsafe { slice::from_raw_parts(a.cast::<Line>(), (bytes / Line::BYTES) as usize) };
        lines.iter().flat_map(Line::words).fold(0, u64::wrapping_add)
    }

    /// Defines broken kernels: their body sees destination, first source, bytes and passes.
    macro_rules! broken {
        ($($name:ident($dst:ident, $a:ident, $bytes:ident, $passes:ident) $body:block)*) => {$(
            #[allow(unused_variables, unused_unsafe)]
            unsafe extern "C" fn $name($dst: *mut u8, $a: *const u8, _: *const u8, $bytes: u64, $passes: u64) -> u64 {
                // SAFETY: called by the check alone; each breaks its contract only within guard zones and registers.
                unsafe { $body }
            }
        )*};
    }

    broken! {
        skips_the_last_line(dst, a, bytes, passes) {
            if passes > 0 { copy(dst, a, bytes.saturating_sub(64)) }
            0
        }
        writes_before(dst, a, bytes, passes) {
            if passes > 0 && bytes > 0 {
                copy(dst, a, bytes);
                copy(dst.wrapping_sub(64), a, 64);
            }
            0
        }
        writes_behind(dst, a, bytes, passes) {
            if passes > 0 && bytes > 0 {
                copy(dst, a, bytes);
                // Not in front of the inaccessible page, so that the zone finds it.
                if !(dst as u64 + bytes).is_multiple_of(4096) { copy(dst.wrapping_add(bytes as usize), a, 64) }
            }
            0
        }
        writes_nothing(dst, a, bytes, passes) { 0 }
        writes_without_a_pass(dst, a, bytes, passes) {
            copy(dst, a, bytes);
            0
        }
        writes_into_its_source(dst, a, bytes, passes) {
            if passes > 0 {
                copy(dst, a, bytes);
                if bytes > 0 { *a.cast_mut() ^= 1 }
            }
            0
        }
        sums_one_too_many(dst, a, bytes, passes) { if passes > 0 { read(a, bytes) + 1 } else { 0 } }
        sums_all_but_the_last_line(dst, a, bytes, passes) {
            if passes > 0 { read(a, bytes.saturating_sub(64)) } else { 0 }
        }
        sums_over_all_passes(dst, a, bytes, passes) { read(a, bytes).wrapping_mul(passes) }
        ignores_its_destination(dst, a, bytes, passes) {
            // What it takes the destination for is what it holds for other operations.
            let poison = POISON.0[0];
            for index in (0..bytes as usize).filter(|_| passes % 2 == 1) { *dst.add(index) = poison ^ *a.add(index) }
            0
        }
        updates_once(dst, a, bytes, passes) {
            for index in (0..bytes as usize).filter(|_| passes > 0) { *dst.add(index) ^= *a.add(index) }
            0
        }
    }

    #[test]
    fn wrong_stores_are_found() {
        for (entry, found) in [
            (skips_the_last_line as Entry, "with lines=1 passes=1 place=BeforeEnd(0): line 0 of the destination"),
            (writes_before, "with lines=1 passes=1 place=BeforeEnd(0): line -1 of the destination"),
            (writes_behind, "with lines=1 passes=1 place=BeforeEnd(1): line 1 of the destination"),
            (writes_nothing, "with lines=1 passes=1 place=BeforeEnd(0): line 0 of the destination"),
            (writes_without_a_pass, "with lines=1 passes=0 place=BeforeEnd(0): line 0 of the destination"),
            (writes_into_its_source, "with lines=1 passes=1 place=BeforeEnd(0): it wrote into an array that it reads"),
        ] {
            let text = refusal(Operation::Copy, entry);
            assert!(text.contains(found), "{text}");
        }
    }

    #[test]
    fn wrong_updates_are_found() {
        for (entry, found) in [
            (ignores_its_destination as Entry, "with lines=1 passes=1 place=BeforeEnd(0): line 0 of the destination"),
            (updates_once, "with lines=1 passes=2 place=BeforeEnd(0): line 0 of the destination"),
            (writes_nothing, "with lines=1 passes=1 place=BeforeEnd(0): line 0 of the destination"),
        ] {
            let text = refusal(Operation::Mix21, entry);
            assert!(text.contains(found), "{text}");
        }
    }

    #[test]
    fn wrong_sums_are_found() {
        for (entry, found) in [
            (sums_one_too_many as Entry, "with lines=0 passes=1 place=BeforeEnd(0): its checksum is 0x1"),
            (sums_all_but_the_last_line, "with lines=1 passes=1 place=BeforeEnd(0): its checksum"),
            (sums_over_all_passes, "with lines=1 passes=2 place=BeforeEnd(0): its checksum"),
        ] {
            let text = refusal(Operation::Read, entry);
            assert!(text.contains(found), "{text}");
        }
    }

    #[cfg(target_arch = "x86_64")]
    mod x86_64 {
        use super::*;
        use std::arch::naked_asm;

        /// Defines kernels that return 0 and leave something of their caller's changed.
        macro_rules! careless {
            ($($name:ident: $($line:literal),*;)*) => {$(
                #[unsafe(naked)]
                unsafe extern "C" fn $name(_: *mut u8, _: *const u8, _: *const u8, _: u64, _: u64) -> u64 {
                    naked_asm!($($line,)* "xor eax, eax", "ret")
                }
            )*};
        }

        careless! {
            clobbers_rbx: "mov rbx, rdi";
            clobbers_rbp: "xor ebp, ebp";
            clobbers_r12: "inc r12";
            clobbers_r13: "inc r13";
            clobbers_r14: "inc r14";
            clobbers_r15: "inc r15";
            clobbers_direction: "std";
            clobbers_mxcsr: "push 0x9fc0", "ldmxcsr [rsp]", "pop rax";
            clobbers_x87: "push 0x27f", "fldcw [rsp]", "pop rax";
        }

        #[test]
        fn changed_registers_and_control_words_are_found() {
            let rounding_before = 1.0f64 / 3.0;
            for (entry, found) in [
                (clobbers_rbx as Entry, "rbx"),
                (clobbers_rbp, "rbp"),
                (clobbers_r12, "r12"),
                (clobbers_r13, "r13"),
                (clobbers_r14, "r14"),
                (clobbers_r15, "r15"),
                (clobbers_direction, "the direction flag"),
                (clobbers_mxcsr, "MXCSR"),
                (clobbers_x87, "the x87 control word"),
            ] {
                let text = refusal(Operation::Copy, entry);
                assert!(text.contains(&format!("it does not preserve {found};")), "{text}");
            }
            assert_eq!(std::hint::black_box(1.0f64) / std::hint::black_box(3.0), rounding_before);
        }
    }
}
