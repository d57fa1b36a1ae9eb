/* Threads that say what they are doing by the ABI of custom-labels, version 1. Says `ready`.
 *
 * As a program it has the variables itself; with LIBRARY it is a library, for the LOADER of
 * `labelled.c`. How a thread waits says what is true: `nanosleep` while its label `route` is
 * `/checkout`, `ppoll` while it is `/cart`, `poll` while it has none. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "labelled_waits.h"

#ifdef FILLER
/* More than there is room for near the thread pointer: the library gets blocks of its own. */
__thread char filler[FILLER];
#endif

#ifndef VERSION
#define VERSION 1
#endif

struct text {
    size_t length;
    const char *bytes;
};

struct label {
    struct text key, value;
};

struct set {
    struct label *labels;
    size_t count, capacity;
};

__attribute__((visibility("default"))) volatile uint32_t custom_labels_abi_version = VERSION;
__attribute__((visibility("default"))) __thread struct set *volatile custom_labels_current_set;

static int pipes[2];

static struct text text(const char *bytes) {
    return (struct text){strlen(bytes), bytes};
}

static struct label label(const char *key, const char *value) {
    return (struct label){text(key), text(value)};
}

/* Two routes in turn, and nothing in between: no set, an empty one, or one whose only label is being
 * deleted. Each checkout has another user. */
static void *labelled(void *unused) {
    static char user[16];
    static struct label labels[2];
    static struct set both = {labels, 2, 2}, empty = {NULL, 0, 0}, deleted = {labels, 1, 2};
    pthread_setname_np(pthread_self(), "labelled");
    for (unsigned n = 0;; n++) {
        snprintf(user, sizeof user, "user %u", n);
        labels[0] = label("route", "/checkout");
        labels[1] = label("user", user);
        custom_labels_current_set = &both;
        waits_for_checkout();
        labels[0] = label("route", "/cart");
        waits_for_cart();
        custom_labels_current_set = n % 2 ? &empty : NULL;
        waits_without();
        labels[0].key.bytes = NULL;
        custom_labels_current_set = &deleted;
        waits_without();
    }
    return unused;
}

/* Always in the middle of changing a label: the library adds the new one behind the old one, and takes
 * the old one's key away. What that was may be gone by then. */
static void *changing(void *unused) {
    static struct label labels[2];
    static struct set own = {labels, 2, 2};
    pthread_setname_np(pthread_self(), "changing");
    for (;;) {
        custom_labels_current_set = NULL;
        labels[0] = label("route", "/checkout");
        labels[1] = label("route", "/cart");
        custom_labels_current_set = &own;
        waits_for_checkout();
        labels[0].key.bytes = NULL;
        labels[0].value.bytes = (const char *)8;
        waits_for_cart();
    }
    return unused;
}

/* Numbers and addresses that can't be. */
static void *absurd(void *unused) {
    static struct label labels[3];
    static struct set own;
    pthread_setname_np(pthread_self(), "absurd");
    for (unsigned n = 0;; n = (n + 1) % 8) {
        custom_labels_current_set = NULL;
        labels[0] = label("absurd", "absurd");
        labels[1] = label("absurd too", "absurd");
        own = (struct set){labels, 2, 2};
        if (n == 0) own.count = (size_t)1 << 40;
        if (n == 1) own.labels = (struct label *)8;
        if (n == 2) labels[1].key.length = (size_t)-1;
        if (n == 3) labels[1].value.length = (size_t)1 << 30;
        if (n == 4) labels[1].key.bytes = (const char *)8;
        if (n == 5) labels[1].value.bytes = (const char *)-16;
        if (n == 6) labels[1].value.bytes = NULL;
        custom_labels_current_set = n == 7 ? (struct set *)8 : &own;
        waits_without();
    }
    return unused;
}

#define MANY 20
#define LONG 300

/* More labels than are read, of which one is too long and has a name that is too long. */
static void *excessive(void *unused) {
    static char names[MANY][8], name[LONG + 1], value[LONG + 1];
    static struct label labels[MANY + 1];
    static struct set own = {labels, MANY + 1, MANY + 1};
    pthread_setname_np(pthread_self(), "excessive");
    memset(name, 'n', LONG);
    memset(value, 'v', LONG);
    labels[0] = label(name, value);
    for (unsigned n = 0; n < MANY; n++) {
        snprintf(names[n], sizeof names[n], "%u", n);
        labels[n + 1] = label(names[n], "value");
    }
    custom_labels_current_set = &own;
    for (;;) waits_without();
    return unused;
}

/* Waits for the next one, who wakes it while it serves a checkout. */
static void *asker(void *unused) {
    char byte;
    pthread_setname_np(pthread_self(), "asker");
    while (read(pipes[0], &byte, 1) == 1) {}
    return unused;
}

static void *answerer(void *unused) {
    struct label labels[1] = {label("route", "/checkout")};
    struct set own = {labels, 1, 1};
    pthread_setname_np(pthread_self(), "answerer");
    for (;;) {
        custom_labels_current_set = &own;
        if (write(pipes[1], "", 1) != 1) break;
        custom_labels_current_set = NULL;
        waits_without();
    }
    return unused;
}

void run(void) {
    void *(*threads[])(void *) = {labelled, changing, absurd, excessive, asker, answerer};
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
