/*
 * A 32-bit program without a C library: `cc -m32` needs no 32-bit headers or libraries for it.
 *
 * argv[1] names what it does. Each of its syscalls means another one in the 64-bit table:
 *   s   nanosleep (162; 64-bit: sync), 10 ms again and again
 *   f   futex with a timeout of 10 ms (240; 64-bit: mq_open), again and again
 *   p   answers each 8 bytes on standard input with 8 bytes on standard output, read (3; 64-bit:
 *       close) and write (4; 64-bit: stat), until the input ends
 */
static long call(long number, long a, long b, long c, long d)
{
	long result;
	__asm__ volatile("int $0x80"
			 : "=a"(result)
			 : "a"(number), "b"(a), "c"(b), "d"(c), "S"(d)
			 : "memory");
	return result;
}

void play(long *stack)
{
	const char *mode = (const char *)stack[2];
	long ten_ms[2] = { 0, 10 * 1000 * 1000 };
	long word = 0;
	char bytes[8];

	call(172 /* prctl */, 1 /* PR_SET_PDEATHSIG */, 9 /* SIGKILL */, 0, 0);
	call(172 /* prctl */, 15 /* PR_SET_NAME */, (long)"ow-compat32", 0, 0);
	switch (mode[0]) {
	case 's':
		for (;;)
			call(162, (long)ten_ms, 0, 0, 0);
	case 'f':
		for (;;)
			call(240, (long)&word, 0 /* FUTEX_WAIT */, 0, (long)ten_ms);
	case 'p':
		while (call(3, 0, (long)bytes, 8, 0) > 0)
			call(4, 1, (long)bytes, 8, 0);
	}
	call(1 /* exit */, 0, 0, 0, 0);
}

__asm__(".globl _start\n"
	"_start:\n"
	"	mov %esp, %eax\n"
	"	push %eax\n"
	"	call play\n");
