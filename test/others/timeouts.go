// A timeout as a string and as a time.Duration over pgx, for drivers.pl:
//
//	timeouts URL [FILE]
//
// Another session holds the lock "held". Prints a line for each call: what it says. With FILE it does
// what calls.py does.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgconn"
	"github.com/jackc/pgx/v4"
)

func sendFile(ctx context.Context, connection *pgx.Conn, name string) {
	file, err := os.Open(name)
	if err != nil {
		panic(err)
	}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		words := strings.Split(lines.Text(), "\t")
		text, values := words[0], []interface{}{}
		for i, word := range words[1:] {
			text = strings.Replace(text, "?", "$"+strconv.Itoa(i+1), 1)
			switch value := word[2:]; word[0] {
			case 'n':
				number, _ := strconv.Atoi(value)
				values = append(values, number)
			case 'b':
				values = append(values, value == "true")
			case 'l':
				values = append(values, strings.Split(value, ","))
			default:
				values = append(values, value)
			}
		}
		outcome := "done"
		if _, err := connection.Exec(ctx, text, values...); err != nil {
			outcome = err.Error()
			var refusal *pgconn.PgError
			if errors.As(err, &refusal) {
				outcome = refusal.Code
			}
		}
		var locks string
		connection.QueryRow(ctx, "SELECT coalesce(string_agg(name, ' ' ORDER BY name), 'none') FROM zk_session_locks").Scan(&locks)
		fmt.Printf("%s: %s\n", outcome, locks)
		connection.Exec(ctx, "SELECT zk_unlock_all()")
	}
}

func main() {
	ctx := context.Background()
	connection, err := pgx.Connect(ctx, os.Args[1])
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	if len(os.Args) > 2 {
		sendFile(ctx, connection, os.Args[2])
		return
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
