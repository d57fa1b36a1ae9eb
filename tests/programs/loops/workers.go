// Has all it is asked done by eight workers over a channel: they ask the upstream for /slow, and answer everything
// else after a millisecond. Says `ready`.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

type job struct {
	path   string
	result chan string
}

func work(jobs chan job, upstream string) {
	for one := range jobs {
		if one.path != "/slow" {
			time.Sleep(time.Millisecond)
			one.result <- "answer"
			continue
		}
		answer := "no answer"
		if got, err := http.Get(upstream); err == nil {
			text, _ := io.ReadAll(got.Body)
			got.Body.Close()
			answer = string(text)
		}
		one.result <- answer
	}
}

func main() {
	address, upstream := "127.0.0.1:"+os.Args[1], "http://127.0.0.1:"+os.Args[2]+"/"
	jobs := make(chan job)
	for n := 0; n < 8; n++ {
		go work(jobs, upstream)
	}
	http.HandleFunc("/", func(writer http.ResponseWriter, request *http.Request) {
		one := job{request.URL.Path, make(chan string)}
		jobs <- one
		io.WriteString(writer, <-one.result)
	})
	listener, err := net.Listen("tcp", address)
	if err != nil {
		os.Exit(1)
	}
	fmt.Println("ready")
	http.Serve(listener, nil)
}
