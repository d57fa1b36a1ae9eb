/* Two threads that take turns by a condition, and two by pipes. Says `ready`. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#define FUNCTION __attribute__((noinline)) static

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long turn;
static int there[2], back[2];

FUNCTION void waits_for(long own) {
    while (turn != own) pthread_cond_wait(&changed, &lock);
}

static void *takes_turns(void *number) {
    for (;;) {
        pthread_mutex_lock(&lock);
        waits_for((long)number);
        turn = 1 - turn;
        pthread_cond_signal(&changed);
        pthread_mutex_unlock(&lock);
        usleep(500);
    }
}

FUNCTION int hands_on(int from, int to) {
    char byte;
    return read(from, &byte, 1) == 1 && write(to, &byte, 1) == 1;
}

static void *answers(void *unused) {
    while (hands_on(there[0], back[1])) {}
    return unused;
}

int main(void) {
    pthread_t threads[3];
    if (pipe(there) || pipe(back)) return 1;
    for (long number = 0; number < 2; number++) {
        if (pthread_create(&threads[number], 0, takes_turns, (void *)number)) return 1;
    }
    if (pthread_create(&threads[2], 0, answers, 0)) return 1;
    puts("ready");
    fflush(stdout);
    if (write(there[1], "", 1) != 1) return 1;
    while (hands_on(back[0], there[1])) usleep(500);
    return 1;
}
