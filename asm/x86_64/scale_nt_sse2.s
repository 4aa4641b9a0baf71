# scale_nt_sse2: d[i] = 3 * a[i], non-temporal stores; needs SSE2.
#
# u64 scale_nt_sse2(u8 *dst, const u8 *src_a, const u8 *src_b, u64 bytes, u64 passes)
#     rdi dst, rsi src_a, rdx src_b, rcx bytes, r8 passes; rax: 0
#
# Operands     dst and a: aligned to 64 bytes, `bytes` long, not overlapping
#              src_b (rdx) never touched
# Granularity  one 64-byte line: `bytes` is a multiple of 64, 0 included; main loop of 128 bytes, then line by line
# Clobbers     rax, r8, r9, xmm0-xmm4, flags; no stack, no callee-saved register
# Leaves       upper register halves as they were (legacy encoding), direction flag and the control bits of MXCSR too
# Fence        sfence at the end, so that whoever stops a clock afterwards has waited for the stores
# Prefetch     none in software: the hardware prefetchers follow ascending streams
# Why so       line by line: the quarters of a line are stored together; other groupings were not measured
# Constant     3.0, built from an immediate: no data section to place or to relocate

    .pushsection .text.scale_nt_sse2,"ax",@progbits
    .globl scale_nt_sse2
    .hidden scale_nt_sse2
    .type scale_nt_sse2, @function
    .p2align 6
scale_nt_sse2:
    test r8, r8
    jz .Lscale_nt_sse2_done
    movabs rax, 0x4008000000000000   # 3.0
    movq xmm0, rax
    unpcklpd xmm0, xmm0
    mov r9, rcx
    and r9, -128                   # what the main loop covers
.Lscale_nt_sse2_pass:
    xor eax, eax
    test r9, r9
    jz .Lscale_nt_sse2_rest
    .p2align 5
.Lscale_nt_sse2_step:
    movapd xmm1, [rsi + rax]
    movapd xmm2, [rsi + rax + 16]
    movapd xmm3, [rsi + rax + 32]
    movapd xmm4, [rsi + rax + 48]
    mulpd xmm1, xmm0
    mulpd xmm2, xmm0
    mulpd xmm3, xmm0
    mulpd xmm4, xmm0
    movntpd [rdi + rax], xmm1
    movntpd [rdi + rax + 16], xmm2
    movntpd [rdi + rax + 32], xmm3
    movntpd [rdi + rax + 48], xmm4
    movapd xmm1, [rsi + rax + 64]
    movapd xmm2, [rsi + rax + 80]
    movapd xmm3, [rsi + rax + 96]
    movapd xmm4, [rsi + rax + 112]
    mulpd xmm1, xmm0
    mulpd xmm2, xmm0
    mulpd xmm3, xmm0
    mulpd xmm4, xmm0
    movntpd [rdi + rax + 64], xmm1
    movntpd [rdi + rax + 80], xmm2
    movntpd [rdi + rax + 96], xmm3
    movntpd [rdi + rax + 112], xmm4
    add rax, 128
    cmp rax, r9
    jb .Lscale_nt_sse2_step
.Lscale_nt_sse2_rest:
    cmp rax, rcx
    jae .Lscale_nt_sse2_next
    .p2align 5
.Lscale_nt_sse2_line:
    movapd xmm1, [rsi + rax]
    movapd xmm2, [rsi + rax + 16]
    movapd xmm3, [rsi + rax + 32]
    movapd xmm4, [rsi + rax + 48]
    mulpd xmm1, xmm0
    mulpd xmm2, xmm0
    mulpd xmm3, xmm0
    mulpd xmm4, xmm0
    movntpd [rdi + rax], xmm1
    movntpd [rdi + rax + 16], xmm2
    movntpd [rdi + rax + 32], xmm3
    movntpd [rdi + rax + 48], xmm4
    add rax, 64
    cmp rax, rcx
    jb .Lscale_nt_sse2_line
.Lscale_nt_sse2_next:
    dec r8
    jnz .Lscale_nt_sse2_pass
.Lscale_nt_sse2_done:
    sfence
    xor eax, eax
    ret
    .size scale_nt_sse2, . - scale_nt_sse2
    .popsection
