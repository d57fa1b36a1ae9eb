// Goroutines that keep threads blocked in syscalls, and others that leave theirs idle. Says `ready`.
package main

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

//go:noinline
func below(depth int, block func()) int {
	if depth == 0 {
		block()
		return 0
	}
	return below(depth-1, block) + 1
}

func main() {
	var never [2]int
	if syscall.Pipe(never[:]) != nil {
		os.Exit(1)
	}
	read := func() { syscall.Read(never[0], make([]byte, 1)) }
	channel := make(chan int)
	begun := make(chan int)
	for _, depth := range []int{0, 10, 100} {
		depth := depth
		go func() {
			begun <- depth
			below(depth, read)
		}()
	}
	go func() {
		begun <- 0
		<-channel
	}()
	for i := 0; i < 4; i++ {
		<-begun
	}
	fmt.Println("ready")
	go time.Sleep(24 * time.Hour)
	read()
}
