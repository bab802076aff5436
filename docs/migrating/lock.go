// go run lock.go DSN NAME TIMEOUT: one piece of work under a lock. The lock lives on a
// connection, so take one from the pool (sql.Conn), or a transaction as here.
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
		fmt.Println("another one has it")
		return
	}
	// ... statements of tx ...
	if err := tx.Commit(); err != nil { // 40001: the lock was lost, do it again
		log.Fatal(err)
	}
	fmt.Println("done")
}
