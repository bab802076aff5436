'use strict';
// Migrates with one of the programs of package.json, for clients.pl:
//
//   node migrate.js PROGRAM URL DIRECTORY [SEARCH_PATH]
//
// in DIRECTORY is the migration, for those that want a file; SEARCH_PATH is set by the means
// of the program, or by libpq's "options" where it has none.
const crypto = require('crypto');
const fs = require('fs');
const pg = require('pg');
const { pathToFileURL } = require('url');
const [program, url, directory, path] = process.argv.slice(2);
const connection = { connectionString: url };
if (path) {
	connection.options = `-c search_path=${path}`;
}

// For programs that take a URL alone.
function withOptions(text) {
	return path ? `${text}?options=${encodeURIComponent(`-c search_path=${path}`)}` : text;
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

async function withGraphileMigrate() {
	const migrate = require('graphile-migrate');
	const settings = {
		connectionString: withOptions(url),
		migrationsFolder: `${directory}/graphile`,
		logger: new migrate.Logger(() => () => {}),
	};
	const folder = `${directory}/graphile/committed`;
	const body = 'CREATE TABLE graphile_work (what text);\n';
	const hash = crypto.createHash('sha1').update(body).digest('hex');
	fs.mkdirSync(folder, { recursive: true });
	fs.writeFileSync(`${folder}/000001.sql`, `--! Previous: -\n--! Hash: sha1:${hash}\n\n${body}`);
	await migrate.migrate(settings);
}

async function withSlonik() {
	const { createPool } = require('slonik');
	const { SlonikMigrator } = require('@slonik/migrator');
	// It reads no options in the URL, but pg does in the environment.
	if (path) {
		process.env.PGOPTIONS = connection.options;
	}
	const slonik = createPool(url);
	const migrator = new SlonikMigrator({
		slonik, migrationsPath: `${directory}/slonik`, migrationTableName: 'slonik_migrations', logger: undefined,
	});
	fs.mkdirSync(`${directory}/slonik`, { recursive: true });
	fs.writeFileSync(`${directory}/slonik/1_work.sql`, 'CREATE TABLE slonik_work (what text)');
	try {
		await migrator.up();
	} finally {
		await slonik.end();
	}
}

// For work that is to be done by one process at a time.
async function withAdvisoryLock() {
	const lock = require('advisory-lock').default(withOptions(url))('work');
	await lock.withLock(async () => {
		const client = new pg.Client(connection);
		await client.connect();
		await client.query('CREATE TABLE IF NOT EXISTS advisory_lock_work (what text)');
		await client.end();
	});
}

async function withEmmett() {
	const { getPostgreSQLEventStore } = require('@event-driven-io/emmett-postgresql');
	const store = getPostgreSQLEventStore(withOptions(url), { schema: { autoMigration: 'None' } });
	try {
		await store.schema.migrate();
	} finally {
		await store.close();
	}
}

// What "prisma migrate deploy" runs where it has no engine of its own for the machine: the same
// engine as WebAssembly, over an adapter. Node.js 20 does not load such a module by itself.
async function withPrisma() {
	const { PrismaPg } = require('@prisma/adapter-pg');
	const { bindMigrationAwareSqlAdapterFactory } = require('@prisma/driver-adapter-utils');
	const found = require.resolve('@prisma/schema-engine-wasm/schema_engine_bg');
	const bindings = await import(pathToFileURL(found));
	const file = found.replace(/js$/, 'wasm');
	const { instance } = await WebAssembly.instantiate(fs.readFileSync(file), { './schema_engine_bg.js': bindings });
	bindings.__wbg_set_wasm(instance.exports);
	instance.exports.__wbindgen_start();
	const engine = await bindings.SchemaEngine.new(
		{ datamodels: [['schema.prisma', 'datasource db { provider = "postgresql" }']] }, () => {},
		bindMigrationAwareSqlAdapterFactory(new PrismaPg(connection)));
	await engine.applyMigrations({
		migrationsList: {
			baseDir: directory,
			lockfile: { path: 'migration_lock.toml', content: 'provider = "postgresql"' },
			shadowDbInitScript: '',
			migrationDirectories: [{
				path: '1_work',
				migrationFile: {
					path: 'migration.sql',
					content: { tag: 'ok', value: 'CREATE TABLE prisma_work (what text)' },
				},
			}],
		},
		filters: { externalTables: [], externalEnums: [] },
	});
}

const programs = {
	'advisory-lock': withAdvisoryLock,
	'emmett': withEmmett,
	'graphile-migrate': withGraphileMigrate,
	'knex': withKnex,
	'kysely': withKysely,
	'node-pg-migrate': withNodePgMigrate,
	'pg-boss': withPgBoss,
	'postgres-migrations': withPostgresMigrations,
	'prisma': withPrisma,
	'slonik': withSlonik,
};
programs[program]().then(() => {
	console.log('migrated');
	process.exit(0);
}, (error) => {
	console.log(`${error.code}: ${error.message}`);
	process.exit(1);
});
