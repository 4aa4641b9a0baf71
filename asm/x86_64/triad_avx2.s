# triad_avx2: d[i] = a[i] + 3 * b[i], each rounded, ordinary stores; needs AVX2.
#
# u64 triad_avx2(u8 *dst, const u8 *src_a, const u8 *src_b, u64 bytes, u64 passes)
#     rdi dst, rsi src_a, rdx src_b, rcx bytes, r8 passes; rax: 0
#
# Operands     dst, a and b: aligned to 64 bytes, `bytes` long, not overlapping
# Granularity  one 64-byte line: `bytes` is a multiple of 64, 0 included; main loop of 256 bytes, then line by line
# Clobbers     rax, r8, r9, ymm0-ymm2, flags; no stack, no callee-saved register
# Leaves       upper register halves zero (vzeroupper), direction flag and the control bits of MXCSR as they were
# Fence        none: ordinary stores are ordered
# Prefetch     none in software: the hardware prefetchers follow ascending streams
# Why so       multiply, then add, no FMA: the reference rounds twice, and results must agree to the bit
#              line by line: with all loads of a turn before all stores it reached 0.91 of this with 2 threads and
#              0.93 with 1 (arrays of 128 MiB, Zen 3 guest, medians of 31 interleaved pairs)
# Constant     3.0, built from an immediate: no data section to place or to relocate

    .pushsection .text.triad_avx2,"ax",@progbits
    .globl triad_avx2
    .hidden triad_avx2
    .type triad_avx2, @function
    .p2align 6
triad_avx2:
    test r8, r8
    jz .Ltriad_avx2_done
    movabs rax, 0x4008000000000000   # 3.0
    vmovq xmm0, rax
    vbroadcastsd ymm0, xmm0
    mov r9, rcx
    and r9, -256                   # what the main loop covers
.Ltriad_avx2_pass:
    xor eax, eax
    test r9, r9
    jz .Ltriad_avx2_rest
    .p2align 5
.Ltriad_avx2_step:
    vmulpd ymm1, ymm0, [rdx + rax]
    vmulpd ymm2, ymm0, [rdx + rax + 32]
    vaddpd ymm1, ymm1, [rsi + rax]
    vaddpd ymm2, ymm2, [rsi + rax + 32]
    vmovapd [rdi + rax], ymm1
    vmovapd [rdi + rax + 32], ymm2
    vmulpd ymm1, ymm0, [rdx + rax + 64]
    vmulpd ymm2, ymm0, [rdx + rax + 96]
    vaddpd ymm1, ymm1, [rsi + rax + 64]
    vaddpd ymm2, ymm2, [rsi + rax + 96]
    vmovapd [rdi + rax + 64], ymm1
    vmovapd [rdi + rax + 96], ymm2
    vmulpd ymm1, ymm0, [rdx + rax + 128]
    vmulpd ymm2, ymm0, [rdx + rax + 160]
    vaddpd ymm1, ymm1, [rsi + rax + 128]
    vaddpd ymm2, ymm2, [rsi + rax + 160]
    vmovapd [rdi + rax + 128], ymm1
    vmovapd [rdi + rax + 160], ymm2
    vmulpd ymm1, ymm0, [rdx + rax + 192]
    vmulpd ymm2, ymm0, [rdx + rax + 224]
    vaddpd ymm1, ymm1, [rsi + rax + 192]
    vaddpd ymm2, ymm2, [rsi + rax + 224]
    vmovapd [rdi + rax + 192], ymm1
    vmovapd [rdi + rax + 224], ymm2
    add rax, 256
    cmp rax, r9
    jb .Ltriad_avx2_step
.Ltriad_avx2_rest:
    cmp rax, rcx
    jae .Ltriad_avx2_next
    .p2align 5
.Ltriad_avx2_line:
    vmulpd ymm1, ymm0, [rdx + rax]
    vmulpd ymm2, ymm0, [rdx + rax + 32]
    vaddpd ymm1, ymm1, [rsi + rax]
    vaddpd ymm2, ymm2, [rsi + rax + 32]
    vmovapd [rdi + rax], ymm1
    vmovapd [rdi + rax + 32], ymm2
    add rax, 64
    cmp rax, rcx
    jb .Ltriad_avx2_line
.Ltriad_avx2_next:
    dec r8
    jnz .Ltriad_avx2_pass
.Ltriad_avx2_done:
    xor eax, eax
    vzeroupper
    ret
    .size triad_avx2, . - triad_avx2
    .popsection
