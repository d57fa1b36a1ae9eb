/* Waits for a while, then becomes the other program, which does the same. Says `ready` at its first start. */
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define TIMES 50

static volatile int count;

__attribute__((noinline)) int WAITS(void) {
    struct timespec length = {0, NANOSECONDS};
    count += nanosleep(&length, 0);
    return count;
}

int main(int arguments, char **argument) {
    if (arguments < 3) return 2;
    if (arguments == 3) {
        puts("ready");
        fflush(stdout);
    }
    for (int times = 0; times < TIMES; times++) count += WAITS();
    char *next[] = {argument[2], argument[2], argument[1], "again", 0};
    execv(argument[2], next);
    return 1;
}
