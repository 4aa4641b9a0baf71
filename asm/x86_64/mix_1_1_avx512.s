# mix_1_1_avx512: d[i] = !d[i], 64-bit words, ordinary stores; needs AVX-512 F.
#
# u64 mix_1_1_avx512(u8 *dst, const u8 *src_a, const u8 *src_b, u64 bytes, u64 passes)
#     rdi dst, rsi src_a, rdx src_b, rcx bytes, r8 passes; rax: 0
#
# Operands     dst: aligned to 64 bytes, `bytes` long, read and written
#              src_a (rsi) and src_b (rdx) never touched
# Granularity  one 64-byte line: `bytes` is a multiple of 64, 0 included; blocks of 16 KiB in a main loop of 512 bytes,
#              then 512 bytes in a row, then line by line
# Clobbers     rax, r8, r9, r10, r11, zmm0-zmm1, flags; no stack, no callee-saved register
# Leaves       upper register halves zero (vzeroupper), direction flag and the control bits of MXCSR as they were
# Fence        none: ordinary stores are ordered
# Prefetch     none in software: the hardware prefetchers follow ascending streams
# Why so       the line that is written was just read: the bytes that count are the bytes on the bus
#              Two lines from each of four neighbouring pages a turn: hardware prefetchers work inside a page, and four of
#              them are under way at a time. Against a plain ascending loop it reached 1.08 with 1 thread and 1.05 with 2
#              (arrays of 1 GiB a thread, 4 KiB pages, Xeon guest with 480 MiB of L3, medians of 7 interleaved rounds)
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
    and r9, -16384                 # what whole blocks cover
    mov r10, rcx
    and r10, -512                  # and with them the turns in a row
.Lmix_1_1_avx512_pass:
    xor eax, eax
    test r9, r9
    jz .Lmix_1_1_avx512_turns
.Lmix_1_1_avx512_block:
    lea r11, [rax + 4096]
    .p2align 5
.Lmix_1_1_avx512_step:
    vpxorq zmm1, zmm0, [rdi + rax]
    vmovdqa64 [rdi + rax], zmm1
    vpxorq zmm1, zmm0, [rdi + rax + 64]
    vmovdqa64 [rdi + rax + 64], zmm1
    vpxorq zmm1, zmm0, [rdi + rax + 4096]
    vmovdqa64 [rdi + rax + 4096], zmm1
    vpxorq zmm1, zmm0, [rdi + rax + 4160]
    vmovdqa64 [rdi + rax + 4160], zmm1
    vpxorq zmm1, zmm0, [rdi + rax + 8192]
    vmovdqa64 [rdi + rax + 8192], zmm1
    vpxorq zmm1, zmm0, [rdi + rax + 8256]
    vmovdqa64 [rdi + rax + 8256], zmm1
    vpxorq zmm1, zmm0, [rdi + rax + 12288]
    vmovdqa64 [rdi + rax + 12288], zmm1
    vpxorq zmm1, zmm0, [rdi + rax + 12352]
    vmovdqa64 [rdi + rax + 12352], zmm1
    add rax, 128
    cmp rax, r11
    jb .Lmix_1_1_avx512_step
    add rax, 12288
    cmp rax, r9
    jb .Lmix_1_1_avx512_block
.Lmix_1_1_avx512_turns:
    cmp rax, r10
    jae .Lmix_1_1_avx512_rest
    .p2align 5
.Lmix_1_1_avx512_turn:
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
    cmp rax, r10
    jb .Lmix_1_1_avx512_turn
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
