/* A file system in user space that takes a lock on a file before it answers a read, and a program that reads from it.
 * Says `ready` when that has asked.
 *
 *   locked_fs DIRECTORY LOCK
 *
 * Mounts itself on DIRECTORY, in a namespace of its own. The program is its child.
 */
#define _GNU_SOURCE
#include "fuse_server.h"

#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>

enum { FILE_ID = 2, SIZE = 4096 };

static struct fuse_attr attributes(uint64_t id) {
    struct fuse_attr attr = {.ino = id, .nlink = 1, .blksize = SIZE};
    attr.mode = id == FILE_ID ? S_IFREG | 0777 : S_IFDIR | 0777;
    attr.size = id == FILE_ID ? SIZE : 0;
    return attr;
}

__attribute__((noinline)) static void takes_the_lock(const char *path) {
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0 || flock(file, LOCK_EX)) fail(path);
    close(file);
}

__attribute__((noinline)) static void reads_the_report(int file) {
    char byte;
    if (read(file, &byte, 1) < 0) exit(1);
}

static void serve(const struct fuse_in_header *in, const void *body, const char *lock) {
    switch (in->opcode) {
    case FUSE_INIT:
        reply_to_init(in, body, SIZE, 0);
        break;
    case FUSE_LOOKUP: {
        struct fuse_entry_out out = {.nodeid = FILE_ID, .attr = attributes(FILE_ID), .entry_valid = 60, .attr_valid = 60};
        reply(in->unique, 0, &out, sizeof out);
        break;
    }
    case FUSE_GETATTR: {
        struct fuse_attr_out out = {.attr = attributes(in->nodeid), .attr_valid = 60};
        reply(in->unique, 0, &out, sizeof out);
        break;
    }
    case FUSE_OPEN: {
        struct fuse_open_out out = {.open_flags = FOPEN_DIRECT_IO};
        reply(in->unique, 0, &out, sizeof out);
        break;
    }
    case FUSE_READ: {
        static const char zeros[SIZE];
        const struct fuse_read_in *wanted = body;
        if (write(1, "ready\n", 6) != 6) fail("ready");
        takes_the_lock(lock);
        reply(in->unique, 0, zeros, wanted->size < SIZE ? wanted->size : SIZE);
        break;
    }
    default:
        reply_to_others(in);
    }
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    if (unshare(CLONE_NEWNS) || mount(0, "/", 0, MS_REC | MS_PRIVATE, 0)) fail("unshare");
    mount_on(arguments[1], "locked_fs");
    pid_t child = fork();
    if (child < 0) fail("fork");
    if (child == 0) {
        char path[4096];
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_NAME, "reader");
        close(device);
        snprintf(path, sizeof path, "%s/report", arguments[1]);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0) fail(path);
        reads_the_report(file);
        return 0;
    }
    for (;;) {
        _Alignas(8) static char request[1 << 17];
        ssize_t length = read_request(request, sizeof request);
        if (length == 0) continue;
        if (length < 0) return 0;
        serve((void *)request, request + sizeof(struct fuse_in_header), arguments[2]);
    }
}
