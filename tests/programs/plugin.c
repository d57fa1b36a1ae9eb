/* A library whose one function waits for as long as it was compiled for. */
#include <time.h>

int WAITS(int times) {
    struct timespec length = {0, NANOSECONDS};
    while (times--) nanosleep(&length, 0);
    return 1;
}
