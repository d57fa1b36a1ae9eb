/* Maps FILE so that each of its pages is a mapping of its own, every other one executable: COUNT of them. Says
   `ready`, and sleeps a millisecond at a time. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096L

int main(int arguments, char **argument) {
    if (arguments < 3) return 2;
    long count = atol(argument[2]);
    int file = open(argument[1], O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, count * PAGE)) return 3;
    char *all = mmap(0, count * PAGE, PROT_READ, MAP_PRIVATE, file, 0);
    if (all == MAP_FAILED) return 4;
    for (long page = 0; page < count; page += 2) {
        if (mprotect(all + page * PAGE, PAGE, PROT_READ | PROT_EXEC)) return 5;
    }
    puts("ready");
    fflush(stdout);
    for (;;) nanosleep(&(struct timespec){.tv_nsec = 1000000}, 0);
}
