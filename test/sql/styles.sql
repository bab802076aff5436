-- zklock.node_style gives queue nodes the names that other clients wait for, in each
-- mode.
CREATE FUNCTION my_nodes() RETURNS TABLE (mode text, node text) LANGUAGE sql
AS $$
	SELECT mode, regexp_replace(node, '^.*/_c_[-0-9a-f]{36}(.*)\d{10}$', '\1')
	FROM zk_session_locks ORDER BY mode
$$;
SELECT zk_lock('styles/curator') > 0 AS exclusive, zk_lock_shared('styles/reader') > 0 AS shared;
SELECT * FROM my_nodes();
SELECT zk_unlock_all();

SET zklock.node_style = curator_rw;
SELECT zk_lock('styles/rw') > 0 AS exclusive, zk_lock_shared('styles/reader') > 0 AS shared;
SELECT * FROM my_nodes();
SELECT state, mode, style FROM zk_lock_queue('styles/rw');
SELECT zk_unlock_shared('styles/reader');

-- in both modes the node keeps its style and its mode
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

-- a lock stays as it was taken
SELECT zk_lock('styles/stays') > 0 AS locked;
SET zklock.node_style = 'curator';
SELECT zk_lock('styles/stays') = zk_fencing_token('styles/stays') AS again;
SELECT * FROM my_nodes();
SELECT zk_unlock_all();

DROP FUNCTION my_nodes;
RESET zklock.node_style;
SET zklock.node_style = 'some';
