/* Computes, always below the same functions. Says `ready` before. */
#include <stdio.h>

#define FUNCTION __attribute__((noinline)) static int

static volatile int going = 1, count;

FUNCTION innermost(void) {
    while (going) count++;
    return count;
}
FUNCTION middle(void) { return innermost() + count; }
FUNCTION outermost(void) { return middle() + count; }

int main(void) {
    puts("ready");
    fflush(stdout);
    return outermost() + count;
}
