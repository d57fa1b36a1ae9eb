// Asks one upstream for /slow and another for /other, through connections that it keeps; answers everything else
// itself. With `timer` it computes for a millisecond every 10 ms, and asks the other upstream each fourth time.
// Says `ready`.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

func ask(upstream string) http.HandlerFunc {
	return func(writer http.ResponseWriter, _ *http.Request) {
		result, err := http.Get(upstream)
		if err != nil {
			http.Error(writer, err.Error(), http.StatusBadGateway)
			return
		}
		defer result.Body.Close()
		io.Copy(writer, result.Body)
	}
}

func askForItself(upstream string) {
	if result, err := http.Get(upstream); err == nil {
		io.Copy(io.Discard, result.Body)
		result.Body.Close()
	}
}

func tick(upstream string) {
	ticks := 0
	for range time.Tick(10 * time.Millisecond) {
		for begun := time.Now(); time.Since(begun) < time.Millisecond; {
		}
		if ticks++; ticks%4 == 0 {
			go askForItself(upstream)
		}
	}
}

func main() {
	slow, other := "http://127.0.0.1:"+os.Args[2]+"/", "http://127.0.0.1:"+os.Args[3]+"/"
	http.HandleFunc("/slow", ask(slow))
	http.HandleFunc("/other", ask(other))
	http.HandleFunc("/", func(writer http.ResponseWriter, _ *http.Request) {
		io.WriteString(writer, "answer")
	})
	if os.Args[4] == "timer" {
		go tick(other)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Args[1])
	if err != nil {
		os.Exit(1)
	}
	fmt.Println("ready")
	http.Serve(listener, nil)
}
