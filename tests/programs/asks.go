// A server, a client that asks it, and goroutines that wait for a lock, a channel, a timer and a syscall. Says `ready`.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"
)

func answer(writer http.ResponseWriter, _ *http.Request) {
	io.WriteString(writer, "answer")
}

func ask(address string) {
	for {
		response, err := http.Get("http://" + address)
		if err != nil {
			os.Exit(1)
		}
		io.Copy(io.Discard, response.Body)
		response.Body.Close()
	}
}

func hold(lock *sync.Mutex) {
	for {
		lock.Lock()
		time.Sleep(time.Millisecond)
		lock.Unlock()
	}
}

func sleepInTheKernel() {
	for {
		millisecond := syscall.Timespec{Nsec: 1000000}
		syscall.Nanosleep(&millisecond, nil)
	}
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		os.Exit(1)
	}
	go http.Serve(listener, http.HandlerFunc(answer))
	go ask(listener.Addr().String())
	var lock sync.Mutex
	go hold(&lock)
	go hold(&lock)
	go sleepInTheKernel()
	fmt.Println("ready")
	select {}
}
