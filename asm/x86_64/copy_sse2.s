# copy_sse2: d[i] = a[i], ordinary stores; needs SSE2.
#
# u64 copy_sse2(u8 *dst, const u8 *src_a, const u8 *src_b, u64 bytes, u64 passes)
#     rdi dst, rsi src_a, rdx src_b, rcx bytes, r8 passes; rax: 0
#
# Operands     dst and a: aligned to 64 bytes, `bytes` long, not overlapping
#              src_b (rdx) never touched
# Granularity  one 64-byte line: `bytes` is a multiple of 64, 0 included; main loop of 128 bytes, then line by line
# Clobbers     rax, r8, r9, xmm0-xmm3, flags; no stack, no callee-saved register
# Leaves       upper register halves as they were (legacy encoding), direction flag and the control bits of MXCSR too
# Fence        none: ordinary stores are ordered
# Prefetch     none in software: the hardware prefetchers follow ascending streams
# Why so       line by line, as in the AVX2 kernel; here other orders were not measured

    .pushsection .text.copy_sse2,"ax",@progbits
    .globl copy_sse2
    .hidden copy_sse2
    .type copy_sse2, @function
    .p2align 6
copy_sse2:
    test r8, r8
    jz .Lcopy_sse2_done
    mov r9, rcx
    and r9, -128                   # what the main loop covers
.Lcopy_sse2_pass:
    xor eax, eax
    test r9, r9
    jz .Lcopy_sse2_rest
    .p2align 5
.Lcopy_sse2_step:
    movapd xmm0, [rsi + rax]
    movapd xmm1, [rsi + rax + 16]
    movapd xmm2, [rsi + rax + 32]
    movapd xmm3, [rsi + rax + 48]
    movapd [rdi + rax], xmm0
    movapd [rdi + rax + 16], xmm1
    movapd [rdi + rax + 32], xmm2
    movapd [rdi + rax + 48], xmm3
    movapd xmm0, [rsi + rax + 64]
    movapd xmm1, [rsi + rax + 80]
    movapd xmm2, [rsi + rax + 96]
    movapd xmm3, [rsi + rax + 112]
    movapd [rdi + rax + 64], xmm0
    movapd [rdi + rax + 80], xmm1
    movapd [rdi + rax + 96], xmm2
    movapd [rdi + rax + 112], xmm3
    add rax, 128
    cmp rax, r9
    jb .Lcopy_sse2_step
.Lcopy_sse2_rest:
    cmp rax, rcx
    jae .Lcopy_sse2_next
    .p2align 5
.Lcopy_sse2_line:
    movapd xmm0, [rsi + rax]
    movapd xmm1, [rsi + rax + 16]
    movapd xmm2, [rsi + rax + 32]
    movapd xmm3, [rsi + rax + 48]
    movapd [rdi + rax], xmm0
    movapd [rdi + rax + 16], xmm1
    movapd [rdi + rax + 32], xmm2
    movapd [rdi + rax + 48], xmm3
    add rax, 64
    cmp rax, rcx
    jb .Lcopy_sse2_line
.Lcopy_sse2_next:
    dec r8
    jnz .Lcopy_sse2_pass
.Lcopy_sse2_done:
    xor eax, eax
    ret
    .size copy_sse2, . - copy_sse2
    .popsection
