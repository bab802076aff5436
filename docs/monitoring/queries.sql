-- What a monitor asks, as a member of pg_monitor, from one database of each cluster. Of the
-- queries of the exporter columns with numbers become metrics, named after query and column
-- (zk_stat_losses); the others are labels.  blocked: backends that wait for zklock now, for a
-- lock, a connection or an answer.

-- query: exporter/zk_stat
SELECT coalesce(datname::text, 'others') AS datname,
       grants_at_once, grants_handed_over, grants_told, grants_listed, grants_kept, keeps_given_up,
       tries_in_vain, timeouts, cancels, deadlocks, losses, refused_commits, evictions,
       leases_taken, leases_ended, refused_creates, sessions, reconnects, requests, waits,
       extract(epoch FROM stats_reset) AS reset_time_seconds
FROM zk_stat;

-- query: exporter/zk_wait_seconds
SELECT coalesce(s.datname::text, 'others') AS datname, coalesce(b.le::text, '+Inf') AS le,
       (SELECT sum(n) FROM unnest(s.wait_histogram[1:b.i]) AS n) AS bucket
FROM zk_stat AS s,
     unnest(ARRAY[0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, NULL]) WITH ORDINALITY AS b(le, i);

-- query: exporter/zk_backends
SELECT b.datname::text, b.state, count(*) AS backends, sum(b.lock_count) AS locks, count(b.waiting_for) AS waiting,
       count(*) FILTER (WHERE a.wait_event_type = 'Extension') AS blocked,
       coalesce(extract(epoch FROM max(now() - b.waiting_since)), 0) AS longest_wait_seconds
FROM zk_backends AS b LEFT JOIN pg_stat_activity AS a USING (pid) GROUP BY b.datname, b.state;

-- query: alert/now
SELECT b.pid, b.datname, b.usename, 'session is ' || b.state AS trouble, now() - b.state_since AS since
FROM zk_backends AS b JOIN pg_stat_activity AS a USING (pid)
WHERE a.wait_event_type = 'Extension' AND b.state IN ('connecting', 'suspended', 'lost')
  AND now() - b.state_since > interval '5 s'
UNION ALL
SELECT pid, datname, usename, 'waits for lock ' || waiting_for, now() - waiting_since
FROM zk_backends WHERE now() - waiting_since > interval '10 min'
UNION ALL
SELECT l.pid, b.datname, b.usename, 'holds lock ' || l.name || ' while idle', now() - a.state_change
FROM zk_backend_locks AS l JOIN zk_backends AS b USING (pid) JOIN pg_stat_activity AS a USING (pid)
WHERE a.state LIKE 'idle%' AND now() - a.state_change > interval '1 h';
