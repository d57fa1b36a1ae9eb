// Two threads move money between two accounts, each locking its own account first.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

struct account {
    pthread_mutex_t mutex;
    long balance;
};

static struct account savings = {PTHREAD_MUTEX_INITIALIZER, 1000};
static struct account checking = {PTHREAD_MUTEX_INITIALIZER, 1000};
static pthread_barrier_t both_have_one;

struct order {
    const char *name;
    struct account *from, *to;
};

__attribute__((noinline)) static void transfer(struct account *from, struct account *to)
{
    pthread_mutex_lock(&from->mutex);
    pthread_barrier_wait(&both_have_one);
    pthread_mutex_lock(&to->mutex);
    from->balance--;
    to->balance++;
    pthread_mutex_unlock(&to->mutex);
    pthread_mutex_unlock(&from->mutex);
}

static void *work(void *argument)
{
    struct order *order = argument;
    pthread_setname_np(pthread_self(), order->name);
    transfer(order->from, order->to);
    return NULL;
}

// With an argument it waits for a line on standard input first.
int main(int count, char **arguments)
{
    struct order orders[] = {{"to-savings", &checking, &savings}, {"to-checking", &savings, &checking}};
    pthread_t threads[2];
    (void)arguments;
    pthread_barrier_init(&both_have_one, NULL, 2);
    puts("ready");
    fflush(stdout);
    if (count > 1)
        getchar();
    for (int number = 0; number < 2; number++)
        pthread_create(&threads[number], NULL, work, &orders[number]);
    for (int number = 0; number < 2; number++)
        pthread_join(threads[number], NULL);
    return 0;
}
