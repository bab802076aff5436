/*-------------------------------------------------------------------------
 *
 * check_fact.c
 *	  A fact that zk_check() tells, as a row.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "args.h"
#include "check_private.h"

void
check_put_fact(const Check *check, const char *item, const char *fact,
			   int place, const char *subject, const char *value, int64 number)
{
	ZkRow		row = {0};

	zklock_row_add_text(&row, item);
	zklock_row_add_text(&row, fact);
	zklock_row_add(&row, true, Int32GetDatum(place));
	zklock_row_add_text(&row, subject);
	zklock_row_add_text(&row, value);
	zklock_row_add(&row, true, Int64GetDatum(number));
	zklock_row_put(check->result, &row);
}
