// What lists.py does, with lib/pq. Usage: lists URL
package main

import (
	"database/sql"
	"fmt"
	"os"

	"github.com/lib/pq"
)

func main() {
	db, err := sql.Open("postgres", os.Args[1])
	if err != nil {
		panic(err)
	}
	db.SetMaxOpenConns(1)
	for _, function := range []string{"zk_try_lock", "zk_try_lock_set"} {
		var granted bool
		err := db.QueryRow("SELECT "+function+"($1)", pq.Array([]string{"acct-1", "acct-2"})).Scan(&granted)
		if refusal, is := err.(*pq.Error); is {
			fmt.Println(refusal.Code)
		} else if err == nil && granted {
			fmt.Println("locked")
		} else {
			fmt.Println("?")
		}
		var names sql.NullString
		db.QueryRow("SELECT string_agg(name, ' ' ORDER BY name) FROM zk_session_locks").Scan(&names)
		fmt.Println(names.String)
		db.Exec("SELECT zk_unlock_all()")
	}
}
