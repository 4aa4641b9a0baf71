# fill_sse2: d[i] = 3, ordinary stores; needs SSE2.
#
# u64 fill_sse2(u8 *dst, const u8 *src_a, const u8 *src_b, u64 bytes, u64 passes)
#     rdi dst, rsi src_a, rdx src_b, rcx bytes, r8 passes; rax: 0
#
# Operands     dst: aligned to 64 bytes, `bytes` long
#              src_a (rsi) and src_b (rdx) never touched
# Granularity  one 64-byte line: `bytes` is a multiple of 64, 0 included; main loop of 128 bytes, then line by line
# Clobbers     rax, r8, r9, xmm0, flags; no stack, no callee-saved register
# Leaves       upper register halves as they were (legacy encoding), direction flag and the control bits of MXCSR too
# Fence        none: ordinary stores are ordered
# Prefetch     none in software: the hardware prefetchers follow ascending streams
# Constant     3.0, built from an immediate: no data section to place or to relocate

    .pushsection .text.fill_sse2,"ax",@progbits
    .globl fill_sse2
    .hidden fill_sse2
    .type fill_sse2, @function
    .p2align 6
fill_sse2:
    test r8, r8
    jz .Lfill_sse2_done
    movabs rax, 0x4008000000000000   # 3.0
    movq xmm0, rax
    unpcklpd xmm0, xmm0
    mov r9, rcx
    and r9, -128                   # what the main loop covers
.Lfill_sse2_pass:
    xor eax, eax
    test r9, r9
    jz .Lfill_sse2_rest
    .p2align 5
.Lfill_sse2_step:
    movapd [rdi + rax], xmm0
    movapd [rdi + rax + 16], xmm0
    movapd [rdi + rax + 32], xmm0
    movapd [rdi + rax + 48], xmm0
    movapd [rdi + rax + 64], xmm0
    movapd [rdi + rax + 80], xmm0
    movapd [rdi + rax + 96], xmm0
    movapd [rdi + rax + 112], xmm0
    add rax, 128
    cmp rax, r9
    jb .Lfill_sse2_step
.Lfill_sse2_rest:
    cmp rax, rcx
    jae .Lfill_sse2_next
    .p2align 5
.Lfill_sse2_line:
    movapd [rdi + rax], xmm0
    movapd [rdi + rax + 16], xmm0
    movapd [rdi + rax + 32], xmm0
    movapd [rdi + rax + 48], xmm0
    add rax, 64
    cmp rax, rcx
    jb .Lfill_sse2_line
.Lfill_sse2_next:
    dec r8
    jnz .Lfill_sse2_pass
.Lfill_sse2_done:
    xor eax, eax
    ret
    .size fill_sse2, . - fill_sse2
    .popsection
