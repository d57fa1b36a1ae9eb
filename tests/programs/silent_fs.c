/* A file system in user space that stops to answer, and a program that depends on it.
 *
 *   silent_fs DIRECTORY root|own WHAT
 *
 * Mounts itself on DIRECTORY, with `own` in namespaces of its own, and starts a program that does WHAT. Says
 * `ready` when that program is. With SIGUSR1 the file system reads every request and answers none any more, and the
 * program begins:
 *
 *   run      is on the file system itself: waits again and again
 *   close    the same, and the file system answers everything but that a file is closed
 *   stack    has its stack in a page of a file there that was never read, and sleeps
 *   locked   holds the lock on its mappings: takes away a mapping that has to be written first
 *   slow     waits in functions of twenty files there, of which it has one page each; the file system answers
 *            every request, after 0.4 s each
 *   epoll    has a thread that adds a file there to an epoll, and one that waits for a flock of another thread's
 *   served   has its stack in memory whose pages another thread would have to serve (userfaultfd), and sleeps
 */
#define _GNU_SOURCE
#include "fuse_server.h"

#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#define MAPPED (1 << 20)
#define SLOW_FILES 20

static const char NAME[] = "file";
static const uint64_t FILE_ID = 2;
static pid_t program;
static volatile sig_atomic_t silent;
static int silent_on_close_alone, slow;
static char content[MAPPED];

static struct fuse_attr attributes(uint64_t id) {
    struct fuse_attr attr = {.ino = id, .nlink = 1, .blksize = 4096};
    attr.mode = id >= FILE_ID ? S_IFREG | 0777 : S_IFDIR | 0777;
    attr.size = id >= FILE_ID ? MAPPED : 0;
    return attr;
}

static void serve(const struct fuse_in_header *in, const void *body) {
    switch (in->opcode) {
    case FUSE_INIT:
        reply_to_init(in, body, 4096, 0);
        break;
    case FUSE_LOOKUP: {
        /* `file`, `file1`, `file2` … */
        const char *name = body;
        int known = strncmp(name, NAME, strlen(NAME)) == 0;
        uint64_t id = FILE_ID + (known ? atoi(name + strlen(NAME)) : 0);
        struct fuse_entry_out out = {.nodeid = id, .attr = attributes(id), .entry_valid = 60, .attr_valid = 60};
        reply(in->unique, known ? 0 : ENOENT, &out, known ? sizeof out : 0);
        break;
    }
    case FUSE_GETATTR: {
        struct fuse_attr_out out = {.attr = attributes(in->nodeid)};
        reply(in->unique, 0, &out, sizeof out);
        break;
    }
    case FUSE_OPEN: {
        struct fuse_open_out out = {.open_flags = FOPEN_KEEP_CACHE};
        reply(in->unique, 0, &out, sizeof out);
        break;
    }
    case FUSE_READ: {
        const struct fuse_read_in *wanted = body;
        size_t rest = wanted->offset < MAPPED ? MAPPED - wanted->offset : 0;
        reply(in->unique, 0, content + wanted->offset, wanted->size < rest ? wanted->size : rest);
        break;
    }
    default:
        reply_to_others(in);
    }
}

static void fall_silent(int number) {
    silent = 1;
    kill(program, number);
}

static void write_to(const char *path, const char *text) {
    int file = open(path, O_WRONLY);
    if (file < 0 || write(file, text, strlen(text)) < 0) fail(path);
    close(file);
}

/* As a user who may mount nothing on the machine. /dev/fuse is the user's to open. */
static void enter_own_namespaces(void) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS)) fail("unshare");
    write_to("/proc/self/setgroups", "deny");
    write_to("/proc/self/uid_map", "0 0 1");
    write_to("/proc/self/gid_map", "0 0 1");
    if (mount(0, "/", 0, MS_REC | MS_PRIVATE, 0)) fail("private mounts");
}

/* Sleeps with its stack there, and never returns. */
__attribute__((noreturn)) static void sleep_on(char *stack) {
#if defined __x86_64__
    __asm__ volatile("mov %0, %%rsp\n1: mov $34, %%eax\nsyscall\njmp 1b" ::"r"(stack) : "memory");
#else
    __asm__ volatile("mov sp, %0\n1: mov x0, #0\nmov x1, #0\nmov x2, #0\nmov x3, #0\nmov x8, #73\nsvc #0\nb 1b" ::"r"(stack)
                     : "memory");
#endif
    __builtin_unreachable();
}

static char *map(int file, int flags) {
    char *memory = mmap(0, MAPPED, PROT_READ | PROT_WRITE, flags, file, 0);
    if (memory == MAP_FAILED) fail("mmap");
    return memory;
}

static char *map_served_memory(void) {
    int faults = syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {.api = UFFD_API};
    char *memory = map(-1, MAP_PRIVATE | MAP_ANONYMOUS);
    struct uffdio_register range = {.range = {(uintptr_t)memory, MAPPED}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (faults < 0 || ioctl(faults, UFFDIO_API, &api) || ioctl(faults, UFFDIO_REGISTER, &range)) fail("userfaultfd");
    return memory;
}

__attribute__((noinline)) static void waits_on_a_silent_file(void) {
    struct timespec pause = {0, 5000000};
    nanosleep(&pause, 0);
    __asm__ volatile("" ::: "memory");
}

/* Runs wherever its page is mapped. */
__attribute__((noinline, noclone)) static void waits_in_a_slow_file(const struct timespec *pause) {
    long result;
#if defined __x86_64__
    __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_nanosleep), "D"(pause), "S"(0) : "rcx", "r11", "memory");
