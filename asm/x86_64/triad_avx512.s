# triad_avx512: d[i] = a[i] + 3 * b[i], each rounded, ordinary stores; needs AVX-512 F.
#
# u64 triad_avx512(u8 *dst, const u8 *src_a, const u8 *src_b, u64 bytes, u64 passes)
#     rdi dst, rsi src_a, rdx src_b, rcx bytes, r8 passes; rax: 0
#
# Operands     dst, a and b: aligned to 64 bytes, `bytes` long, not overlapping
# Granularity  one 64-byte line: `bytes` is a multiple of 64, 0 included; main loop of 512 bytes, then line by line
# Clobbers     rax, r8, r9, zmm0-zmm1, flags; no stack, no callee-saved register
# Leaves       upper register halves zero (vzeroupper), direction flag and the control bits of MXCSR as they were
# Fence        none: ordinary stores are ordered
# Prefetch     none in software: the hardware prefetchers follow ascending streams
# Why so       multiply, then add, no FMA: the reference rounds twice, and results must agree to the bit
#              one ascending loop: four pages at a time, as in copy_avx512, reached 1.02 of this with 1 thread and 1.01 with 2
#              (arrays of 1 GiB a thread, 4 KiB pages, Xeon guest with 480 MiB of L3, medians of 7 interleaved rounds)
# Constant     3.0, built from an immediate: no data section to place or to relocate

    .pushsection .text.triad_avx512,"ax",@progbits
    .globl triad_avx512
    .hidden triad_avx512
    .type triad_avx512, @function
    .p2align 6
triad_avx512:
    test r8, r8
    jz .Ltriad_avx512_done
    movabs rax, 0x4008000000000000   # 3.0
    vmovq xmm0, rax
    vbroadcastsd zmm0, xmm0
    mov r9, rcx
    and r9, -512                   # what the main loop covers
.Ltriad_avx512_pass:
    xor eax, eax
    test r9, r9
    jz .Ltriad_avx512_rest
    .p2align 5
.Ltriad_avx512_step:
    vmulpd zmm1, zmm0, [rdx + rax]
    vaddpd zmm1, zmm1, [rsi + rax]
    vmovapd [rdi + rax], zmm1
    vmulpd zmm1, zmm0, [rdx + rax + 64]
    vaddpd zmm1, zmm1, [rsi + rax + 64]
    vmovapd [rdi + rax + 64], zmm1
    vmulpd zmm1, zmm0, [rdx + rax + 128]
    vaddpd zmm1, zmm1, [rsi + rax + 128]
    vmovapd [rdi + rax + 128], zmm1
    vmulpd zmm1, zmm0, [rdx + rax + 192]
    vaddpd zmm1, zmm1, [rsi + rax + 192]
    vmovapd [rdi + rax + 192], zmm1
    vmulpd zmm1, zmm0, [rdx + rax + 256]
    vaddpd zmm1, zmm1, [rsi + rax + 256]
    vmovapd [rdi + rax + 256], zmm1
    vmulpd zmm1, zmm0, [rdx + rax + 320]
    vaddpd zmm1, zmm1, [rsi + rax + 320]
    vmovapd [rdi + rax + 320], zmm1
    vmulpd zmm1, zmm0, [rdx + rax + 384]
    vaddpd zmm1, zmm1, [rsi + rax + 384]
    vmovapd [rdi + rax + 384], zmm1
    vmulpd zmm1, zmm0, [rdx + rax + 448]
    vaddpd zmm1, zmm1, [rsi + rax + 448]
    vmovapd [rdi + rax + 448], zmm1
    add rax, 512
    cmp rax, r9
    jb .Ltriad_avx512_step
.Ltriad_avx512_rest:
    cmp rax, rcx
    jae .Ltriad_avx512_next
    .p2align 5
.Ltriad_avx512_line:
    vmulpd zmm1, zmm0, [rdx + rax]
    vaddpd zmm1, zmm1, [rsi + rax]
    vmovapd [rdi + rax], zmm1
    add rax, 64
    cmp rax, rcx
    jb .Ltriad_avx512_line
.Ltriad_avx512_next:
    dec r8
    jnz .Ltriad_avx512_pass
.Ltriad_avx512_done:
    xor eax, eax
    vzeroupper
    ret
    .size triad_avx512, . - triad_avx512
    .popsection
