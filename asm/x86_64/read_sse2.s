# read_sse2: sum of a[i] as 64-bit words, wrapping; needs SSE2.
#
# u64 read_sse2(u8 *dst, const u8 *src_a, const u8 *src_b, u64 bytes, u64 passes)
#     rdi dst, rsi src_a, rdx src_b, rcx bytes, r8 passes; rax: the sum over the last pass (0 without a pass)
#
# Operands     a: aligned to 64 bytes, `bytes` long
#              dst (rdi) and src_b (rdx) never touched
# Granularity  one 64-byte line: `bytes` is a multiple of 64, 0 included; main loop of 128 bytes, then line by line
# Clobbers     rax, rcx, r8, r9, r10, xmm0-xmm7, flags; no stack, no callee-saved register
# Leaves       upper register halves as they were (legacy encoding), direction flag and the control bits of MXCSR too
# Fence        none: it stores nothing
# Prefetch     none in software: the hardware prefetchers follow ascending streams
# Why so       one accumulator for each load of a turn: no addition waits for another of the same turn.
#              A single stream needs no index register.

    .pushsection .text.read_sse2,"ax",@progbits
    .globl read_sse2
    .hidden read_sse2
    .type read_sse2, @function
    .p2align 6
read_sse2:
    xor eax, eax
    test r8, r8
    jz .Lread_sse2_done
    lea r10, [rsi + rcx]             # where the array ends
    and rcx, -128
    lea r9, [rsi + rcx]              # where the main loop ends
.Lread_sse2_pass:
    mov rax, rsi
    pxor xmm0, xmm0
    pxor xmm1, xmm1
    pxor xmm2, xmm2
    pxor xmm3, xmm3
    pxor xmm4, xmm4
    pxor xmm5, xmm5
    pxor xmm6, xmm6
    pxor xmm7, xmm7
    cmp rax, r9
    jae .Lread_sse2_rest
    .p2align 5
.Lread_sse2_step:
    paddq xmm0, [rax]
    paddq xmm1, [rax + 16]
    paddq xmm2, [rax + 32]
    paddq xmm3, [rax + 48]
    paddq xmm4, [rax + 64]
    paddq xmm5, [rax + 80]
    paddq xmm6, [rax + 96]
    paddq xmm7, [rax + 112]
    add rax, 128
    cmp rax, r9
    jb .Lread_sse2_step
.Lread_sse2_rest:
    cmp rax, r10
    jae .Lread_sse2_next
    .p2align 5
.Lread_sse2_line:
    paddq xmm0, [rax]
    paddq xmm1, [rax + 16]
    paddq xmm2, [rax + 32]
    paddq xmm3, [rax + 48]
    add rax, 64
    cmp rax, r10
    jb .Lread_sse2_line
.Lread_sse2_next:
    dec r8
    jnz .Lread_sse2_pass
    paddq xmm0, xmm4
    paddq xmm1, xmm5
    paddq xmm2, xmm6
    paddq xmm3, xmm7
    paddq xmm0, xmm2
    paddq xmm1, xmm3
    paddq xmm0, xmm1
    pshufd xmm1, xmm0, 0xee          # the upper word
    paddq xmm0, xmm1
    movq rax, xmm0
.Lread_sse2_done:
    ret
    .size read_sse2, . - read_sse2
    .popsection
