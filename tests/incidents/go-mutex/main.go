// Handlers update a cache whose lock another one holds while it saves the cache. With "threads" each
// handler keeps a thread of its own, as those that call C code do.
package main

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"
)

var (
	cache = map[int]int{}
	mutex sync.Mutex
)

//go:noinline
func updateCache(key int) {
	mutex.Lock()
	cache[key]++
	mutex.Unlock()
}

//go:noinline
func saveCache(file *os.File, block []byte) {
	mutex.Lock()
	defer mutex.Unlock()
	for piece := 0; piece < 8; piece++ {
		file.WriteAt(block, 0)
		file.Sync()
		time.Sleep(30 * time.Millisecond)
	}
}

func handle(key int, log *os.File, ownThread bool) {
	if ownThread {
		runtime.LockOSThread()
	}
	for {
		begin := time.Now()
		updateCache(key)
		fmt.Fprintln(log, "updateCache", time.Since(begin).Seconds())
		time.Sleep(10 * time.Millisecond)
	}
}

func main() {
	log, err := os.Create(os.Args[1])
	if err != nil {
		panic(err)
	}
	file, err := os.Create(os.Args[2])
	if err != nil {
		panic(err)
	}
	ownThread := os.Args[3] == "threads"
	for key := 0; key < 6; key++ {
		go handle(key, log, ownThread)
	}
	fmt.Println("ready")
	if ownThread {
		runtime.LockOSThread()
	}
	block := make([]byte, 1<<20)
	for {
		saveCache(file, block)
		time.Sleep(20 * time.Millisecond)
	}
}
