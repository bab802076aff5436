/*-------------------------------------------------------------------------
 *
 * write.c
 *	  What is written to the ensemble: each request that ZooKeeper must log,
 *	  counted for the role that causes it, and sent.
 *
 * No other module sends one ("make check SUITE=walls").  It is counted first,
 * so what is refused has left nothing behind.
 *
 *-------------------------------------------------------------------------
 */
#include "write.h"

static int	length_of(const char *data);

void
zklock_write_note(ZkWriteTerms terms, int count)
{
	switch (terms)
	{
		case ZK_WRITE_BOUNDED:
			zklock_write_claim(count);
			break;
		case ZK_WRITE_COUNTED:
			zklock_write_count(count);
			break;
		case ZK_WRITE_PAID:
			break;
	}
}

ZkRequest *
zklock_write_create(ZkWriteTerms terms, const char *path, ZkNodeKind kind,
					const char *data)
{
	zklock_write_note(terms, 1);
	return zklock_client_create(zklock_session_client(), path, kind, data,
								length_of(data));
}

ZkRequest *
zklock_write_create_guarded(ZkWriteTerms terms, const char *path,
							const char *guard, int version, const char *data)
{
	zklock_write_note(terms, 1);
	return zklock_client_create_guarded(zklock_session_client(), path, guard,
										version, data, length_of(data));
}

ZkRequest *
zklock_write_move(ZkWriteTerms terms, const char *from, const char *to,
				  const char *data)
{
	zklock_write_note(terms, 1);
	return zklock_client_move(zklock_session_client(), from, to, data,
							  length_of(data));
}

ZkRequest *
zklock_write_set(ZkWriteTerms terms, const char *path, const char *data,
				 int version)
{
	zklock_write_note(terms, 1);
	return zklock_client_set(zklock_session_client(), path, data,
							 length_of(data), version);
}

bool
zklock_write_announce(ZkWriteTerms terms, const char *path, const char *data)
{
	Assert(terms != ZK_WRITE_BOUNDED);
	zklock_write_note(terms, 1);
	return zklock_client_announce(zklock_session_client(), path, data,
								  length_of(data));
}

ZkRequest *
zklock_write_replace(const char *from, int64 czxid, const char *to,
					 const char *data)
{
	zklock_write_count(1);
	return zklock_client_replace(zklock_session_client(), from, czxid, to,
								 data);
}

ZkRequest *
zklock_write_remove_guarded(const char *guard, int version,
							const char *const *paths, int npaths,
							int node_version)
{
	zklock_write_count(1);
	return zklock_client_remove_guarded(zklock_session_client(), guard,
										version, paths, npaths, node_version);
}

ZkRequest *
zklock_write_check(const char *path, int64 czxid)
{
	zklock_write_count(1);
	return zklock_client_check(zklock_session_client(), path, czxid);
}

static int
length_of(const char *data)
{
	return data != NULL ? (int) strlen(data) : 0;
}
