/* What file systems in user space have in common that are spoken to without a library. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/uio.h>
#include <unistd.h>

static int device;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void mount_on(const char *directory, const char *name) {
    char options[128];
    device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (device < 0) fail("/dev/fuse");
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
    if (mount(name, directory, "fuse", MS_NOSUID | MS_NODEV, options)) fail("mount");
}

/* Returns the length of the next request, 0 if there was none, and less when the file system is gone. */
static ssize_t read_request(void *request, size_t size) {
    ssize_t length = read(device, request, size);
    return length < 0 && (errno == EINTR || errno == EAGAIN || errno == ENOENT) ? 0 : length;
}

static void reply(uint64_t unique, int error, const void *body, size_t size) {
    struct fuse_out_header header = {.unique = unique, .error = -error, .len = sizeof header + size};
    struct iovec parts[2] = {{&header, sizeof header}, {(void *)body, size}};
    if (writev(device, parts, size ? 2 : 1) < 0 && errno != ENOENT) fail("reply");
}

static void reply_to_init(const struct fuse_in_header *in, const void *body, uint32_t max_write, uint32_t flags) {
    const struct fuse_init_in *wanted = body;
    struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION};
    out.max_readahead = wanted->max_readahead;
    out.max_write = max_write;
    out.flags = wanted->flags & flags;
    reply(in->unique, 0, &out, sizeof out);
}

/* Answers what a file system has nothing of its own to say to. */
static void reply_to_others(const struct fuse_in_header *in) {
    switch (in->opcode) {
    case FUSE_RELEASE:
    case FUSE_FLUSH:
        reply(in->unique, 0, 0, 0);
        break;
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
        break;
    default:
        reply(in->unique, ENOSYS, 0, 0);
    }
}
