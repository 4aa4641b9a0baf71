# add_avx2: d[i] = a[i] + b[i], ordinary stores; needs AVX2.
#
# u64 add_avx2(u8 *dst, const u8 *src_a, const u8 *src_b, u64 bytes, u64 passes)
#     rdi dst, rsi src_a, rdx src_b, rcx bytes, r8 passes; rax: 0
#
# Operands     dst, a and b: aligned to 64 bytes, `bytes` long, not overlapping
# Granularity  one 64-byte line: `bytes` is a multiple of 64, 0 included; main loop of 256 bytes, then line by line
# Clobbers     rax, r8, r9, ymm0-ymm1, flags; no stack, no callee-saved register
# Leaves       upper register halves zero (vzeroupper), direction flag and the control bits of MXCSR as they were
# Fence        none: ordinary stores are ordered
# Prefetch     none in software: the hardware prefetchers follow ascending streams
# Why so       line by line, as copy and triad: with all loads of a turn before all stores those were slower

    .pushsection .text.add_avx2,"ax",@progbits
    .globl add_avx2
    .hidden add_avx2
    .type add_avx2, @function
    .p2align 6
add_avx2:
    test r8, r8
    jz .Ladd_avx2_done
    mov r9, rcx
    and r9, -256                   # what the main loop covers
.Ladd_avx2_pass:
    xor eax, eax
    test r9, r9
    jz .Ladd_avx2_rest
    .p2align 5
.Ladd_avx2_step:
    vmovapd ymm0, [rsi + rax]
    vmovapd ymm1, [rsi + rax + 32]
    vaddpd ymm0, ymm0, [rdx + rax]
    vaddpd ymm1, ymm1, [rdx + rax + 32]
    vmovapd [rdi + rax], ymm0
    vmovapd [rdi + rax + 32], ymm1
    vmovapd ymm0, [rsi + rax + 64]
    vmovapd ymm1, [rsi + rax + 96]
    vaddpd ymm0, ymm0, [rdx + rax + 64]
    vaddpd ymm1, ymm1, [rdx + rax + 96]
    vmovapd [rdi + rax + 64], ymm0
    vmovapd [rdi + rax + 96], ymm1
    vmovapd ymm0, [rsi + rax + 128]
    vmovapd ymm1, [rsi + rax + 160]
    vaddpd ymm0, ymm0, [rdx + rax + 128]
    vaddpd ymm1, ymm1, [rdx + rax + 160]
    vmovapd [rdi + rax + 128], ymm0
    vmovapd [rdi + rax + 160], ymm1
    vmovapd ymm0, [rsi + rax + 192]
    vmovapd ymm1, [rsi + rax + 224]
    vaddpd ymm0, ymm0, [rdx + rax + 192]
    vaddpd ymm1, ymm1, [rdx + rax + 224]
    vmovapd [rdi + rax + 192], ymm0
    vmovapd [rdi + rax + 224], ymm1
    add rax, 256
    cmp rax, r9
    jb .Ladd_avx2_step
.Ladd_avx2_rest:
    cmp rax, rcx
    jae .Ladd_avx2_next
    .p2align 5
.Ladd_avx2_line:
    vmovapd ymm0, [rsi + rax]
    vmovapd ymm1, [rsi + rax + 32]
    vaddpd ymm0, ymm0, [rdx + rax]
    vaddpd ymm1, ymm1, [rdx + rax + 32]
    vmovapd [rdi + rax], ymm0
    vmovapd [rdi + rax + 32], ymm1
    add rax, 64
    cmp rax, rcx
    jb .Ladd_avx2_line
.Ladd_avx2_next:
    dec r8
    jnz .Ladd_avx2_pass
.Ladd_avx2_done:
    xor eax, eax
    vzeroupper
    ret
    .size add_avx2, . - add_avx2
    .popsection
