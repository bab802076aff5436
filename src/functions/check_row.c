/*-------------------------------------------------------------------------
 *
 * check_row.c
 *	  Puts a row of zk_check().
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "check_private.h"
#include "row.h"

void
check_put(const Check *check, const char *item, CheckState state,
		  const char *what, const char *remedy)
{
	static const char *const words[] = {
		[CHECK_OK] = "ok",
		[CHECK_NOTE] = "note",
		[CHECK_WARNING] = "warning",
		[CHECK_ERROR] = "error"
	};
	ZkRow		row = {0};

	zklock_row_add_text(&row, item);
	zklock_row_add_text(&row, words[state]);
	zklock_row_add_text(&row, what);
	zklock_row_add_text(&row, remedy);
	zklock_row_put(check->result, &row);
}
