/* The waits of programs with labels, which tests tell apart by the syscall: one for each route, and one for what has no
 * label. Each takes a millisecond. Whoever includes this defines _GNU_SOURCE first. */
#include <poll.h>
#include <time.h>

static void waits_for_checkout(void) {
    struct timespec time = {0, 1000000};
    nanosleep(&time, NULL);
}

static void waits_for_cart(void) {
    struct timespec time = {0, 1000000};
    ppoll(NULL, 0, &time, NULL);
}

static void waits_without(void) {
    poll(NULL, 0, 1);
}
