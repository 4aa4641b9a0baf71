# read_avx512: sum of a[i] as 64-bit words, wrapping; needs AVX-512 F.
#
# u64 read_avx512(u8 *dst, const u8 *src_a, const u8 *src_b, u64 bytes, u64 passes)
#     rdi dst, rsi src_a, rdx src_b, rcx bytes, r8 passes; rax: the sum over the last pass (0 without a pass)
#
# Operands     a: aligned to 64 bytes, `bytes` long
#              dst (rdi) and src_b (rdx) never touched
# Granularity  one 64-byte line: `bytes` is a multiple of 64, 0 included; main loop of 512 bytes, then line by line
# Clobbers     rax, rcx, r8, r9, r10, zmm0-zmm7, flags; no stack, no callee-saved register
# Leaves       upper register halves zero (vzeroupper), direction flag and the control bits of MXCSR as they were
# Fence        none: it stores nothing
# Prefetch     none in software: the hardware prefetchers follow ascending streams
# Why so       one accumulator for each load of a turn: no addition waits for another of the same turn.
#              A single stream needs no index register, and unindexed operands stay fused on every core.
#              One ascending stream: turns of two lines from each of four neighbouring pages reached 1.05 of it on a Xeon
#              guest, and 0.68 with 1 thread and 0.8 with 2 on an EPYC guest (Zen 4).

    .pushsection .text.read_avx512,"ax",@progbits
    .globl read_avx512
    .hidden read_avx512
    .type read_avx512, @function
    .p2align 6
read_avx512:
    xor eax, eax
    test r8, r8
    jz .Lread_avx512_done
    lea r10, [rsi + rcx]             # where the array ends
    and rcx, -512
    lea r9, [rsi + rcx]              # where the main loop ends
.Lread_avx512_pass:
    mov rax, rsi
    vpxor xmm0, xmm0, xmm0
    vpxor xmm1, xmm1, xmm1
    vpxor xmm2, xmm2, xmm2
    vpxor xmm3, xmm3, xmm3
    vpxor xmm4, xmm4, xmm4
    vpxor xmm5, xmm5, xmm5
    vpxor xmm6, xmm6, xmm6
    vpxor xmm7, xmm7, xmm7
    cmp rax, r9
    jae .Lread_avx512_rest
    .p2align 5
.Lread_avx512_step:
    vpaddq zmm0, zmm0, [rax]
    vpaddq zmm1, zmm1, [rax + 64]
    vpaddq zmm2, zmm2, [rax + 128]
    vpaddq zmm3, zmm3, [rax + 192]
    vpaddq zmm4, zmm4, [rax + 256]
    vpaddq zmm5, zmm5, [rax + 320]
    vpaddq zmm6, zmm6, [rax + 384]
    vpaddq zmm7, zmm7, [rax + 448]
    add rax, 512
    cmp rax, r9
    jb .Lread_avx512_step
.Lread_avx512_rest:
    cmp rax, r10
    jae .Lread_avx512_next
    .p2align 5
.Lread_avx512_line:
    vpaddq zmm0, zmm0, [rax]
    add rax, 64
    cmp rax, r10
    jb .Lread_avx512_line
.Lread_avx512_next:
    dec r8
    jnz .Lread_avx512_pass
    vpaddq zmm0, zmm0, zmm4
    vpaddq zmm1, zmm1, zmm5
    vpaddq zmm2, zmm2, zmm6
    vpaddq zmm3, zmm3, zmm7
    vpaddq zmm0, zmm0, zmm2
    vpaddq zmm1, zmm1, zmm3
    vpaddq zmm0, zmm0, zmm1
    vextracti64x4 ymm1, zmm0, 1
    vpaddq ymm0, ymm0, ymm1
    vextracti128 xmm1, ymm0, 1
    vpaddq xmm0, xmm0, xmm1
    vpunpckhqdq xmm1, xmm0, xmm0
    vpaddq xmm0, xmm0, xmm1
    vmovq rax, xmm0
.Lread_avx512_done:
    vzeroupper
    ret
    .size read_avx512, .-read_avx512
    .popsection
