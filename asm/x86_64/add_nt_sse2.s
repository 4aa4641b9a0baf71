# add_nt_sse2: d[i] = a[i] + b[i], non-temporal stores; needs SSE2.
#
# u64 add_nt_sse2(u8 *dst, const u8 *src_a, const u8 *src_b, u64 bytes, u64 passes)
#     rdi dst, rsi src_a, rdx src_b, rcx bytes, r8 passes; rax: 0
#
# Operands     dst, a and b: aligned to 64 bytes, `bytes` long, not overlapping
# Granularity  one 64-byte line: `bytes` is a multiple of 64, 0 included; main loop of 128 bytes, then line by line
# Clobbers     rax, r8, r9, xmm0-xmm3, flags; no stack, no callee-saved register
# Leaves       upper register halves as they were (legacy encoding), direction flag and the control bits of MXCSR too
# Fence        sfence at the end, so that whoever stops a clock afterwards has waited for the stores
# Prefetch     none in software: the hardware prefetchers follow ascending streams
# Why so       line by line: the quarters of a line are stored together; other groupings were not measured

    .pushsection .text.add_nt_sse2,"ax",@progbits
    .globl add_nt_sse2
    .hidden add_nt_sse2
    .type add_nt_sse2, @function
    .p2align 6
add_nt_sse2:
    test r8, r8
    jz .Ladd_nt_sse2_done
    mov r9, rcx
    and r9, -128                   # what the main loop covers
.Ladd_nt_sse2_pass:
    xor eax, eax
    test r9, r9
    jz .Ladd_nt_sse2_rest
    .p2align 5
.Ladd_nt_sse2_step:
    movapd xmm0, [rsi + rax]
    movapd xmm1, [rsi + rax + 16]
    movapd xmm2, [rsi + rax + 32]
    movapd xmm3, [rsi + rax + 48]
    addpd xmm0, [rdx + rax]
    addpd xmm1, [rdx + rax + 16]
    addpd xmm2, [rdx + rax + 32]
    addpd xmm3, [rdx + rax + 48]
    movntpd [rdi + rax], xmm0
    movntpd [rdi + rax + 16], xmm1
    movntpd [rdi + rax + 32], xmm2
    movntpd [rdi + rax + 48], xmm3
    movapd xmm0, [rsi + rax + 64]
    movapd xmm1, [rsi + rax + 80]
    movapd xmm2, [rsi + rax + 96]
    movapd xmm3, [rsi + rax + 112]
    addpd xmm0, [rdx + rax + 64]
    addpd xmm1, [rdx + rax + 80]
    addpd xmm2, [rdx + rax + 96]
    addpd xmm3, [rdx + rax + 112]
    movntpd [rdi + rax + 64], xmm0
    movntpd [rdi + rax + 80], xmm1
    movntpd [rdi + rax + 96], xmm2
    movntpd [rdi + rax + 112], xmm3
    add rax, 128
    cmp rax, r9
    jb .Ladd_nt_sse2_step
.Ladd_nt_sse2_rest:
    cmp rax, rcx
    jae .Ladd_nt_sse2_next
    .p2align 5
.Ladd_nt_sse2_line:
    movapd xmm0, [rsi + rax]
    movapd xmm1, [rsi + rax + 16]
    movapd xmm2, [rsi + rax + 32]
    movapd xmm3, [rsi + rax + 48]
    addpd xmm0, [rdx + rax]
    addpd xmm1, [rdx + rax + 16]
    addpd xmm2, [rdx + rax + 32]
    addpd xmm3, [rdx + rax + 48]
    movntpd [rdi + rax], xmm0
    movntpd [rdi + rax + 16], xmm1
    movntpd [rdi + rax + 32], xmm2
    movntpd [rdi + rax + 48], xmm3
    add rax, 64
    cmp rax, rcx
    jb .Ladd_nt_sse2_line
.Ladd_nt_sse2_next:
    dec r8
    jnz .Ladd_nt_sse2_pass
.Ladd_nt_sse2_done:
    sfence
    xor eax, eax
    ret
    .size add_nt_sse2, . - add_nt_sse2
    .popsection
