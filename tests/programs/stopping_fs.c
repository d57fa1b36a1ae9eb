/* A file system in user space that keeps files in memory, and that can stop to answer.
 *
 *   stopping_fs DIRECTORY KEPT
 *
 * Mounts itself on DIRECTORY, and says `ready`. With SIGUSR1 it reads every request and answers none any more, and
 * writes what it has under a name that ends in `.offwake` to the file KEPT.
 */
#define _GNU_SOURCE
#include "fuse_server.h"

#include <signal.h>
#include <string.h>
#include <sys/stat.h>

#define FILES 64
#define FIRST 2
#define MOST (256 << 20)
#define REQUEST (1 << 20)

struct file {
    char name[256];
    char *content;
    uint64_t size;
    uint32_t mode;
};

static struct file files[FILES];
static volatile sig_atomic_t silent;

static struct file *file_of(uint64_t id) {
    return id >= FIRST && id < FIRST + FILES ? &files[id - FIRST] : 0;
}

static struct file *find(const char *name) {
    for (int at = 0; at < FILES; at++) {
        if (files[at].content && strcmp(files[at].name, name) == 0) return &files[at];
    }
    return 0;
}

static struct fuse_attr attributes(uint64_t id) {
    struct file *file = file_of(id);
    struct fuse_attr attr = {.ino = id, .nlink = 1, .blksize = 4096};
    attr.mode = file ? S_IFREG | file->mode : S_IFDIR | 0777;
    attr.size = file ? file->size : 0;
    return attr;
}

static struct fuse_entry_out entry(struct file *file) {
    uint64_t id = FIRST + (file - files);
    return (struct fuse_entry_out){.nodeid = id, .attr = attributes(id)};
}

static void rename_file(uint64_t unique, const char *from, const char *to) {
    struct file *file = find(from), *replaced = find(to);
    if (!file) return reply(unique, ENOENT, 0, 0);
    if (replaced && replaced != file) replaced->name[0] = 0;
    strncpy(file->name, to, sizeof file->name - 1);
    reply(unique, 0, 0, 0);
}

static void serve(const struct fuse_in_header *in, const char *body) {
    struct file *file = file_of(in->nodeid);
    switch (in->opcode) {
    case FUSE_INIT:
        reply_to_init(in, body, 128 << 10, FUSE_BIG_WRITES);
        break;
    case FUSE_LOOKUP: {
        struct file *found = find(body);
        if (!found) return reply(in->unique, ENOENT, 0, 0);
        struct fuse_entry_out out = entry(found);
        reply(in->unique, 0, &out, sizeof out);
        break;
    }
    case FUSE_CREATE: {
        const struct fuse_create_in *wanted = (const void *)body;
        struct file *made = 0;
        for (int at = 0; at < FILES && !made; at++) {
            if (!files[at].content) made = &files[at];
        }
        if (!made || !(made->content = malloc(MOST))) return reply(in->unique, ENOSPC, 0, 0);
        strncpy(made->name, body + sizeof *wanted, sizeof made->name - 1);
        made->mode = wanted->mode & 07777;
        made->size = 0;
        struct {
            struct fuse_entry_out entry;
            struct fuse_open_out open;
        } out = {.entry = entry(made)};
        reply(in->unique, 0, &out, sizeof out);
        break;
    }
    case FUSE_SETATTR:
    case FUSE_GETATTR: {
        const struct fuse_setattr_in *wanted = (const void *)body;
        if (in->opcode == FUSE_SETATTR && file) {
            if (wanted->valid & FATTR_SIZE) file->size = wanted->size < MOST ? wanted->size : MOST;
            if (wanted->valid & FATTR_MODE) file->mode = wanted->mode & 07777;
        }
        struct fuse_attr_out out = {.attr = attributes(in->nodeid)};
        reply(in->unique, 0, &out, sizeof out);
        break;
    }
    case FUSE_OPEN:
    case FUSE_OPENDIR: {
        struct fuse_open_out out = {0};
        reply(in->unique, 0, &out, sizeof out);
        break;
    }
    case FUSE_WRITE: {
        const struct fuse_write_in *wanted = (const void *)body;
        if (!file || wanted->offset + wanted->size > MOST) return reply(in->unique, ENOSPC, 0, 0);
        memcpy(file->content + wanted->offset, body + sizeof *wanted, wanted->size);
        if (wanted->offset + wanted->size > file->size) file->size = wanted->offset + wanted->size;
        struct fuse_write_out out = {.size = wanted->size};
        reply(in->unique, 0, &out, sizeof out);
        break;
    }
    case FUSE_READ: {
        const struct fuse_read_in *wanted = (const void *)body;
        if (!file) return reply(in->unique, EIO, 0, 0);
        size_t rest = wanted->offset < file->size ? file->size - wanted->offset : 0;
        reply(in->unique, 0, file->content + wanted->offset, wanted->size < rest ? wanted->size : rest);
        break;
    }
    case FUSE_RENAME: {
        const char *from = body + sizeof(struct fuse_rename_in);
        rename_file(in->unique, from, from + strlen(from) + 1);
        break;
    }
    case FUSE_UNLINK: {
        struct file *found = find(body);
        if (found) found->name[0] = 0;
        reply(in->unique, found ? 0 : ENOENT, 0, 0);
        break;
    }
    case FUSE_FSYNC:
    case FUSE_FSYNCDIR:
    case FUSE_RELEASEDIR:
        reply(in->unique, 0, 0, 0);
        break;
    default:
        reply_to_others(in);
    }
}

static void fall_silent(int number) {
    (void)number;
    silent = 1;
}

static void keep(const char *path) {
    char beside[4096];
    snprintf(beside, sizeof beside, "%s.new", path);
    for (int at = 0; at < FILES; at++) {
        const char *end = files[at].content ? strrchr(files[at].name, '.') : 0;
        if (!end || strcmp(end, ".offwake")) continue;
        int kept = open(beside, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        if (kept < 0 || write(kept, files[at].content, files[at].size) != (ssize_t)files[at].size) fail(beside);
        close(kept);
        if (rename(beside, path)) fail(path);
    }
}

int main(int count, char **arguments) {
    static char request[REQUEST + 4096];
    int is_kept = 0;
    if (count != 3) return 2;
    mount_on(arguments[1], "stopping_fs");
    struct sigaction action = {.sa_handler = fall_silent};
    sigaction(SIGUSR1, &action, 0);
    if (write(1, "ready\n", 6) != 6) fail("ready");
    for (;;) {
        if (silent && !is_kept) {
            keep(arguments[2]);
            is_kept = 1;
        }
        ssize_t length = read_request(request, sizeof request - 1);
        if (length == 0) continue;
        if (length < 0) return 0;
        request[length] = 0;
        if (!silent) serve((void *)request, request + sizeof(struct fuse_in_header));
    }
}
