# mix_3_1_avx512: d[i] = d[i] ^ a[i] ^ b[i], 64-bit words, ordinary stores; needs AVX-512 F.
#
# u64 mix_3_1_avx512(u8 *dst, const u8 *src_a, const u8 *src_b, u64 bytes, u64 passes)
#     rdi dst, rsi src_a, rdx src_b, rcx bytes, r8 passes; rax: 0
#
# Operands     dst (read and written), a and b: aligned to 64 bytes, `bytes` long, not overlapping
# Granularity  one 64-byte line: `bytes` is a multiple of 64, 0 included; main loop of 512 bytes, then line by line
# Clobbers     rax, r8, r9, zmm0, flags; no stack, no callee-saved register
# Leaves       upper register halves zero (vzeroupper), direction flag and the control bits of MXCSR as they were
# Fence        none: ordinary stores are ordered
# Prefetch     none in software: the hardware prefetchers follow ascending streams
# Why so       the line that is written was just read: the bytes that count are the bytes on the bus
#              one ascending loop: four pages at a time, as in copy_avx512, reached 0.98 of this with 1 thread and 0.98 with 2
#              (arrays of 1 GiB a thread, 4 KiB pages, Xeon guest with 480 MiB of L3, medians of 7 interleaved rounds)

    .pushsection .text.mix_3_1_avx512,"ax",@progbits
    .globl mix_3_1_avx512
    .hidden mix_3_1_avx512
    .type mix_3_1_avx512, @function
    .p2align 6
mix_3_1_avx512:
    test r8, r8
    jz .Lmix_3_1_avx512_done
    mov r9, rcx
    and r9, -512                   # what the main loop covers
.Lmix_3_1_avx512_pass:
    xor eax, eax
    test r9, r9
    jz .Lmix_3_1_avx512_rest
    .p2align 5
.Lmix_3_1_avx512_step:
    vmovdqa64 zmm0, [rsi + rax]
    vpxorq zmm0, zmm0, [rdx + rax]
    vpxorq zmm0, zmm0, [rdi + rax]
    vmovdqa64 [rdi + rax], zmm0
    vmovdqa64 zmm0, [rsi + rax + 64]
    vpxorq zmm0, zmm0, [rdx + rax + 64]
    vpxorq zmm0, zmm0, [rdi + rax + 64]
    vmovdqa64 [rdi + rax + 64], zmm0
    vmovdqa64 zmm0, [rsi + rax + 128]
    vpxorq zmm0, zmm0, [rdx + rax + 128]
    vpxorq zmm0, zmm0, [rdi + rax + 128]
    vmovdqa64 [rdi + rax + 128], zmm0
    vmovdqa64 zmm0, [rsi + rax + 192]
    vpxorq zmm0, zmm0, [rdx + rax + 192]
    vpxorq zmm0, zmm0, [rdi + rax + 192]
    vmovdqa64 [rdi + rax + 192], zmm0
    vmovdqa64 zmm0, [rsi + rax + 256]
    vpxorq zmm0, zmm0, [rdx + rax + 256]
    vpxorq zmm0, zmm0, [rdi + rax + 256]
    vmovdqa64 [rdi + rax + 256], zmm0
    vmovdqa64 zmm0, [rsi + rax + 320]
    vpxorq zmm0, zmm0, [rdx + rax + 320]
    vpxorq zmm0, zmm0, [rdi + rax + 320]
    vmovdqa64 [rdi + rax + 320], zmm0
    vmovdqa64 zmm0, [rsi + rax + 384]
    vpxorq zmm0, zmm0, [rdx + rax + 384]
    vpxorq zmm0, zmm0, [rdi + rax + 384]
    vmovdqa64 [rdi + rax + 384], zmm0
    vmovdqa64 zmm0, [rsi + rax + 448]
    vpxorq zmm0, zmm0, [rdx + rax + 448]
    vpxorq zmm0, zmm0, [rdi + rax + 448]
    vmovdqa64 [rdi + rax + 448], zmm0
    add rax, 512
    cmp rax, r9
    jb .Lmix_3_1_avx512_step
.Lmix_3_1_avx512_rest:
    cmp rax, rcx
    jae .Lmix_3_1_avx512_next
    .p2align 5
.Lmix_3_1_avx512_line:
    vmovdqa64 zmm0, [rsi + rax]
    vpxorq zmm0, zmm0, [rdx + rax]
    vpxorq zmm0, zmm0, [rdi + rax]
    vmovdqa64 [rdi + rax], zmm0
    add rax, 64
    cmp rax, rcx
    jb .Lmix_3_1_avx512_line
.Lmix_3_1_avx512_next:
    dec r8
    jnz .Lmix_3_1_avx512_pass
.Lmix_3_1_avx512_done:
    xor eax, eax
    vzeroupper
    ret
    .size mix_3_1_avx512, . - mix_3_1_avx512
    .popsection
