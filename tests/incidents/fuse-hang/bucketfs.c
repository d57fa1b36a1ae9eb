// A file system in user space with one file, "report", whose contents never come: fetch_object
// waits for a store that does not answer. It speaks the kernel's protocol without a library.
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

static const char NAME[] = "report";
static const uint64_t FILE_ID = 2;
static int device;

static void reply(uint64_t unique, int error, const void *body, size_t size)
{
    char buffer[4096];
    struct fuse_out_header *header = (struct fuse_out_header *)buffer;
    header->unique = unique;
    header->error = -error;
    header->len = sizeof *header + size;
    if (size)
        memcpy(buffer + sizeof *header, body, size);
    if (write(device, buffer, header->len) < 0 && errno != ENOENT) {
        perror("reply");
        exit(1);
    }
}

static struct fuse_attr attributes(uint64_t id)
{
    struct fuse_attr attr = {.ino = id, .nlink = 1, .blksize = 4096};
    attr.mode = id == FILE_ID ? S_IFREG | 0444 : S_IFDIR | 0555;
    attr.size = id == FILE_ID ? 1 << 20 : 0;
    return attr;
}

__attribute__((noinline)) static void fetch_object(void)
{
    for (;;)
        pause();
}

static void serve(const struct fuse_in_header *in, const void *body)
{
    switch (in->opcode) {
    case FUSE_INIT: {
        const struct fuse_init_in *wanted = body;
        struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION};
        out.max_readahead = wanted->max_readahead;
        out.max_write = 4096;
        reply(in->unique, 0, &out, sizeof out);
        break;
    }
    case FUSE_LOOKUP: {
        struct fuse_entry_out out = {.nodeid = FILE_ID, .attr = attributes(FILE_ID)};
        int known = strcmp(body, NAME) == 0;
        reply(in->unique, known ? 0 : ENOENT, &out, known ? sizeof out : 0);
        break;
    }
    case FUSE_GETATTR: {
        struct fuse_attr_out out = {.attr = attributes(in->nodeid)};
        reply(in->unique, 0, &out, sizeof out);
        break;
    }
    case FUSE_OPEN: {
        struct fuse_open_out out = {.open_flags = FOPEN_DIRECT_IO};
        reply(in->unique, 0, &out, sizeof out);
        break;
    }
    case FUSE_READ:
        fetch_object();
        break;
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
        break;
    default:
        reply(in->unique, in->opcode == FUSE_FLUSH || in->opcode == FUSE_RELEASE ? 0 : ENOSYS, NULL, 0);
    }
}

int main(int count, char **arguments)
{
    static char buffer[1 << 17];
    char options[128];
    device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", device);
    if (count != 2 || device < 0
        || mount("bucketfs", arguments[1], "fuse.bucketfs", MS_NODEV | MS_NOSUID, options) < 0) {
        perror("bucketfs");
        return 1;
    }
    puts("ready");
    fflush(stdout);
    for (;;) {
        ssize_t size = read(device, buffer, sizeof buffer);
        if (size < 0 && errno == ENODEV)
            return 0;
        if (size < 0 && errno != EINTR && errno != ENOENT) {
            perror("read");
            return 1;
        }
        if (size > 0)
            serve((void *)buffer, buffer + sizeof(struct fuse_in_header));
    }
}
