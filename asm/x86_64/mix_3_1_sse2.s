# mix_3_1_sse2: d[i] = d[i] ^ a[i] ^ b[i], 64-bit words, ordinary stores; needs SSE2.
#
# u64 mix_3_1_sse2(u8 *dst, const u8 *src_a, const u8 *src_b, u64 bytes, u64 passes)
#     rdi dst, rsi src_a, rdx src_b, rcx bytes, r8 passes; rax: 0
#
# Operands     dst (read and written), a and b: aligned to 64 bytes, `bytes` long, not overlapping
# Granularity  one 64-byte line: `bytes` is a multiple of 64, 0 included; main loop of 128 bytes, then line by line
# Clobbers     rax, r8, r9, xmm0-xmm3, flags; no stack, no callee-saved register
# Leaves       upper register halves as they were (legacy encoding), direction flag and the control bits of MXCSR too
# Fence        none: ordinary stores are ordered
# Prefetch     none in software: the hardware prefetchers follow ascending streams
# Why so       the line that is written was just read: the bytes that count are the bytes on the bus
#              line by line, as in the AVX2 copy; here other orders were not measured

    .pushsection .text.mix_3_1_sse2,"ax",@progbits
    .globl mix_3_1_sse2
    .hidden mix_3_1_sse2
    .type mix_3_1_sse2, @function
    .p2align 6
mix_3_1_sse2:
    test r8, r8
    jz .Lmix_3_1_sse2_done
    mov r9, rcx
    and r9, -128                   # what the main loop covers
.Lmix_3_1_sse2_pass:
    xor eax, eax
    test r9, r9
    jz .Lmix_3_1_sse2_rest
    .p2align 5
.Lmix_3_1_sse2_step:
    movdqa xmm0, [rsi + rax]
    movdqa xmm1, [rsi + rax + 16]
    movdqa xmm2, [rsi + rax + 32]
    movdqa xmm3, [rsi + rax + 48]
    pxor xmm0, [rdx + rax]
    pxor xmm1, [rdx + rax + 16]
    pxor xmm2, [rdx + rax + 32]
    pxor xmm3, [rdx + rax + 48]
    pxor xmm0, [rdi + rax]
    pxor xmm1, [rdi + rax + 16]
    pxor xmm2, [rdi + rax + 32]
    pxor xmm3, [rdi + rax + 48]
    movdqa [rdi + rax], xmm0
    movdqa [rdi + rax + 16], xmm1
    movdqa [rdi + rax + 32], xmm2
    movdqa [rdi + rax + 48], xmm3
    movdqa xmm0, [rsi + rax + 64]
    movdqa xmm1, [rsi + rax + 80]
    movdqa xmm2, [rsi + rax + 96]
    movdqa xmm3, [rsi + rax + 112]
    pxor xmm0, [rdx + rax + 64]
    pxor xmm1, [rdx + rax + 80]
    pxor xmm2, [rdx + rax + 96]
    pxor xmm3, [rdx + rax + 112]
    pxor xmm0, [rdi + rax + 64]
    pxor xmm1, [rdi + rax + 80]
    pxor xmm2, [rdi + rax + 96]
    pxor xmm3, [rdi + rax + 112]
    movdqa [rdi + rax + 64], xmm0
    movdqa [rdi + rax + 80], xmm1
    movdqa [rdi + rax + 96], xmm2
    movdqa [rdi + rax + 112], xmm3
    add rax, 128
    cmp rax, r9
    jb .Lmix_3_1_sse2_step
.Lmix_3_1_sse2_rest:
    cmp rax, rcx
    jae .Lmix_3_1_sse2_next
    .p2align 5
.Lmix_3_1_sse2_line:
    movdqa xmm0, [rsi + rax]
    movdqa xmm1, [rsi + rax + 16]
    movdqa xmm2, [rsi + rax + 32]
    movdqa xmm3, [rsi + rax + 48]
    pxor xmm0, [rdx + rax]
    pxor xmm1, [rdx + rax + 16]
    pxor xmm2, [rdx + rax + 32]
    pxor xmm3, [rdx + rax + 48]
    pxor xmm0, [rdi + rax]
    pxor xmm1, [rdi + rax + 16]
    pxor xmm2, [rdi + rax + 32]
    pxor xmm3, [rdi + rax + 48]
    movdqa [rdi + rax], xmm0
    movdqa [rdi + rax + 16], xmm1
    movdqa [rdi + rax + 32], xmm2
    movdqa [rdi + rax + 48], xmm3
    add rax, 64
    cmp rax, rcx
    jb .Lmix_3_1_sse2_line
.Lmix_3_1_sse2_next:
    dec r8
    jnz .Lmix_3_1_sse2_pass
.Lmix_3_1_sse2_done:
    xor eax, eax
    ret
    .size mix_3_1_sse2, . - mix_3_1_sse2
    .popsection