#else
    register long number __asm__("x8") = SYS_nanosleep, first __asm__("x0") = (long)pause, second __asm__("x1") = 0;
    __asm__ volatile("svc #0" : "+r"(first) : "r"(number), "r"(second) : "memory");
    result = first;
#endif
    (void)result;
}

typedef void Waits(const struct timespec *);
static Waits *in_files[SLOW_FILES];

/* The function as it is in each of the files: one page is read, and nothing around it. */
static void map_slow_files(const char *path) {
    extern const char __executable_start[];
    size_t at = (const char *)waits_in_a_slow_file - __executable_start, page = at & ~4095ul;
    for (int number = 0; number < SLOW_FILES; number++) {
        char name[4096 + 16];
        snprintf(name, sizeof name, "%s%d", path, number + 1);
        int file = open(name, O_RDONLY | O_CLOEXEC);
        char *code = mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, page);
        if (file < 0 || code == MAP_FAILED || madvise(code, 4096, MADV_RANDOM)) fail(name);
        if (*(volatile char *)code == 1) fail("what never is");
        in_files[number] = (Waits *)(code + (at - page));
        close(file);
    }
}

static int epoll, silent_file;

/* The server never answers whether the file is ready, and the epoll's mutex is held meanwhile. */
static void *add_to_epoll(void *unused) {
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(epoll, EPOLL_CTL_ADD, silent_file, &event);
    return unused;
}

static void *wait_for_flock(void *unused) {
    int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    flock(file, LOCK_EX);
    return unused;
}

static void start_epoll_and_flock(int file) {
    pthread_t thread;
    int locked = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    silent_file = file;
    if (epoll < 0 || locked < 0 || flock(locked, LOCK_EX)) fail("epoll");
    if (pthread_create(&thread, 0, add_to_epoll, 0) || pthread_create(&thread, 0, wait_for_flock, 0)) fail("threads");
}

static int run(const char *what, const char *path) {
    sigset_t begin;
    char *memory = 0;
    int file = open(path, O_RDWR | O_CLOEXEC), number;
    if ((strcmp(what, "run") == 0 || strcmp(what, "close") == 0) && mlockall(MCL_CURRENT)) fail("mlockall");
    if (strcmp(what, "stack") == 0) memory = map(file, MAP_PRIVATE);
    if (strcmp(what, "served") == 0) memory = map_served_memory();
    if (strcmp(what, "locked") == 0) (memory = map(file, MAP_SHARED))[0] = 1;
    if (strcmp(what, "slow") == 0) map_slow_files(path);
    sigemptyset(&begin);
    sigaddset(&begin, SIGUSR1);
    if (write(1, "ready\n", 6) != 6 || sigwait(&begin, &number)) fail("ready");
    if (strcmp(what, "stack") == 0 || strcmp(what, "served") == 0) sleep_on(memory + MAPPED / 2);
    if (strcmp(what, "locked") == 0) munmap(memory, MAPPED);
    if (strcmp(what, "epoll") == 0) start_epoll_and_flock(file);
    for (int number = 0; strcmp(what, "slow") == 0; number = (number + 1) % SLOW_FILES) {
        struct timespec pause = {0, 5000000};
        in_files[number](&pause);
    }
    while (1) waits_on_a_silent_file();
    return 0;
}

int main(int count, char **arguments) {
    if (count == 3) return run(arguments[1], arguments[2]);
    if (count != 4) return 2;
    const char *directory = arguments[1], *what = arguments[3];
    char path[4096];
    slow = strcmp(what, "slow") == 0;
    silent_on_close_alone = strcmp(what, "close") == 0;
    int itself = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (itself < 0 || read(itself, content, MAPPED) <= 0) fail("itself");
    if (strcmp(arguments[2], "own") == 0) enter_own_namespaces();
    mount_on(directory, "silent_fs");
    snprintf(path, sizeof path, "%s/%s", directory, NAME);
    sigset_t begin;
    sigemptyset(&begin);
    sigaddset(&begin, SIGUSR1);
    sigprocmask(SIG_BLOCK, &begin, 0);
    program = fork();
    if (program < 0) fail("fork");
    if (program == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        const char *binary = strcmp(what, "run") == 0 || strcmp(what, "close") == 0 ? path : "/proc/self/exe";
        execl(binary, "on_silent_fs", what, path, (char *)0);
        fail("exec");
    }
    struct sigaction action = {.sa_handler = fall_silent};
    sigaction(SIGUSR1, &action, 0);
    sigprocmask(SIG_UNBLOCK, &begin, 0);
    for (;;) {
        static char request[MAPPED + 4096];
        ssize_t length = read_request(request, sizeof request);
        if (length == 0) continue;
        if (length < 0) return 0;
        if (silent && slow) {
            struct timespec pause = {0, 400000000};
            nanosleep(&pause, 0);
        }
        if (!silent || slow || (silent_on_close_alone && ((struct fuse_in_header *)request)->opcode != FUSE_FLUSH)) serve((void *)request, request + sizeof(struct fuse_in_header));
    }
}
