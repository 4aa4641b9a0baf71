# scale_nt_avx512: d[i] = 3 * a[i], non-temporal stores; needs AVX-512 F.
#
# u64 scale_nt_avx512(u8 *dst, const u8 *src_a, const u8 *src_b, u64 bytes, u64 passes)
#     rdi dst, rsi src_a, rdx src_b, rcx bytes, r8 passes; rax: 0
#
# Operands     dst and a: aligned to 64 bytes, `bytes` long, not overlapping
#              src_b (rdx) never touched
# Granularity  one 64-byte line: `bytes` is a multiple of 64, 0 included; main loop of 512 bytes, then line by line
# Clobbers     rax, r8, r9, zmm0-zmm1, flags; no stack, no callee-saved register
# Leaves       upper register halves zero (vzeroupper), direction flag and the control bits of MXCSR as they were
# Fence        sfence at the end, so that whoever stops a clock afterwards has waited for the stores
# Prefetch     none in software: the hardware prefetchers follow ascending streams
# Why so       one store a line: nothing has to be combined
# Constant     3.0, built from an immediate: no data section to place or to relocate

    .pushsection .text.scale_nt_avx512,"ax",@progbits
    .globl scale_nt_avx512
    .hidden scale_nt_avx512
    .type scale_nt_avx512, @function
    .p2align 6
scale_nt_avx512:
    test r8, r8
    jz .Lscale_nt_avx512_done
    movabs rax, 0x4008000000000000   # 3.0
    vmovq xmm0, rax
    vbroadcastsd zmm0, xmm0
    mov r9, rcx
    and r9, -512                   # what the main loop covers
.Lscale_nt_avx512_pass:
    xor eax, eax
    test r9, r9
    jz .Lscale_nt_avx512_rest
    .p2align 5
.Lscale_nt_avx512_step:
    vmulpd zmm1, zmm0, [rsi + rax]
    vmovntpd [rdi + rax], zmm1
    vmulpd zmm1, zmm0, [rsi + rax + 64]
    vmovntpd [rdi + rax + 64], zmm1
    vmulpd zmm1, zmm0, [rsi + rax + 128]
    vmovntpd [rdi + rax + 128], zmm1
    vmulpd zmm1, zmm0, [rsi + rax + 192]
    vmovntpd [rdi + rax + 192], zmm1
    vmulpd zmm1, zmm0, [rsi + rax + 256]
    vmovntpd [rdi + rax + 256], zmm1
    vmulpd zmm1, zmm0, [rsi + rax + 320]
    vmovntpd [rdi + rax + 320], zmm1
    vmulpd zmm1, zmm0, [rsi + rax + 384]
    vmovntpd [rdi + rax + 384], zmm1
    vmulpd zmm1, zmm0, [rsi + rax + 448]
    vmovntpd [rdi + rax + 448], zmm1
    add rax, 512
    cmp rax, r9
    jb .Lscale_nt_avx512_step
.Lscale_nt_avx512_rest:
    cmp rax, rcx
    jae .Lscale_nt_avx512_next
    .p2align 5
.Lscale_nt_avx512_line:
    vmulpd zmm1, zmm0, [rsi + rax]
    vmovntpd [rdi + rax], zmm1
    add rax, 64
    cmp rax, rcx
    jb .Lscale_nt_avx512_line
.Lscale_nt_avx512_next:
    dec r8
    jnz .Lscale_nt_avx512_pass
.Lscale_nt_avx512_done:
    sfence
    xor eax, eax
    vzeroupper
    ret
    .size scale_nt_avx512, . - scale_nt_avx512
    .popsection
