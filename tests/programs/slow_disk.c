/* A disk that takes a known time for each read, and a process that reads from it. The disk is a loop device over a file
 * of zeros in a file system in user space, which sleeps before it answers.
 *
 *   slow_disk DIRECTORY NAME MILLISECONDS
 *
 * Mounts the file system on DIRECTORY, in a namespace of its own, and writes the numbers of the loop device to the file
 * NAME. Says `ready`. The process that was started reads; a child of it is the file system. With the last process that
 * has the device open, the device is gone.
 */
#define _GNU_SOURCE
#include "fuse_server.h"

#include <linux/loop.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>

#define PAGE 4096
#define FILE_SIZE (1l << 40)
/* From one read to the next: what the kernel may have read ahead is in none. */
#define STRIDE (1l << 20)

enum { ROOT = 1, IMAGE = 2 };

static long pause_ms;

static struct fuse_attr attributes(uint64_t id) {
    struct fuse_attr attr = {.ino = id, .nlink = 1, .blksize = PAGE};
    attr.mode = id == IMAGE ? S_IFREG | 0600 : S_IFDIR | 0700;
    attr.size = id == IMAGE ? FILE_SIZE : 0;
    return attr;
}

static void serve(const struct fuse_in_header *in, const void *body) {
    switch (in->opcode) {
    case FUSE_INIT:
        reply_to_init(in, body, PAGE, 0);
        break;
    case FUSE_LOOKUP: {
        int is_image = strcmp(body, "image") == 0;
        struct fuse_entry_out out = {.nodeid = IMAGE, .attr = attributes(IMAGE), .entry_valid = 600, .attr_valid = 600};
        reply(in->unique, is_image ? 0 : ENOENT, &out, is_image ? sizeof out : 0);
        break;
    }
    case FUSE_GETATTR: {
        struct fuse_attr_out out = {.attr = attributes(in->nodeid), .attr_valid = 600};
        reply(in->unique, 0, &out, sizeof out);
        break;
    }
    case FUSE_OPEN: {
        struct fuse_open_out out = {.open_flags = 0};
        reply(in->unique, 0, &out, sizeof out);
        break;
    }
    case FUSE_READ: {
        static const char zeros[1 << 20];
        const struct fuse_read_in *wanted = body;
        struct timespec length = {pause_ms / 1000, pause_ms % 1000 * 1000000};
        nanosleep(&length, 0);
        reply(in->unique, 0, zeros, wanted->size < sizeof zeros ? wanted->size : sizeof zeros);
        break;
    }
    default:
        reply_to_others(in);
    }
}

__attribute__((noreturn)) static void serve_all(void) {
    prctl(PR_SET_NAME, "serves");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
        _Alignas(8) char request[PAGE * 4];
        ssize_t length = read_request(request, sizeof request);
        if (length == 0) continue;
        if (length < 0) exit(0);
        serve((void *)request, request + sizeof(struct fuse_in_header));
    }
}

/* Makes a loop device of a file, that lasts as long as somebody has it open. Others make some at the same time. */
static int make_disk(int image, const char *name) {
    struct loop_config config = {.fd = image, .info.lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_READ_ONLY};
    int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    if (control < 0) fail("/dev/loop-control");
    for (int turn = 0; turn < 1000; turn++) {
        char path[32];
        int number = ioctl(control, LOOP_CTL_GET_FREE), disk;
        if (number < 0) fail("LOOP_CTL_GET_FREE");
        snprintf(path, sizeof path, "/dev/loop%d", number);
        disk = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
        if (disk >= 0 && ioctl(disk, LOOP_CONFIGURE, &config) == 0) {
            struct stat known;
            FILE *file = fopen(name, "w");
            if (fstat(disk, &known) || !file) fail(name);
            fprintf(file, "%d:%d\n", (int)(known.st_rdev >> 8 & 0xfff), (int)(known.st_rdev & 0xff));
            if (fclose(file)) fail(name);
            return disk;
        }
        if (disk < 0 ? errno != ENOENT : errno != EBUSY) fail(path);
        if (disk >= 0) close(disk);
        usleep(1000);
    }
    fail("no loop device is free");
    return -1;
}

int main(int count, char **arguments) {
    char path[4096];
    void *page;
    int image, disk;
    pid_t child;
    if (count != 4) return 2;
    pause_ms = atol(arguments[3]);
    if (unshare(CLONE_NEWNS) || mount(0, "/", 0, MS_REC | MS_PRIVATE, 0)) fail("unshare");
    mount_on(arguments[1], "slow_disk");
    child = fork();
    if (child < 0) fail("fork");
    if (child == 0) serve_all();
    close(device);
    snprintf(path, sizeof path, "%s/image", arguments[1]);
    image = open(path, O_RDONLY | O_CLOEXEC);
    if (image < 0) fail(path);
    disk = make_disk(image, arguments[2]);
    close(image);
    if (posix_memalign(&page, PAGE, PAGE)) fail("posix_memalign");
    if (write(1, "ready\n", 6) != 6) fail("ready");
    for (long place = STRIDE; place < FILE_SIZE; place += STRIDE)
        /* As the program is ended, the file system may be gone first. */
        if (pread(disk, page, PAGE, place) != PAGE) return 1;
    return 0;
}
