# mix_2_1_avx2: d[i] = d[i] ^ a[i], 64-bit words, ordinary stores; needs AVX2.
#
# u64 mix_2_1_avx2(u8 *dst, const u8 *src_a, const u8 *src_b, u64 bytes, u64 passes)
#     rdi dst, rsi src_a, rdx src_b, rcx bytes, r8 passes; rax: 0
#
# Operands     dst (read and written) and a: aligned to 64 bytes, `bytes` long, not overlapping
#              src_b (rdx) never touched
# Granularity  one 64-byte line: `bytes` is a multiple of 64, 0 included; main loop of 256 bytes, then line by line
# Clobbers     rax, r8, r9, ymm0-ymm1, flags; no stack, no callee-saved register
# Leaves       upper register halves zero (vzeroupper), direction flag and the control bits of MXCSR as they were
# Fence        none: ordinary stores are ordered
# Prefetch     none in software: the hardware prefetchers follow ascending streams
# Why so       the line that is written was just read: the bytes that count are the bytes on the bus
#              line by line, as in copy_avx2, where that was measured; here it was not

    .pushsection .text.mix_2_1_avx2,"ax",@progbits
    .globl mix_2_1_avx2
    .hidden mix_2_1_avx2
    .type mix_2_1_avx2, @function
    .p2align 6
mix_2_1_avx2:
    test r8, r8
    jz .Lmix_2_1_avx2_done
    mov r9, rcx
    and r9, -256                   # what the main loop covers
.Lmix_2_1_avx2_pass:
    xor eax, eax
    test r9, r9
    jz .Lmix_2_1_avx2_rest
    .p2align 5
.Lmix_2_1_avx2_step:
    vmovdqa ymm0, [rsi + rax]
    vmovdqa ymm1, [rsi + rax + 32]
    vpxor ymm0, ymm0, [rdi + rax]
    vpxor ymm1, ymm1, [rdi + rax + 32]
    vmovdqa [rdi + rax], ymm0
    vmovdqa [rdi + rax + 32], ymm1
    vmovdqa ymm0, [rsi + rax + 64]
    vmovdqa ymm1, [rsi + rax + 96]
    vpxor ymm0, ymm0, [rdi + rax + 64]
    vpxor ymm1, ymm1, [rdi + rax + 96]
    vmovdqa [rdi + rax + 64], ymm0
    vmovdqa [rdi + rax + 96], ymm1
    vmovdqa ymm0, [rsi + rax + 128]
    vmovdqa ymm1, [rsi + rax + 160]
    vpxor ymm0, ymm0, [rdi + rax + 128]
    vpxor ymm1, ymm1, [rdi + rax + 160]
    vmovdqa [rdi + rax + 128], ymm0
    vmovdqa [rdi + rax + 160], ymm1
    vmovdqa ymm0, [rsi + rax + 192]
    vmovdqa ymm1, [rsi + rax + 224]
    vpxor ymm0, ymm0, [rdi + rax + 192]
    vpxor ymm1, ymm1, [rdi + rax + 224]
    vmovdqa [rdi + rax + 192], ymm0
    vmovdqa [rdi + rax + 224], ymm1
    add rax, 256
    cmp rax, r9
    jb .Lmix_2_1_avx2_step
.Lmix_2_1_avx2_rest:
    cmp rax, rcx
    jae .Lmix_2_1_avx2_next
    .p2align 5
.Lmix_2_1_avx2_line:
    vmovdqa ymm0, [rsi + rax]
    vmovdqa ymm1, [rsi + rax + 32]
    vpxor ymm0, ymm0, [rdi + rax]
    vpxor ymm1, ymm1, [rdi + rax + 32]
    vmovdqa [rdi + rax], ymm0
    vmovdqa [rdi + rax + 32], ymm1
    add rax, 64
    cmp rax, rcx
    jb .Lmix_2_1_avx2_line
.Lmix_2_1_avx2_next:
    dec r8
    jnz .Lmix_2_1_avx2_pass
.Lmix_2_1_avx2_done:
    xor eax, eax
    vzeroupper
    ret
    .size mix_2_1_avx2, . - mix_2_1_avx2
    .popsection
