/* Says `ready`. Loads a copy of LIBRARY under a new name, waits inside of it, unloads and removes it: COUNT times. Then it
   ends. With -DLIBRARY it is that library. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef LIBRARY
__attribute__((noinline)) int waits_in_here(void) {
    return nanosleep(&(struct timespec){.tv_nsec = 1000}, 0);
}
#else
static char bytes[1 << 20];

int main(int arguments, char **argument) {
    if (arguments < 3) return 2;
    int file = open(argument[1], O_RDONLY);
    long length = read(file, bytes, sizeof bytes), count = atol(argument[2]);
    if (length <= 0 || length == sizeof bytes) return 3;
    puts("ready");
    fflush(stdout);
    for (long number = 0; number < count; number++) {
        char name[4096];
        snprintf(name, sizeof name, "%s.%ld", argument[1], number);
        int copy = open(name, O_WRONLY | O_CREAT | O_EXCL, 0700);
        if (copy < 0 || write(copy, bytes, length) != length || close(copy)) return 4;
        void *library = dlopen(name, RTLD_NOW);
        if (!library) return 5;
        int (*waits)(void) = (int (*)(void))dlsym(library, "waits_in_here");
        if (!waits || waits()) return 6;
        if (dlclose(library) || unlink(name)) return 7;
    }
    return 0;
}
#endif
