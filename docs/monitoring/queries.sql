-- What a monitor asks, as a member of pg_monitor, from one database of each cluster. Of the
-- queries of the exporter columns with numbers become metrics, named after query and column
-- (zk_stat_losses); the others are labels.  blocked: backends that wait for zklock now, for a
-- lock, a connection or an answer.
--
-- All names and operators have their schema: that of zklock is "zklock", as README.md installs
-- it. So nothing that the owner of a database has in other schemas, or in its search_path, runs
-- as the monitor.

-- query: exporter/zk_stat
SELECT coalesce(datname::pg_catalog.text, 'others') AS datname,
       grants_at_once, grants_handed_over, grants_told, grants_listed, grants_kept, keeps_given_up,
       tries_in_vain, timeouts, cancels, deadlocks, unanswered_calls, losses, deleted_nodes,
       refused_commits, evictions, leases_taken, leases_ended, refused_writes, sessions, reconnects,
       requests, waits,
       extract(epoch FROM stats_reset) AS reset_time_seconds
FROM zklock.zk_stat;

-- query: exporter/zk_wait_seconds
SELECT coalesce(s.datname::pg_catalog.text, 'others') AS datname,
       coalesce(b.le::pg_catalog.text, '+Inf') AS le,
       (SELECT pg_catalog.sum(n) FROM pg_catalog.unnest(s.wait_histogram[1:b.i]) AS n) AS bucket
FROM zklock.zk_stat AS s,
     pg_catalog.unnest(ARRAY[0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, NULL])
         WITH ORDINALITY AS b(le, i);

-- query: exporter/zk_backends
SELECT b.datname::pg_catalog.text, b.state,
       pg_catalog.count(*) AS backends,
       pg_catalog.sum(b.lock_count) AS locks,
       pg_catalog.count(b.waiting_for) AS waiting,
       pg_catalog.count(*) FILTER (WHERE a.wait_event_type OPERATOR(pg_catalog.=) 'Extension')
           AS blocked,
       coalesce(extract(epoch FROM
           pg_catalog.max(pg_catalog.now() OPERATOR(pg_catalog.-) b.waiting_since)), 0)
           AS longest_wait_seconds,
       coalesce(extract(epoch FROM
           pg_catalog.max(pg_catalog.now() OPERATOR(pg_catalog.-) a.query_start)
               FILTER (WHERE b.waiting_for IS NULL
                   AND a.wait_event_type OPERATOR(pg_catalog.=) 'Extension')), 0)
           AS longest_request_seconds
FROM zklock.zk_backends AS b
    LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) b.pid
GROUP BY b.datname, b.state;

-- The ten locks for which most sessions wait. Each name becomes a series: leave this query out if
-- names of locks end in an id, as in orders/4711.
-- query: exporter/zk_awaited
SELECT b.datname::pg_catalog.text, b.waiting_for AS lock,
       pg_catalog.count(*) AS waiters,
       extract(epoch FROM
           pg_catalog.max(pg_catalog.now() OPERATOR(pg_catalog.-) b.waiting_since))
           AS longest_wait_seconds
FROM zklock.zk_backends AS b
WHERE b.waiting_for IS NOT NULL
GROUP BY b.datname, b.waiting_for
ORDER BY waiters DESC, lock
LIMIT 10;

-- At most every half minute: it asks the ZooKeeper servers, and takes one second at most.
-- query: exporter/zk_check
SELECT c.item,
       pg_catalog.max(pg_catalog.array_position(
           '{ok,note,warning,error}'::pg_catalog.text[], c.state)) OPERATOR(pg_catalog.-) 1
           AS severity
FROM zklock.zk_check(false) AS c
GROUP BY c.item;

-- query: alert/now
WITH backend AS (
    SELECT b.pid, b.datname, b.usename, b.state, b.waiting_for,
           a.state AS activity, a.wait_event_type,
           pg_catalog.now() OPERATOR(pg_catalog.-) b.state_since AS in_state,
           pg_catalog.now() OPERATOR(pg_catalog.-) b.waiting_since AS waits,
           pg_catalog.now() OPERATOR(pg_catalog.-) a.state_change AS in_activity
    FROM zklock.zk_backends AS b
        LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) b.pid
)
SELECT b.pid, b.datname, b.usename,
       pg_catalog.concat('session is ', b.state) AS trouble, b.in_state AS since
FROM backend AS b
WHERE b.wait_event_type OPERATOR(pg_catalog.=) 'Extension'
  AND b.state OPERATOR(pg_catalog.=) ANY ('{connecting,suspended,lost}'::pg_catalog.text[])
  AND b.in_state OPERATOR(pg_catalog.>) interval '5 s'
UNION ALL
SELECT b.pid, b.datname, b.usename,
       pg_catalog.concat('waits for lock ', b.waiting_for), b.waits
FROM backend AS b
WHERE b.waits OPERATOR(pg_catalog.>) interval '10 min'
UNION ALL
SELECT b.pid, b.datname, b.usename,
       pg_catalog.concat('holds lock ', l.name, ' while idle'), b.in_activity
FROM backend AS b
    JOIN zklock.zk_locks AS l ON l.pid OPERATOR(pg_catalog.=) b.pid
WHERE b.activity OPERATOR(pg_catalog.~) '^idle'
  AND b.in_activity OPERATOR(pg_catalog.>) interval '1 h';
