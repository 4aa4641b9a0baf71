# read_avx2: sum of a[i] as 64-bit words, wrapping; needs AVX2.
#
# u64 read_avx2(u8 *dst, const u8 *src_a, const u8 *src_b, u64 bytes, u64 passes)
#     rdi dst, rsi src_a, rdx src_b, rcx bytes, r8 passes; rax: the sum over the last pass (0 without a pass)
#
# Operands     a: aligned to 64 bytes, `bytes` long
#              dst (rdi) and src_b (rdx) never touched
# Granularity  one 64-byte line: `bytes` is a multiple of 64, 0 included; main loop of 256 bytes, then line by line
# Clobbers     rax, rcx, r8, r9, r10, ymm0-ymm7, flags; no stack, no callee-saved register
# Leaves       upper register halves zero (vzeroupper), direction flag and the control bits of MXCSR as they were
# Fence        none: it stores nothing
# Prefetch     none in software: the hardware prefetchers follow ascending streams
# Why so       one accumulator for each load of a turn: no addition waits for another of the same turn.
#              A single stream needs no index register, and unindexed operands stay fused on every core.

    .pushsection .text.read_avx2,"ax",@progbits
    .globl read_avx2
    .hidden read_avx2
    .type read_avx2, @function
    .p2align 6
read_avx2:
    xor eax, eax
    test r8, r8
    jz .Lread_avx2_done
    lea r10, [rsi + rcx]             # where the array ends
    and rcx, -256
    lea r9, [rsi + rcx]              # where the main loop ends
.Lread_avx2_pass:
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
    jae .Lread_avx2_rest
    .p2align 5
.Lread_avx2_step:
    vpaddq ymm0, ymm0, [rax]
    vpaddq ymm1, ymm1, [rax + 32]
    vpaddq ymm2, ymm2, [rax + 64]
    vpaddq ymm3, ymm3, [rax + 96]
    vpaddq ymm4, ymm4, [rax + 128]
    vpaddq ymm5, ymm5, [rax + 160]
    vpaddq ymm6, ymm6, [rax + 192]
    vpaddq ymm7, ymm7, [rax + 224]
    add rax, 256
    cmp rax, r9
    jb .Lread_avx2_step
.Lread_avx2_rest:
    cmp rax, r10
    jae .Lread_avx2_next
    .p2align 5
.Lread_avx2_line:
    vpaddq ymm0, ymm0, [rax]
    vpaddq ymm1, ymm1, [rax + 32]
    add rax, 64
    cmp rax, r10
    jb .Lread_avx2_line
.Lread_avx2_next:
    dec r8
    jnz .Lread_avx2_pass
    vpaddq ymm0, ymm0, ymm4
    vpaddq ymm1, ymm1, ymm5
    vpaddq ymm2, ymm2, ymm6
    vpaddq ymm3, ymm3, ymm7
    vpaddq ymm0, ymm0, ymm2
    vpaddq ymm1, ymm1, ymm3
    vpaddq ymm0, ymm0, ymm1
    vextracti128 xmm1, ymm0, 1
    vpaddq xmm0, xmm0, xmm1
    vpunpckhqdq xmm1, xmm0, xmm0
    vpaddq xmm0, xmm0, xmm1
    vmovq rax, xmm0
.Lread_avx2_done:
    vzeroupper
    ret
    .size read_avx2, . - read_avx2
    .popsection
