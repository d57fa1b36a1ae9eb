// Goroutines in a program with C code: libc starts its threads. Says `ready`.
package main

import (
	"fmt"
	_ "net"
	"os"
	"syscall"
)

//go:noinline
func reads(from int) { syscall.Read(from, make([]byte, 1)) }

func main() {
	var never [2]int
	if syscall.Pipe(never[:]) != nil {
		os.Exit(1)
	}
	begun := make(chan bool)
	for i := 0; i < 3; i++ {
		go func() {
			begun <- true
			reads(never[0])
		}()
	}
	for i := 0; i < 3; i++ {
		<-begun
	}
	fmt.Println("ready")
	reads(never[0])
}
