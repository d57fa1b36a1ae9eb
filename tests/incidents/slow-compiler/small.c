int value(void) { return 1; }
