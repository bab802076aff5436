// Does some work in a transaction under a lock.
// Usage: go run lock.go DSN NAME TIMEOUT
//
// The lock belongs to a connection. So use a transaction, as here, or one connection of the pool
// (sql.Conn).
package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"

	_ "github.com/lib/pq"
)

func main() {
	db, err := sql.Open("postgres", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	tx, err := db.BeginTx(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Rollback()
	var granted bool
	if err := tx.QueryRow("SELECT zklock.zk_try_xact_lock($1, $2)", os.Args[2], os.Args[3]).Scan(&granted); err != nil {
		log.Fatal(err)
	}
	if !granted {
		fmt.Println("another session has the lock")
		return
	}
	// ... statements of tx ...
	if err := tx.Commit(); err != nil { // 40001: the lock was lost, run it again
		log.Fatal(err)
	}
	fmt.Println("done")
}
