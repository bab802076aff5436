'use strict';
// Calls zklock over one of two drivers, for drivers.pl:
//
//   node drivers.js node-postgres|postgres.js URL
//
// Another session holds the lock "held". Prints a line for each call: what it says or its
// SQLSTATE, and the locks that it has taken.
const [driver, url] = process.argv.slice(2);

function connect() {
	if (driver === 'postgres.js') {
		const sql = require('postgres')(url, { max: 1, onnotice: () => {} });
		return { query: (text, values) => sql.unsafe(text, values), end: () => sql.end() };
	}
	const client = new (require('pg').Client)({ connectionString: url });
	const connected = client.connect();
	return {
		query: async (text, values) => { await connected; return (await client.query(text, values)).rows; },
		end: () => client.end(),
	};
}

async function main() {
	const session = connect();
	const names = ['acct-1', 'acct-2'];
	for (const [what, text, values] of [
		['string', 'SELECT zk_try_lock($1, $2) AS got', ['held', '100 ms']],
		['number', 'SELECT zk_try_lock($1, $2) AS got', ['held', 0.1]],
		['cast', 'SELECT zk_try_lock($1, $2::interval) AS got', ['held', '100 ms']],
		['free', 'SELECT zk_try_lock($1, $2) AS got', ['free', '10 s']],
		['list', 'SELECT zk_try_lock($1) AS got', [names]],
		['list of a set', 'SELECT zk_try_lock_set($1) AS got', [names]],
	]) {
		let said;
		try {
			said = (await session.query(text, values))[0].got;
		} catch (error) {
			said = error.code;
		}
		const [{ locks }] = await session.query(
			"SELECT coalesce(string_agg(name, ' ' ORDER BY name), 'none') AS locks FROM zk_session_locks", []);
		console.log(`${what}: ${said}, ${locks}`);
		await session.query('SELECT zk_unlock_all()', []);
	}
	await session.end();
}

main().catch((error) => {
	console.log(error);
	process.exit(1);
});
