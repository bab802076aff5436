// A timeout as a string and as a time.Duration over pgx, for drivers.pl:
//
//	timeouts URL
//
// Another session holds the lock "held". Prints a line for each call: what it says.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v4"
)

func main() {
	ctx := context.Background()
	connection, err := pgx.Connect(ctx, os.Args[1])
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for _, call := range []struct {
		what, name string
		timeout    interface{}
	}{
		{"string", "held", "100 ms"},
		{"duration", "held", 100 * time.Millisecond},
		{"free", "free", 10 * time.Second},
	} {
		var got bool
		err := connection.QueryRow(ctx, "SELECT zk_try_lock($1, $2)", call.name, call.timeout).Scan(&got)
		if err != nil {
			fmt.Printf("%s: %v\n", call.what, err)
		} else {
			fmt.Printf("%s: %v\n", call.what, got)
		}
	}
	connection.Close(ctx)
}
