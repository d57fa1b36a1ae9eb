// A function that exceptions leave, and that is a marker meanwhile: the program must go on.
#include <cstdio>
#include <stdexcept>
#include <time.h>

extern "C" __attribute__((noinline)) int fails(int n) {
    struct timespec time = {0, 2000000};
    nanosleep(&time, nullptr);
    if (n % 2)
        throw std::runtime_error("odd");
    return n;
}

int main() {
    int caught = 0;
    for (int n = 0; n < 20; n++) {
        try {
            fails(n);
        } catch (const std::exception &) {
            caught++;
        }
    }
    return caught == 10 ? 0 : 1;
}
