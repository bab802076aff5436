--
-- zk_request_release() and zk_release_requested() answer as they should where no other
-- session is involved. What holders and other sessions see and hear is in t/330.
--

-- Nobody holds it, or only who asks.
SELECT zk_request_release('release'), zk_release_requested('release');
SELECT zk_lock('release') > 0 AS locked;
SELECT zk_request_release('release', 'oneself'), zk_release_requested('release');
SELECT zk_lock_shared('release shared') > 0 AS locked;
SELECT zk_request_release('release shared'), zk_release_requested('release shared');
SELECT zk_unlock_all();

-- A permanent hold cannot hear it.
SELECT zk_hold('release', 'until further notice') AS token \gset
\set VERBOSITY sqlstate
SELECT zk_request_release('release');
SELECT zk_release_hold('release', :token);

-- Bad arguments
\set VERBOSITY default
SELECT zk_request_release(NULL);
SELECT zk_request_release('release//');
SELECT zk_request_release('release', '');
SELECT zk_request_release('release', E'two\nlines');
SELECT zk_request_release('release', repeat('x', 513));
SELECT zk_request_release('release', repeat('x', 512));
SELECT zk_request_release('release', NULL);
SELECT zk_release_requested(NULL);
SELECT zk_release_requested('release//');

-- What a request lies in cannot be taken for a lock.
SELECT zk_lock('release.release');
