// Handlers update a cache whose lock another one holds while it saves the cache. With "threads" each
// keeps a thread of its own, as those that call C code do, and the one that saves pauses in between.
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
func saveCache(file *os.File, block []byte, pause time.Duration) time.Duration {
	mutex.Lock()
	defer mutex.Unlock()
	begin := time.Now()
	for time.Since(begin) < 240*time.Millisecond {
		file.WriteAt(block, 0)
		file.Sync()
		time.Sleep(pause)
	}
	return time.Since(begin)
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
	saves, err := os.Create(os.Args[4])
	if err != nil {
		panic(err)
	}
	ownThread := os.Args[3] == "threads"
	for key := 0; key < 6; key++ {
		go handle(key, log, ownThread)
	}
	fmt.Println("ready")
	pause := time.Duration(0)
	if ownThread {
		runtime.LockOSThread()
		pause = 30 * time.Millisecond
	}
	block := make([]byte, 1<<20)
	for {
		held := saveCache(file, block, pause)
		fmt.Fprintln(saves, "saveCache", held.Seconds())
		time.Sleep(20 * time.Millisecond)
	}
}
