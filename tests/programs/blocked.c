/* Threads that block in many ways, each below functions of its own. Says `ready` when all of them have begun. */
#define _GNU_SOURCE
#include <alloca.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

#define FUNCTION __attribute__((noinline)) static

/* Keeps calls from being the last thing in a function, which then would have no frame. */
static volatile int returned;

static int never[2]; /* A pipe that nobody writes to. */
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static sem_t semaphore, begun;

FUNCTION void blocks_in_read(void) {
    char byte;
    returned = read(never[0], &byte, 1);
}

FUNCTION void sleeps(void) {
    struct timespec day = {86400, 0};
    returned = nanosleep(&day, 0);
}

FUNCTION void polls(void) {
    struct pollfd one = {never[0], POLLIN, 0};
    returned = poll(&one, 1, -1);
}

FUNCTION void selects(void) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(never[0], &set);
    returned = select(never[0] + 1, &set, 0, 0, 0);
}

FUNCTION void waits_for_a_condition(void) {
    static pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&own);
    for (;;) returned = pthread_cond_wait(&condition, &own);
}

FUNCTION void waits_for_a_lock(void) { returned = pthread_mutex_lock(&held); }

FUNCTION void waits_for_a_semaphore(void) {
    while (sem_wait(&semaphore)) returned++;
}

FUNCTION int recursive(int depth) {
    if (!depth) {
        blocks_in_read();
        return 0;
    }
    return recursive(depth - 1) + returned;
}

FUNCTION void below_100_calls(void) { returned = recursive(100); }
FUNCTION void below_900_calls(void) { returned = recursive(900); }

FUNCTION int compares(const void *a, const void *b) {
    blocks_in_read();
    return a < b;
}

/* The function that is called back is called by libc. */
FUNCTION void called_back(void) {
    int numbers[] = {1, 2};
    qsort(numbers, 2, sizeof *numbers, compares);
    returned = numbers[0];
}

/* A frame whose size only the frame's own register tells. */
FUNCTION void room_of_any_size(void) {
    volatile char *room = alloca(1000 + never[0]);
    room[0] = 1;
    blocks_in_read();
    returned = room[0];
}

/* More than a page. */
FUNCTION void much_room(void) {
    volatile char room[9000];
    room[never[0]] = 1;
    blocks_in_read();
    returned = room[never[0]];
}

static void handler(int signal) {
    blocks_in_read();
    returned = signal;
}

FUNCTION void in_a_signal_handler(void) {
    returned = raise(SIGUSR1);
}

/* Until somebody sends it a signal: what that interrupts is not behind a call. */
static volatile int computing;
FUNCTION void computes(void) {
    for (;;) computing = 1;
}

FUNCTION void on_a_stack_of_its_own(void) {
    stack_t own = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
    sigaltstack(&own, 0);
    returned = raise(SIGUSR2);
}

static const struct {
    const char *name;
    void (*blocks)(void);
} ways[] = {
    {"read", blocks_in_read},
    {"sleep", sleeps},
    {"poll", polls},
    {"select", selects},
    {"condition", waits_for_a_condition},
    {"lock", waits_for_a_lock},
    {"semaphore", waits_for_a_semaphore},
    {"deep", below_100_calls},
    {"deeper", below_900_calls},
    {"called-back", called_back},
    {"any-size", room_of_any_size},
    {"large", much_room},
    {"handler", in_a_signal_handler},
    {"interrupted", computes},
    {"other-stack", on_a_stack_of_its_own},
};
enum { WAYS = sizeof ways / sizeof *ways };

static void *thread(void *number) {
    int way = (int)(long)number;
    pthread_setname_np(pthread_self(), ways[way].name);
    sem_post(&begun);
    ways[way].blocks();
    returned++;
    return 0;
}

int main(void) {
    pthread_t threads[WAYS];
    struct sigaction action = {.sa_handler = handler};
    sigaction(SIGUSR1, &action, 0);
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGUSR2, &action, 0);
    if (pipe(never) || sem_init(&semaphore, 0, 0) || sem_init(&begun, 0, 0)) return 1;
    pthread_mutex_lock(&held);
    for (long way = 0; way < WAYS; way++) {
        if (pthread_create(&threads[way], 0, thread, (void *)way)) return 1;
    }
    for (int way = 0; way < WAYS; way++) sem_wait(&begun);
    /* A thread that has posted `begun` may still be in sem_post(): the signal must not come there. */
    while (!computing) sched_yield();
    for (int way = 0; way < WAYS; way++) {
        if (ways[way].blocks == computes) pthread_kill(threads[way], SIGUSR1);
    }
    puts("ready");
    fflush(stdout);
    blocks_in_read();
    return returned;
}
