/* Sleeps in a function that is inlined into 1,500 others, one into the next, each with a long name. Says `ready`. */
#include <cstdio>
#include <ctime>

#define LEVELS 1500

namespace a_namespace_with_a_long_name_so_that_each_of_the_functions_in_it_has_one_that_is_longer_still {
template <int level> __attribute__((always_inline)) inline int next() { return next<level - 1>() + level; }
template <> __attribute__((always_inline)) inline int next<0>() {
    timespec time = {0, 1000000};
    return nanosleep(&time, nullptr);
}
}

__attribute__((noinline)) int outermost() {
    using namespace a_namespace_with_a_long_name_so_that_each_of_the_functions_in_it_has_one_that_is_longer_still;
    return next<LEVELS>();
}

static volatile int count;

int main() {
    std::puts("ready");
    std::fflush(stdout);
    for (;;) count += outermost();
}
