/* Waits over and over in one place, with other data in the register of the frame pointer each time, as CPython has the
 * lock there that it waits for. Says `ready`. */
#include <pthread.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FUNCTION __attribute__((noinline)) static

static int there[2], back[2];

FUNCTION long reads(int from, char *into, unsigned long data) {
    long got;
    __asm__ volatile("mov %%rbp, %%r12\n\t"
                     "mov %[data], %%rbp\n\t"
                     "syscall\n\t"
                     "mov %%r12, %%rbp"
                     : "=a"(got)
                     : "0"(SYS_read), "D"(from), "S"(into), "d"(1), [data] "r"(data)
                     : "rcx", "r11", "r12", "memory");
    return got;
}

FUNCTION int hands_on(int from, int to, unsigned long data) {
    char byte;
    return reads(from, &byte, data) == 1 && write(to, &byte, 1) == 1;
}

static void *answers(void *unused) {
    unsigned long data = 0x5500000000;
    while (hands_on(there[0], back[1], data)) data += 64;
    return unused;
}

int main(void) {
    pthread_t thread;
    unsigned long data = 0x6600000000;
    if (pipe(there) || pipe(back)) return 1;
    if (pthread_create(&thread, 0, answers, 0)) return 1;
    puts("ready");
    fflush(stdout);
    if (write(there[1], "", 1) != 1) return 1;
    while (hands_on(back[0], there[1], data)) {
        data += 64;
        usleep(500);
    }
    return 1;
}
