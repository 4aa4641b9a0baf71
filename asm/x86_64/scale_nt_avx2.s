# scale_nt_avx2: d[i] = 3 * a[i], non-temporal stores; needs AVX2.
#
# u64 scale_nt_avx2(u8 *dst, const u8 *src_a, const u8 *src_b, u64 bytes, u64 passes)
#     rdi dst, rsi src_a, rdx src_b, rcx bytes, r8 passes; rax: 0
#
# Operands     dst and a: aligned to 64 bytes, `bytes` long, not overlapping
#              src_b (rdx) never touched
# Granularity  one 64-byte line: `bytes` is a multiple of 64, 0 included; main loop of 256 bytes, then line by line
# Clobbers     rax, r8, r9, ymm0-ymm2, flags; no stack, no callee-saved register
# Leaves       upper register halves zero (vzeroupper), direction flag and the control bits of MXCSR as they were
# Fence        sfence at the end, so that whoever stops a clock afterwards has waited for the stores
# Prefetch     none in software: the hardware prefetchers follow ascending streams
# Why so       line by line: the halves of a line are stored together; other groupings made no clear difference (Zen 3)
# Constant     3.0, built from an immediate: no data section to place or to relocate

    .pushsection .text.scale_nt_avx2,"ax",@progbits
    .globl scale_nt_avx2
    .hidden scale_nt_avx2
    .type scale_nt_avx2, @function
    .p2align 6
scale_nt_avx2:
    test r8, r8
    jz .Lscale_nt_avx2_done
    movabs rax, 0x4008000000000000   # 3.0
    vmovq xmm0, rax
    vbroadcastsd ymm0, xmm0
    mov r9, rcx
    and r9, -256                   # what the main loop covers
.Lscale_nt_avx2_pass:
    xor eax, eax
    test r9, r9
    jz .Lscale_nt_avx2_rest
    .p2align 5
.Lscale_nt_avx2_step:
    vmulpd ymm1, ymm0, [rsi + rax]
    vmulpd ymm2, ymm0, [rsi + rax + 32]
    vmovntpd [rdi + rax], ymm1
    vmovntpd [rdi + rax + 32], ymm2
    vmulpd ymm1, ymm0, [rsi + rax + 64]
    vmulpd ymm2, ymm0, [rsi + rax + 96]
    vmovntpd [rdi + rax + 64], ymm1
    vmovntpd [rdi + rax + 96], ymm2
    vmulpd ymm1, ymm0, [rsi + rax + 128]
    vmulpd ymm2, ymm0, [rsi + rax + 160]
    vmovntpd [rdi + rax + 128], ymm1
    vmovntpd [rdi + rax + 160], ymm2
    vmulpd ymm1, ymm0, [rsi + rax + 192]
    vmulpd ymm2, ymm0, [rsi + rax + 224]
    vmovntpd [rdi + rax + 192], ymm1
    vmovntpd [rdi + rax + 224], ymm2
    add rax, 256
    cmp rax, r9
    jb .Lscale_nt_avx2_step
.Lscale_nt_avx2_rest:
    cmp rax, rcx
    jae .Lscale_nt_avx2_next
    .p2align 5
.Lscale_nt_avx2_line:
    vmulpd ymm1, ymm0, [rsi + rax]
    vmulpd ymm2, ymm0, [rsi + rax + 32]
    vmovntpd [rdi + rax], ymm1
    vmovntpd [rdi + rax + 32], ymm2
    add rax, 64
    cmp rax, rcx
    jb .Lscale_nt_avx2_line
.Lscale_nt_avx2_next:
    dec r8
    jnz .Lscale_nt_avx2_pass
.Lscale_nt_avx2_done:
    sfence
    xor eax, eax
    vzeroupper
    ret
    .size scale_nt_avx2, . - scale_nt_avx2
    .popsection
