'use strict';
// Calls zklock over one of two drivers, for drivers.pl:
//
//   node drivers.js node-postgres|postgres.js|timeout URL [FILE]
//
// timeout: node-postgres with query_timeout, which waits for a line of input before it goes on.
// Another session holds the lock "held". Prints a line for each call: what it says or its
// SQLSTATE, and the locks that it has taken. With FILE it does what calls.py does.
const [driver, url, file] = process.argv.slice(2);

const valueOf = { n: Number, b: (value) => value === 'true', l: (value) => value.split(',') };

// The calls of the file, each with the SQL and the values of its parameters.
function callsOfFile() {
	return require('fs').readFileSync(file, 'utf8').trim().split('\n').map((line) => {
		const [text, ...parameters] = line.split('\t');
		let number = 0;
		return [text.replace(/\?/g, () => `$${++number}`),
			parameters.map((parameter) => (valueOf[parameter[0]] || String)(parameter.slice(2)))];
	});
}

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

const locks = "SELECT coalesce(string_agg(name, ' ' ORDER BY name), 'none') AS locks FROM zk_session_locks";

async function sendFile(session) {
	for (const [text, values] of callsOfFile()) {
		const outcome = await session.query(text, values).then(() => 'done', (error) => error.code);
		console.log(`${outcome}: ${(await session.query(locks, []))[0].locks}`);
		await session.query('SELECT zk_unlock_all()', []);
	}
}

// A call is given up, and its connection goes back to the pool.
async function timeOut() {
	const pool = new (require('pg').Pool)({ connectionString: url, max: 1, query_timeout: 300 });
	const client = await pool.connect();
	try {
		await client.query("SELECT zk_lock('held')");
	} catch (error) {
		console.log(`query_timeout: ${error.message}`);
	} finally {
		client.release();
	}
	console.log('given up');
	process.stdin.once('data', async () => {
		const { rows: [{ locks }] } = await pool.query(
			"SELECT coalesce(string_agg(name, ' '), 'none') AS locks FROM zk_session_locks");
		console.log(`then: ${locks}`);
		await pool.end();
	});
}

async function sendTimeouts(session) {
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
		console.log(`${what}: ${said}, ${(await session.query(locks, []))[0].locks}`);
		await session.query('SELECT zk_unlock_all()', []);
	}
}

async function main() {
	if (driver === 'timeout') {
		return timeOut();
	}
	const session = connect();
	await (file ? sendFile : sendTimeouts)(session);
	await session.end();
}

main().catch((error) => {
	console.log(error);
	process.exit(1);
});
