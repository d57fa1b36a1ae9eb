/* Threads that say what they are doing, by OpenTelemetry's thread context (OTEP 4947). Says `ready`.
 *
 * As a program it has the variable itself; with LIBRARY it is a library, and LOADER is a program that
 * loads it late, after other libraries have had what they need. How a thread waits says what is true:
 * `nanosleep` while it has its trace, `poll` while it has none. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef LOADER

int main(int count, char **arguments) {
    void *library = count > 1 ? dlopen(arguments[1], RTLD_NOW) : NULL;
    void (*run)(void) = library ? (void (*)(void))dlsym(library, "run") : NULL;
    if (!run) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    run();
}

#else

#ifdef FILLER
/* More than there is room for near the thread pointer: the library gets blocks of its own. */
__thread char filler[FILLER];
#endif

#define MAX_ATTRIBUTES 8192

struct context {
    uint8_t trace[16], span[8];
    volatile uint8_t valid;
    uint8_t flags;
    uint16_t size;
    uint8_t attributes[MAX_ATTRIBUTES];
} __attribute__((packed));

__attribute__((visibility("default"))) __thread struct context *volatile otel_thread_ctx_v1;

static int pipes[2];

static void sleeps(long microseconds) {
    struct timespec time = {0, microseconds * 1000};
    nanosleep(&time, NULL);
}

static void waits_without(void) {
    poll(NULL, 0, 1);
}

/* Writes a context of this trace, of which each span has another number. Not inlined: a descriptor's
 * function may spoil vector registers before glibc 2.40, and with them what is to be stored. */
__attribute__((noinline)) static void publishes(struct context *own, uint8_t trace,
                                                const char *attributes, uint16_t size) {
    own->valid = 0;
    memset(own->trace, trace, sizeof own->trace);
    own->span[7]++;
    own->span[0] = trace;
    own->size = size;
    if (attributes) memcpy(own->attributes, attributes, size);
    own->valid = 1;
}

/* A request each 3 ms, and nothing in between. */
static void *traced(void *unused) {
    static struct context own;
    pthread_setname_np(pthread_self(), "traced");
    for (;;) {
        publishes(&own, 0xaa, "\x00\x09/checkout\x01\x01x", 14);
        otel_thread_ctx_v1 = &own;
        sleeps(2000);
        otel_thread_ctx_v1 = NULL;
        waits_without();
    }
    return unused;
}

/* Always in the middle of writing. */
static void *torn(void *unused) {
    static struct context own;
    pthread_setname_np(pthread_self(), "torn");
    publishes(&own, 0xbb, NULL, 0);
    own.valid = 0;
    otel_thread_ctx_v1 = &own;
    for (;;) sleeps(2000);
    return unused;
}

/* Sizes, forms and addresses that can't be. */
static void *absurd(void *unused) {
    static struct context large, cut, odd;
    pthread_setname_np(pthread_self(), "absurd");
    publishes(&large, 0xcc, NULL, 5000);
    publishes(&cut, 0xcc, "\x00\x50/cut", 6);
    publishes(&odd, 0xcc, NULL, 0);
    odd.valid = 7;
    for (;;) {
        otel_thread_ctx_v1 = &large;
        sleeps(1000);
        otel_thread_ctx_v1 = &cut;
        sleeps(1000);
        otel_thread_ctx_v1 = &odd;
        sleeps(1000);
        otel_thread_ctx_v1 = (struct context *)8;
        sleeps(1000);
    }
    return unused;
}

/* Waits for the next one, who wakes it while working for another trace. */
static void *asker(void *unused) {
    static struct context own;
    char byte;
    pthread_setname_np(pthread_self(), "asker");
    publishes(&own, 0x11, NULL, 0);
    otel_thread_ctx_v1 = &own;
    while (read(pipes[0], &byte, 1) == 1) {}
    return unused;
}

static void *answerer(void *unused) {
    static struct context own;
    pthread_setname_np(pthread_self(), "answerer");
    for (;;) {
        publishes(&own, 0x22, NULL, 0);
        otel_thread_ctx_v1 = &own;
        if (write(pipes[1], "", 1) != 1) break;
        otel_thread_ctx_v1 = NULL;
        waits_without();
    }
    return unused;
}

void run(void) {
    void *(*threads[])(void *) = {traced, torn, absurd, asker, answerer};
    pthread_t thread;
    if (pipe(pipes)) return;
#ifdef FILLER
    filler[0] = 1;
#endif
    for (unsigned n = 0; n < sizeof threads / sizeof *threads; n++)
        if (pthread_create(&thread, NULL, threads[n], NULL)) return;
    puts("ready");
    fflush(stdout);
    for (;;) pause();
}

#ifndef LIBRARY
int main(void) {
    run();
}
#endif

#endif
