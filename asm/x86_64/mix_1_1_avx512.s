# mix_1_1_avx512: d[i] = !d[i], 64-bit words, ordinary stores; needs AVX-512 F.
#
# u64 mix_1_1_avx512(u8 *dst, const u8 *src_a, const u8 *src_b, u64 bytes, u64 passes)
#     rdi dst, rsi src_a, rdx src_b, rcx bytes, r8 passes; rax: 0
#
# Operands     dst: aligned to 64 bytes, `bytes` long, read and written
#              src_a (rsi) and src_b (rdx) never touched
# Granularity  one 64-byte line: `bytes` is a multiple of 64, 0 included; main loop of 512 bytes, then line by line
# Clobbers     rax, r8, r9, zmm0-zmm1, flags; no stack, no callee-saved register
# Leaves       upper register halves zero (vzeroupper), direction flag and the control bits of MXCSR as they were
# Fence        none: ordinary stores are ordered
# Prefetch     none in software: the hardware prefetchers follow ascending streams
# Why so       the line that is written was just read: the bytes that count are the bytes on the bus
#              line by line, as in copy_avx2, where that was measured; here it was not
# Constant     all ones, made in a register: no data section to place or to relocate

    .pushsection .text.mix_1_1_avx512,"ax",@progbits
    .globl mix_1_1_avx512
    .hidden mix_1_1_avx512
    .type mix_1_1_avx512, @function
    .p2align 6
mix_1_1_avx512:
    test r8, r8
    jz .Lmix_1_1_avx512_done
    vpternlogd zmm0, zmm0, zmm0, 0xff   # all ones
    mov r9, rcx
    and r9, -512                   # what the main loop covers
.Lmix_1_1_avx512_pass:
    xor eax, eax
    test r9, r9
    jz .Lmix_1_1_avx512_rest
    .p2align 5
.Lmix_1_1_avx512_step:
    vpxorq zmm1, zmm0, [rdi + rax]
    vmovdqa64 [rdi + rax], zmm1
    vpxorq zmm1, zmm0, [rdi + rax + 64]
    vmovdqa64 [rdi + rax + 64], zmm1
    vpxorq zmm1, zmm0, [rdi + rax + 128]
    vmovdqa64 [rdi + rax + 128], zmm1
    vpxorq zmm1, zmm0, [rdi + rax + 192]
    vmovdqa64 [rdi + rax + 192], zmm1
    vpxorq zmm1, zmm0, [rdi + rax + 256]
    vmovdqa64 [rdi + rax + 256], zmm1
    vpxorq zmm1, zmm0, [rdi + rax + 320]
    vmovdqa64 [rdi + rax + 320], zmm1
    vpxorq zmm1, zmm0, [rdi + rax + 384]
    vmovdqa64 [rdi + rax + 384], zmm1
    vpxorq zmm1, zmm0, [rdi + rax + 448]
    vmovdqa64 [rdi + rax + 448], zmm1
    add rax, 512
    cmp rax, r9
    jb .Lmix_1_1_avx512_step
.Lmix_1_1_avx512_rest:
    cmp rax, rcx
    jae .Lmix_1_1_avx512_next
    .p2align 5
.Lmix_1_1_avx512_line:
    vpxorq zmm1, zmm0, [rdi + rax]
    vmovdqa64 [rdi + rax], zmm1
    add rax, 64
    cmp rax, rcx
    jb .Lmix_1_1_avx512_line
.Lmix_1_1_avx512_next:
    dec r8
    jnz .Lmix_1_1_avx512_pass
.Lmix_1_1_avx512_done:
    xor eax, eax
    vzeroupper
    ret
    .size mix_1_1_avx512, . - mix_1_1_avx512
    .popsection
