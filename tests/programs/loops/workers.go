// Has all it is asked done by 16 workers over a channel: they ask one upstream for /slow and another for /other,
// and answer everything else after a millisecond. Says `ready`.
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

func work(jobs chan job, upstreams map[string]string) {
	for one := range jobs {
		upstream, isKnown := upstreams[one.path]
		if !isKnown {
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
	upstreams := map[string]string{
		"/slow":  "http://127.0.0.1:" + os.Args[2] + "/",
		"/other": "http://127.0.0.1:" + os.Args[3] + "/",
	}
	jobs := make(chan job)
	for n := 0; n < 16; n++ {
		go work(jobs, upstreams)
	}
	http.HandleFunc("/", func(writer http.ResponseWriter, request *http.Request) {
		one := job{request.URL.Path, make(chan string)}
		jobs <- one
		io.WriteString(writer, <-one.result)
	})
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Args[1])
	if err != nil {
		os.Exit(1)
	}
	fmt.Println("ready")
	http.Serve(listener, nil)
}
