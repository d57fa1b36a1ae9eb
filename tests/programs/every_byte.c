/* Threads whose names have every byte, and a function that is called by bytes which terminals and shells take for
   something else. Says `ready`, and sleeps a millisecond at a time. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

__attribute__((noinline)) int hostile(void) __asm__("\"evil\033[31m\001\002\177\302\233 <b>&;'`$(x)|\"");

int hostile(void) { return nanosleep(&(struct timespec){.tv_nsec = 1000000}, 0) + 1; }

static volatile int count;

static void *waits(void *first) {
    char name[16] = {0};
    for (int at = 0; at < 15; at++) {
        int byte = (int)(long)first + at;
        name[at] = byte < 256 ? byte : 'x';
    }
    prctl(PR_SET_NAME, name);
    for (;;) count += hostile();
    return 0;
}

int main(void) {
    for (long first = 1; first < 256; first += 15) {
        pthread_t thread;
        if (pthread_create(&thread, 0, waits, (void *)first)) return 1;
    }
    puts("ready");
    fflush(stdout);
    waits((void *)(long)1);
}
