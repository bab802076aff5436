// golock.go: go-zookeeper's Lock as a contestant. Each contender has a
// connection, and so a session, of its own.
//
// Usage: golock SERVERS SESSION-TIMEOUT-MS; commands on standard input, see
// README.md.

package main

import (
	"bufio"
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/samuel/go-zookeeper/zk"
)

type cycle struct {
	requested, granted, releasing, released int64
}

type silent struct{}

func (silent) Printf(string, ...interface{}) {}

var (
	servers  []string
	timeout  time.Duration
	sessions []*zk.Conn
	input    = bufio.NewScanner(os.Stdin)
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Microseconds of the clock that all programs share.
func now() int64 {
	return time.Now().UnixMicro()
}

func say(answer string) {
	fmt.Println(answer)
}

// Waits for the next command, whatever it is.
func listen() {
	if !input.Scan() {
		os.Exit(0)
	}
}

func open() *zk.Conn {
	session, events, err := zk.Connect(servers, timeout,
		zk.WithLogger(silent{}))
	check(err)
	for event := range events {
		if event.State == zk.StateHasSession {
			break
		}
	}
	go func() {
		for range events {
		}
	}()
	return session
}

func openAll(count int) {
	for len(sessions) < count {
		sessions = append(sessions, open())
	}
}

func lockAt(session *zk.Conn, path string) *zk.Lock {
	return zk.NewLock(session, path, zk.WorldACL(zk.PermAll))
}

func write(file string, all [][]cycle) {
	out, err := os.Create(file)
	check(err)
	buffer := bufio.NewWriter(out)
	for i, log := range all {
		for _, c := range log {
			fmt.Fprintln(buffer, i, c.requested, c.granted, c.releasing,
				c.released)
		}
	}
	check(buffer.Flush())
	check(out.Close())
}

func loop(count int, seconds float64, locks int, path string, file string) {
	openAll(count)
	all := make([][]cycle, count)
	until := now() + int64(seconds*1e6)
	share := locks / count
	var done sync.WaitGroup
	for i := 0; i < count; i++ {
		done.Add(1)
		go func(i int) {
			defer done.Done()
			cache := map[int]*zk.Lock{}
			random := rand.New(rand.NewSource(int64(i)))
			lock := lockAt(sessions[i], path)
			for {
				c := cycle{requested: now()}
				if c.requested >= until {
					return
				}
				if locks > 1 {
					k := i*share + random.Intn(share)
					if cache[k] == nil {
						cache[k] = lockAt(sessions[i], path+"-"+strconv.Itoa(k))
					}
					lock = cache[k]
				}
				check(lock.Lock())
				c.granted = now()
				c.releasing = c.granted
				check(lock.Unlock())
				c.released = now()
				all[i] = append(all[i], c)
			}
		}(i)
	}
	done.Wait()
	write(file, all)
}

// See README.md: a queue of that depth that stops at these grants.
func queue(depth int, stops []int, path string, file string) {
	openAll(depth + 1)
	all := make([][]cycle, depth+1)
	var grants int32
	stopped := make(chan bool)
	proceed := make(chan bool)
	var done sync.WaitGroup
	first := lockAt(sessions[0], path)
	c := cycle{requested: now()}
	check(first.Lock())
	c.granted = now()
	for i := 1; i <= depth; i++ {
		done.Add(1)
		go func(i int) {
			defer done.Done()
			lock := lockAt(sessions[i], path)
			c := cycle{requested: now()}
			check(lock.Lock())
			c.granted = now()
			count := atomic.AddInt32(&grants, 1)
			for _, stop := range stops {
				if int(count) == stop {
					stopped <- true
					<-proceed
				}
			}
			c.releasing = now()
			check(lock.Unlock())
			c.released = now()
			all[i] = append(all[i], c)
		}(i)
	}
	say("held")
	listen()
	c.releasing = now()
	check(first.Unlock())
	c.released = now()
	all[0] = append(all[0], c)
	for range stops {
		<-stopped
		say("stopped")
		listen()
		proceed <- true
	}
	done.Wait()
	write(file, all)
}

func fresh(count int, path string, file string) {
	all := make([][]cycle, 1)
	for i := 0; i < count; i++ {
		c := cycle{requested: now()}
		session := open()
		lock := lockAt(session, path)
		check(lock.Lock())
		c.granted = now()
		c.releasing = c.granted
		check(lock.Unlock())
		c.released = now()
		all[0] = append(all[0], c)
		session.Close()
	}
	write(file, all)
}

func leave() {
	for _, session := range sessions {
		session.Close()
	}
}

func number(word string) int {
	n, err := strconv.Atoi(word)
	check(err)
	return n
}

func numbers(list string) []int {
	all := []int{}
	for _, word := range strings.Split(list, ",") {
		all = append(all, number(word))
	}
	return all
}

func main() {
	servers = strings.Split(os.Args[1], ",")
	timeout = time.Duration(number(os.Args[2])) * time.Millisecond
	for input.Scan() {
		w := strings.Fields(input.Text())
		switch w[0] {
		case "loop":
			seconds, err := strconv.ParseFloat(w[2], 64)
			check(err)
			loop(number(w[1]), seconds, number(w[3]), w[4], w[5])
		case "queue":
			queue(number(w[1]), numbers(w[2]), w[3], w[4])
		case "fresh":
			fresh(number(w[1]), w[2], w[3])
		case "take":
			openAll(1)
			check(lockAt(sessions[0], w[1]).Lock())
			say(fmt.Sprint("ok ", now(), " ", os.Getpid()))
			continue
		case "leave":
			leave()
			return
		default:
			check(fmt.Errorf("no such command: %s", w[0]))
		}
		say("ok")
	}
	leave()
}
