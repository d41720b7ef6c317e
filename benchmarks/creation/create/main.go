// Creates so many pods over so many connections, one after the other on each; loopback only.
// Usage: create SERVER CA CERTIFICATE KEY PATH POD CONNECTIONS PODS   Prints {"rps", "p50_ms", "p99_ms", "failed"}.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

func main() {
	server, path := os.Args[1], os.Args[5]
	authority, _ := os.ReadFile(os.Args[2])
	identity, err := tls.LoadX509KeyPair(os.Args[3], os.Args[4])
	if err != nil {
		panic(err)
	}
	pod, _ := os.ReadFile(os.Args[6])
	connections, _ := strconv.Atoi(os.Args[7])
	pods, _ := strconv.Atoi(os.Args[8])
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)

	var lock sync.Mutex
	var times []float64
	var begun, failed atomic.Int64
	var ready, done sync.WaitGroup
	ready.Add(connections)
	start := make(chan struct{})
	for range connections {
		// A client of its own has a connection of its own (HTTP/1.1), which is open before the clock starts.
		settings := &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{identity}}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: settings, MaxConnsPerHost: 1}}
		done.Go(func() {
			send(client, http.MethodGet, server+"/version", nil)
			ready.Done()
			<-start
			var own []float64
			for begun.Add(1) <= int64(pods) {
				since := time.Now()
				if send(client, http.MethodPost, server+path, pod) != http.StatusCreated {
					failed.Add(1)
				}
				own = append(own, float64(time.Since(since).Microseconds())/1000)
			}
			lock.Lock()
			defer lock.Unlock()
			times = append(times, own...)
		})
	}
	ready.Wait()
	since := time.Now()
	close(start)
	done.Wait()
	seconds := time.Since(since).Seconds()
	slices.Sort(times)
	at := func(share float64) float64 { return times[min(len(times)-1, int(share*float64(len(times))))] }
	text, _ := json.Marshal(map[string]any{"rps": float64(len(times)) / seconds, "p50_ms": at(0.5), "p99_ms": at(0.99), "failed": failed.Load()})
	fmt.Println(string(text))
}

// The answer's status; 0 where there was none.
func send(client *http.Client, method, url string, body []byte) int {
	request, _ := http.NewRequest(method, url, bytes.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(request)
	if err != nil {
		return 0
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return 0
	}
	return answer.StatusCode
}
