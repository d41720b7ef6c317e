// The load: so many connections, each sending the review again and again for a while, with another uid each time;
// loopback only. Usage: load CA ADDRESS REVIEW CONNECTIONS SECONDS [anew]
// With "anew" each review has a connection of its own. Prints {"rps", "p50_ms", "p99_ms", "failed", "bytes"}.
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
	"time"
)

func main() {
	authority, _ := os.ReadFile(os.Args[1])
	review, _ := os.ReadFile(os.Args[3])
	connections, _ := strconv.Atoi(os.Args[4])
	seconds, _ := strconv.ParseFloat(os.Args[5], 64)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	settings := &tls.Config{RootCAs: roots, ServerName: "spotweave-webhook.spotweave-system.svc"}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: settings, MaxIdleConnsPerHost: connections, MaxConnsPerHost: connections, DisableKeepAlives: len(os.Args) > 6}}
	at := bytes.Index(review, []byte(`"uid": "`)) + len(`"uid": "`)
	url := "https://" + os.Args[2] + "/mutate"

	var lock sync.Mutex
	var times []float64
	failed, size := 0, 0
	end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	var group sync.WaitGroup
	for connection := range connections {
		group.Go(func() {
			review := bytes.Clone(review)
			var own []float64
			bad, last := 0, 0
			for calls := 0; time.Now().Before(end); calls++ {
				copy(review[at:], fmt.Sprintf("%02d-%09d", connection, calls))
				begun := time.Now()
				answer, err := client.Post(url, "application/json", bytes.NewReader(review))
				if err != nil {
					bad++
					continue
				}
				body, err := io.ReadAll(answer.Body)
				answer.Body.Close()
				last = len(body)
				if err != nil || answer.StatusCode != 200 || !bytes.Contains(body, []byte(`"patch"`)) {
					bad++
				}
				own = append(own, float64(time.Since(begun).Microseconds())/1000)
			}
			lock.Lock()
			defer lock.Unlock()
			times, failed, size = append(times, own...), failed+bad, last
		})
	}
	group.Wait()
	slices.Sort(times)
	quantile := func(share float64) float64 { return times[min(len(times)-1, int(share*float64(len(times))))] }
	text, _ := json.Marshal(map[string]any{"rps": float64(len(times)) / seconds, "p50_ms": quantile(0.5), "p99_ms": quantile(0.99), "failed": failed, "bytes": size})
	fmt.Println(string(text))
}
