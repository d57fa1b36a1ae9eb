/* A file system in user space whose answers take a known time, and threads that have locks of the kernel's until
 * they come. They write who had what when, by the clock that offwake uses. Says `ready`.
 *
 *   slow_fs DIRECTORY LOG directory|mappings|page MILLISECONDS MILLISECONDS MILLISECONDS
 *
 * Mounts itself on DIRECTORY, in a namespace of its own. For three threads, `holder-0` to `holder-2`, an answer takes
 * so many milliseconds; `wants` is answered at once. `stands-by` is a process that does the same as a holder, with a
 * lock of its own.
 *
 *   directory   all make folders in one folder
 *   mappings    holders take away mappings that have to be written first, the other one maps memory
 *   page        each holder reads pages that nobody has read before, the other one reads a page that is on its way
 */
#define _GNU_SOURCE
#include "fuse_server.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>

#define PAGE 4096
#define HOLDERS 3
#define STANDS_BY HOLDERS
#define SERVERS 6
#define FILE_SIZE (1l << 30)

enum { ROOT = 1, OTHER_FOLDER = 2, FIRST_FILE = 10 };

static int logged;
static const char *directory, *what;
/* The last is for the one that stands by. */
static long pauses_ms[HOLDERS + 1];
/* The page that was last asked for: one more than the holder's number, and the page's. */
static _Atomic uint64_t *asked;

static unsigned long now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000ul + at.tv_nsec;
}

static void sleeps(long us) {
    struct timespec length = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&length, 0);
}

static void log_time(const char *name, int number, unsigned long from, unsigned long to) {
    if (number < 0) dprintf(logged, "%s %lu %lu\n", name, from, to);
    else dprintf(logged, "%s-%d %lu %lu\n", name, number, from, to);
}

/* Takes the time that an answer for a holder takes. */
static void take_time(int holder) {
    unsigned long from = now();
    sleeps(pauses_ms[holder] * 1000);
    if (holder < HOLDERS && strcmp(what, "page")) log_time("holder", holder, from, now());
}

static struct fuse_attr attributes(uint64_t id) {
    struct fuse_attr attr = {.ino = id, .nlink = 1, .blksize = PAGE};
    attr.mode = id >= FIRST_FILE ? S_IFREG | 0777 : S_IFDIR | 0777;
    attr.size = id >= FIRST_FILE ? FILE_SIZE : 0;
    return attr;
}

/* `other` is a folder, `file0` to `file3` are files. */
static uint64_t find(const char *name) {
    if (strcmp(name, "other") == 0) return OTHER_FOLDER;
    return strncmp(name, "file", 4) == 0 ? FIRST_FILE + atoi(name + 4) : 0;
}

static void serve(const struct fuse_in_header *in, const void *body) {
    switch (in->opcode) {
    case FUSE_INIT:
        reply_to_init(in, body, PAGE, FUSE_PARALLEL_DIROPS);
        break;
    case FUSE_LOOKUP: {
        uint64_t id = find(body);
        struct fuse_entry_out out = {.nodeid = id, .attr = attributes(id), .entry_valid = 600, .attr_valid = 600};
        reply(in->unique, id ? 0 : ENOENT, &out, id ? sizeof out : 0);
        break;
    }
    case FUSE_GETATTR:
    case FUSE_SETATTR: {
        struct fuse_attr_out out = {.attr = attributes(in->nodeid), .attr_valid = 600};
        reply(in->unique, 0, &out, sizeof out);
        break;
    }
    case FUSE_OPEN: {
        struct fuse_open_out out = {.open_flags = FOPEN_KEEP_CACHE};
        reply(in->unique, 0, &out, sizeof out);
        break;
    }
    case FUSE_MKDIR: {
        /* `folder0` to `folder3`, and another one that is answered at once. */
        const char *name = (const char *)body + sizeof(struct fuse_mkdir_in);
        if (strncmp(name, "folder", 6) == 0) take_time(atoi(name + 6));
        reply(in->unique, EPERM, 0, 0);
        break;
    }
    case FUSE_READ: {
        static const char zeros[PAGE];
        const struct fuse_read_in *wanted = body;
        int holder = in->nodeid - FIRST_FILE;
        if (strcmp(what, "page") == 0) {
            if (holder < HOLDERS) *asked = wanted->offset / PAGE << 8 | (holder + 1);
            take_time(holder);
        }
        reply(in->unique, 0, zeros, wanted->size < PAGE ? wanted->size : PAGE);
        break;
    }
    case FUSE_WRITE: {
        const struct fuse_write_in *wanted = body;
        struct fuse_write_out out = {.size = wanted->size};
        take_time(in->nodeid - FIRST_FILE);
        reply(in->unique, 0, &out, sizeof out);
        break;
    }
    default:
        reply_to_others(in);
    }
}

