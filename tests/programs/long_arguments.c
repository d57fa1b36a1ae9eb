/* Programs without end, each with as long arguments as offwake reads.
 *
 *   long_arguments PROCESSES
 *
 * Starts so many processes, and says `ready`. Each becomes this program again every 400 ms: long enough to be looked up
 * (a program that lives for less than 50 ms is not, where many begin), with 4 KiB of arguments that none had before.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define LENGTH 4000

static void become_again(unsigned long number) {
    char argument[LENGTH + 1], text[32];
    memset(argument, 'x', LENGTH);
    argument[LENGTH] = 0;
    memcpy(argument, text, snprintf(text, sizeof text, "%020lu", number));
    execl("/proc/self/exe", "long_arguments", "again", argument, (char *)0);
    perror("exec");
    exit(1);
}

int main(int count, char **arguments) {
    struct timespec pause = {0, 400000000};
    if (count == 3) {
        nanosleep(&pause, 0);
        become_again(strtoul(arguments[2], 0, 10) + 1);
    }
    if (count != 2) return 2;
    for (int process = 0; process < atoi(arguments[1]); process++) {
        pid_t child = fork();
        if (child < 0) perror("fork");
        if (child == 0) {
            /* It holds over an exec. */
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            become_again(process * 1000000000ul);
        }
    }
    puts("ready");
    fflush(stdout);
    while (1) pause.tv_sec = 1, nanosleep(&pause, 0);
}
