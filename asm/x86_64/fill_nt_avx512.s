# fill_nt_avx512: d[i] = 3, non-temporal stores; needs AVX-512 F.
#
# u64 fill_nt_avx512(u8 *dst, const u8 *src_a, const u8 *src_b, u64 bytes, u64 passes)
#     rdi dst, rsi src_a, rdx src_b, rcx bytes, r8 passes; rax: 0
#
# Operands     dst: aligned to 64 bytes, `bytes` long
#              src_a (rsi) and src_b (rdx) never touched
# Granularity  one 64-byte line: `bytes` is a multiple of 64, 0 included; main loop of 512 bytes, then line by line
# Clobbers     rax, r8, r9, zmm0, flags; no stack, no callee-saved register
# Leaves       upper register halves zero (vzeroupper), direction flag and the control bits of MXCSR as they were
# Fence        sfence at the end, so that whoever stops a clock afterwards has waited for the stores
# Prefetch     none in software: the hardware prefetchers follow ascending streams
# Why so       one ascending loop: four pages at a time, as in copy_avx512, reached 1.03 of this with 1 thread and 1.03 with 2
#              (arrays of 1 GiB a thread, 4 KiB pages, Xeon guest with 480 MiB of L3, medians of 7 interleaved rounds)
# Constant     3.0, built from an immediate: no data section to place or to relocate

    .pushsection .text.fill_nt_avx512,"ax",@progbits
    .globl fill_nt_avx512
    .hidden fill_nt_avx512
    .type fill_nt_avx512, @function
    .p2align 6
fill_nt_avx512:
    test r8, r8
    jz .Lfill_nt_avx512_done
    movabs rax, 0x4008000000000000   # 3.0
    vmovq xmm0, rax
    vbroadcastsd zmm0, xmm0
    mov r9, rcx
    and r9, -512                   # what the main loop covers
.Lfill_nt_avx512_pass:
    xor eax, eax
    test r9, r9
    jz .Lfill_nt_avx512_rest
    .p2align 5
.Lfill_nt_avx512_step:
    vmovntpd [rdi + rax], zmm0
    vmovntpd [rdi + rax + 64], zmm0
    vmovntpd [rdi + rax + 128], zmm0
    vmovntpd [rdi + rax + 192], zmm0
    vmovntpd [rdi + rax + 256], zmm0
    vmovntpd [rdi + rax + 320], zmm0
    vmovntpd [rdi + rax + 384], zmm0
    vmovntpd [rdi + rax + 448], zmm0
    add rax, 512
    cmp rax, r9
    jb .Lfill_nt_avx512_step
.Lfill_nt_avx512_rest:
    cmp rax, rcx
    jae .Lfill_nt_avx512_next
    .p2align 5
.Lfill_nt_avx512_line:
    vmovntpd [rdi + rax], zmm0
    add rax, 64
    cmp rax, rcx
    jb .Lfill_nt_avx512_line
.Lfill_nt_avx512_next:
    dec r8
    jnz .Lfill_nt_avx512_pass
.Lfill_nt_avx512_done:
    sfence
    xor eax, eax
    vzeroupper
    ret
    .size fill_nt_avx512, . - fill_nt_avx512
    .popsection
