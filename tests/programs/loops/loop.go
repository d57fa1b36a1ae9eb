// Asks its upstream for /slow, through connections that it keeps; answers everything else itself. Says `ready`.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
)

func main() {
	address, upstream := "127.0.0.1:"+os.Args[1], "http://127.0.0.1:"+os.Args[2]+"/"
	http.HandleFunc("/slow", func(writer http.ResponseWriter, _ *http.Request) {
		result, err := http.Get(upstream)
		if err != nil {
			http.Error(writer, err.Error(), http.StatusBadGateway)
			return
		}
		defer result.Body.Close()
		io.Copy(writer, result.Body)
	})
	http.HandleFunc("/", func(writer http.ResponseWriter, _ *http.Request) {
		io.WriteString(writer, "answer")
	})
	listener, err := net.Listen("tcp", address)
	if err != nil {
		os.Exit(1)
	}
	fmt.Println("ready")
	http.Serve(listener, nil)
}
