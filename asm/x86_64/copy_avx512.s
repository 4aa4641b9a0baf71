# copy_avx512: d[i] = a[i], ordinary stores; needs AVX-512 F.
#
# u64 copy_avx512(u8 *dst, const u8 *src_a, const u8 *src_b, u64 bytes, u64 passes)
#     rdi dst, rsi src_a, rdx src_b, rcx bytes, r8 passes; rax: 0
#
# Operands     dst and a: aligned to 64 bytes, `bytes` long, not overlapping
#              src_b (rdx) never touched
# Granularity  one 64-byte line: `bytes` is a multiple of 64, 0 included; blocks of 16 KiB in a main loop of 512 bytes,
#              then 512 bytes in a row, then line by line
# Clobbers     rax, r8, r9, r10, r11, zmm0, flags; no stack, no callee-saved register
# Leaves       upper register halves zero (vzeroupper), direction flag and the control bits of MXCSR as they were
# Fence        none: ordinary stores are ordered
# Prefetch     none in software: the hardware prefetchers follow ascending streams
# Why so       two lines from each of four neighbouring pages a turn: hardware prefetchers work inside a page, and four of
#              them are under way at a time. Against a plain ascending loop it reached 1.05 with 1 thread and 1.08 with 2
#              (arrays of 1 GiB a thread, 4 KiB pages, Xeon guest with 480 MiB of L3, medians of 7 interleaved rounds)

    .pushsection .text.copy_avx512,"ax",@progbits
    .globl copy_avx512
    .hidden copy_avx512
    .type copy_avx512, @function
    .p2align 6
copy_avx512:
    test r8, r8
    jz .Lcopy_avx512_done
    mov r9, rcx
    and r9, -16384                 # what whole blocks cover
    mov r10, rcx
    and r10, -512                  # and with them the turns in a row
.Lcopy_avx512_pass:
    xor eax, eax
    test r9, r9
    jz .Lcopy_avx512_turns
.Lcopy_avx512_block:
    lea r11, [rax + 4096]
    .p2align 5
.Lcopy_avx512_step:
    vmovapd zmm0, [rsi + rax]
    vmovapd [rdi + rax], zmm0
    vmovapd zmm0, [rsi + rax + 64]
    vmovapd [rdi + rax + 64], zmm0
    vmovapd zmm0, [rsi + rax + 4096]
    vmovapd [rdi + rax + 4096], zmm0
    vmovapd zmm0, [rsi + rax + 4160]
    vmovapd [rdi + rax + 4160], zmm0
    vmovapd zmm0, [rsi + rax + 8192]
    vmovapd [rdi + rax + 8192], zmm0
    vmovapd zmm0, [rsi + rax + 8256]
    vmovapd [rdi + rax + 8256], zmm0
    vmovapd zmm0, [rsi + rax + 12288]
    vmovapd [rdi + rax + 12288], zmm0
    vmovapd zmm0, [rsi + rax + 12352]
    vmovapd [rdi + rax + 12352], zmm0
    add rax, 128
    cmp rax, r11
    jb .Lcopy_avx512_step
    add rax, 12288
    cmp rax, r9
    jb .Lcopy_avx512_block
.Lcopy_avx512_turns:
    cmp rax, r10
    jae .Lcopy_avx512_rest
    .p2align 5
.Lcopy_avx512_turn:
    vmovapd zmm0, [rsi + rax]
    vmovapd [rdi + rax], zmm0
    vmovapd zmm0, [rsi + rax + 64]
    vmovapd [rdi + rax + 64], zmm0
    vmovapd zmm0, [rsi + rax + 128]
    vmovapd [rdi + rax + 128], zmm0
    vmovapd zmm0, [rsi + rax + 192]
    vmovapd [rdi + rax + 192], zmm0
    vmovapd zmm0, [rsi + rax + 256]
    vmovapd [rdi + rax + 256], zmm0
    vmovapd zmm0, [rsi + rax + 320]
    vmovapd [rdi + rax + 320], zmm0
    vmovapd zmm0, [rsi + rax + 384]
    vmovapd [rdi + rax + 384], zmm0
    vmovapd zmm0, [rsi + rax + 448]
    vmovapd [rdi + rax + 448], zmm0
    add rax, 512
    cmp rax, r10
    jb .Lcopy_avx512_turn
.Lcopy_avx512_rest:
    cmp rax, rcx
    jae .Lcopy_avx512_next
    .p2align 5
.Lcopy_avx512_line:
    vmovapd zmm0, [rsi + rax]
    vmovapd [rdi + rax], zmm0
    add rax, 64
    cmp rax, rcx
    jb .Lcopy_avx512_line
.Lcopy_avx512_next:
    dec r8
    jnz .Lcopy_avx512_pass
.Lcopy_avx512_done:
    xor eax, eax
    vzeroupper
    ret
    .size copy_avx512, . - copy_avx512
    .popsection
