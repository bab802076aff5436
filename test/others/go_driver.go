// Drives the lock of go-zookeeper; see test/lib/Peer.pm.
// Usage: go_driver CONNECT-STRING
package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/samuel/go-zookeeper/zk"
)

// Of go-zookeeper, which does not tell its own; set by the linker.
var version string

type driver struct {
	conn *zk.Conn
	lock *zk.Lock
}

func main() {
	conn, _, err := zk.Connect(strings.Split(os.Args[1], ","), 30*time.Second)
	if err != nil {
		panic(err)
	}
	// Connect does not wait for a session, the first request does.
	if _, _, err = conn.Exists("/"); err != nil {
		panic(err)
	}
	d := &driver{conn: conn}

	fmt.Println("ready go-zookeeper", version)
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() && in.Text() != "quit" {
		answer, err := d.obey(strings.Fields(in.Text()))
		if err != nil {
			answer = "error " + err.Error()
		}
		fmt.Println(answer)
	}
	conn.Close()
}

func (d *driver) obey(word []string) (string, error) {
	switch word[0] {
	case "use":
		d.lock = zk.NewLock(d.conn, word[2], zk.WorldACL(zk.PermAll))
		return "ok", nil
	case "lock":
		return "locked", d.lock.Lock()
	case "unlock":
		return "unlocked", d.lock.Unlock()
	case "increment":
		return "done", d.increment(word[1], word[2])
	case "auth":
		return "ok", d.conn.AddAuth("digest", []byte(word[1]))
	}
	// go-zookeeper has no way to try a lock, nor to give up waiting.
	return "", errors.New("unknown command")
}

// Nothing but the lock protects the counter. The pause makes it likely that two
// at a time lose a count.
func (d *driver) increment(file string, times string) error {
	n, err := strconv.Atoi(times)
	for i := 0; i < n && err == nil; i++ {
		if err = d.lock.Lock(); err != nil {
			break
		}
		err = incrementOnce(file)
		if unlockErr := d.lock.Unlock(); err == nil {
			err = unlockErr
		}
	}
	return err
}

func incrementOnce(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	count, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	time.Sleep(time.Millisecond)
	return os.WriteFile(file, []byte(fmt.Sprintln(count+1)), 0644)
}