__attribute__((noreturn)) static void *serve_all(void *unused) {
    (void)unused;
    prctl(PR_SET_NAME, "serves");
    for (;;) {
        _Alignas(8) char request[PAGE * 4];
        ssize_t length = read_request(request, sizeof request);
        if (length == 0) continue;
        if (length < 0) exit(0);
        serve((void *)request, request + sizeof(struct fuse_in_header));
    }
}

static int open_file(int number) {
    char path[4096];
    snprintf(path, sizeof path, "%s/file%d", directory, number);
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) fail(path);
    posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM);
    return file;
}

static void make_folder(const char *parent, const char *name, int number) {
    char path[4096];
    snprintf(path, sizeof path, "%s%s/%s%d", directory, parent, name, number);
    if (mkdir(path, 0777) == 0 || errno != EPERM) fail(path);
}

static char *map(int file, int flags) {
    char *memory = mmap(0, PAGE, PROT_READ | PROT_WRITE, flags, file, 0);
    if (memory == MAP_FAILED) fail("mmap");
    return memory;
}

static void read_page(int file, long page) {
    char byte;
    /* As the program is ended, the file system may be gone first. */
    if (pread(file, &byte, 1, page * PAGE) != 1) exit(1);
}

/* Has a lock for as long as an answer takes, again and again. */
__attribute__((noreturn)) static void *hold(void *argument) {
    int number = (intptr_t)argument, file = open_file(number);
    char name[16];
    snprintf(name, sizeof name, number == STANDS_BY ? "stands-by" : "holder-%d", number);
    prctl(PR_SET_NAME, name);
    for (long page = 0;; page++) {
        if (strcmp(what, "directory") == 0) {
            make_folder(number == STANDS_BY ? "/other" : "", "folder", number);
        } else if (strcmp(what, "mappings") == 0) {
            char *memory = map(file, MAP_SHARED);
            memory[0] = 1;
            munmap(memory, PAGE);
        } else {
            read_page(file, page % (FILE_SIZE / PAGE));
        }
        sleeps(1000);
    }
}

__attribute__((noreturn)) static void *want(void *unused) {
    int files[HOLDERS];
    uint64_t before = 0;
    (void)unused;
    prctl(PR_SET_NAME, "wants");
    for (int number = 0; number < HOLDERS; number++) files[number] = open_file(number);
    for (;;) {
        uint64_t page = 0;
        sleeps(strcmp(what, "page") ? 2000 : 200);
        if (strcmp(what, "page") == 0 && (page = *asked) == before) continue;
        unsigned long from = now();
        if (strcmp(what, "directory") == 0) make_folder("", "wanted", 0);
        else if (strcmp(what, "mappings") == 0) munmap(map(-1, MAP_PRIVATE | MAP_ANONYMOUS), PAGE);
        else read_page(files[(page & 255) - 1], page >> 8);
        log_time("wants", -1, from, now());
        if (page) log_time("holder", (page & 255) - 1, from, now());
        before = page;
    }
}

static void begin(void *(*function)(void *), int number) {
    pthread_t thread;
    if (pthread_create(&thread, 0, function, (void *)(intptr_t)number)) fail("pthread_create");
}

int main(int count, char **arguments) {
    if (count != 4 + HOLDERS) return 2;
    directory = arguments[1];
    what = arguments[3];
    for (int number = 0; number < HOLDERS; number++) pauses_ms[number] = atol(arguments[4 + number]);
    pauses_ms[STANDS_BY] = 7;
    logged = open(arguments[2], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    asked = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (logged < 0 || asked == MAP_FAILED) fail("log");
    if (unshare(CLONE_NEWNS) || mount(0, "/", 0, MS_REC | MS_PRIVATE, 0)) fail("unshare");
    mount_on(directory, "slow_fs");
    for (int process = 0; process < 2; process++) {
        pid_t child = fork();
        if (child < 0) fail("fork");
        if (child) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(device);
        if (process == 1) hold((void *)STANDS_BY);
        for (int number = 0; number < HOLDERS; number++) begin(hold, number);
        begin(want, 0);
        for (;;) pause();
    }
    for (int number = 0; number < SERVERS; number++) begin(serve_all, number);
    if (write(1, "ready\n", 6) != 6) fail("ready");
    for (;;) pause();
}
