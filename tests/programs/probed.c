// A program whose functions and probes are markers. As it ends, it writes down the truth: how
// long its main thread was in each, in milliseconds, and how often somebody looked at a probe.
#define _GNU_SOURCE
#define _SDT_HAS_SEMAPHORES 1
#include <pthread.h>
#include <stdio.h>
#include <sys/sdt.h>
#include <time.h>
#include <unistd.h>

#define COUNTER(name) unsigned short name##_semaphore __attribute__((section(".probes")))
COUNTER(shop_pay__start);
COUNTER(shop_pay__done);
COUNTER(shop_sold);
COUNTER(shop_never);

enum { ROUNDS = 20 };

static void nap(long ms) {
    struct timespec time = {0, ms * 1000000};
    nanosleep(&time, NULL);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

__attribute__((noinline)) int ship(int n) {
    nap(10);
    if (n % 2)
        return n;
    nap(1);
    return 7;
}

// Three ways out: a return, a return behind a table, and a call of another function as the last thing.
__attribute__((noinline)) int checkout(int n) {
    nap(2);
    switch (n % 5) {
    case 0: nap(1); return 3;
    case 1: nap(2); return 4;
    case 2: getpid(); return 9;
    case 3: getppid(); return n;
    }
    return ship(n);
}

__attribute__((noinline)) int deep(int n) {
    if (n == 0) {
        nap(3);
        return 1;
    }
    return deep(n - 1) + deep(n - 1) * (n == 1 ? 0 : 1) + getpid() % 2;
}

// Ends by a call of whatever it is handed.
__attribute__((noinline)) int pass_on(int (*next)(int), int n) {
    return next(n + 1);
}

// Nobody can tell where it goes.
__asm__(".pushsection .text\n.globl odd\n.type odd,@function\nodd: add %rdi,%rax\n jmp *%rax\n.size odd,.-odd\n.popsection\n");

static void *other(void *unused) {
    (void)unused;
    for (int n = 0; n < ROUNDS; n++)
        ship(n);
    return NULL;
}

int main(int count, char **arguments) {
    pthread_t thread;
    int looked_at = 0;
    double shipped = 0, checked_out = 0, paid = 0;
    pthread_create(&thread, NULL, other, NULL);
    for (volatile int n = 0; n < ROUNDS; n++) {
        double begin = now();
        checkout(n);
        checked_out += now() - begin;
        begin = now();
        ship(n);
        shipped += now() - begin;
        begin = now();
        if (shop_pay__start_semaphore)
            looked_at++;
        DTRACE_PROBE1(shop, pay__start, n);
        nap(5);
        DTRACE_PROBE(shop, pay__done);
        paid += now() - begin;
        if (shop_sold_semaphore)
            DTRACE_PROBE1(shop, sold, n);
        nap(3);
    }
    if (count > 2)
        DTRACE_PROBE(shop, never);
    deep(2);
    double last = now();
    pass_on(count > 3 ? deep : checkout, 1);
    checked_out += now() - last;
    pthread_join(thread, NULL);
    FILE *truth = count > 1 ? fopen(arguments[1], "w") : NULL;
    if (truth) {
        fprintf(truth, "{\"looked_at\":%d,\"checked_out\":%f,\"shipped\":%f,\"paid\":%f}", looked_at,
                checked_out, shipped, paid);
        fclose(truth);
    }
    return 0;
}
