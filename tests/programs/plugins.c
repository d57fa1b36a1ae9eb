/* Says `ready`. From SIGUSR1 on: loads a library, waits inside of it and unloads it; then the next one, which comes to lie
   in the same place. Over and over. A library has a function that is called as its file and `_waits`. */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define TIMES 20

static volatile int count;

__attribute__((noinline)) static int waits_in(const char *file) {
    char function[256];
    const char *name = strrchr(file, '/');
    snprintf(function, sizeof function, "%s_waits", name ? name + 1 : file);
    void *library = dlopen(file, RTLD_NOW);
    if (!library) return 1;
    int (*waits)(int) = (int (*)(int))dlsym(library, function);
    if (!waits) return 1;
    count += waits(TIMES);
    return dlclose(library);
}

int main(int arguments, char **argument) {
    if (arguments < 2) return 2;
    sigset_t begins;
    sigemptyset(&begins);
    sigaddset(&begins, SIGUSR1);
    sigprocmask(SIG_BLOCK, &begins, 0);
    puts("ready");
    fflush(stdout);
    count += sigwaitinfo(&begins, 0);
    for (int next = 1;; next = next + 1 < arguments ? next + 1 : 1) {
        if (waits_in(argument[next])) return 1;
    }
}
