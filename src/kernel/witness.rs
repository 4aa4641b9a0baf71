//! Calls a kernel and sees whether it leaves behind what its caller may rely on: callee-saved registers, control words
//! and the direction flag. Only the check calls kernels this way.

/// Calls `kernel` and returns its checksum and the names of what it should have left alone and did not.
/// Whatever it changed is restored.
///
/// # Safety
/// As [`Kernel::call`].
#[cfg(not(target_arch = "x86_64"))]
pub(super) unsafe fn call(
    kernel: super::Kernel,
    (dst, a, b): (*mut crate::memory::Line, *const crate::memory::Line, *const crate::memory::Line),
    lines: usize,
    passes: u64,
) -> (u64, Vec<&'static str>) {
    // Rust kernels alone so far, so the compiler keeps the convention.
    // SAFETY: the caller's own obligation.
    (unsafe { kernel.call(dst, a, b, lines, passes) }, Vec::new())
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86_64::call;

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use super::super::{Entry, Kernel};
    use crate::memory::Line;
    use std::arch::naked_asm;
    use std::mem::offset_of;

    /// What the System V convention gives back to the caller unchanged.
    #[derive(Clone, Copy, Default)]
    #[repr(C)]
    struct State {
        rbx: u64,
        rbp: u64,
        r12: u64,
        r13: u64,
        r14: u64,
        r15: u64,
        flags: u64,
        mxcsr: u32,
        x87_control: u32,
    }

    #[repr(C)]
    struct Call {
        entry: Entry,
        dst: *mut u8,
        a: *const u8,
        b: *const u8,
        bytes: u64,
        passes: u64,
        result: u64,
        before: State,
        after: State,
    }

    /// MXCSR's exception flags: arithmetic sets them ("inexact"), so they are nobody's to keep.
    const MXCSR_FLAGS: u32 = 0x3f;
    /// The direction of string instructions, the one flag that a callee must leave clear.
    const DIRECTION_FLAG: u64 = 0x400;

    /// See the module's `call` for other architectures.
    ///
    /// # Safety
    /// As [`Kernel::call`].
    pub(in super::super) unsafe fn call(
        kernel: Kernel,
        (dst, a, b): (*mut Line, *const Line, *const Line),
        lines: usize,
        passes: u64,
    ) -> (u64, Vec<&'static str>) {
        // Values that no kernel computes by chance.
        let pattern = |n: u64| 0x5ee7_0000_dead_0000 | n;
        let before = State {
            rbx: pattern(1),
            rbp: pattern(2),
            r12: pattern(3),
            r13: pattern(4),
            r14: pattern(5),
            r15: pattern(6),
            ..State::default()
        };
        let mut call = Call {
            entry: kernel.row.entry,
            dst: dst.cast(),
            a: a.cast(),
            b: b.cast(),
            bytes: lines as u64 * Line::BYTES,
            passes,
            result: 0,
            before,
            after: State::default(),
        };
        // SAFETY: `call` is a whole `Call`; its arguments are the caller's own obligation, as for `Kernel::call`, and
        // `kernel` proves that the processor can run the entry.
        unsafe { observe(&mut call) };
        let (before, after) = (call.before, call.after);
        let changed = [
            ("rbx", before.rbx != after.rbx),
            ("rbp", before.rbp != after.rbp),
            ("r12", before.r12 != after.r12),
            ("r13", before.r13 != after.r13),
            ("r14", before.r14 != after.r14),
            ("r15", before.r15 != after.r15),
            ("the direction flag", after.flags & DIRECTION_FLAG != 0),
            ("MXCSR", (before.mxcsr ^ after.mxcsr) & !MXCSR_FLAGS != 0),
            ("the x87 control word", before.x87_control != after.x87_control),
        ];
        (call.result, changed.into_iter().filter_map(|(name, changed)| changed.then_some(name)).collect())
    }

    /// Loads the registers of `before`, calls the entry, and writes what it left to `after`. Naked, because a compiler
    /// keeps rbx and rbp for itself.
    ///
    /// # Safety
    /// `call` points to a whole `Call` whose entry may be called with its arguments.
    #[unsafe(naked)]
    unsafe extern "sysv64" fn observe(call: *mut Call) {
        // Seven pushes and the return address: rsp is a multiple of 16 at the call, as the convention asks.
        naked_asm!(
            "push rbx",
            "push rbp",
            "push r12",
            "push r13",
            "push r14",
            "push r15",
            "push rdi",
            "stmxcsr [rdi + {before} + {mxcsr}]",
            "fnstcw [rdi + {before} + {x87_control}]",
            "mov rbx, [rdi + {before} + {rbx}]",
            "mov rbp, [rdi + {before} + {rbp}]",
            "mov r12, [rdi + {before} + {r12}]",
            "mov r13, [rdi + {before} + {r13}]",
            "mov r14, [rdi + {before} + {r14}]",
            "mov r15, [rdi + {before} + {r15}]",
            "mov rax, [rdi + {entry}]",
            "mov rsi, [rdi + {a}]",
            "mov rdx, [rdi + {b}]",
            "mov rcx, [rdi + {bytes}]",
            "mov r8, [rdi + {passes}]",
            "mov rdi, [rdi + {dst}]",
            "call rax",
            "pop r11",
            "mov [r11 + {result}], rax",
            "mov [r11 + {after} + {rbx}], rbx",
            "mov [r11 + {after} + {rbp}], rbp",
            "mov [r11 + {after} + {r12}], r12",
            "mov [r11 + {after} + {r13}], r13",
            "mov [r11 + {after} + {r14}], r14",
            "mov [r11 + {after} + {r15}], r15",
            "pushfq",
            "pop rax",
            "mov [r11 + {after} + {flags}], rax",
            "cld",
            "stmxcsr [r11 + {after} + {mxcsr}]",
            "fnstcw [r11 + {after} + {x87_control}]",
            "ldmxcsr [r11 + {before} + {mxcsr}]",
            "fldcw [r11 + {before} + {x87_control}]",
            "pop r15",
            "pop r14",
            "pop r13",
            "pop r12",
            "pop rbp",
            "pop rbx",
            "ret",
            before = const offset_of!(Call, before),
            after = const offset_of!(Call, after),
            result = const offset_of!(Call, result),
            entry = const offset_of!(Call, entry),
            dst = const offset_of!(Call, dst),
            a = const offset_of!(Call, a),
            b = const offset_of!(Call, b),
            bytes = const offset_of!(Call, bytes),
            passes = const offset_of!(Call, passes),
            rbx = const offset_of!(State, rbx),
            rbp = const offset_of!(State, rbp),
            r12 = const offset_of!(State, r12),
            r13 = const offset_of!(State, r13),
            r14 = const offset_of!(State, r14),
            r15 = const offset_of!(State, r15),
            flags = const offset_of!(State, flags),
            mxcsr = const offset_of!(State, mxcsr),
            x87_control = const offset_of!(State, x87_control),
        )
    }
}
