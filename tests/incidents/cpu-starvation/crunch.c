// Computes and never waits.
#include <stdint.h>
#include <stdio.h>

__attribute__((noinline)) static uint64_t crunch_numbers(uint64_t state)
{
    for (int i = 0; i < 1000000; i++)
        state = state * 6364136223846793005u + 1442695040888963407u;
    return state;
}

int main(void)
{
    volatile uint64_t state = 1;
    puts("ready");
    fflush(stdout);
    for (;;)
        state = crunch_numbers(state);
}
