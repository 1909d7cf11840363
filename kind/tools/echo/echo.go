// Package echo is a backend that says what it was asked.
package echo

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Run serves on port 8080 until it is told to end, and for as long after that as nodes need to notice.
func Run() error {
	answer := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		_ = encoder.Encode(map[string]any{
			"pod": os.Getenv("POD_NAME"), "namespace": os.Getenv("POD_NAMESPACE"), "host": r.Host, "path": r.URL.Path,
			"method": r.Method, "client": r.Header.Get("X-Forwarded-For"), "scheme": r.Header.Get("X-Forwarded-Proto"),
		})
	}
	server := &http.Server{Addr: ":8080", Handler: http.HandlerFunc(answer), ReadHeaderTimeout: 10 * time.Second}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- server.ListenAndServe() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	time.Sleep(10 * time.Second)
	last, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return server.Shutdown(last)
}
