-- Names of queue nodes that other clients wait for
CREATE FUNCTION my_nodes() RETURNS TABLE (mode text, node text) LANGUAGE sql
AS $$
	SELECT mode, regexp_replace(node, '^.*/_c_[-0-9a-f]{36}(.*)\d{10}$', '\1')
	FROM zk_locks ORDER BY mode
$$;
SELECT zk_lock('styles/curator') > 0 AS exclusive, zk_lock_shared('styles/reader') > 0 AS shared;
SELECT * FROM my_nodes();
SELECT zk_unlock_all();

SET zklock.node_style = curator_rw;
SELECT zk_lock('styles/rw') > 0 AS exclusive, zk_lock_shared('styles/reader') > 0 AS shared;
SELECT * FROM my_nodes();
SELECT state, mode, style FROM zk_lock_queue('styles/rw');
SELECT zk_unlock_shared('styles/reader');

-- a downgrade keeps to the style of the node
SELECT zk_lock_shared('styles/rw') > 0 AS shared;
SET zklock.node_style = kazoo;
SELECT zk_unlock('styles/rw'), zk_is_held('styles/rw');
SELECT * FROM my_nodes();
SELECT state, mode, style FROM zk_lock_queue('styles/rw');
SELECT zk_unlock_all();

SELECT zk_lock('styles/kazoo') > 0 AS exclusive, zk_lock_shared('styles/reader') > 0 AS shared;
SELECT * FROM my_nodes();
-- a semaphore is nobody else's
SELECT zk_unlock_all(), zk_lock('styles/permits', permits => 3) > 0 AS granted;
SELECT * FROM my_nodes();
SELECT zk_unlock_all();

-- for one function only
CREATE FUNCTION in_style() RETURNS text LANGUAGE plpgsql
SET zklock.node_style = 'curator_rw'
AS $$ BEGIN PERFORM zk_xact_lock('styles/function'); RETURN (SELECT node FROM my_nodes()); END $$;
SELECT in_style(), current_setting('zklock.node_style');
DROP FUNCTION in_style;

-- several nodes for one contender: one row, one token, every operation
SET zklock.node_style = 'all';
SELECT zk_lock('styles/all') > 0 AS exclusive, zk_lock_shared('styles/reader') > 0 AS shared;
SELECT * FROM my_nodes();
SELECT position, state, mode, style, token = zk_fencing_token('styles/all') AS is_ours,
	regexp_replace(node, '^_c_[-0-9a-f]{14}(8a13).*?([a-z_]+-)\d{10}$', '\1 \2') AS node
FROM zk_lock_queue('styles/all');
SELECT zk_is_held('styles/all'), zk_is_held('styles/reader');
SELECT zk_lock('styles/all') = zk_fencing_token('styles/all') AS again;
SELECT zk_unlock('styles/all'), zk_is_held('styles/all');
SELECT zk_unlock('styles/all'), zk_is_held('styles/all');
SELECT count(*) FROM zk_lock_queue('styles/all');
SELECT zk_unlock_all();
SELECT count(*) FROM zk_lock_queue('styles/reader');
SELECT zk_try_lock('styles/all'), zk_try_lock_shared('styles/reader');

-- a lock stays as it was taken
SET zklock.node_style = 'curator';
SELECT zk_lock('styles/all') = zk_fencing_token('styles/all') AS again;
SELECT style FROM zk_lock_queue('styles/all');
SELECT zk_unlock_all();
SELECT zk_lock('styles/all') > 0 AS locked;
SET zklock.node_style = 'all';
SELECT zk_lock('styles/all') = zk_fencing_token('styles/all') AS again;
SELECT style FROM zk_lock_queue('styles/all');
SELECT zk_unlock_all();

-- transactions and savepoints
BEGIN;
SELECT zk_xact_lock('styles/all') > 0 AS locked;
SAVEPOINT s;
SELECT zk_xact_lock_shared('styles/reader') > 0 AS locked;
ROLLBACK TO s;
SELECT zk_is_held('styles/all'), zk_is_held('styles/reader');
SELECT count(*) FROM zk_lock_queue('styles/reader');
COMMIT;
SELECT count(*) FROM zk_lock_queue('styles/all');

-- a downgrade replaces all nodes
SELECT zk_lock('styles/all') > 0 AS exclusive, zk_lock_shared('styles/all') > 0 AS shared;
SELECT zk_unlock('styles/all'), zk_is_held('styles/all');
SELECT * FROM my_nodes();
SELECT state, mode, style FROM zk_lock_queue('styles/all');
SELECT zk_lock('styles/all');
SELECT zk_unlock_shared('styles/all'), zk_is_held('styles/all');
SELECT count(*) FROM zk_lock_queue('styles/all');

-- several locks
SELECT array_length(zk_lock(ARRAY['styles/b', 'styles/a', 'styles/all']), 1);
SELECT string_agg(style, ' ') FROM zk_lock_queue('styles/a');
SELECT zk_try_lock(ARRAY['styles/c', 'styles/all', 'styles/d']);
SELECT zk_unlock(ARRAY['styles/b', 'styles/a', 'styles/all', 'styles/c', 'styles/d']);
SELECT zk_unlock_all();
SELECT count(*) FROM zk_lock_queue('styles/c');

-- evicted as one
SELECT zk_lock('styles/all') AS token \gset
SELECT zk_evict('styles/all', :token);
SELECT count(*) FROM zk_lock_queue('styles/all');
SELECT zk_is_held('styles/all');
SELECT zk_unlock('styles/all');

-- each node counts
SET zklock.max_locks = 5;
SELECT zk_lock('styles/a') > 0 AS locked;
SELECT zk_lock('styles/b');
SET zklock.node_style = 'kazoo';
SELECT zk_lock('styles/b') > 0 AS locked, zk_lock('styles/c') > 0 AS locked;
SELECT zk_lock('styles/d');
SELECT zk_unlock_all();
RESET zklock.max_locks;
SET zklock.node_style = 'all';

-- not for semaphores
SELECT zk_lock('styles/permits', permits => 3);
SELECT zk_try_lock('styles/permits', permits => 3);
SELECT count(*) FROM zk_locks;
DROP FUNCTION my_nodes;
RESET zklock.node_style;
SET zklock.node_style = 'some';
