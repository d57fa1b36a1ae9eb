// Sleeps below 10, 100 and 1,000 calls by turns. Says `ready`.
#include <ctime>
#include <iostream>
#include <string>

namespace {

volatile int returned;

// A frame with something to destroy, as most of C++ has.
[[gnu::noinline]] int descend(int depth, const std::string &path) {
    if (depth == 0) {
        timespec millisecond{0, 1000000};
        return nanosleep(&millisecond, nullptr);
    }
    const std::string below = depth % 8 ? path : path.substr(0, 4);
    return descend(depth - 1, below) + returned;
}

} // namespace

int main() {
    std::cout << "ready" << std::endl;
    for (;;) {
        for (int depth : {10, 100, 1000}) returned = descend(depth, "somewhere");
    }
}
