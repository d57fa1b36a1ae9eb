/* Threads that keep labels as Go 1.24 and later do, by a compiler that is not Go: what a Go program never has
 * can be here as well. Says `ready`.
 *
 * How a thread waits says what is true: `nanosleep` while its label `route` is `/checkout`, `ppoll`
 * while it is `/cart`, `poll` while it has none. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "labelled_waits.h"

#ifndef VERSION
#define VERSION "go1.24.1"
#endif

/* https://github.com/golang/go/blob/go1.24.0/src/debug/buildinfo/buildinfo.go */
__attribute__((section(".go.buildinfo"), used)) static const struct {
    char magic[14], pointer, flags, unused[16], length, version[sizeof VERSION - 1];
} build_info = {"\xff Go buildinf:", 8, 2, "", sizeof VERSION - 1, VERSION};

#define NAMES "main.main\0runtime/pprof.runtime_setProfLabel\0main.labelled"

/* https://github.com/golang/go/blob/go1.24.0/src/runtime/symtab.go#L390 */
__attribute__((section(".gopclntab"), used)) static const struct {
    uint32_t magic;
    char zeroes[2], quantum, pointer;
    uint64_t functions, files, text, names_at, units_at;
    char names[sizeof NAMES];
} table = {0xfffffff1, {0, 0}, 1, 8, 0, 0, 0, 48, 48 + sizeof NAMES, NAMES};

struct text {
    const char *bytes;
    size_t length;
};

struct label {
    struct text key, value;
};

struct list {
    struct label *labels;
    size_t count, capacity;
};

struct thread {
    char others[192];
    struct goroutine *goroutine;
};

struct goroutine {
    char first[48];
    struct thread *thread;
    char others[296];
    struct list *labels;
};

__attribute__((used)) __thread struct goroutine *volatile current __asm__("runtime.tlsg");

static struct text text(const char *bytes) {
    return (struct text){bytes, strlen(bytes)};
}

static struct label label(const char *key, const char *value) {
    return (struct label){text(key), text(value)};
}

/* Two routes in turn. In between there is no goroutine, or one without labels, or nothing of Go. */
static void *labelled(void *unused) {
    static struct label labels[2];
    static struct list list;
    static struct thread thread;
    static struct goroutine scheduler, own;
    pthread_setname_np(pthread_self(), "labelled");
    scheduler.thread = own.thread = &thread;
    for (unsigned n = 0;; n = (n + 1) % 4) {
        labels[0] = label("user", "");
        labels[1] = label("route", "/checkout");
        list = (struct list){labels, 2, 2};
        own.labels = &list;
        thread.goroutine = &own;
        current = &own;
        waits_for_checkout();
        labels[1] = label("route", "/cart");
        current = &scheduler;
        waits_for_cart();
        if (n == 0) thread.goroutine = NULL;
        if (n == 1) own.labels = NULL;
        if (n == 2) list.count = 0;
        if (n == 3) current = NULL;
        waits_without();
    }
    return unused;
}

/* Numbers and addresses that can't be, and a goroutine that another thread runs. */
static void *absurd(void *unused) {
    static struct label labels[2];
    static struct list list;
    static struct thread thread, other;
    static struct goroutine scheduler, own;
    pthread_setname_np(pthread_self(), "absurd");
    for (unsigned n = 0;; n = (n + 1) % 8) {
        current = NULL;
        labels[0] = label("absurd", "absurd");
        labels[1] = label("absurd too", "absurd");
        list = (struct list){labels, 2, 2};
        scheduler.thread = own.thread = &thread;
        thread.goroutine = &own;
        own.labels = &list;
        if (n == 0) list.count = (size_t)1 << 40;
        if (n == 1) list.labels = (struct label *)8;
        if (n == 2) labels[1].key.length = (size_t)-1;
        if (n == 3) labels[1].value.bytes = NULL;
        if (n == 4) own.labels = (struct list *)8;
        if (n == 5) thread.goroutine = (struct goroutine *)8;
        if (n == 6) labels[0].value.bytes = (const char *)-16;
        if (n == 7) own.thread = &other;
        current = &scheduler;
        waits_without();
    }
    return unused;
}

int main(void) {
    void *(*threads[])(void *) = {labelled, absurd};
    pthread_t thread;
    for (unsigned n = 0; n < sizeof threads / sizeof *threads; n++)
        if (pthread_create(&thread, NULL, threads[n], NULL)) return 1;
    puts("ready");
    fflush(stdout);
    for (;;) pause();
}
