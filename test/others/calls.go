// What calls.py does, with lib/pq. Usage: calls URL FILE
package main

import (
	"bufio"
	"database/sql"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/lib/pq"
)

func main() {
	db, err := sql.Open("postgres", os.Args[1])
	if err != nil {
		panic(err)
	}
	db.SetMaxOpenConns(1)
	file, err := os.Open(os.Args[2])
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
				values = append(values, pq.Array(strings.Split(value, ",")))
			default:
				values = append(values, value)
			}
		}
		outcome := "done"
		if _, err := db.Exec(text, values...); err != nil {
			outcome = err.Error()
			if refusal, is := err.(*pq.Error); is {
				outcome = string(refusal.Code)
			}
		}
		var locks sql.NullString
		db.QueryRow("SELECT coalesce(string_agg(name, ' ' ORDER BY name), 'none') FROM zk_session_locks").Scan(&locks)
		fmt.Printf("%s: %s\n", outcome, locks.String)
		db.Exec("SELECT zk_unlock_all()")
	}
}
