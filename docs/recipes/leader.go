// One tick of a leader: asks for the lease over any connection, and works if this instance leads.
// Usage: go run leader.go DSN NAME ADDRESS
package main

import (
	"database/sql"
	"fmt"
	"log"
	"os"

	_ "github.com/lib/pq"
)

func tick(db *sql.DB, name, address string) (bool, error) {
	var token sql.NullInt64
	err := db.QueryRow("SELECT zklock.zk_try_lease('mailer', $1, '30 s', data => $2)", name, address).Scan(&token)
	if err != nil || !token.Valid {
		return false, err
	}
	tx, err := db.Begin() // after the lease: the snapshot of the work must be newer
	if err != nil {
		return false, err
	}
	defer tx.Rollback()
	if _, err = tx.Exec("SELECT zklock.zk_require_lease('mailer', $1)", token); err != nil {
		return false, err
	}
	if _, err = tx.Exec("CALL mailer_work()"); err != nil {
		return false, err
	}
	return true, tx.Commit() // 40001: this instance does not lead any more
}

func main() {
	db, err := sql.Open("postgres", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	leads, err := tick(db, os.Args[2], os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(map[bool]string{true: "leads", false: "follows"}[leads])
}
