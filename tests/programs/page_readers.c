/* Two threads that want the same page of a file, which is in no cache: the first one has it read, the second one comes
 * 3 ms later and finds it locked. `page_readers write FILE` writes to another file all the time, and has the disk have it.
 * `page_readers burst FILE` reads a page again and again for 2 s, and then nothing for 4 s. Says `ready`. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096

static int file;
static pthread_barrier_t barrier;
static char page[PAGE];

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void read_page(void)
{
    char into[PAGE];
    if (pread(file, into, PAGE, 0) != PAGE)
        fail("pread");
}

static void *read_first(void *unused)
{
    (void)unused;
    pthread_setname_np(pthread_self(), "first");
    for (;;) {
        posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
        pthread_barrier_wait(&barrier);
        read_page();
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

static void *read_second(void *unused)
{
    const struct timespec later = {.tv_nsec = 3000000};
    (void)unused;
    pthread_setname_np(pthread_self(), "second");
    for (;;) {
        pthread_barrier_wait(&barrier);
        nanosleep(&later, NULL);
        read_page();
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

static void write_page(void)
{
    if (pwrite(file, page, PAGE, 0) != PAGE || fsync(file) != 0)
        fail("pwrite");
}

static time_t seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

static void read_in_bursts(void)
{
    const struct timespec pause = {.tv_sec = 4};
    for (;;) {
        time_t end = seconds() + 2;
        while (seconds() < end) {
            posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
            read_page();
        }
        nanosleep(&pause, NULL);
    }
}

int main(int count, char **arguments)
{
    pthread_t thread;
    if (count != 3)
        return 2;
    file = open(arguments[2], O_RDWR | O_CREAT, 0600);
    if (file < 0)
        fail("open");
    write_page();
    puts("ready");
    fflush(stdout);
    if (strcmp(arguments[1], "write") == 0)
        for (;;)
            write_page();
    if (strcmp(arguments[1], "burst") == 0)
        read_in_bursts();
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_create(&thread, NULL, read_first, NULL);
    read_second(NULL);
    return 0;
}
