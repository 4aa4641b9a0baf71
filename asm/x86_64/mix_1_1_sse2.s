# mix_1_1_sse2: d[i] = !d[i], 64-bit words, ordinary stores; needs SSE2.
#
# u64 mix_1_1_sse2(u8 *dst, const u8 *src_a, const u8 *src_b, u64 bytes, u64 passes)
#     rdi dst, rsi src_a, rdx src_b, rcx bytes, r8 passes; rax: 0
#
# Operands     dst: aligned to 64 bytes, `bytes` long, read and written
#              src_a (rsi) and src_b (rdx) never touched
# Granularity  one 64-byte line: `bytes` is a multiple of 64, 0 included; main loop of 128 bytes, then line by line
# Clobbers     rax, r8, r9, xmm0-xmm4, flags; no stack, no callee-saved register
# Leaves       upper register halves as they were (legacy encoding), direction flag and the control bits of MXCSR too
# Fence        none: ordinary stores are ordered
# Prefetch     none in software: the hardware prefetchers follow ascending streams
# Why so       the line that is written was just read: the bytes that count are the bytes on the bus
#              line by line, as in the AVX2 copy; here other orders were not measured
# Constant     all ones, made in a register: no data section to place or to relocate

    .pushsection .text.mix_1_1_sse2,"ax",@progbits
    .globl mix_1_1_sse2
    .hidden mix_1_1_sse2
    .type mix_1_1_sse2, @function
    .p2align 6
mix_1_1_sse2:
    test r8, r8
    jz .Lmix_1_1_sse2_done
    pcmpeqd xmm0, xmm0               # all ones
    mov r9, rcx
    and r9, -128                   # what the main loop covers
.Lmix_1_1_sse2_pass:
    xor eax, eax
    test r9, r9
    jz .Lmix_1_1_sse2_rest
    .p2align 5
.Lmix_1_1_sse2_step:
    movdqa xmm1, [rdi + rax]
    movdqa xmm2, [rdi + rax + 16]
    movdqa xmm3, [rdi + rax + 32]
    movdqa xmm4, [rdi + rax + 48]
    pxor xmm1, xmm0
    pxor xmm2, xmm0
    pxor xmm3, xmm0
    pxor xmm4, xmm0
    movdqa [rdi + rax], xmm1
    movdqa [rdi + rax + 16], xmm2
    movdqa [rdi + rax + 32], xmm3
    movdqa [rdi + rax + 48], xmm4
    movdqa xmm1, [rdi + rax + 64]
    movdqa xmm2, [rdi + rax + 80]
    movdqa xmm3, [rdi + rax + 96]
    movdqa xmm4, [rdi + rax + 112]
    pxor xmm1, xmm0
    pxor xmm2, xmm0
    pxor xmm3, xmm0
    pxor xmm4, xmm0
    movdqa [rdi + rax + 64], xmm1
    movdqa [rdi + rax + 80], xmm2
    movdqa [rdi + rax + 96], xmm3
    movdqa [rdi + rax + 112], xmm4
    add rax, 128
    cmp rax, r9
    jb .Lmix_1_1_sse2_step
.Lmix_1_1_sse2_rest:
    cmp rax, rcx
    jae .Lmix_1_1_sse2_next
    .p2align 5
.Lmix_1_1_sse2_line:
    movdqa xmm1, [rdi + rax]
    movdqa xmm2, [rdi + rax + 16]
    movdqa xmm3, [rdi + rax + 32]
    movdqa xmm4, [rdi + rax + 48]
    pxor xmm1, xmm0
    pxor xmm2, xmm0
    pxor xmm3, xmm0
    pxor xmm4, xmm0
    movdqa [rdi + rax], xmm1
    movdqa [rdi + rax + 16], xmm2
    movdqa [rdi + rax + 32], xmm3
    movdqa [rdi + rax + 48], xmm4
    add rax, 64
    cmp rax, rcx
    jb .Lmix_1_1_sse2_line
.Lmix_1_1_sse2_next:
    dec r8
    jnz .Lmix_1_1_sse2_pass
.Lmix_1_1_sse2_done:
    xor eax, eax
    ret
    .size mix_1_1_sse2, . - mix_1_1_sse2
    .popsection
