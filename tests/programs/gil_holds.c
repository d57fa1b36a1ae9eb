/* What the threads of gil_holders.py do with Python's lock. Each writes when, by the clock that offwake uses. */
#include <stdio.h>
#include <time.h>

static unsigned long now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000ul + at.tv_nsec;
}

static void sleeps(unsigned long us) {
    struct timespec length = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&length, 0);
}

/* Called with the lock. */
void sleeps_with_it(int log, const char *name, unsigned long us) {
    unsigned long begun = now();
    sleeps(us);
    dprintf(log, "%s %lu %lu\n", name, begun, now());
}

/* Called with the lock. */
void computes_with_it(int log, const char *name, unsigned long us) {
    unsigned long begun = now();
    while (now() - begun < us * 1000) {}
    dprintf(log, "%s %lu %lu\n", name, begun, now());
}

/* Called without the lock: returns when the caller begins to want it. */
unsigned long pauses(unsigned long us) {
    sleeps(us);
    return now();
}

/* Called with the lock: the caller has it since now. */
void has_it(int log, const char *name, unsigned long wanted) {
    dprintf(log, "%s %lu %lu\n", name, wanted, now());
}
