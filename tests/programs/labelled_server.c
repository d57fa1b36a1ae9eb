/* A server on loopback that says for which route it works, by OpenTelemetry's thread context and
 * process context, and a client in another process. A cart takes 1 ms, a checkout 4. With any argument
 * the server says nothing. Says `ready`. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct context {
    uint8_t trace[16], span[8];
    volatile uint8_t valid;
    uint8_t flags;
    uint16_t size;
    uint8_t attributes[64];
} __attribute__((packed));

__attribute__((visibility("default"))) __thread struct context *volatile otel_thread_ctx_v1;

/* `ProcessContext.attributes`: threadlocal.attribute_key_map is ["http.route"]. */
static const char payload[] = "\x12\x31\x0a\x1dthreadlocal.attribute_key_map\x12\x10\x2a\x0e\x0a\x0c\x0a\x0ahttp.route";

struct header {
    char signature[8];
    uint32_t version, size;
    uint64_t published, payload;
};

static void sleeps(long microseconds) {
    struct timespec time = {0, microseconds * 1000};
    nanosleep(&time, NULL);
}

static int publishes_names(void) {
    int file = memfd_create("OTEL_CTX", 0);
    if (file < 0 || ftruncate(file, 4096)) return -1;
    struct header *own = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (own == MAP_FAILED) return -1;
    close(file);
    struct header header = {"", 2, sizeof payload - 1, 1, (uintptr_t)payload};
    memcpy(header.signature, "OTEL_CTX", 8);
    *own = header;
    return 0;
}

static void serves(int client, int says) {
    static struct context own;
    memset(own.trace, 0x77, sizeof own.trace);
    char byte;
    while (read(client, &byte, 1) == 1) {
        const char *route = byte == 'c' ? "/checkout" : "/cart";
        own.valid = 0;
        own.span[0]++;
        own.attributes[0] = 0;
        own.attributes[1] = strlen(route);
        memcpy(own.attributes + 2, route, strlen(route));
        own.size = 2 + strlen(route);
        own.valid = 1;
        if (says) otel_thread_ctx_v1 = &own;
        sleeps(byte == 'c' ? 4000 : 1000);
        if (write(client, &byte, 1) != 1) return;
        otel_thread_ctx_v1 = NULL;
    }
}

static void asks(int server) {
    char byte;
    for (int n = 0;; n++) {
        if (write(server, n % 2 ? "c" : "k", 1) != 1) return;
        if (read(server, &byte, 1) != 1) return;
        sleeps(500);
    }
}

int main(int count, char **arguments) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    (void)arguments;
    if (bind(listener, (void *)&address, length) || listen(listener, 1)) return 1;
    getsockname(listener, (void *)&address, &length);
    pid_t parent = getpid();
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) return 0;
        int server = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        close(listener);
        if (connect(server, (void *)&address, length)) return 1;
        prctl(PR_SET_NAME, "client");
        asks(server);
        return 0;
    }
    int client = accept(listener, NULL, NULL);
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (client < 0 || publishes_names()) return 1;
    puts("ready");
    fflush(stdout);
    serves(client, count == 1);
    return 0;
}
