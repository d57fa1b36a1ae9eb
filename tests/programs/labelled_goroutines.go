// Goroutines that say what they are doing by labels of runtime/pprof. Says `ready`.
//
// How one waits says what is true: `ppoll` while its label `route` is `/checkout`, `pselect6` while
// it is `/cart`, `poll` while it has none, `select` while it has one that is too long. The runtime
// itself waits in none of these.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime/pprof"
	"strings"
	"syscall"
	"unsafe"
)

const (
	poll     = 7
	selects  = 23
	pselect6 = 270
	ppoll    = 271
)

func waitsIn(number uintptr) {
	time := syscall.Timespec{Nsec: 1000000}
	short := syscall.Timeval{Usec: 1000}
	switch number {
	case poll:
		syscall.Syscall(poll, 0, 0, 1)
	case ppoll:
		syscall.Syscall6(ppoll, 0, 0, uintptr(unsafe.Pointer(&time)), 0, 0, 0)
	case pselect6:
		syscall.Syscall6(pselect6, 0, 0, 0, 0, uintptr(unsafe.Pointer(&time)), 0)
	case selects:
		syscall.Syscall6(selects, 0, 0, 0, 0, uintptr(unsafe.Pointer(&short)), 0)
	}
}

func with(labels pprof.LabelSet, then func()) {
	pprof.Do(context.Background(), labels, func(context.Context) { then() })
}

// Two routes in turn, and nothing in between. Each checkout has another user.
func labelled() {
	for n := 0; ; n++ {
		with(pprof.Labels("route", "/checkout", "user", fmt.Sprint("user ", n)), func() { waitsIn(ppoll) })
		with(pprof.Labels("route", "/cart", "empty", ""), func() { waitsIn(pselect6) })
		waitsIn(poll)
		// It goes to another thread, maybe.
		channel := make(chan int)
		go func() { channel <- 1 }()
		<-channel
	}
}

// A value that is too long.
func excessive() {
	with(pprof.Labels("long", strings.Repeat("v", 300)), func() {
		for {
			waitsIn(selects)
		}
	})
}

// More labels than one bucket of a map has.
func many() {
	var pairs []string
	for n := 0; n < 9; n++ {
		pairs = append(pairs, fmt.Sprint(n), "value")
	}
	with(pprof.Labels(pairs...), func() {
		for {
			waitsIn(poll)
		}
	})
}

// The first waits for the second, who wakes it while it serves a checkout.
func asks(pipe int) {
	var byte [1]byte
	for {
		syscall.Read(pipe, byte[:])
	}
}

func answers(pipe int) {
	for {
		with(pprof.Labels("route", "/checkout"), func() { syscall.Write(pipe, []byte{0}) })
		waitsIn(poll)
	}
}

func main() {
	var pipe [2]int
	if syscall.Pipe(pipe[:]) != nil {
		os.Exit(1)
	}
	go labelled()
	go labelled()
	go excessive()
	if len(os.Args) > 1 {
		go many()
	}
	go asks(pipe[0])
	go answers(pipe[1])
	fmt.Println("ready")
	select {}
}
