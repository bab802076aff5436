'use strict';
// Migrates with one of the programs of package.json, for clients.pl:
//
//   node migrate.js PROGRAM URL DIRECTORY [SEARCH_PATH]
//
// in DIRECTORY is the migration, for those that want a file; SEARCH_PATH is set by the means
// of the program, or by libpq's "options" where it has none.
const pg = require('pg');
const [program, url, directory, path] = process.argv.slice(2);
const connection = { connectionString: url };
if (path) {
	connection.options = `-c search_path=${path}`;
}

// Knex takes its lock from a table; this is for who wants one over all clusters.
async function withKnex() {
	const db = require('knex')({ client: 'pg', connection: url, searchPath: path ? path.split(',') : undefined });
	const work = {
		up: async (transaction) => {
			await transaction.raw('SELECT pg_advisory_xact_lock(4711)');
			await transaction.schema.createTable('knex_work', (table) => table.text('what'));
		},
		down: async () => {},
	};
	const migrationSource = {
		getMigrations: async () => ['work'],
		getMigrationName: (name) => name,
		getMigration: async () => work,
	};
	try {
		await db.migrate.latest({ migrationSource });
	} finally {
		await db.destroy();
	}
}

async function withKysely() {
	const { Kysely, Migrator, PostgresDialect } = require('kysely');
	const db = new Kysely({ dialect: new PostgresDialect({ pool: new pg.Pool(connection) }) });
	const work = {
		up: (transaction) => transaction.schema.createTable('kysely_work').addColumn('what', 'text').execute(),
	};
	const { error } = await new Migrator({ db, provider: { getMigrations: async () => ({ work }) } }).migrateToLatest();
	await db.destroy();
	if (error) {
		throw error;
	}
}

async function withNodePgMigrate() {
	const { runner } = require('node-pg-migrate');
	const log = () => {};
	await runner({ databaseUrl: connection, dir: directory, direction: 'up', migrationsTable: 'node_pg_migrations', log });
}

async function withPgBoss() {
	const PgBoss = require('pg-boss');
	const boss = new PgBoss({ ...connection, supervise: false });
	let failed;
	boss.on('error', (error) => { failed = error; });
	try {
		await boss.start();
	} finally {
		await boss.stop({ graceful: false, destroy: true });
	}
	if (failed) {
		throw failed;
	}
}

async function withPostgresMigrations() {
	const { migrate } = require('postgres-migrations');
	const client = new pg.Client(connection);
	await client.connect();
	try {
		await migrate({ client }, directory);
	} finally {
		await client.end();
	}
}

const programs = {
	'knex': withKnex,
	'kysely': withKysely,
	'node-pg-migrate': withNodePgMigrate,
	'pg-boss': withPgBoss,
	'postgres-migrations': withPostgresMigrations,
};
programs[program]().then(() => {
	console.log('migrated');
	process.exit(0);
}, (error) => {
	console.log(`${error.code}: ${error.message}`);
	process.exit(1);
});
