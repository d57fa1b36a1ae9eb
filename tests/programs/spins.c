/* Computes, always below the same functions. Says `ready` before. With IN_RED_ZONE, the innermost one keeps
   its caller's stack pointer below its own, as OpenSSL's hashes do. */
#include <stdio.h>

#define FUNCTION __attribute__((noinline)) static int

__attribute__((used)) static volatile int going = 1;
static volatile int count;

#ifdef IN_RED_ZONE
int innermost(void);
__asm__(
    ".type innermost, @function\n"
    "innermost:\n"
    ".cfi_startproc\n"
    "mov %rsp, %rax\n"
    ".cfi_def_cfa_register %rax\n"
    "sub $256, %rsp\n"
    "and $-64, %rsp\n"
    "mov %rax, -8(%rsp)\n"
    /* DW_CFA_def_cfa_expression: the word at rsp - 8, and 8. */
    ".cfi_escape 0x0f, 0x05, 0x77, 0x78, 0x06, 0x23, 0x08\n"
    "1: mov going(%rip), %eax\n"
    "test %eax, %eax\n"
    "jnz 1b\n"
    "mov -8(%rsp), %rsp\n"
    ".cfi_def_cfa %rsp, 8\n"
    "ret\n"
    ".cfi_endproc\n"
    ".size innermost, . - innermost\n");
#else
FUNCTION innermost(void) {
    while (going) count++;
    return count;
}
#endif
FUNCTION middle(void) { return innermost() + count; }
FUNCTION outermost(void) { return middle() + count; }

int main(void) {
    puts("ready");
    fflush(stdout);
    return outermost() + count;
}
